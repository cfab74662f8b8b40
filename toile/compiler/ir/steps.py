"""A finished plan: its steps in order, and the buffers that they use.

This module holds what a device must know to run a plan, and no more: a plan that was read from
disk runs without the modules that make plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import gcd
from typing import Any, NamedTuple

import numpy as np

from toile.compiler.ir.operands import Operand, Ref, Temporary, next_serial
from toile.engine.program import Equation, Program, Var


class Region:
    """Launches that may run at the same time."""

    __slots__ = ("launches", "reads", "writes")

    def __init__(self, launches: list[Any], reads: set[Any], writes: set[Any]):
        self.launches, self.reads, self.writes = launches, reads, writes

    @property
    def kernels(self) -> list[Any]:
        """The launches one by one, including those that a backend combines into one."""
        return self.launches


class Part(NamedTuple):
    """The part of a buffer that holds one variable; the parts of a buffer do not overlap."""

    buffer: Any
    var: Var


def whole_buffer(x: Any) -> Any:
    """The buffer that `x` is a part of; `x` itself if it is a whole buffer."""
    return x.buffer if isinstance(x, Part) else x


class EagerStep:
    """An equation computed by NumPy."""

    __slots__ = ("equation", "ins", "outs", "reads", "writes")

    def __init__(self, equation: Equation, ins: list[Operand], outs: list[Operand]):
        self.equation, self.ins, self.outs = equation, ins, outs
        self.reads = {x.ref.buffer for x in ins}
        self.writes = {x.ref.buffer for x in outs}


class Constant:
    """A buffer whose contents are known when the plan is made."""

    __slots__ = ("array",)

    def __init__(self, array: np.ndarray):
        self.array = array


class Table(Constant):
    """Numbers that a kernel needs besides its operands."""

    __slots__ = ()


class Output:
    """The buffer of a result of the Program, a new one in each call."""

    __slots__ = ("index", "aval")

    def __init__(self, index: int, aval: Any):
        self.index, self.aval = index, aval


class Moving:
    """A pointer set by a loop: the current slice of an array, or one of a carry's two buffers.

    It is always a multiple of `alignment` bytes."""

    __slots__ = ("alignment", "serial")

    def __init__(self, alignment: int = 1):
        self.alignment = alignment
        self.serial = next_serial()


ALIGNMENT = 64  # bytes, for buffers: the size of a cache line and of the widest vector


def alignment(ref: Ref) -> int:
    """The largest number of bytes, up to `ALIGNMENT`, that divides the address of a place.

    If the buffer is a moving pointer, such as the slice of a loop, its own alignment counts."""
    given = ref.buffer.alignment if isinstance(ref.buffer, Moving) else ALIGNMENT
    return gcd(given, ref.offset)


class LoopStep:
    """What all loop steps share: where moving pointers start, and which are exchanged."""

    origin: Any  # the group that the step computes

    def __init__(self) -> None:
        self.starts: list[tuple[Moving, Ref]] = []
        self.swaps: list[tuple[Moving, Moving]] = []
        self.reads: set[Any] = set()
        self.writes: set[Any] = set()

    def touch(self, children: Sequence[MadePlan]) -> None:
        """Record which buffers of the surrounding plan are in use while the step runs."""
        for child in children:
            self.reads |= child.outside
            for step in child.steps:
                touched = {whole_buffer(b) for b in step.reads | step.writes}
                self.reads |= touched & child.outside


class ScanStep(LoopStep):
    """A loop of known length."""

    def __init__(self, trips: int):
        super().__init__()
        self.trips = trips
        self.slices: list[tuple[Moving, Ref, int]] = []
        self.body: MadePlan

    @property
    def children(self) -> list[MadePlan]:
        return [self.body]


class WhileStep(LoopStep):
    """A loop that runs while its condition holds."""

    def __init__(self, predicate: Ref):
        super().__init__()
        self.predicate = predicate
        self.condition: MadePlan
        self.body: MadePlan

    @property
    def children(self) -> list[MadePlan]:
        return [self.condition, self.body]


class SwitchStep(LoopStep):
    """A choice of one of several bodies."""

    def __init__(self, index: Moving):
        super().__init__()
        self.index = index
        self.children: list[MadePlan] = []


class MadePlan:
    """Steps, and the buffers of constants, of results, and of whatever comes from outside."""

    program: Program
    steps: list[Any]
    constants: dict[Any, Constant]
    outputs: list[Ref]
    outside: set[Any]

    def temporaries_of(self, step: Any) -> list[Temporary]:
        """The plan's own temporaries that a step touches, in order of creation."""
        touched = {whole_buffer(b) for b in step.reads | step.writes}
        return sorted(b for b in touched if isinstance(b, Temporary) and b not in self.outside)

    def reusing(self) -> Callable[[int, Any, Any], bool] | None:
        """A function that says whether a step may write a buffer in the memory of another one of
        the same size, which it reads; None if no step may."""
        return None

    def all_steps(self) -> Iterator[Any]:
        """The steps, including those of loop bodies."""
        for step in self.steps:
            yield step
            for child in getattr(step, "children", ()):
                yield from child.all_steps()
