"""Lowering of matrix products to tile registers (AMX): when it pays, the units, the launches.

Whether and how a sum is split depends on extents alone, so results do not depend on the number of
threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod

from toile.compiler.ir.operands import Args, Ref
from toile.engine.records import dataclass
from toile.kernels.contraction import cpu_amx as amx
from toile.kernels.contraction import cpu_dots as dots
from toile.kernels.contraction.cpu_axes import Problem, by_stride, total
from toile.kernels.contraction.cpu_cuts import SERIAL, UNSTOPPABLE, rounded
from toile.kernels.contraction.cpu_tiles import PACK, PACKED, arguments
from toile.kernels.contraction.shared import Axis, merge
from toile.targets.llvm import spans
from toile.targets.llvm.launches import Launch, Planner, Rows, Span

LEAST = 1 << 15  # multiplications below which packing takes longer than the product,
LEAST_BYTES = 1 << 17  # if terms are bytes (vectors then hold more terms, too),
LEAST_ROWS = 16  # and the fewest rows of such a product
LEAST_WORDS = 8  # of a sum: tiles have 16 of them
SPLIT_FROM = 1 << 12  # terms of a sum from which it is split, if C has few tiles
ENOUGH = 16  # 32 x 32 blocks of C from which no sum is split
PACKED_FROM = 256  # rows from which B is packed by a stage of its own
CLASHING = 2048  # bytes: rows this far apart share few sets of the caches
REPEATED = 512  # columns from which packing such rows takes less time than it saves


@dataclass(frozen=True)
class Product:
    """A matrix product: its axes, and its units, which are blocks of C."""

    spec: amx.Kernel
    rows: Axis
    columns: Axis
    summed: Axis
    outer: tuple[Axis, ...]
    parts: int
    row_step: int
    column_step: int
    grain: int

    @property
    def blocks(self) -> tuple[int, int]:
        """Units along the rows and the columns."""
        return -(-self.rows.extent // self.row_step), -(-self.columns.extent // self.column_step)

    @property
    def units(self) -> int:
        return prod(self.blocks) * total(self.outer)

    @property
    def tiles(self) -> int:
        """Tiles of the sum."""
        return -(-self.summed.extent // (self.spec.terms * amx.SIDE))

    @property
    def reads_a(self) -> bool:
        """Whether A is read in place: its rows are contiguous and consist of whole tiles.

        Rows that map to the same sets of the caches are better packed, if they are read often."""
        whole = self.summed.extent % (self.spec.terms * amx.SIDE) == 0
        often = self.columns.extent >= REPEATED and self.rows.extent >= 4 * amx.SIDE
        clash = often and not self.rows.a * self.spec.a.size % CLASHING
        return whole and self.summed.a == 1 and self.rows.extent >= amx.SIDE and not clash


def lower(p: Problem, plan: Planner) -> bool:
    """Add the stages of a product; False if other kernels should compute it."""
    found = product_of(p, plan.threads)
    if found is None:
        return False
    t, target = p.types, p.c
    assert t.c is not None
    spec = found.spec
    if found.parts > 1:
        size = prod(x.extent for x in p.batch + p.rows + p.columns)
        kind = spec.work
        target = plan.scratch(size * kind.size * found.parts)
        found = replace(found, spec=spec._replace(c=kind))
    a, b = _packed_a(p, found, plan), _packed_b(p, found, plan)
    plan.stage(_launch(replace(p, c=target), found, a, b))
    if found.parts > 1:
        plan.stage(Launch(dots.sum_arrays(spec.work, t.c), (target, p.c, size, found.parts), size,
                          max(4096, size // 64), "sum of parts"))
    return True


def product_of(p: Problem, threads: int) -> Product | None:
    """How a product is computed with tile registers; None if it is not."""
    t = p.types
    if len(p.summed) != 1 or not p.rows or not p.columns or not amx.supports(t.a, t.b, t.c):
        return None
    assert t.a and t.b and t.c
    spec = amx.Kernel(t.a, t.b, t.c)
    summed = p.summed[0]
    columns = max(p.columns, key=lambda x: (x.c == 1, x.extent))
    rows = max(p.rows, key=lambda x: x.extent)
    if not pays(rows.extent, columns.extent, summed.extent, spec.terms):
        return None
    rest = [x for x in p.rows if x is not rows] + [x for x in p.columns if x is not columns]
    outer = tuple(merge(by_stride((*p.batch, *rest), "c")))
    parts = 1 if outer else _parts(rows.extent, columns.extent, summed.extent, spec.terms)
    if parts > 1:
        terms, room = summed.extent // parts, rows.extent * columns.extent
        outer = (Axis(parts, summed.a * terms, summed.b * terms, room),)
        summed = summed._replace(extent=terms)
        rows, columns = rows._replace(c=columns.extent), columns._replace(c=1)
    divided = steps(rows.extent, columns.extent, summed.extent, total(outer), threads)
    return Product(spec, rows, columns, summed, outer, parts, *divided)


def pays(m: int, n: int, k: int, terms: int) -> bool:
    """Whether tiles are faster than the other kernels."""
    least = LEAST_BYTES if terms == 4 else LEAST
    rows = LEAST_ROWS if terms == 4 else 2
    return m * n * k >= least and k >= LEAST_WORDS * terms and m >= rows and n > 1


def _parts(m: int, n: int, k: int, terms: int) -> int:
    """How many parts a sum is split into: several if C alone gives too little work to divide."""
    blocks = -(-m // (2 * amx.SIDE)) * -(-n // amx.WIDTH)
    if k < SPLIT_FROM or 2 * blocks > ENOUGH:
        return 1
    fits = (p for p in (16, 8, 4, 2) if p * blocks <= ENOUGH and k % (p * terms * amx.SIDE) == 0)
    return next(fits, 1)


def steps(m: int, n: int, k: int, outer: int, threads: int) -> tuple[int, int, int]:
    """Rows and columns of a unit, and units of a chunk."""
    work, row_step, column_step = m * n * k * outer, m, n
    wanted = 1
    if work >= SERIAL * 16 and threads > 1:
        wanted = -(-2 * threads // outer)
    if wanted > 1:
        if m >= 2 * amx.SIDE * wanted or m >= n:
            row_step = rounded(-(-m // wanted), 2 * amx.SIDE)
        else:
            column_step = rounded(-(-n // wanted), amx.WIDTH)
    row_step, column_step = min(row_step, m), min(column_step, n)
    while row_step * column_step * k > UNSTOPPABLE and max(row_step, column_step) > amx.WIDTH:
        if row_step > column_step:
            row_step = rounded(-(-row_step // 2), 2 * amx.SIDE)
        else:
            column_step = rounded(-(-column_step // 2), amx.WIDTH)
    units = outer * -(-m // row_step) * -(-n // column_step)
    if work < SERIAL * 16:
        return row_step, column_step, units
    most = max(1, UNSTOPPABLE // (row_step * column_step * k))
    return row_step, column_step, min(-(-units // (4 * max(threads, 1))), most)


# ---- packing
def _packed_a(p: Problem, found: Product, plan: Planner) -> Ref | None:
    """A in tiles, packed by a stage; None if it is read in place."""
    if found.reads_a:
        return None
    rows, summed, size = found.rows, found.summed, found.spec.a.size
    outer = [x for x in found.outer if x.a]
    tiles = -(-rows.extent // amx.SIDE)
    length = found.tiles * amx.SIDE * amx.ROW_BYTES  # of a tile of rows
    held = plan.scratch(total(outer) * tiles * length)
    axes = (len(outer), *(value for x in outer for value in (x.extent, x.a)))
    args: Args = (p.a, held, rows.extent, summed.extent, rows.a, summed.a, tiles, *axes)
    plan.stage(Launch(amx.pack_a_kernel(found.spec.a), args, tiles * total(outer),
                      max(1, SERIAL * size // length), "pack"))
    return held


def _packed_b(p: Problem, found: Product, plan: Planner) -> Ref | None:
    """B in panels, packed by a stage before the product or before the loop around it; None if each
    unit packs its own columns."""
    if any(x.b for x in found.outer):
        return None
    panel, summed, columns = found.spec.panel, found.summed, found.columns
    panels = -(-columns.extent // panel.width)
    length = found.tiles * amx.SIDE * panel.width * amx.WORD.size

    def pack(home: Planner) -> Ref:
        held = home.scratch(panels * length)
        args: Args = (p.b, held, summed.extent, columns.extent, summed.b, columns.b)
        grain = max(1, SERIAL * 4 // (panels * amx.SIDE * panel.width * amx.WORD.size))
        home.stage(Launch(amx.pack_b_kernel(panel), args, found.tiles, grain, "pack"))
        return held

    key = ("amx", panel, summed.extent, columns.extent, summed.b, columns.b)
    held = plan.before_loops(p.b, key, pack)
    if held is None and found.rows.extent * total(found.outer) >= PACKED_FROM:
        held = pack(plan)
    return held


# ---- the product
def _launch(p: Problem, found: Product, a: Ref | None, b: Ref | None) -> Launch:
    spec, rows, columns, summed = found.spec, found.rows, found.columns, found.summed
    words = amx.ROW_BYTES // spec.a.size  # terms in a row of a tile
    a_row, a_step, a_block, last = rows.a, rows.a, words, rows.extent - amx.SIDE
    outer = list(found.outer)
    if a is not None:
        a_row, a_step, a_block = words, found.tiles * words, amx.SIDE * words
        last = rounded(rows.extent, amx.SIDE) - amx.SIDE
        step = rounded(rows.extent, amx.SIDE) * found.tiles * words
        for i in reversed(range(len(outer))):
            if outer[i].a:
                outer[i] = outer[i]._replace(a=step)
                step *= outer[i].extent
    sizes = arguments(
        amx.LAYOUT, m=rows.extent, n=columns.extent, k=summed.extent, blocks=found.tiles,
        a_row=a_row, a_step=a_step, a_block=a_block, last_row=last, b_sum=summed.b,
        b_column=columns.b, c_row=rows.c, c_column=columns.c, row_step=found.row_step,
        column_step=found.column_step, row_blocks=found.blocks[0], column_blocks=found.blocks[1],
        b_mode=PACK if b is None else PACKED,
    )
    axes = (len(outer), *(value for axis in outer for value in axis))
    args: Args = (a or p.a, b or p.b, p.c, *sizes, *axes)
    launch = Launch(amx.product_text(spec), args, found.units, found.grain, "product")
    if found.parts > 1:
        return replace(launch, apart="its sum is cut into parts")
    if found.column_step < columns.extent:
        return replace(launch, apart="its units are blocks of columns")
    made = _rows(p, found, a, b)
    return replace(launch, rows=made, apart="" if made else "its rows are not stored in order")


def _rows(p: Problem, found: Product, a: Ref | None, b: Ref | None) -> Rows | None:
    """Which rows of C and of A belong to each unit; whole matrices if units differ in size."""
    spec = found.spec
    whole = bool(found.outer) and found.rows.extent % found.row_step > 0
    outer = found.outer if whole else (*found.outer, found.rows)
    inner = [found.rows] if whole else []

    def at(side: str, ref: Ref, size: int, axes: Sequence[Axis]) -> tuple[object, Span | None]:
        across, along = ([(x.extent, getattr(x, side) * size) for x in group]
                         for group in (outer, (*inner, *axes)))
        return ref.buffer, spans.span(ref.offset, size, across, along)

    touched = [at("c", p.c, spec.c.size, [found.columns])]
    if a is None:
        touched.append(at("a", p.a, spec.a.size, [found.summed]))
    if b is None:
        touched.append(at("b", p.b, spec.b.size, [found.summed, found.columns]))
    ranges = spans.together(touched)
    if p.c.buffer not in ranges:
        return None
    writes = frozenset({p.c.buffer})
    if whole:
        return Rows(ranges, writes, Fraction(1, found.blocks[0]), True, total(found.outer))

    def recut(rows: int) -> Launch:
        return _launch(p, replace(found, row_step=rows, grain=1), a, b)

    free = not found.outer and b is not None
    return Rows(ranges, writes, Fraction(found.row_step), True, total(outer),
                recut if free else None, 2 * amx.SIDE, 2 * amx.SIDE)
