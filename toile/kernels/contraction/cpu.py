"""Lowering of contractions: which kernel computes one, how it is divided into units, its launches.

One row axis, one column axis and one summed axis make the matrices of a product; units run over all
other axes. Large products call BLAS, small ones toile's own kernels; a contraction that is not a
matrix product is a dot or a sweep (cpu_dots).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import Any

from toile.compiler.ir.extents import larger, smaller
from toile.compiler.ir.operands import Args, Operand, Ref
from toile.kernels.contraction import cpu_amx_launches as amx
from toile.kernels.contraction import cpu_blas as blas
from toile.kernels.contraction import cpu_dots as products
from toile.kernels.contraction import cpu_few_rows as few_rows
from toile.kernels.contraction import cpu_narrow as narrow
from toile.kernels.contraction import cpu_tiles as gemm
from toile.kernels.contraction.cpu_axes import (
    ROUTINES,
    Problem,
    Types,
    arrange,
    by_stride,
    element_types,
    total,
)
from toile.kernels.contraction.cpu_cuts import (
    SERIAL,
    Matrices,
    cut_product,
    must_pack_a,
    needs_scratch,
    rounded,
)
from toile.kernels.contraction.cpu_instructions import grouping
from toile.kernels.contraction.cpu_panels import Panel, Tile, pack_kernel
from toile.kernels.contraction.cpu_tiles import IN_PLACE, PACK, PACKED, Kernel, choose_tile
from toile.kernels.contraction.shared import Axis, CopiesNotMade, leading, merge
from toile.kernels.tiny import cpu_products as tiny_products
from toile.primitives.contractions import DotGeneral
from toile.targets.llvm import spans
from toile.targets.llvm.launches import Launch, Planner, Rows, Span
from toile.targets.llvm.product_types import FLOAT32, INT32, INT64, Element

THIN = 12  # with at most this many columns, C is better written column by column
BLAS_VECTORS = 1 << 13  # elements of a matrix times a vector from which BLAS is called
PACKED_ROWS = 96  # rows of a product in a loop up to which packing B before the loop pays
PACKED_FROM = 1 << 12  # the fewest elements of such a B
PACKED_ONCE = 1 << 10  # rows from which B is packed once by a separate stage, not by each unit
LEAST_ROWS = 64  # of a unit in a chain
SLOW = 1 << 16  # multiplications of 64-bit integers from which NumPy may be faster, in float64
# The types that BLAS routines compute with: LLVM's name and bytes.
_KINDS: dict[str | None, tuple[str, int]] = {
    "sgemm": ("float", 4),
    "dgemm": ("double", 8),
    "cgemm": ("complex float", 8),
    "zgemm": ("complex double", 16),
}


def lower(op: DotGeneral, ins: Sequence[Operand], outs: Sequence[Operand], plan: Planner) -> bool:
    """Add the stages of a contraction; False if its dtypes have no kernel."""
    (x, y), (out,) = ins, outs
    types = element_types(x.dtype, y.dtype, out.dtype)
    if types is None or (types.work is None and not _complex_fits(op, x, out)):
        return False
    if types.work == INT64 and _terms(op, x, y) > SLOW and not blas.is_hidden():
        return False
    if tiny_products.lower(op, x, y, out, plan):
        return True
    compact = types.work is None and not _readable(op, x, y, out, types)
    problem = arrange(op, x, y, out, types, plan, compact)
    if narrow.lower(problem, plan) or few_rows.lower(problem, plan):
        return True
    kind = route(problem)
    if kind == "product":
        _product(oriented(problem), plan)
    elif not _vector(problem, plan):
        (sweep if kind == "sweep" else dot)(problem, plan)
    return True


# ---- dtypes
def _complex_fits(op: DotGeneral, x: Operand, out: Operand) -> bool:
    """Complex products need BLAS, rows of C with unit stride, and sums that are not empty."""
    if blas.symbol(ROUTINES[out.dtype.name]) is None:
        return False
    last = [c for c, n in zip(op.out, out.shape, strict=True) if n > 1][-1:]
    sizes = dict(zip(op.lhs, x.shape, strict=True))
    return not any(c in op.lhs and c in op.rhs for c in last) and all(
        sizes[c] for c in op.lhs) and out.size < 2**31


def _terms(op: DotGeneral, x: Operand, y: Operand) -> int:
    """The number of multiplications in a contraction."""
    return prod(dict(zip(op.lhs + op.rhs, x.shape + y.shape, strict=True)).values())


def _readable(op: DotGeneral, x: Operand, y: Operand, out: Operand, types: Types) -> bool:
    """Whether BLAS can read the operands in place."""
    cut = cut_product(oriented(arrange(op, x, y, out, types, CopiesNotMade())), 1)
    return cut is not None and cut.by_blas


# ---- which kernel
def route(p: Problem) -> str:
    """The kernel for a contraction: "product", "dot" or "sweep"."""
    if p.types.work is None:
        return "product"
    if total(p.summed) <= 1:
        return "sweep"
    inner, last = next((x for x in p.batch if x.c == 1), None), p.summed[-1]
    long = inner is not None and inner.extent >= 8
    if inner is not None and long and 1 in (inner.a, inner.b) and min(
        total(p.rows), total(p.columns)) < 16:
        return "sweep"
    if p.rows and p.columns:
        return "product"
    if p.rows or p.columns:
        return _route_of_vector(p)
    return "sweep" if long and 1 not in (last.a, last.b) else "dot"


def _route_of_vector(p: Problem) -> str:
    """A vector times a matrix: along the sum if that has unit stride, else by whole rows."""
    matrix, axes = ("b", p.columns) if p.columns else ("a", p.rows)
    unit = any(getattr(x, matrix) == 1 and x.c == 1 for x in axes)
    return "sweep" if unit and getattr(p.summed[-1], matrix) != 1 else "dot"


def oriented(problem: Problem) -> Problem:
    """The problem, transposed if necessary so that rows of C have unit stride, with the type in
    which products are summed."""
    if any(x.c == 1 for x in problem.rows) or not problem.columns:
        problem = problem.mirrored
    t = problem.types
    if t.a and t.b and t.c:
        groups = grouping(t.a, t.b, t.c)
        if t.c.kind in "iu" and max(t.a.size, t.b.size) == 1:
            # Sums of DEPTH products of bytes are below 2^24, so float32 represents them exactly.
            t = replace(t, work=INT32 if groups.terms > 1 else FLOAT32)
        problem = replace(problem, types=replace(t, grouping=groups))
    return problem.mirrored if _is_thin(problem) else problem


def _is_thin(p: Problem) -> bool:
    """Whether C has few columns, and A, which would have to be packed, can be read in place as
    B."""
    if p.types.work is None or p.types.a != p.types.work:
        return False
    if not len(p.rows) == len(p.columns) == len(p.summed) == 1:
        return False
    rows, columns, summed = p.rows[0], p.columns[0], p.summed[0]
    return columns.extent <= THIN and rows.extent >= 4 * columns.extent and (
        rows.a == 1 and summed.a != 1)


# ---- launches
def _outer(axes: Sequence[Axis]) -> tuple[int, ...]:
    """The arguments for outer axes: their number, then extents and strides."""
    return (len(axes), *(value for axis in axes for value in axis))


def _summed(axes: Sequence[Axis]) -> list[int]:
    """The arguments for summed axes: extents, and strides of a and b."""
    return [value for axis in axes for value in axis[:3]]


def _product(p: Problem, plan: Planner) -> None:
    if amx.lower(p, plan):
        return
    cut = cut_product(p, plan.threads)
    if cut is None:
        dot(p, plan)
        return
    if _prepacked(p, cut, plan):
        return
    t = p.types
    p, packed = _packed_once(p, cut, plan)
    if cut.parts == 1 and not needs_scratch(p, cut):
        plan.stage(_matrices(p, cut, packed))
        if t.c is not None and t.work is not None:  # a larger batch may split its sum
            plan.also.add(products.sum_arrays(t.c if t.c.kind in "iu" else t.work, t.c))
        return
    assert t.c is not None and t.work is not None
    size = prod(x.extent for x in p.batch + p.rows + p.columns)
    kind = t.c if t.c.kind in "iu" else t.work  # integers may be summed in floats at first
    held = plan.scratch(size * kind.size * cut.parts)
    plan.stage(_matrices(replace(p, c=held, types=replace(t, c=kind)), cut, packed))
    if cut.parts == 1:
        launch = Launch(products.cast(kind, t.c), (held, p.c), size, larger(4096, size // 64),
                        "round", rows=spans.elements(held, kind.size, p.c, t.c.size))
    else:
        launch = Launch(products.sum_arrays(kind, t.c), (held, p.c, size, cut.parts), size,
                        larger(4096, size // 64), "sum of parts")
    plan.stage(launch)


def _matrices(p: Problem, cut: Matrices, packed: bool = False) -> Launch:
    launch = _blas_launch(p, cut) if cut.by_blas else own_launch(p, cut, packed)
    if cut.parts > 1:
        return replace(launch, apart="its sum is cut into parts")
    if cut.column_step < cut.columns.extent:
        return replace(launch, apart="its units are blocks of columns")
    rows = _rows(p, cut, packed)
    return replace(launch, rows=rows, apart="" if rows else "its rows are not stored in order")


def _rows(p: Problem, cut: Matrices, packed: bool) -> Rows | None:
    """Which rows of C and of A belong to each unit; whole matrices if units differ in size."""
    t, blocks = p.types, cut.blocks[0]
    whole = bool(cut.outer) and cut.rows.extent % cut.row_step > 0
    outer = cut.outer if whole else (*cut.outer, cut.rows)
    inner = [cut.rows] if whole else []
    sizes = [_KINDS[t.routine][1] if x is None else x.size for x in (t.a, t.b, t.c)]

    def at(side: str, ref: Ref, size: int, axes: Sequence[Axis]) -> tuple[Any, Span | None]:
        across, along = ([(x.extent, getattr(x, side) * size) for x in group]
                         for group in (outer, (*inner, *axes)))
        return ref.buffer, spans.span(ref.offset, size, across, along)

    found = spans.together((
        at("c", p.c, sizes[2], [cut.columns]), at("a", p.a, sizes[0], [cut.summed]),
        at("b", p.b, sizes[1], [cut.summed, cut.columns])))  # fmt: skip
    if p.c.buffer not in found:
        return None
    writes = frozenset({p.c.buffer})
    if whole:
        return Rows(found, writes, Fraction(1, blocks), True, total(cut.outer))

    def recut(rows: int) -> Launch:
        return _matrices(p, cut._replace(row_step=rows, grain=1), packed)

    # Smaller units pack B more often, as BLAS does: 64 rows instead of 512 take 2 to 5 % longer,
    # which is what a chain gains. If B is already packed they cost nothing.
    free = not cut.outer and (packed or _b_in_place(t, cut))
    return Rows(found, writes, Fraction(cut.row_step), True, total(outer), recut if free else None,
                8, LEAST_ROWS)


def _blas_launch(p: Problem, cut: Matrices) -> Launch:
    assert p.types.routine is not None
    name = blas.symbol(p.types.routine)
    assert name is not None
    rows, columns, summed = cut.rows, cut.columns, cut.summed
    lda, ldb = leading(rows, summed, "a"), leading(summed, columns, "b")
    assert lda is not None and ldb is not None
    sizes = gemm.arguments(
        blas.LAYOUT, m=rows.extent, n=columns.extent, k=summed.extent, a_row=rows.a,
        b_column=columns.b, c_row=rows.c if rows.extent > 1 else columns.extent,
        lda=lda[0], ldb=ldb[0], a_flipped=lda[1], b_flipped=ldb[1], row_step=cut.row_step,
        column_step=cut.column_step, row_blocks=cut.blocks[0], column_blocks=cut.blocks[1],
    )
    text = blas.product_text(name, _KINDS[p.types.routine])
    args: Args = (p.a, p.b, p.c, *sizes, *_outer(cut.outer))
    return Launch(text, args, cut.units, cut.grain, p.types.routine)


def own_launch(p: Problem, cut: Matrices, packed: bool = False) -> Launch:
    """The launch of toile's own kernel; `packed`: all of b is packed, for the tile of `cut`."""
    t, tile = p.types, cut.tile
    assert t.a and t.b and t.c and t.work and tile
    rows, columns, summed = cut.rows, cut.columns, cut.summed
    in_place = _b_in_place(t, cut)
    b_sum, b_column = summed.b, columns.b
    if packed:
        b_sum, b_column = tile.columns, -(-summed.extent // t.grouping.terms)
    args = gemm.arguments(
        gemm.LAYOUT, m=rows.extent, n=columns.extent, k=summed.extent, a_row=rows.a, a_sum=summed.a,
        b_sum=b_sum, b_column=b_column, c_row=rows.c, c_column=columns.c,
        row_step=cut.row_step, column_step=cut.column_step, row_blocks=cut.blocks[0],
        column_blocks=cut.blocks[1],
        b_mode=PACKED if packed else IN_PLACE if in_place else PACK, adds=0,
    )
    b = t.grouping.word(t.work) if packed else t.b
    spec = Kernel(tile, cut.packs_a, t.a, b, t.c, t.work, t.grouping)
    return Launch(spec.text, (p.a, p.b, p.c, *args, *_outer(cut.outer)), cut.units, cut.grain,
                  "product")


def _b_in_place(t: Types, cut: Matrices) -> bool:
    """Whether toile's own kernels read B in place, unpacked."""
    rows, columns, tile = cut.rows.extent, cut.columns, cut.tile
    return tile is not None and t.b == t.work and (columns.b == 1 or columns.extent == 1) and (
        rows <= 2 * tile.rows or columns.extent * cut.summed.extent <= 4096)


def _vector(p: Problem, plan: Planner) -> bool:
    """A vector times a matrix, or the mirror, by BLAS; False if it is small or unsuitable."""
    routine = p.types.routine
    if bool(p.rows) == bool(p.columns) or len(p.summed) != 1 or routine is None:
        return False
    if p.rows:
        p = p.mirrored
    summed, columns = p.summed[0], max(p.columns, key=lambda x: x.extent)
    ldb = leading(summed, columns, "b")
    strides = (summed.a, columns.c)
    size = columns.extent * summed.extent
    if size < BLAS_VECTORS or ldb is None or min(strides) < 1 or max(
        *strides, ldb[0], columns.extent, summed.extent) >= 2**31:
        return False
    name = blas.symbol(routine.replace("gemm", "gemv"))
    if name is None:
        return False
    outer = merge(by_stride((*p.batch, *(x for x in p.columns if x is not columns)), "c"))
    blocks = 1
    if size >= SERIAL and plan.threads > 1:
        blocks = max(1, min(columns.extent // 64, 2 * plan.threads))
    step = rounded(-(-columns.extent // blocks), 16)
    blocks = -(-columns.extent // step)
    sizes = gemm.arguments(
        blas.VECTOR_LAYOUT, n=columns.extent, k=summed.extent, a_sum=summed.a,
        b_column=columns.b, c_column=columns.c, ldb=ldb[0], b_flipped=ldb[1], step=step,
        blocks=blocks,
    )
    args: Args = (p.a, p.b, p.c, *sizes, *_outer(outer))
    plan.stage(Launch(blas.vector_text(name, _KINDS[routine]), args, blocks * total(outer),
                      max(1, SERIAL // size), routine.replace("gemm", "gemv")))
    return True


def sweep(p: Problem, plan: Planner) -> None:
    """Add a kernel that runs along the innermost axis of C."""
    t = p.types
    assert t.a and t.b and t.c and t.work
    free = by_stride(p.batch + p.rows + p.columns, "c")
    inner = free.pop() if free and free[-1].c == 1 else Axis(1, 0, 0, 1)
    outer = merge(free)
    strides = products.stride_class(inner.a), products.stride_class(inner.b)
    text = products.sweep(t.a, t.b, t.c, t.work, strides, len(p.summed))
    blocks = -(-inner.extent // products.BLOCK)
    each = smaller(inner.extent, products.BLOCK) * larger(total(p.summed), 1)
    args: Args = (p.a, p.b, p.c, inner.extent, blocks, inner.a, inner.b, *_summed(p.summed),
                  *_outer(outer))
    plan.stage(Launch(text, args, blocks * total(outer), larger(1, SERIAL // each), "product"))


def dot(p: Problem, plan: Planner) -> None:
    """Add a kernel that runs along the summed axis; if outputs are few, split long sums."""
    t = p.types
    assert t.a and t.b and t.c and t.work
    outer = merge(by_stride(p.batch + p.rows + p.columns, "c"))
    *further, last = sorted(p.summed, key=lambda x: (1 in (x.a, x.b), x.extent))
    outputs, terms = total(outer), total(p.summed)
    parts = 1 if outputs >= 64 else larger(1, smaller(64, last.extent // 32768))
    step = rounded(-(-last.extent // parts), 64)
    parts = -(-last.extent // step)
    strides = products.stride_class(last.a), products.stride_class(last.b)
    target, c = p.c, t.c
    if parts > 1:
        target, c = plan.scratch(outputs * parts * t.work.size), t.work
        outer = [x._replace(c=x.c * parts) for x in outer]
    text = products.dot(t.a, t.b, c, t.work, strides, len(further))
    args: Args = (p.a, p.b, target, last.extent, step, parts, last.a, last.b, *_summed(further),
                  *_outer(outer))
    each = larger(1, terms // parts)
    plan.stage(Launch(text, args, outputs * parts, larger(1, SERIAL // each), "dot"))
    if parts > 1:
        plan.stage(Launch(products.combine(t.work, t.c), (target, p.c, parts), outputs, outputs,
                          "sum of parts"))


# ---- weights that are packed once and used often
def _packed_once(p: Problem, cut: Matrices, plan: Planner) -> tuple[Problem, bool]:
    """The product with B packed by a stage before it, if many units would each pack it."""
    t, columns, summed = p.types, cut.columns, cut.summed
    wanted = t.work is not None and (t.b == t.work or t.grouping.terms > 1)
    divided = bool(cut.outer) or cut.column_step < columns.extent
    if not wanted or cut.by_blas or divided or _b_in_place(t, cut):
        return p, False
    assert cut.tile
    if cut.rows.extent < PACKED_ONCE:
        if 4 * cut.rows.extent >= PACKED_ONCE:  # a larger batch would need it
            plan.also.add(pack_kernel(_panel(t, cut.tile)))
        return p, False
    held = _packed(p.b, (summed.extent, columns.extent), (summed.b, columns.b),
                   _panel(t, cut.tile), plan)  # fmt: skip
    return replace(p, b=held), True


def _prepacked(p: Problem, cut: Matrices, plan: Planner) -> bool:
    """A product in a loop that does not change B: B is packed before the loop."""
    t, rows, columns, k = p.types, cut.rows, cut.columns, total(p.summed)
    b, work = t.b, t.work
    few = 1 < rows.extent <= PACKED_ROWS and k * columns.extent >= PACKED_FROM
    if not few or p.batch or len(p.rows + p.columns) > 2 or columns.c != 1:
        return False
    if not (b and work and (t.grouping.terms > 1 or _packs_as_floats(b, work))):
        return False
    summed = p.summed[0]
    if needs_scratch(p, cut._replace(summed=summed)):
        return False
    packs_a = must_pack_a(t, rows, summed)
    tile = choose_tile(work, rows.extent, packs_a)
    panel = _panel(t, tile)
    held = plan.before_loops(
        p.b, (panel, summed.extent, columns.extent, summed.b, columns.b),
        lambda home: _packed(p.b, (k, columns.extent), (summed.b, columns.b), panel, home))
    if held is None:
        return False
    step = columns.extent  # each thread reads its own part of them
    if rows.extent * k * step >= SERIAL:
        step = smaller(step, rounded(-(-step // plan.threads), tile.columns))
    cut = Matrices(rows, columns, summed, (), False, rows.extent, step, tile, packs_a, 1)
    plan.stage(own_launch(replace(p, b=held), cut, packed=True))
    return True


def _packs_as_floats(b: Element, work: Element) -> bool:
    """Whether B and the sums are floats that toile's own kernels support."""
    return work.kind == "f" and b.kind in "fh"


def _panel(t: Types, tile: Tile) -> Panel:
    """How B is packed as a whole."""
    assert t.b and t.work
    return Panel(tile.columns, tile.lanes, t.b, t.grouping.word(t.work), t.grouping.terms)


def _packed(w: Ref, shape: tuple[int, int], strides: tuple[int, int], panel: Panel, plan: Planner
            ) -> Ref:
    """Add the stage that packs a matrix [K, N] into panels [N / width][words][width]; returns
    them."""
    k, n = shape
    panels = -(-n // panel.width)
    held = plan.scratch(panels * -(-k // panel.terms) * panel.width * panel.word.size)
    text = pack_kernel(panel)
    grain = larger(1, SERIAL // (4 * k))
    plan.stage(Launch(text, (w, held, k, n, *strides), panels, grain, "pack"))
    return held
