"""How work is divided into chunks, by a rough estimate of the cost of a loop nest.

Sizes depend only on the nest, its extents and the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from toile.compiler.ir.extents import larger, smaller
from toile.compiler.ir.loop_nests import Apply, LoopNest

TARGET = 40_000  # nanoseconds that a chunk should take: many more than claiming one takes
MOST_PARTS = 64
ROWS_TOGETHER = 128  # rows that a part of a sum should add: with more, rounding errors accumulate


def cost(nest: LoopNest) -> float:
    """A rough estimate of the nanoseconds that one element takes."""
    total = 0.3 * (len(nest.loads) + len(nest.stores))
    for node in nest.nodes:
        if isinstance(node, Apply):
            total += 30.0 if node.op.iterates else 1.5 if node.op.costly else 0.1
    return max(total, 0.2)


def grain_of_map(nest: LoopNest) -> int:
    """Elements per chunk: a multiple of 1024, which suits vector loops."""
    return max(1024, int(TARGET / cost(nest)) // 1024 * 1024)


def grain_of_rows(nest: LoopNest, row: int) -> int:
    """Rows per chunk."""
    return max(1, int(TARGET / (row * cost(nest) + 5)))


def rows_with_totals(nest: LoopNest, rows: int, row: int, threads: int) -> int:
    """Rows per chunk, at most ROWS_TOGETHER, if each chunk has totals that are added up later."""
    chunks = max(16, 4 * threads)
    return smaller(ROWS_TOGETHER, larger(-(-rows // chunks), grain_of_rows(nest, row)))


def split_row(extents: Sequence[int]) -> tuple[int, int]:
    """How many parts a sum is split into, and how much of its first axis each takes."""
    wanted = larger(1, smaller(MOST_PARTS, prod(extents) // 32768))
    step = -(-extents[0] // wanted)
    return -(-extents[0] // step), step


def split_columns(
    rows: int, summed: Sequence[int], inner: Sequence[int]
) -> tuple[int, int, int, int]:
    """Number and size of parts of the first summed axis, and of blocks of the innermost axis."""
    reduced = prod(summed)
    work = rows * reduced * prod(inner)
    width = inner[-1]
    if len(inner) == 1:
        width = smaller(width, 1024)
        if rows * -(-inner[-1] // width) < 8 and work > 65536 and inner[-1] >= 128:
            width = larger(64, -(-inner[-1] // 8 // 16) * 16)
    blocks = -(-inner[-1] // width)
    units = rows * blocks
    wanted = 1 if units >= 8 else larger(1, smaller(32, work // 65536 // units))
    wanted = larger(wanted, smaller(32, reduced // ROWS_TOGETHER))
    step = -(-summed[0] // wanted)
    return -(-summed[0] // step), step, blocks, width
