"""`to_c`, which writes a function as a shared library with a C header."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from toile.engine.annotations import PyTree
from toile.engine.source import here
from toile.exporting.c_plans import CPlan, c_plan
from toile.exporting.c_writer import CText
from toile.exporting.tracing import Model, trace
from toile.targets.llvm import native
from toile.targets.llvm.processors import HOST
from toile.targets.llvm.stop_checks import CHECK
from toile.version import __version__

LIBRARY = ".dylib" if sys.platform == "darwin" else ".so"
MOST_WEIGHTS = 2**31 - 2**24  # bytes: code addresses data with 32 bits
ALIGNMENT = 64

# The processors for which code can be made, by machine, and LLVM's names for them.
_X86 = {"x86-64-v2": "x86-64-v2", "x86-64-v3": "x86-64-v3", "x86-64-v4": "x86-64-v4"}
_ARM = {"armv8-a": "generic"}
X86_FEATURES = ("avx2", "fma", "bmi2", "avx512f", "avx512bw", "avx512vl", "avx512vnni")
PROCESSORS = {"x86_64": _X86, "amd64": _X86, "aarch64": _ARM, "arm64": _ARM}


def to_c(
    fun: Callable[..., Any], *args: PyTree, path: str | os.PathLike[str], params: PyTree = None,
    free_batch: bool = False, processor: str = "",
) -> str:
    """Write a function as a shared library with a C header, which runs without Python.

    The library contains the weights and needs only the C standard library. It is linked by the C
    compiler `cc`, or by the compiler that the environment variable `CC` names. If `path` ends with
    `.o`, no compiler is needed: an object file, a header and a C file are written, which you
    compile and link yourself.

    Args:
        fun: the function. It must not contain callbacks, or operations for which toile has no
            kernel.
        args: example arguments, or `ShapeDtypeStruct` objects with their shapes and dtypes.
        path: the file to write, such as `model.so` (`model.dylib` on macOS). The header `model.h`
            is written beside it. The names of the C functions begin with `model_`.
        params: first argument of `fun`, whose arrays become weights; None if no argument contains
            weights. Arrays that `fun` closes over become weights too.
        free_batch: whether the batch size is an argument of the C function. The batch axis is the
            first axis of the first argument, and of all arguments whose first axis has the same
            size.
        processor: the processors that can run the library: `"native"` for processors with the same
            instructions as this one, or `"x86-64-v2"`, `"x86-64-v3"`, `"x86-64-v4"` or `"armv8-a"`.
            The default is `"x86-64-v3"` on x86-64 and `"armv8-a"` on Arm.

    Returns:
        The text of the header.

    Raises:
        NotImplementedError: toile has no kernel for an operation, or the system is not Linux
            or macOS.
        ValueError: with `free_batch`, the operations differ between batch sizes.
        RuntimeError: there is no C compiler.

    >>> import tempfile, os.path
    >>> layer = toile.linen.Dense(3)
    >>> variables = layer.init(key(0), jnp.ones((1, 4)))
    >>> folder = tempfile.mkdtemp()
    >>> text = toile.export.to_c(
    ...     layer.apply, jnp.ones((1, 4)), path=os.path.join(folder, "dense.o"),
    ...     params=variables, free_batch=True)
    >>> sorted(os.listdir(folder))
    ['dense.c', 'dense.h', 'dense.o']
    >>> "int dense_run(dense_context *context, int64_t n, const float *x" in text
    True
    """
    target = Path(path)
    if target.suffix not in (".so", ".dylib", ".o"):
        raise ValueError(f"to_c: needed a path that ends with {LIBRARY} or .o, got {str(path)!r} "
                         f"(the header is written beside it){here()}")
    if sys.platform not in ("linux", "darwin"):
        raise NotImplementedError(f"to_c: needed Linux or macOS, got {sys.platform} (run it "
                                  f"there){here()}")
    compiler = None if target.suffix == ".o" else _compiler()
    cpu = _cpu(processor)
    model = trace(fun, args, params, free_batch, target.stem)
    with native.machine(cpu) as engine:
        return _Library(model, target, engine, compiler).write()


class _Library:
    """A library that is being written."""

    def __init__(self, model: Model, target: Path, engine: Any, compiler: str | None):
        self.model, self.target, self.engine, self.compiler = model, target, engine, compiler
        self.name = model.name
        self.plan: CPlan = c_plan(model.program, model.free_batch)

    def write(self) -> str:
        """Write the files, and return the text of the header."""
        places, arrays = self._weights()
        linked = self.compiler is not None
        own = f"{self.name}_" if not linked else ""
        texts = {f"{own}{native.name_of(text)}": text for text in self.plan.kernels}
        text = CText(self.name, self.model, self.plan, places, [*texts], self._features(),
                     __version__)
        header, source = text.header(), text.source(f"{own}{CHECK}")
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            with (folder / "weights").open("wb") as file:
                _write_arrays(file, arrays)
            weights = self._data(folder / "weights")
            if self.compiler is None:
                renamed = {name: text.replace(f"@{CHECK}(", f"@{own}{CHECK}(")
                           for name, text in texts.items()}
                self.target.write_bytes(self.engine.combined(renamed, weights))
                self.target.with_suffix(".c").write_text(source, encoding="utf-8")
            else:
                objects = self.engine.objects(texts)
                objects["weights"] = self.engine.combined({}, weights)
                for name, data in objects.items():
                    (folder / f"{name}.o").write_bytes(data)
                (folder / f"{self.name}.c").write_text(source, encoding="utf-8")
                (folder / f"{self.name}.h").write_text(header, encoding="utf-8")
                self._link(folder, [f"{name}.o" for name in objects], text.functions)
        self.target.with_suffix(".h").write_text(header, encoding="utf-8")
        return header

    def _features(self) -> list[str]:
        """The instructions of x86 processors that a context tests for."""
        return [x for x in X86_FEATURES if self.engine.has.get(x)]

    def _weights(self) -> tuple[list[tuple[int, int]], list[np.ndarray]]:
        """Slots and places of the weights and constants that kernels read, and their values."""
        values = [*enumerate(array for _, array in self.model.weights), *self.plan.constants]
        places, arrays, total = [], [], 0
        for slot, array in values:
            if slot in self.plan.used:
                places.append((slot, total))
                arrays.append(array)
                total += -(-max(array.nbytes, 1) // ALIGNMENT) * ALIGNMENT
        if total > MOST_WEIGHTS:
            raise ValueError(f"to_c: needed weights of at most {MOST_WEIGHTS} bytes, got {total} "
                             f"(pass some of them as arguments){here()}")
        return places, arrays

    def _data(self, weights: Path) -> str:
        """LLVM text that includes a file with the weights as data."""
        symbol, section, hidden = f"{self.name}_weights", ".section .rodata", ".hidden"
        if sys.platform == "darwin":
            symbol, section, hidden = f"_{symbol}", ".section __TEXT,__const", ".private_extern"
        file = str(weights).replace("\\", "\\\\").replace('"', '\\"')
        lines = [section, f".balign {ALIGNMENT}", f".globl {symbol}", f"{hidden} {symbol}",
                 f"{symbol}:", f'.incbin "{file}"', ".byte 0"]
        return "".join(f'module asm "{_escaped(line)}"\n' for line in lines)

    def _link(self, folder: Path, objects: Sequence[str], functions: Sequence[str]) -> None:
        """Compile the C file and link the library, which exports these functions."""
        assert self.compiler is not None
        out = f"{self.name}{self.target.suffix}"
        (folder / "objects").write_text("\n".join(objects))
        if sys.platform == "darwin":
            (folder / "exported").write_text("".join(f"_{name}\n" for name in functions))
            options = ["-Wl,-exported_symbols_list,exported"]
        else:
            names = " ".join(f"{name};" for name in functions)
            (folder / "exported").write_text(f"{{ global: {names} local: *; }};\n")
            options = ["-Wl,--version-script=exported", "-Wl,-z,defs", "-Wl,-z,noexecstack"]
        command = [*self.compiler.split(), "-std=gnu11", "-O2", "-fPIC", "-shared", "-pthread",
                   *options, "-o", out, f"{self.name}.c", "@objects", "-lm"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(
                f"to_c: needed a C compiler that links the library, got the exit status "
                f"{done.returncode} of {' '.join(command)} ({done.stderr.strip()}){here()}")
        shutil.copyfile(folder / out, self.target)
        shutil.copymode(folder / out, self.target)


def _escaped(text: str) -> str:
    """A text inside the quotes of a string of LLVM."""
    return text.replace("\\", "\\5C").replace('"', "\\22")


def _write_arrays(file: Any, arrays: Sequence[np.ndarray]) -> None:
    for array in arrays:
        data = np.ascontiguousarray(array).tobytes()
        file.write(data + bytes(-len(data) % ALIGNMENT or (ALIGNMENT if not data else 0)))


def _compiler() -> str:
    """The C compiler."""
    found = os.environ.get("CC") or "cc"
    if shutil.which(found.split()[0]) is None:
        raise RuntimeError(
            f"to_c: needed a C compiler to link the library, got no program {found!r} (install "
            f"one, name one in the environment variable CC, or export to a path that ends with .o "
            f"and link it elsewhere){here()}")
    return found


def _cpu(processor: str) -> str:
    """LLVM's name of a processor, or HOST for this machine's."""
    known = PROCESSORS.get(platform.machine().lower(), {})
    if processor == HOST or not (processor or known):
        return HOST
    chosen = processor or ("x86-64-v3" if "x86-64-v3" in known else next(iter(known)))
    if chosen not in known:
        raise ValueError(f"to_c: needed a processor among {', '.join([HOST, *known])}, got "
                         f"{processor!r} (code is made for the machine that exports){here()}")
    return known[chosen]
