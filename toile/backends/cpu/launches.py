"""What lowering an equation gives: launches of kernels on ranges of work, in stages.

The launches of one stage do not depend on each other: their chunks run in parallel, in any order.
Stages follow each other. Arguments are 64-bit integers; a `Ref` fills two entries, the slot of the
buffer table and an offset in bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from toile.compiler.operands import Operand, Ref


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
