"""Kernels of CUDA C++ that a user has written: `UserKernel` is the launch of one.

A kernel is compiled by NVRTC and loaded when a Program is prepared, once for each device. Machine
code is kept on disk like that of toile's own kernels.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from toile.compiler.ir.operands import Ref
from toile.engine.source import here
from toile.targets.cuda import modules
from toile.targets.cuda.driver import CudaError, driver
from toile.targets.cuda.engines import Engines
from toile.targets.cuda.launches import Call, Pointers

Sizes = tuple[int, ...]
_ALWAYS_ALLOWED = 48 << 10  # bytes of dynamic shared memory


class Engine:
    """The user's kernels on one device."""

    def __init__(self, architecture: str):
        self.architecture, self.lock = architecture, threading.Lock()
        self.functions: dict[tuple[str, str], int] = {}

    def function(self, source: str, name: str) -> int:
        """A kernel as a function of the driver; do not call this first during a capture."""
        with self.lock:
            if (source, name) not in self.functions:
                self.functions[source, name] = self._loaded(source, name)
            return self.functions[source, name]

    def _loaded(self, source: str, name: str) -> int:
        code = modules.users_code(source, self.architecture)
        try:
            return driver().load(code, name)
        except CudaError as error:
            raise RuntimeError(
                f"{name}: needed a kernel of this name in the compiled source, got {error} "
                f'(declare it extern "C" __global__){here()}'
            ) from None

    def launch(self, kernel: UserKernel, words: Sequence[int], stream: int) -> None:
        """Launch a kernel; each argument is in a word of its own."""
        function = self.function(kernel.source, kernel.name)
        if kernel.shared_bytes > _ALWAYS_ALLOWED:
            driver().allow_shared(function, kernel.shared_bytes)
        cells = (ctypes.c_int64 * max(1, len(words)))(*words)
        start = ctypes.addressof(cells)
        arguments = (ctypes.c_void_p * max(1, len(words)))(
            *(start + 8 * i for i in range(len(words))))
        driver().launch_with(function, (*kernel.grid, *kernel.block), kernel.shared_bytes, stream,
                             arguments)


def make() -> Engine:
    """The engine of the current device."""
    import cupy

    return Engine(f"sm_{cupy.cuda.Device().compute_capability}")


ENGINES = Engines(make)
engine, use = ENGINES.current, ENGINES.use


@dataclass(frozen=True)
class UserKernel(Call):
    """Launches of a kernel, one for each example of a batch.

    The first `given` of the arrays (`places`) are only read; `steps` are the bytes from one example
    to the next in each array."""

    source: str
    name: str
    grid: Sizes
    block: Sizes
    shared_bytes: int
    places: tuple[Ref, ...]
    steps: Sizes
    given: int
    numbers: Sizes  # the bits of the other arguments
    count: int = 1
    note: str = field(default="a kernel of the user", compare=False)

    @property
    def nodes(self) -> int:
        return self.count

    @property
    def reads(self) -> frozenset[Any]:
        return frozenset(r.buffer for r in self.places)

    @property
    def writes(self) -> frozenset[Any]:
        return frozenset(r.buffer for r in self.places[self.given :])

    def prepare(self) -> None:
        """Compile and load the kernel; must not be called during a capture."""
        engine().function(self.source, self.name)

    def run(self, pointer: Pointers, stream: int) -> None:
        """Launch the kernel for each example."""
        on, places = engine(), [pointer(r) for r in self.places]
        for i in range(self.count):
            at = [p + i * step for p, step in zip(places, self.steps, strict=True)]
            on.launch(self, (*at, *self.numbers), stream)
