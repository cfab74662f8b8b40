"""How work is cut: sizes of chunks by a rough cost of a loop nest. They depend on extents only."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from toile.compiler.ir.loop_nests import Apply, LoopNest

TARGET = 40_000  # nanoseconds of one chunk: much more than claiming it costs
MOST_PARTS = 64
ROWS_TOGETHER = 128  # of sums over rows: more would add up their rounding errors


def cost(nest: LoopNest) -> float:
    """Nanoseconds for one element, roughly."""
    total = 0.3 * (len(nest.loads) + len(nest.stores))
    for node in nest.nodes:
        if isinstance(node, Apply):
            total += 1.5 if node.op.costly else 0.1
    return max(total, 0.2)


def grain_of_map(nest: LoopNest) -> int:
    """Elements of one chunk; a multiple that suits vector loops."""
    return max(1024, int(TARGET / cost(nest)) // 1024 * 1024)


def grain_of_rows(nest: LoopNest, row: int) -> int:
    """Rows of one chunk."""
    return max(1, int(TARGET / (cost(nest) * row + 5)))


def rows_with_totals(nest: LoopNest, rows: int, row: int, threads: int) -> int:
    """Rows of one chunk where each chunk has totals of its own: few, as they are added up."""
    chunks = max(16, 4 * threads)
    return min(ROWS_TOGETHER, max(-(-rows // chunks), grain_of_rows(nest, row)))


def split_row(extents: Sequence[int]) -> tuple[int, int]:
    """Parts of a sum, and how much of its first axis each takes."""
    wanted = max(1, min(MOST_PARTS, prod(extents) // 32768))
    step = -(-extents[0] // wanted)
    return -(-extents[0] // step), step


def split_columns(
    rows: int, summed: Sequence[int], inner: Sequence[int]
) -> tuple[int, int, int, int]:
    """Parts and step of the axis summed over, blocks and width of the innermost axis."""
    reduced = prod(summed)
    work = rows * reduced * prod(inner)
    width = inner[-1]
    if len(inner) == 1:
        width = min(width, 1024)
        if rows * -(-inner[-1] // width) < 8 and work > 65536 and inner[-1] >= 128:
            width = max(64, -(-inner[-1] // 8 // 16) * 16)
    blocks = -(-inner[-1] // width)
    units = rows * blocks
    wanted = 1 if units >= 8 else max(1, min(32, work // 65536 // units))
    wanted = max(wanted, min(32, reduced // ROWS_TOGETHER))
    step = -(-summed[0] // wanted)
    return -(-summed[0] // step), step, blocks, width
