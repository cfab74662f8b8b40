"""Fourier transforms by cuFFT: `Layout` describes one, `Transform` is its call.

A plan of the library belongs to a device and a description; it is made when a Program is planned,
without memory of its own: its workspace is part of the Program's temporaries.
"""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass, field
from typing import Any

from toile.compiler.ir.operands import Ref
from toile.targets.cuda import libraries
from toile.targets.cuda.engines import Engines, warn_once
from toile.targets.cuda.launches import Call, Pointers

FORWARD, INVERSE = -1, 1
# cufftType by the kind of transform and the name of the complex dtype, and the function that runs
# such a plan.
KINDS = {
    ("c2c", "complex64"): (0x29, "cufftExecC2C"), ("r2c", "complex64"): (0x2A, "cufftExecR2C"),
    ("c2r", "complex64"): (0x2C, "cufftExecC2R"), ("c2c", "complex128"): (0x69, "cufftExecZ2Z"),
    ("r2c", "complex128"): (0x6A, "cufftExecD2Z"), ("c2r", "complex128"): (0x6C, "cufftExecZ2D"),
}  # fmt: skip

_P, _I, _L = ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong
PROTOTYPES: dict[str, list[Any]] = {
    "cufftCreate": [_P],
    "cufftDestroy": [_I],
    "cufftSetAutoAllocation": [_I, _I],
    "cufftMakePlanMany64": [_I, _I, _P, _P, _L, _L, _P, _L, _L, _I, _L, _P],
    "cufftSetStream": [_I, _P],
    "cufftSetWorkArea": [_I, _P],
    **{name: [_I, _P, _P, *([_I] if kind == "c2c" else [])]
       for (kind, _), (_, name) in KINDS.items()},
}


@dataclass(frozen=True)
class Side:
    """Where the numbers of a batch of signals are, in elements: number (i, j) of signal b is at
    `b * batch + (i * extents[1] + j) * step`."""

    extents: tuple[int, ...]
    step: int
    batch: int


@dataclass(frozen=True)
class Layout:
    """A batch of transforms; `kind` is c2c, r2c or c2r, and `dtype` that of the complex side."""

    kind: str
    dtype: str
    lengths: tuple[int, ...]
    source: Side
    target: Side
    count: int


def _status(code: int) -> str:
    names = {1: "an invalid plan", 2: "out of memory", 4: "an invalid value",
             5: "an internal error", 6: "execution failed", 7: "not initialized",
             8: "an invalid size", 16: "not supported"}  # fmt: skip
    return f"{names.get(code, 'unknown')} ({code})"


class LibraryPlan:
    """A plan of the library."""

    def __init__(self, functions: Any, layout: Layout):
        self.functions, self.lock = functions, threading.Lock()
        made, nbytes = ctypes.c_int(), ctypes.c_size_t()
        functions.cufftCreate(ctypes.addressof(made))
        self.number = made.value
        functions.cufftSetAutoAllocation(self.number, 0)
        code, self.function = KINDS[layout.kind, layout.dtype]

        def array(values: tuple[int, ...]) -> Any:
            return (ctypes.c_longlong * len(values))(*values)

        lengths, *extents = map(array, (layout.lengths, layout.source.extents,
                                        layout.target.extents))
        try:
            functions.cufftMakePlanMany64(
                self.number, len(layout.lengths), lengths,
                extents[0], layout.source.step, layout.source.batch,
                extents[1], layout.target.step, layout.target.batch,
                code, layout.count, ctypes.addressof(nbytes))  # fmt: skip
        except libraries.LibraryError:
            functions.cufftDestroy(self.number)
            raise
        self.workspace = nbytes.value
        self.places: tuple[int, int] | None = None

    def execute(self, source: int, target: int, direction: int, room: int, stream: int) -> None:
        """Issue the transforms."""
        with self.lock:
            if self.places != (stream, room):
                self.functions.cufftSetStream(self.number, stream)
                if self.workspace:
                    self.functions.cufftSetWorkArea(self.number, room)
                self.places = stream, room
            directed = (direction,) if self.function.endswith(("C2C", "Z2Z")) else ()
            getattr(self.functions, self.function)(self.number, source, target, *directed)


class Engine:
    """The library on one device, and the plans made there."""

    def __init__(self, functions: Any):
        self.functions, self.lock = functions, threading.Lock()
        self.plans: dict[Layout, LibraryPlan] = {}

    def plan(self, layout: Layout) -> LibraryPlan:
        """The plan of transforms; it may have to be made, so do not call this during a capture."""
        with self.lock:
            found = self.plans.get(layout)
            if found is None:
                found = self.plans[layout] = LibraryPlan(self.functions, layout)
        return found


_INSTEAD = "Fourier transforms are computed on the host, which is much slower"


def make() -> Engine | None:
    """The engine of the current device; None if cuFFT is not installed."""
    try:
        loaded = libraries.load("cufft")
    except libraries.LibraryError as error:
        warn_once(str(error), _INSTEAD)
        return None
    return Engine(libraries.Functions(loaded, PROTOTYPES, _status))


ENGINES = Engines(make)
engine, use = ENGINES.current, ENGINES.use


@dataclass(frozen=True)
class Transform(Call):
    """Transforms of one array into another; a c2r transform may overwrite its source."""

    layout: Layout
    direction: int
    source: Ref
    target: Ref
    workspace: Ref | None
    note: str = field(default="cuFFT", compare=False)
    shared = 2  # the plans

    @property
    def reads(self) -> frozenset[Any]:
        return frozenset((self.source.buffer, *self._room()))

    @property
    def writes(self) -> frozenset[Any]:
        changed = (self.source.buffer,) if self.layout.kind == "c2r" else ()
        return frozenset((self.target.buffer, *changed, *self._room()))

    def _room(self) -> tuple[Any, ...]:
        return () if self.workspace is None else (self.workspace.buffer,)

    @property
    def room(self) -> int:
        """The bytes of workspace that it needs."""
        return engine().plan(self.layout).workspace

    def prepare(self) -> None:
        """Make the plan; must not be called during a capture."""
        engine().plan(self.layout)

    def run(self, pointer: Pointers, stream: int) -> None:
        """Issue the transforms."""
        self.issue(engine(), pointer, stream)

    def issue(self, on: Any, pointer: Pointers, stream: int) -> None:
        """Issue the transforms with an engine."""
        room = 0 if self.workspace is None else pointer(self.workspace)
        on.plan(self.layout).execute(
            pointer(self.source), pointer(self.target), self.direction, room, stream)
