"""How a matrix product is divided: its axes, its kernel, blocks of C, parts of the sum.

There are as many blocks as threads, along the longer side of C, where packing an operand again for
each block costs the least. If blocks would be small and the sum is long, the sum is split instead,
and each part has its own C.
"""

from __future__ import annotations

from math import gcd, isqrt, prod
from typing import NamedTuple

from toile.compiler.ir.extents import larger, smaller
from toile.kernels.contraction import cpu_blas as blas
from toile.kernels.contraction.cpu_axes import Problem, Types, by_stride, total
from toile.kernels.contraction.cpu_panels import DEPTH, Tile
from toile.kernels.contraction.cpu_tiles import choose_tile, lane_operands
from toile.kernels.contraction.shared import Axis, leading, merge
from toile.targets.llvm import native
from toile.targets.llvm.product_types import FLOAT32

SERIAL = 1 << 16  # multiplications below which a single chunk does everything
LARGE = 1 << 26  # multiplications above which own kernels have several chunks per thread
NARROW = 128  # rows or columns per thread below which the sum is split instead
DEEP = 128  # the least number of terms of such a part
PART_A = 1 << 17  # elements of A that a unit of toile's own kernel reads: they stay in the L2 cache
SMALL_B = 1 << 16  # elements of a B that stays there too: toile's own kernels then beat BLAS
SMALL_C = 1 << 14  # elements of a C that stays there while a long sum is added to it
FEW_ROWS = 64  # with fewer, packing B costs toile's own kernel more than BLAS loses
# Rows of float32 up to which toile's own kernels are faster than SciPy's BLAS on processors with
# AVX-512; with transposed operands, which BLAS copies, also with more rows.
OWN_ROWS, OWN_ROWS_TRANSPOSED = 160, 256
UNSTOPPABLE = 1 << 33  # multiplications of a chunk at most: runs can be stopped between chunks
BLAS_FROM = 280**3
BLAS_FROM_FEW_ROWS = 1 << 20
BLAS_FROM_DOUBLE = 128**3


class Matrices(NamedTuple):
    """How a matrix product is divided: axes, whether BLAS is called, steps of units, the tile."""

    rows: Axis
    columns: Axis
    summed: Axis
    outer: tuple[Axis, ...]
    by_blas: bool
    row_step: int
    column_step: int
    tile: Tile | None
    packs_a: bool
    grain: int
    parts: int = 1  # of the sum: the last outer axis, each with its own C

    @property
    def blocks(self) -> tuple[int, int]:
        return -(-self.rows.extent // self.row_step), -(-self.columns.extent // self.column_step)

    @property
    def units(self) -> int:
        return prod(self.blocks) * prod(x.extent for x in self.outer)


def cut_product(problem: Problem, threads: int) -> Matrices | None:
    """Axes, blocks and kernel of a matrix product; None if its sums do not merge."""
    p, t = problem, problem.types
    if len(p.summed) > 1:
        return None
    summed = p.summed[0] if p.summed else Axis(1, 1, 1, 0)
    columns = max(p.columns, key=lambda x: (x.c == 1, x.extent), default=Axis(1, 0, 1, 1))
    rows = max(p.rows, key=lambda x: x.extent, default=Axis(1, summed.extent, 0, columns.extent))
    rest = [x for x in p.rows if x is not rows] + [x for x in p.columns if x is not columns]
    outer = tuple(merge(by_stride((*p.batch, *rest), "c")))
    by_blas = _fits_blas(t, rows, columns, summed)
    parts = 1
    if t.work is not None and not outer:
        parts = _parts(rows.extent, columns.extent, summed.extent, threads)
    if parts > 1:
        terms, room = summed.extent // parts, rows.extent * columns.extent
        outer = (Axis(parts, summed.a * terms, summed.b * terms, room),)
        summed = summed._replace(extent=terms)
    few = not by_blas and t.c == FLOAT32 and rows.extent >= FEW_ROWS and _is_short(
        rows, columns, summed)
    packs_a = few or must_pack_a(t, rows, summed)
    tile = None
    if not by_blas and t.work is not None:
        tile = choose_tile(t.work, rows.extent, packs_a)
    words = -(-summed.extent // t.grouping.terms)
    row_step, column_step, grain = _steps(rows.extent, columns.extent, words, total(outer), tile,
                                          threads, t.grouping.terms > 1 or few,
                                          packs_a)
    return Matrices(rows, columns, summed, outer, by_blas, row_step, column_step, tile, packs_a,
                    grain, parts)


def must_pack_a(t: Types, rows: Axis, summed: Axis) -> bool:
    """Whether A is packed: it is read in place if it has the elements, or words, of panels."""
    if summed.a != 1 and rows.extent > 1:
        return True
    if t.grouping.terms == 1:
        return t.a != t.work
    flips = t.grouping.flips and not lane_operands()  # each lane would be flipped by itself
    return flips or summed.extent % t.grouping.terms > 0


def _parts(m: int, n: int, k: int, threads: int) -> int:
    """How many parts a sum is split into: several if blocks of C would be small and repeat
    packing."""
    wide = max(m, n)
    least = 4 * wide if wide <= NARROW * threads else 8 * wide
    if threads == 1 or k < least or m * n * k < 4 * SERIAL:
        return 1
    fits = (p for p in range(threads, 4 * threads) if k % p == 0 and k // p >= DEEP)
    return next(fits, 1)


def _steps(m: int, n: int, k: int, outer: int, tile: Tile | None, threads: int,
           grouped: bool, packs_a: bool) -> tuple[int, int, int]:
    """Rows and columns of a unit, and units of a chunk."""
    unit_rows, unit_columns = (tile.rows, tile.columns) if tile else (16, 16)
    work = m * n * k * outer
    blocks = _wanted_blocks(work, outer, tile is not None, threads)
    row_step, column_step = m, n
    if blocks > 1:  # a block of rows packs all of B, a block of columns all of A
        by_rows = m >= n or (tile is not None and m >= 4 * unit_rows * blocks)
        if grouped:  # instructions are fast: packing takes a larger part of the time
            by_rows = m >= n if packs_a else n < unit_columns * blocks
        if by_rows:
            row_step = rounded(-(-m // blocks), unit_rows)
        else:
            column_step = rounded(-(-n // blocks), unit_columns)
    most = PART_A // smaller(larger(k, DEPTH), 2 * DEPTH)
    if tile and row_step > most:
        row_step = rounded(-(-m // -(-m // most)), unit_rows)
    row_step, column_step = smaller(row_step, m), smaller(column_step, n)
    if row_step * column_step * k > UNSTOPPABLE:  # about square: each packs its part of both
        side = max(isqrt(UNSTOPPABLE // (2 * k)), unit_rows, unit_columns)
        row_step = rounded(-(-row_step // -(-row_step // side)), unit_rows)
        column_step = rounded(-(-column_step // -(-column_step // side)), unit_columns)
    units = outer * -(-m // row_step) * -(-n // column_step)
    if work < SERIAL:
        return row_step, column_step, units
    most_units = larger(1, UNSTOPPABLE // (row_step * column_step * k))
    return row_step, column_step, smaller(-(-units // (4 * max(threads, 1))), most_units)


def _wanted_blocks(work: int, outer: int, own: bool, threads: int) -> int:
    """How many blocks each of `outer` products is divided into, so that all threads have work."""
    wanted = 1 if work < SERIAL or threads == 1 else threads
    if own and work > LARGE and outer < wanted:
        return -(-2 * wanted // outer)
    return wanted // gcd(outer, wanted) if outer < 4 * wanted else 1


def rounded(n: int, multiple: int) -> int:
    """The next multiple of `multiple`."""
    return -(-n // multiple) * multiple


def _fits_blas(t: Types, rows: Axis, columns: Axis, summed: Axis) -> bool:
    """Whether BLAS can compute a product, and faster than toile's own kernels."""
    if t.routine is None or blas.symbol(t.routine) is None:
        return False
    m, n, k = rows.extent, columns.extent, summed.extent
    readable = _is_readable(rows, columns, summed)
    if t.work is None:
        return readable
    if not readable or min(m, n) < 4:
        return False
    if m <= 8 and columns.b != 1:
        return False
    if _beats_blas(t, rows, columns, summed):
        return False
    least = BLAS_FROM_FEW_ROWS if m < FEW_ROWS else BLAS_FROM
    return m * n * k >= (least if t.c == FLOAT32 else min(least, BLAS_FROM_DOUBLE))


def _beats_blas(t: Types, rows: Axis, columns: Axis, summed: Axis) -> bool:
    """Whether toile's own kernels compute a product in float32 faster than BLAS."""
    m, n, k = rows.extent, columns.extent, summed.extent
    if t.c != FLOAT32 or m < FEW_ROWS:
        return False
    if lane_operands():
        return (k * n if summed.a == 1 else m * n) <= (SMALL_B if summed.a == 1 else SMALL_C)
    return _is_short(rows, columns, summed)


def _is_short(rows: Axis, columns: Axis, summed: Axis) -> bool:
    """Whether A has few rows and B is large, on a processor with AVX-512."""
    m, n, k = rows.extent, columns.extent, summed.extent
    most = OWN_ROWS if summed.a == 1 and columns.b == 1 else OWN_ROWS_TRANSPOSED
    return native.vector_bytes() == 64 and not lane_operands() and m <= min(most, n) and (
        k * n > SMALL_B)


def _is_readable(rows: Axis, columns: Axis, summed: Axis) -> bool:
    """Whether BLAS can read the matrices in place."""
    m, n, k = rows.extent, columns.extent, summed.extent
    return (
        max(m, n, k, rows.a, rows.c, summed.a, summed.b, columns.b) < 2**31
        and (n == 1 or columns.c == 1)
        and leading(rows, summed, "a") is not None
        and leading(summed, columns, "b") is not None
    )


def needs_scratch(problem: Problem, cut: Matrices) -> bool:
    """Whether partial sums must be stored in a type other than C's."""
    t = problem.types
    return t.c is not None and t.c != t.work and t.c.kind not in "iu" and (
        cut.summed.extent > DEPTH * t.grouping.terms)
