"""What lowering an equation gives: launches of kernels on ranges of work, in stages.

The launches of one stage do not depend on each other: their chunks run in parallel, in any order.
Stages follow each other. Arguments are 64-bit integers; a `Ref` fills two entries, the slot of the
buffer table and an offset in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

from toile.compiler.ir.operands import Operand, Ref
from toile.engine.records import dataclass


class Span(NamedTuple):
    """The bytes of a buffer that item n of a launch touches: [low + n step, high + n step)."""

    low: int
    high: int
    step: int


@dataclass(frozen=True, eq=False)
class Rows:
    """How a launch goes through its buffers: items (rows, mostly) in order, some to each unit.

    `spans` has the buffers of which each item touches bytes of its own; any others are read by all
    units. Products and convolutions, which lead chains, may be cut into units of other sizes."""

    spans: Mapping[Any, Span]
    writes: frozenset[Any]
    per_unit: Fraction = Fraction(1)  # items of one unit
    leads: bool = False
    items: int = 0  # of those that lead: all of them, the last unit may have fewer
    cut: Callable[[int], Launch] | None = None  # the launch with so many items in each unit ...
    multiple: int = 1  # ... of which there may be multiples of this number,
    least: int = 1  # no fewer without loss
    most: int = 1 << 62


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
    origin: Any = field(default=None, compare=False, repr=False)  # the group that it computes
    # How it goes by rows, if it does; of loop nests found when asked for, mostly it is not.
    rows: Rows | Callable[[], Rows] | None = field(default=None, compare=False, repr=False)
    apart: str = field(default="", compare=False, repr=False)  # why a product does not

    @property
    def chunks(self) -> int:
        return -(-self.extent // self.grain)


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
