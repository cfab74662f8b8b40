"""Calls of exported C libraries through ctypes, with NumPy arrays."""

import ctypes
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

HAS_COMPILER = shutil.which("cc") is not None
SUFFIX = ".dylib" if sys.platform == "darwin" else ".so"
REASON = "to_c links libraries with the C compiler cc, which is not installed"


class Library:
    """A library, with one context."""

    def __init__(self, path: Path, free: bool, threads: int = 2):
        self.name, self.free = path.stem, free
        self.library = ctypes.CDLL(str(path))
        self.context = ctypes.c_void_p()
        code = self.function("create")(ctypes.byref(self.context), threads)
        assert code == 0, self.text(code)

    def function(self, name: str, result: Any = ctypes.c_int) -> Any:
        found = getattr(self.library, f"{self.name}_{name}")
        found.restype = result
        return found

    def text(self, code: int) -> str:
        return self.function("error_text", ctypes.c_char_p)(code).decode()

    def code(self, batch: int, arrays: Sequence[Any]) -> int:
        """Run with pointers and sizes; `arrays` are the arguments and then the results."""
        given: list[Any] = [self.context]
        if self.free:
            given.append(ctypes.c_int64(batch))
        for a in arrays:
            given += [ctypes.c_void_p(a.ctypes.data), ctypes.c_int64(a.size)]
        return self.function("run")(*given)

    def __call__(self, args: Sequence[np.ndarray], like: Sequence[np.ndarray], batch: int = 0
                 ) -> list[np.ndarray]:
        """The results, which have the shapes and dtypes of `like`."""
        args = [np.ascontiguousarray(a) for a in args]
        outs = [np.full(w.shape, 7, w.dtype) for w in like]
        code = self.code(batch or (args[0].shape[0] if args and args[0].ndim else 1),
                         [*args, *outs])
        assert code == 0, self.text(code)
        return outs

    def close(self) -> None:
        self.function("destroy", None)(self.context)
        self.context = ctypes.c_void_p()
