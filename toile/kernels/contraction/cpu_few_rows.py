"""Many products of few rows each, such as those of attention when it continues texts.

A unit is one product. Its matrix B is read once, as it is stored, and its elements are converted in
registers; other kernels would copy it to panels first, which takes longer than the product. If the
summed axis of B is contiguous, each element of C is a sum over the lanes of a vector; the sums of
as many columns as there are lanes are then added up together. Otherwise, vectors hold adjacent
columns of C.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from toile.compiler.ir.extents import are_known
from toile.compiler.ir.operands import Args
from toile.kernels.contraction.cpu_axes import Problem, total
from toile.kernels.contraction.cpu_cuts import SERIAL
from toile.kernels.contraction.cpu_panels import PLAIN
from toile.kernels.contraction.cpu_tiles import outer_offsets
from toile.kernels.contraction.shared import Axis
from toile.targets.llvm import native
from toile.targets.llvm.launches import Launch, Planner
from toile.targets.llvm.product_types import FLOAT32, Element, convert
from toile.targets.llvm.text import Function, kernel, module, typed

FEW = 8  # rows
REGISTERS = 24, 10  # for sums, with 32 and with 16 vector registers


class Kernel(NamedTuple):
    """What determines the text of a kernel."""

    rows: int
    lanes: int
    vectors: int  # of adjacent columns; 0 if the summed axis of B is contiguous
    a: Element
    b: Element
    c: Element


def lower(p: Problem, plan: Planner) -> bool:
    """One launch over all products; False if other kernels should compute them."""
    lanes = native.vector_bytes() // FLOAT32.size
    for given in (p, p.mirrored):
        if _fits(given, lanes):
            break
    else:
        return False
    t, columns, summed = given.types, given.columns[0], given.summed[0]
    assert t.a and t.b and t.c
    rows = given.rows[0] if given.rows else Axis(1, 0, 0, 0)
    vectors, b_row = 0, columns.b
    if summed.b != 1:
        b_row = summed.b
        free = REGISTERS[lanes < 16] // rows.extent
        vectors = max(1, min(4, free, columns.extent // lanes))
    spec = Kernel(rows.extent, lanes, vectors, t.a, t.b, t.c)
    each = rows.extent * columns.extent * summed.extent
    units = total(given.batch)
    outer = [x for axis in given.batch for x in axis]
    args: Args = (given.a, given.b, given.c, columns.extent, summed.extent, rows.a, summed.a,
                  b_row, rows.c, len(given.batch), *outer)
    plan.stage(Launch(_text(spec), args, units, max(1, SERIAL // each), "products of few rows"))
    return True


def _fits(p: Problem, lanes: int) -> bool:
    """Whether all products have few rows of floats, and B is contiguous along one of its axes."""
    if not p.batch or len(p.rows) > 1 or len(p.columns) != 1 or len(p.summed) != 1:
        return False
    columns, summed = p.columns[0], p.summed[0]
    if not are_known(columns.extent, summed.extent, total(p.rows)) or not _are_floats(p):
        return False
    if total(p.rows) > FEW or columns.extent < lanes or columns.c != 1:
        return False
    if summed.b == 1:
        return summed.a == 1 and summed.extent % lanes == 0
    return columns.b == 1


def _are_floats(p: Problem) -> bool:
    """Whether all types are floats whose products are summed in float32."""
    t = p.types
    return t.work == FLOAT32 and all(
        x is not None and x.kind in "fh" and x.size <= FLOAT32.size for x in (t.a, t.b, t.c))


@cache
def _text(spec: Kernel) -> str:
    """Products [lo, hi). The last columns of a product overlap those before.

    Arguments: refs of a, b and c; N, K, the strides of a's rows and terms, of b's and of c's rows;
    outer axes."""
    f = kernel(PLAIN)
    types = (spec.a, spec.b, spec.c)
    bases = [f.buffer(i) for i in (0, 2, 4)]
    n, k, a_row, a_sum, b_row, c_row = (f.argument(i) for i in range(6, 12))
    width = spec.lanes * max(1, spec.vectors)
    room = f.alloca("float", spec.rows * spec.lanes * spec.lanes, 64)
    with f.loop("%lo", "%hi", vectorize=False) as unit:
        a, b, c = outer_offsets(f, unit, 12, bases, types)
        with f.loop(0, n, width, vectorize=False) as column:
            first = f.smin(column, f.sub(n, width))
            to = f.at(c, first, spec.c.llvm)
            if spec.vectors:
                _columns(f, spec, (a, f.at(b, first, spec.b.llvm), to), k, a_row, a_sum, b_row,
                         c_row)
            else:
                rows = f.at(b, f.mul(first, b_row), spec.b.llvm)
                _dots(f, spec, (a, rows, to), k, a_row, b_row, c_row, room)
    return module(f)


def _number(f: Function, type_: Element, place: str, lanes: int = 1) -> str:
    """One or several adjacent numbers, in float32."""
    stored = f.load(typed(type_.llvm, lanes), place, type_.size)
    return convert(f, stored, type_, FLOAT32, lanes)


def _store(f: Function, spec: Kernel, value: str, place: str) -> None:
    stored = convert(f, value, FLOAT32, spec.c, spec.lanes)
    f.store(typed(spec.c.llvm, spec.lanes), stored, place, spec.c.size)


def _columns(f: Function, spec: Kernel, places: Sequence[str], k: str, a_row: str, a_sum: str,
             b_row: str, c_row: str) -> None:
    """Sums of a few vectors of columns, where the columns of B are adjacent."""
    a, b, c = places
    vector = typed("float", spec.lanes)
    columns = [v * spec.lanes for v in range(spec.vectors)]
    sums = [[f.variable(vector, "zeroinitializer") for _ in columns] for _ in range(spec.rows)]
    with f.loop(0, k, vectorize=False) as i:
        row = f.at(b, f.mul(i, b_row), spec.b.llvm)
        numbers = [_number(f, spec.b, f.at(row, j, spec.b.llvm), spec.lanes) for j in columns]
        for m, totals in enumerate(sums):
            place = f.at(a, f.add(f.mul(i, a_sum), f.mul(m, a_row)), spec.a.llvm)
            factor = f.splat("float", _number(f, spec.a, place), spec.lanes)
            for slot, number in zip(totals, numbers, strict=True):
                total_ = f.multiply_add(factor, number, f.load(vector, slot), "float", spec.lanes)
                f.store(vector, total_, slot)
    for m, totals in enumerate(sums):
        row = f.at(c, f.mul(m, c_row), spec.c.llvm)
        for slot, j in zip(totals, columns, strict=True):
            _store(f, spec, f.load(vector, slot), f.at(row, j, spec.c.llvm))


def _dots(f: Function, spec: Kernel, places: Sequence[str], k: str, a_row: str, b_row: str,
          c_row: str, room: str) -> None:
    """Sums of as many columns as there are lanes, where the terms of a sum are adjacent in B."""
    a, b, c = places
    lanes, vector = spec.lanes, typed("float", spec.lanes)
    together = 4 if spec.rows <= 4 else 2
    with f.loop(0, lanes, together, vectorize=False) as column:
        rows = [f.at(b, f.mul(f.add(column, j), b_row), spec.b.llvm) for j in range(together)]
        sums = [[f.variable(vector, "zeroinitializer") for _ in rows] for _ in range(spec.rows)]
        with f.loop(0, k, lanes, vectorize=False) as i:
            numbers = [_number(f, spec.b, f.at(row, i, spec.b.llvm), lanes) for row in rows]
            for m, totals in enumerate(sums):
                place = f.at(a, f.add(i, f.mul(m, a_row)), spec.a.llvm)
                factors = _number(f, spec.a, place, lanes)
                for slot, number in zip(totals, numbers, strict=True):
                    total_ = f.multiply_add(factors, number, f.load(vector, slot), "float", lanes)
                    f.store(vector, total_, slot)
        for m, totals in enumerate(sums):
            for j, slot in enumerate(totals):
                at = f.mul(f.add(f.add(column, j), m * lanes), lanes)
                f.store(vector, f.load(vector, slot), f.at(room, at, "float"), 4)
    for m in range(spec.rows):
        held = [f.load(vector, f.at(room, (m * lanes + j) * lanes, "float"), 4)
                for j in range(lanes)]
        _store(f, spec, _sums_of_lanes(f, held), f.at(c, f.mul(m, c_row), spec.c.llvm))


def _sums_of_lanes(f: Function, vectors: Sequence[str]) -> str:
    """A vector whose lane j is the sum of the lanes of vector j."""
    lanes = len(vectors)
    type_, step = typed("float", lanes), 1
    while len(vectors) > 1:
        # Lane i of a new vector is the sum of two lanes of the vector that i's bits select.
        halves = []
        for offset in (0, step):
            places = [(i & ~step) + offset + (lanes if i & step else 0) for i in range(lanes)]
            mask = ", ".join(f"i32 {i}" for i in places)
            halves.append([f.value(f"shufflevector {type_} {x}, {type_} {y}, "
                                   f"<{lanes} x i32> <{mask}>")
                           for x, y in zip(vectors[::2], vectors[1::2], strict=True)])
        vectors = [f.value(f"fadd {type_} {x}, {y}") for x, y in zip(*halves, strict=True)]
        step *= 2
    return vectors[0]
