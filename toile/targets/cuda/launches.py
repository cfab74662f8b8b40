"""The result of lowering an equation for a GPU: launches and library calls, in stages.

A kernel's text defines `__device__ void body(const Word* w, unsigned block)`, the work of one block
of `THREADS` threads (a `#define` of the text); `w` are its arguments, 64-bit words of which a `Ref`
becomes a device pointer. Launches of one stage with equal text become one launch over all their
blocks. A `Call` issues work on a stream by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from toile.compiler.ir.operands import Operand, Ref

Pointers = Callable[[Ref], int]
THREADS = 256  # of a block, unless a kernel needs another number


def blocks_of(total: int, each: int) -> int:
    """How many blocks are needed for `total` units, `each` per block."""
    return -(-total // each)


@dataclass(frozen=True)
class Launch:
    """A kernel over `blocks` blocks."""

    text: str
    args: tuple[int | Ref, ...]
    blocks: int
    threads: int
    shared: int = 0  # bytes of dynamic shared memory
    note: str = field(default="", compare=False)  # what `explain` calls it
    reads: frozenset[Any] | None = field(default=None, compare=False)  # buffers, if known
    nbytes: int = field(default=0, compare=False)  # bytes that it must move, if known
    # Memory that it reads before earlier kernels have finished (see `text.READY`).
    early: Ref | None = field(default=None, compare=False)
    origin: Any = field(default=None, compare=False, repr=False)  # the group that it computes

    @property
    def extent(self) -> int:
        return self.blocks

    @classmethod
    def over(
        cls, units: int, text: str, args: Iterable[int | Ref], note: str,
        per_block: int = THREADS, nbytes: int = 0,
    ) -> Launch:
        """A launch with as many blocks as some units need."""
        return cls(text, tuple(args), blocks_of(units, per_block), THREADS, 0, note, nbytes=nbytes)


class Call:
    """A library call: a matrix product, a convolution, an attention."""

    note: str
    reads: frozenset[Any]  # buffers
    writes: frozenset[Any]
    capturable: bool = True  # whether it can be captured into a graph
    nodes: int = 1  # about how many nodes of a graph it makes
    # A number for what the calls of a library share, such as a workspace: calls with equal numbers
    # do not run at the same time.
    shared: int | None = None

    @property
    def is_small(self) -> bool:
        """Whether it needs only one of the several parts of what is shared."""
        return False

    def use_part(self, part: int) -> None:
        """Let the next call that is small use this part."""

    def may_overwrite(self, read: Any, written: Any) -> bool:
        """Whether it can write one buffer in the memory of another, which it reads."""
        return False

    def prepare(self) -> None:
        """Create what `run` needs: handles, plans. Not called during a capture."""

    def run(self, pointer: Pointers, stream: int) -> None:
        """Issue the work; must not synchronize or allocate."""


class Planner(Protocol):
    """The methods of a plan that lowerings call."""

    without_libraries: bool  # whether the Program can run without cuBLAS and cuDNN

    def scratch(self, nbytes: int) -> Ref:
        """Memory that no other stage of the Program changes while this equation runs."""

    def stage(self, *launches: Launch) -> None:
        """Add a stage after the existing ones."""

    def call(self, call: Call) -> None:
        """Add a library call after the existing stages."""

    def contiguous(self, x: Operand) -> Operand:
        """`x`, or a copy of it (made by a stage) in row-major order without gaps."""

    def never_written(self, x: Ref) -> bool:
        """Whether nothing writes this memory while the Program runs: arguments and constants."""

    def before_loops(self, x: Ref, key: Any, make: Callable[[Any], Ref]) -> Ref | None:
        """What `make(plan)` derives from x before a loop that does not change x; None: no loop."""
