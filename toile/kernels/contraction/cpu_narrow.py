"""Products of few rows with a large matrix of floats, at the speed at which memory is read.

A chunk is a range of columns. It reads a few rows of B at a time, from left to right, as memory is
read fastest; rows that come next are prefetched. The sums of a chunk are kept in float32, in an
array that fits into a cache. Elements are converted in registers. The order of each sum depends on
its length alone.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from toile.compiler.ir.extents import are_known
from toile.compiler.ir.operands import Args
from toile.kernels.contraction import cpu_blas as blas
from toile.kernels.contraction.cpu_axes import Problem, total
from toile.kernels.contraction.cpu_panels import PLAIN
from toile.kernels.contraction.shared import Axis
from toile.targets.llvm import native
from toile.targets.llvm.launches import Launch, Planner
from toile.targets.llvm.product_types import FLOAT32, Element, convert
from toile.targets.llvm.text import NOINLINE, Function, inner, kernel, module, typed

FEW = 8  # rows that are computed together
MANY = 64  # rows of float32; with more, or if B has 16 bits, products that pack B are faster
LEAST = 1 << 18  # elements of B: a smaller matrix may stay in the second-level cache
# Elements of B, and turns of a loop: a smaller matrix that a longer loop does not change may stay
# in the last cache. It is packed before the loop: products of more than FEW rows are then faster.
PACKED, TURNS = 1 << 22, 16
HELD = 1 << 14  # sums that a chunk keeps: 64 KiB
STEPS = 16  # rows of B that are read side by side
LINE = 64  # bytes of a cache line


class Kernel(NamedTuple):
    """What determines the text of a kernel: the number of rows, a tile's width, types in memory."""

    rows: int
    lanes: int
    vectors: int
    a: Element
    b: Element
    c: Element

    @property
    def groups(self) -> list[tuple[int, int]]:
        """The first row and the number of rows of groups that are computed together."""
        return [(m, min(FEW, self.rows - m)) for m in range(0, self.rows, FEW)]

    @property
    def width(self) -> int:
        """Columns of a tile."""
        return self.lanes * self.vectors


def lower(p: Problem, plan: Planner) -> bool:
    """One launch over tiles of columns; False if other kernels should compute the product."""
    if not _fits(p, plan):
        p = p.mirrored
        if not _fits(p, plan):
            return False
    t, columns, summed = p.types, p.columns[0], p.summed[0]
    assert t.a and t.b and t.c
    rows = p.rows[0] if p.rows else Axis(1, 0, 0, columns.extent)
    lanes = native.vector_bytes() // FLOAT32.size
    registers = 24 if lanes == 16 else 10  # for sums
    vectors = max(1, min(4, registers // min(FEW, rows.extent)))
    spec = Kernel(rows.extent, lanes, vectors, t.a, t.b, t.c)
    tiles = -(-columns.extent // spec.width)
    most = HELD // (rows.extent * spec.width)
    grain = max(1, min(-(-tiles // plan.threads), most))
    args: Args = (p.a, p.b, p.c, columns.extent, summed.extent, rows.a, summed.a, summed.b, rows.c)
    plan.stage(Launch(_text(spec), args, tiles, grain, "narrow product",
                      apart="its units are blocks of columns"))
    return True


def _fits(p: Problem, plan: Planner) -> bool:
    """Whether B is a large matrix of floats with adjacent columns, and A has few rows."""
    t = p.types
    if p.batch or len(p.rows) > 1 or len(p.columns) != 1 or len(p.summed) != 1 or not _supported(p):
        return False
    columns, summed = p.columns[0], p.summed[0]
    size = columns.extent * summed.extent
    if size < LEAST or total(p.rows) > _most_rows(p, size, plan):
        return False
    if columns.b != 1 or columns.c != 1 or summed.b < columns.extent:
        return False
    if not p.rows and t.routine is not None and blas.symbol(t.routine.replace("gemm", "gemv")):
        return False
    return columns.extent >= 4 * native.vector_bytes() // FLOAT32.size


def _most_rows(p: Problem, size: int, plan: Planner) -> int:
    """How many rows A may have, if B has this many elements."""
    packed = size < PACKED and plan.is_fixed(p.b, TURNS)
    return MANY if p.types.b == FLOAT32 and not packed else FEW


def _supported(p: Problem) -> bool:
    """Whether all types are floats whose products are summed in float32, and sizes are known."""
    t = p.types
    return are_known(*(x.extent for x in p.rows + p.columns)) and t.work == FLOAT32 and all(
        x is not None and x.kind in "fh" and x.size <= FLOAT32.size for x in (t.a, t.b, t.c))


@cache
def _text(spec: Kernel) -> str:
    """Tiles [lo, hi) of columns; the last tile of all overlaps the one before it.

    Arguments: refs of a, b and c; N, K, the strides of a's rows and terms, of b's rows and c's."""
    f = kernel(PLAIN)
    tiles = {rows: _tile_function(spec, rows) for rows in dict.fromkeys(n for _, n in spec.groups)}
    a, b, c = (f.buffer(i) for i in (0, 2, 4))
    n, k, a_row, a_sum, b_row, c_row = (f.argument(i) for i in range(6, 12))
    width, vector = spec.width, typed("float", spec.lanes)
    held, terms = f.alloca("float", HELD, 64), f.alloca("float", STEPS * spec.rows, 64)
    room = f.mul(f.sub("%hi", "%lo"), width * spec.rows)
    f.do(f"call void @llvm.memset.p0.i64(ptr {held}, i8 0, i64 {f.mul(room, 4)}, i1 false)")
    last = f.sub(n, width)

    def sums(t: str) -> str:
        """The sums of a tile."""
        return f.at(held, f.mul(f.sub(t, "%lo"), width * spec.rows), "float")

    with f.loop(0, k, STEPS, vectorize=False) as row:
        count = f.smin(f.sub(k, row), STEPS)
        ahead = f.smin(f.add(row, STEPS), f.sub(k, count))  # stays inside B
        start, factors = f.at(b, f.mul(row, b_row), spec.b.llvm), f.at(
            a, f.mul(row, a_sum), spec.a.llvm)
        with f.loop(0, spec.rows, vectorize=False) as m, f.loop(0, count, vectorize=False) as i:
            place = f.at(factors, f.add(f.mul(i, a_sum), f.mul(m, a_row)), spec.a.llvm)
            value = convert(f, f.load(spec.a.llvm, place, spec.a.size), spec.a, FLOAT32)
            f.store("float", value, f.at(terms, f.add(f.mul(i, spec.rows), m), "float"), 4)
        distance = f.mul(f.mul(f.sub(ahead, row), b_row), spec.b.size)
        with f.loop("%lo", "%hi", vectorize=False) as t:
            from_b, to = f.at(start, f.smin(f.mul(t, width), last), spec.b.llvm), sums(t)
            for first, rows in spec.groups:
                f.call(tiles[rows], f.at(to, first * width, "float"), f.at(terms, first, "float"),
                       from_b, count, b_row, distance)
    with f.loop("%lo", "%hi", vectorize=False) as t:
        to = f.at(c, f.smin(f.mul(t, width), last), spec.c.llvm)
        with f.loop(0, spec.rows, vectorize=False) as m:
            source, row = f.at(sums(t), f.mul(m, width), "float"), f.at(
                to, f.mul(m, c_row), spec.c.llvm)
            for v in range(0, width, spec.lanes):
                value = f.load(vector, f.at(source, v, "float"), 4)
                f.store(typed(spec.c.llvm, spec.lanes),
                        convert(f, value, FLOAT32, spec.c, spec.lanes), f.at(row, v, spec.c.llvm),
                        spec.c.size)
    return native.WRITTEN_OUT + module(*tiles.values(), f)


def _tile_function(spec: Kernel, rows: int) -> Function:
    """sums += a b for `count` rows of b and a tile of columns; rows `ahead` bytes are prefetched.

    `a` holds the terms of all of its rows side by side, of which `rows` are multiplied."""
    f = inner(f"tile{rows}", "ptr noalias %sums, ptr noalias %a, ptr noalias %b, i64 %count, "
              "i64 %b_row, i64 %ahead", NOINLINE)
    lanes, vector = spec.lanes, typed("float", spec.lanes)
    places = [[f.at("%sums", m * spec.width + v * lanes, "float") for v in range(spec.vectors)]
              for m in range(rows)]
    slots = [[f.variable(vector, f.load(vector, place, 4)) for place in row] for row in places]
    with f.loop(0, "%count", vectorize=False) as i:
        row, terms = f.at("%b", f.mul(i, "%b_row"), spec.b.llvm), f.at(
            "%a", f.mul(i, spec.rows), "float")
        for byte in range(0, spec.width * spec.b.size, LINE):
            place = f.offset(f.offset(row, "%ahead"), byte)
            f.do(f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 2, i32 1)")
        numbers = [convert(f, f.load(typed(spec.b.llvm, lanes), f.at(row, v * lanes, spec.b.llvm),
                                     spec.b.size), spec.b, FLOAT32, lanes)
                   for v in range(spec.vectors)]
        for m, totals in enumerate(slots):
            factor = f.splat("float", f.load("float", f.at(terms, m, "float"), 4), lanes)
            for slot, number in zip(totals, numbers, strict=True):
                total = f.multiply_add(factor, number, f.load(vector, slot), "float", lanes)
                f.store(vector, total, slot)
    for row_places, totals in zip(places, slots, strict=True):
        for place, slot in zip(row_places, totals, strict=True):
            f.store(vector, f.load(vector, slot), place, 4)
    return f
