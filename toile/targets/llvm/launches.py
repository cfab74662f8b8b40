"""The result of lowering an equation for the CPU: launches of kernels on ranges, in stages.

The launches of one stage do not depend on each other: their chunks run in parallel, in any order.
Stages run one after the other. Arguments are 64-bit integers; a `Ref` takes two of them, a slot of
the buffer table and an offset in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

import numpy as np

from toile.compiler.ir.operands import Operand, Ref
from toile.engine.records import dataclass


class Span(NamedTuple):
    """The bytes of a buffer that item n of a launch touches: [low + n step, high + n step)."""

    low: int
    high: int
    step: int


@dataclass(frozen=True, eq=False)
class Rows:
    """How a launch processes its buffers: items (usually rows) in order, `per_unit` in each.

    `spans` has the buffers of which each item touches bytes of its own; all units may read the
    others. Products and convolutions, which lead chains, may allow units of other sizes (`cut`)."""

    spans: Mapping[Any, Span]
    writes: frozenset[Any]
    per_unit: Fraction = Fraction(1)  # items per unit
    leads: bool = False
    items: int = 0  # in all, if the last unit may have fewer; 0: all units are full
    cut: Callable[[int], Launch] | None = None  # the launch with another number of items per unit:
    multiple: int = 1  # a multiple of this,
    least: int = 1  # at least this (fewer would be slower)
    most: int = 1 << 62  # and at most this


@dataclass(frozen=True)
class Launch:
    """A kernel over [0, extent), in chunks of at most `grain` units; each chunk is one call."""

    text: str
    args: tuple[int | Ref, ...]
    extent: int
    grain: int
    note: str = field(default="", compare=False)  # what `explain` calls it
    reads: frozenset[Any] | None = field(default=None, compare=False)  # buffers, if known
    cost: float | None = field(default=None, compare=False)  # nanoseconds, if known
    origin: Any = field(default=None, compare=False, repr=False)  # the group that it computes
    # How it processes rows, if it does; for loop nests a function, since this is rarely needed.
    rows: Rows | Callable[[], Rows] | None = field(default=None, compare=False, repr=False)
    apart: str = field(default="", compare=False, repr=False)  # why a product has no `rows`

    @property
    def chunks(self) -> int:
        return -(-self.extent // self.grain)


class Planner(Protocol):
    """The parts of a plan that lowerings use."""

    threads: int
    also: set[str]  # kernels that other extents of the same Program would need

    def scratch(self, nbytes: int) -> Ref:
        """Memory that no other stage of the Program changes while this equation runs."""

    def stage(self, *launches: Launch) -> None:
        """Add a stage after the existing ones."""

    def table(self, value: np.ndarray) -> Ref:
        """The address of numbers that a kernel needs besides its operands."""

    def contiguous(self, x: Operand) -> Operand:
        """`x`, or a copy of it (made by a stage) in row-major order without gaps."""

    def is_fixed(self, x: Ref, turns: int) -> bool:
        """Whether this is the body of a loop with at least `turns` turns that does not change x."""

    def before_loops(self, x: Ref, key: Any, make: Callable[[Any], Ref]) -> Ref | None:
        """What `make(plan)` derives from x before a loop that does not change x; None: no loop."""
