"""What lowering an equation gives: launches of kernels on ranges of work, in stages.

The launches of one stage do not depend on each other: their chunks run in parallel, in any order.
Stages follow each other. Arguments are 64-bit integers; a `Ref` fills two entries, the slot of the
buffer table and an offset in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol


class Scratch:
    """A temporary buffer that only the stages of one equation use."""

    __slots__ = ("nbytes",)

    def __init__(self, nbytes: int):
        self.nbytes = nbytes


class Ref(NamedTuple):
    """Where bytes begin: in the buffer of a variable, a constant or a Scratch."""

    buffer: Any
    offset: int = 0

    def at(self, nbytes: int) -> Ref:
        """The place some bytes further."""
        return Ref(self.buffer, self.offset + nbytes)


class Operand(NamedTuple):
    """An array in memory; strides count elements and may be 0 or negative."""

    ref: Ref
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any

    @property
    def size(self) -> int:
        n = 1
        for s in self.shape:
            n *= s
        return n

    @property
    def contiguous(self) -> bool:
        """Whether elements lie in row-major order without gaps."""
        expected = 1
        for n, s in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if n != 1 and s != expected:
                return self.size == 0
            expected *= n
        return True


@dataclass(frozen=True)
class Launch:
    """A kernel over [0, extent), in chunks of at most `grain` units; each chunk is one call."""

    text: str
    args: tuple[int | Ref, ...]
    extent: int
    grain: int
    note: str = field(default="", compare=False)  # what `explain` calls it
    reads: frozenset[Any] | None = field(default=None, compare=False)  # buffers, where known
    cost: float | None = field(default=None, compare=False)  # nanoseconds, where known

    @property
    def chunks(self) -> int:
        return -(-self.extent // self.grain)
    origin: Any = field(default=None, compare=False, repr=False)  # the group that it computes


class Planner(Protocol):
    """What a lowering may ask of the plan that it adds to."""

    threads: int
    also: set[str]  # kernels that other extents of the same Program would need

    def scratch(self, nbytes: int) -> Ref:
        """Room that no other stage of the Program changes while this equation runs."""

    def stage(self, *launches: Launch) -> None:
        """Add a stage after those there are."""

    def contiguous(self, x: Operand) -> Operand:
        """`x`, or a copy of it (made by a stage) in row-major order without gaps."""

    def before_loops(self, x: Ref, key: Any, make: Callable[[Any], Ref]) -> Ref | None:
        """What `make(plan)` derives from x before a loop that does not change x; None: no loop."""


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides, in elements, of a row-major array without gaps."""
    out, step = [], 1
    for n in reversed(shape):
        out.append(step)
        step *= n
    return tuple(reversed(out))
