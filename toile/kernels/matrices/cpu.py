"""Decompositions of matrices, and solutions from their factors, by calls of LAPACK and BLAS.

Each unit of a launch is one matrix of a batch, or some columns of its right-hand sides. The
libraries store matrices by columns: they see the transpose of a row-major matrix. With the other
triangle, a triangular solve or a Cholesky factor of the transpose is the transpose of the wanted
one; this does not hold for other factors, so matrices are transposed before and after. Where a
decomposition fails, its results are NaN. Vectors that nothing reads are not computed.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

from toile.compiler.ir.geometry import in_place, room
from toile.compiler.ir.operands import Args, Operand
from toile.kernels.copy.cpu import Reader
from toile.kernels.matrices.cpu_routines import (
    TYPES,
    Fortran,
    chunks_of,
    cost_of,
    filled,
    is_finite,
    letter_of,
    module,
    name_of,
)
from toile.kernels.matrices.shared import by_columns, transposed
from toile.primitives.arrays import lapack
from toile.targets.llvm import text as ir
from toile.targets.llvm.launches import Launch

_COLUMNS = 64  # right-hand sides of a unit, if there are more
_CHUNK_NS = 20_000.0  # nanoseconds that a chunk should take at least


def _copied(plan: Any, target: Operand, source: Operand) -> None:
    if not in_place(source, target):
        plan.copy(target, source)


def lower_cholesky(op: Any, ins: list[Operand], outs: list[Operand], plan: Any) -> bool:
    """Cholesky."""
    (x,), (out,) = ins, outs
    letter = letter_of(x, "potrf")
    if letter is None or not x.size:
        return False
    n = x.shape[-1]
    _copied(plan, out, x)
    _stage(plan, op, _cholesky_text(letter), (out.ref, n), prod(x.shape[:-2]), n**3 / 3)
    return True


def lower_lu(op: Any, ins: list[Operand], outs: list[Operand], plan: Any) -> bool:
    """Lu and LuFactors, which does not return the order of the rows."""
    (x,), (packed, pivots, *order) = ins, outs
    letter = letter_of(x, "getrf")
    if letter is None or not x.size:
        return False
    *batch, m, n = x.shape
    columns = by_columns(plan, x)
    args: Args = (columns.ref, pivots.ref, order[0].ref if order else pivots.ref, m, n)
    _stage(plan, op, _lu_text(letter, bool(order)), args, prod(batch), max(m, n) * min(m, n) ** 2)
    plan.copy(packed, transposed(columns))
    return True


def lower_order(op: Any, ins: list[Operand], outs: list[Operand], plan: Any) -> bool:
    """LuPivotsToPermutation."""
    (swaps,), (out,) = ins, outs
    if not swaps.size:
        return False
    swaps = plan.contiguous(swaps)
    rows, count = out.shape[-1], swaps.shape[-1]
    _stage(plan, op, _order_text(), (swaps.ref, out.ref, rows, count), prod(swaps.shape[:-1]),
           4 * rows)
    return True


def lower_qr(op: Any, ins: list[Operand], outs: list[Operand], plan: Any) -> bool:
    """Qr without pivoting."""
    (x,) = ins
    letter = None if op.pivoting else letter_of(x, "geqrf", "orgqr")
    if letter is None or not x.size:
        return False
    q, r = outs
    *batch, m, n = x.shape
    k = q.shape[-1]
    columns, wide = by_columns(plan, x), room(plan, (*batch, k, m), x.dtype)
    work = lapack.qr_work(m, n, k, x.dtype)
    units, size = prod(batch), x.dtype.itemsize
    grain, chunks = chunks_of(units, plan.threads)
    args: Args = (columns.ref, wide.ref, r.ref, plan.scratch(chunks * work * size),
                  plan.scratch(chunks * min(m, n) * size), m, n, k, work, grain)
    plan.stage(Launch(_qr_text(letter), args, units, grain, op.name,
                      cost=units * cost_of(4 * m * n * min(m, n))))
    plan.copy(q, transposed(wide))
    return True


def lower_eigh(op: Any, ins: list[Operand], outs: list[Operand], plan: Any) -> bool:
    """Eigh of whole matrices."""
    (x,), (vectors, values) = ins, outs
    n = x.shape[-1]
    letter = letter_of(x, "syevd") if op.subset_by_index in (None, (0, n)) else None
    if letter is None or not x.size:
        return False
    columns, both = by_columns(plan, x), plan.is_read(vectors)
    work, integers = lapack.eigh_work(op.lower, both, n, x.dtype)
    units = prod(x.shape[:-2])
    grain, chunks = chunks_of(units, plan.threads)
    args: Args = (columns.ref, values.ref, plan.scratch(chunks * work * x.dtype.itemsize),
                  plan.scratch(4 * chunks * integers), n, work, integers, grain)
    plan.stage(Launch(_eigh_text(letter, op.lower, both), args, units, grain, op.name,
                      cost=units * cost_of((9 if both else 4 / 3) * n**3)))
    if both:
        plan.copy(vectors, transposed(columns))
    return True


def lower_svd(op: Any, ins: list[Operand], outs: list[Operand], plan: Any) -> bool:
    """Svd by divide and conquer."""
    (x,), (values, *vectors) = ins, outs
    *batch, m, n = x.shape
    small = min(m, n)
    whole = op.subset_by_index in (None, (0, small)) and op.algorithm != "qr"
    letter = letter_of(x, "gesdd") if whole else None
    if letter is None or not x.size:
        return False
    if not any(map(plan.is_read, vectors)):
        vectors = []
    columns = by_columns(plan, x)
    k, j = (m, n) if op.full_matrices else (small, small)
    left, right = (room(plan, (*batch, k, m), x.dtype), room(plan, (*batch, n, j), x.dtype)) \
        if vectors else (columns, columns)
    (work,) = lapack.svd_work("gesdd", op.full_matrices, bool(vectors), m, n, x.dtype)
    units = prod(batch)
    grain, chunks = chunks_of(units, plan.threads)
    args: Args = (columns.ref, values.ref, left.ref, right.ref,
                  plan.scratch(chunks * work * x.dtype.itemsize),
                  plan.scratch(32 * chunks * small), m, n, k, j, work, grain)
    job = "N" if not vectors else "A" if op.full_matrices else "S"
    plan.stage(Launch(_svd_text(letter, job), args, units, grain, op.name,
                      cost=units * cost_of(20 * m * n * small)))
    for target, source in zip(vectors, (left, right), strict=False):
        plan.copy(target, transposed(source))
    return True


def lower_triangular_solve(op: Any, ins: list[Operand], outs: list[Operand], plan: Any) -> bool:
    """TriangularSolve."""
    (a, b), (out,) = ins, outs
    letter = letter_of(b, "trsm")
    if letter is None or not b.size:
        return False
    a = plan.contiguous(a)
    _copied(plan, out, b)
    *batch, rows, columns = b.shape
    n = a.shape[-1]
    free = columns if op.left_side else rows
    width = _width(free, prod(batch), plan.threads)
    blocks = -(-free // width)
    how = (op.left_side, op.lower, op.transpose_a, op.unit_diagonal)
    args: Args = (a.ref, out.ref, n, rows, columns, width, blocks)
    _stage(plan, op, _triangular_text(letter, *how), args, prod(batch) * blocks, n * n * width)
    return True


def lower_factored_solve(op: Any, ins: list[Operand], outs: list[Operand], plan: Any) -> bool:
    """FactoredSolve."""
    (_, packed, pivots, b), (out,) = ins, outs
    letter = letter_of(b, "trsm")
    if letter is None or not b.size:
        return False
    packed, pivots = plan.contiguous(packed), plan.contiguous(pivots)
    _copied(plan, out, b)
    *batch, n, columns = b.shape
    width = _width(columns, prod(batch), plan.threads)
    blocks = -(-columns // width)
    args: Args = (packed.ref, pivots.ref, out.ref, n, columns, width, blocks)
    _stage(plan, op, _factored_text(letter, op.transposed), args, prod(batch) * blocks,
           2 * n * n * width)
    return True


def _stage(plan: Any, op: Any, text: str, args: Args, units: int, flops: float) -> None:
    """Stage a kernel; a chunk has as many units as make it worth the time of claiming it."""
    cost = cost_of(flops)
    grain = max(1, int(_CHUNK_NS / cost))
    plan.stage(Launch(text, args, units, grain, op.name, cost=units * cost))


def _width(columns: int, batch: int, threads: int) -> int:
    """Right-hand sides of a unit: all of them, unless threads would have nothing to do."""
    if batch >= threads or columns <= _COLUMNS:
        return columns
    return max(_COLUMNS, -(-columns // (4 * threads)))


# ---------------------------------------------------------------------------------------- kernels


@cache
def _cholesky_text(letter: str) -> str:
    """The factor, or NaN if there is none, replaces the matrix; above the diagonal are zeros."""
    type, size, nan = TYPES[letter]
    name = name_of(letter, "potrf")
    f = ir.kernel()
    r, fortran = Reader(f), Fortran(f)
    x, n = r.buffer(), r.one()
    upper, order, info = fortran.letter("U"), fortran.word(n), f.variable("i32", 0)
    with f.loop("%lo", "%hi") as unit:
        a = f.offset(x, f.mul(unit, f.mul(f.mul(n, n), size)))
        fortran.call(name, upper, order, a, order, info)
        failed = f.compare("ne", f.load("i32", info), 0, "i32")
        with f.loop(0, n) as i:
            row = f.offset(a, f.mul(i, f.mul(n, size)))
            end = f.add(i, 1)
            with f.loop(end, n) as j:
                f.store(type, "0.0", f.at(row, j, type), size)
            with f.when(failed):
                with f.loop(0, end) as j:
                    f.store(type, nan, f.at(row, j, type), size)
    return module(f, **{name: 5})


@cache
def _lu_text(letter: str, ordered: bool) -> str:
    """The factors replace matrices that are stored by columns."""
    size = TYPES[letter][1]
    name = name_of(letter, "getrf")
    f = ir.kernel()
    r, fortran = Reader(f), Fortran(f)
    x, pivots, order, m, n = r.buffer(), r.buffer(), r.buffer(), r.one(), r.one()
    rows, columns, info = fortran.word(m), fortran.word(n), f.variable("i32", 0)
    count = f.smin(m, n)
    with f.loop("%lo", "%hi") as unit:
        a = f.offset(x, f.mul(unit, f.mul(f.mul(m, n), size)))
        own = f.at(pivots, f.mul(unit, count), "i32")
        fortran.call(name, rows, columns, a, rows, own, info)
        with f.loop(0, count) as i:
            place = f.at(own, i, "i32")
            f.store("i32", f.value(f"sub i32 {f.load('i32', place)}, 1"), place)
        if ordered:
            _put_order(f, f.at(order, f.mul(unit, m), "i32"), own, m, count)
    return module(f, **{name: 6})


def _put_order(f: ir.Function, to: str, swaps: str, rows: str, count: str) -> None:
    """Store the order of rows after some swaps."""
    with f.loop(0, rows) as i:
        f.store("i32", f.value(f"trunc i64 {i} to i32"), f.at(to, i, "i32"))
    with f.loop(0, count, vectorize=False) as i:
        other = f.value(f"sext i32 {f.load('i32', f.at(swaps, i, 'i32'))} to i64")
        with f.when(f.compare("ult", other, rows)):  # the user may have supplied the swaps
            here, there = f.at(to, i, "i32"), f.at(to, other, "i32")
            one, two = f.load("i32", here), f.load("i32", there)
            f.store("i32", two, here)
            f.store("i32", one, there)


@cache
def _order_text() -> str:
    f = ir.kernel()
    r = Reader(f)
    swaps, order, rows, count = r.buffer(), r.buffer(), r.one(), r.one()
    with f.loop("%lo", "%hi") as unit:
        _put_order(f, f.at(order, f.mul(unit, rows), "i32"),
                   f.at(swaps, f.mul(unit, count), "i32"), rows, count)
    return ir.module(f)


@cache
def _qr_text(letter: str) -> str:
    """R row by row, and Q by columns, of matrices that are stored by columns."""
    type, size, nan = TYPES[letter]
    factor, product = name_of(letter, "geqrf"), name_of(letter, "orgqr")
    f = ir.kernel()
    r, fortran = Reader(f), Fortran(f)
    x, q, upper, work, taus = (r.buffer() for _ in range(5))
    m, n, k, length, grain = r.many(5)
    small = f.smin(m, n)
    chunk = f.udiv("%lo", grain)
    work = f.at(work, f.mul(chunk, length), type)
    taus = f.at(taus, f.mul(chunk, small), type)
    rows, columns, wide, count, room_ = (fortran.word(v) for v in (m, n, k, small, length))
    info = f.variable("i32", 0)
    with f.loop("%lo", "%hi") as unit:
        a = f.at(x, f.mul(unit, f.mul(m, n)), type)
        own = f.at(q, f.mul(unit, f.mul(m, k)), type)
        above = f.at(upper, f.mul(unit, f.mul(k, n)), type)
        fortran.call(factor, rows, columns, a, rows, taus, work, room_, info)
        first = f.compare("ne", f.load("i32", info), 0, "i32")
        with f.loop(0, k) as i:
            row = f.at(above, f.mul(i, n), type)
            with f.loop(0, f.smin(i, n)) as j:
                f.store(type, "0.0", f.at(row, j, type))
            with f.loop(i, n) as j:
                f.store(type, f.load(type, f.at(a, f.add(f.mul(j, m), i), type)),
                        f.at(row, j, type))
        copied = f.smin(k, n)
        f.copy(own, a, f.mul(f.mul(copied, m), size))
        with f.loop(f.mul(copied, m), f.mul(k, m)) as i:
            f.store(type, "0.0", f.at(own, i, type))
        fortran.call(product, rows, wide, count, own, rows, taus, work, room_, info)
        second = f.compare("ne", f.load("i32", info), 0, "i32")
        with f.when(f.value(f"or i1 {first}, {second}")):
            filled(f, type, nan, (own, f.mul(m, k)), (above, f.mul(k, n)))
    return module(f, **{factor: 8, product: 9})


@cache
def _eigh_text(letter: str, lower: bool, vectors: bool) -> str:
    """The eigenvectors, if requested, replace matrices that are stored by columns."""
    type, _, nan = TYPES[letter]
    name = name_of(letter, "syevd")
    f = ir.kernel()
    r, fortran = Reader(f), Fortran(f)
    x, values, work, integers = (r.buffer() for _ in range(4))
    n, length, more, grain = r.many(4)
    chunk = f.udiv("%lo", grain)
    work, integers = (f.at(work, f.mul(chunk, length), type),
                      f.at(integers, f.mul(chunk, more), "i32"))
    job, triangle = fortran.letter("V" if vectors else "N"), fortran.letter("L" if lower else "U")
    order, room_, room_more = (fortran.word(v) for v in (n, length, more))
    info = f.alloca("i32")
    with f.loop("%lo", "%hi") as unit:
        count = f.mul(n, n)
        a, own = f.at(x, f.mul(unit, count), type), f.at(values, f.mul(unit, n), type)
        f.store("i32", 1, info)
        with f.when(is_finite(f, type, a, count)):
            fortran.call(name, job, triangle, order, a, order, own, work, room_, integers,
                         room_more, info)
        with f.when(f.compare("ne", f.load("i32", info), 0, "i32")):
            filled(f, type, nan, (a, count), (own, n))
    return module(f, **{name: 11})


@cache
def _svd_text(letter: str, job: str) -> str:
    """Singular values and, unless the job is N, both kinds of vectors, stored by columns."""
    type, _, nan = TYPES[letter]
    name = name_of(letter, "gesdd")
    f = ir.kernel()
    r, fortran = Reader(f), Fortran(f)
    x, values, left, right, work, integers = (r.buffer() for _ in range(6))
    m, n, k, j, length, grain = r.many(6)
    small = f.smin(m, n)
    chunk = f.udiv("%lo", grain)
    work, integers = (f.at(work, f.mul(chunk, length), type),
                      f.at(integers, f.mul(chunk, f.mul(small, 8)), "i32"))
    what = fortran.letter(job)
    rows, columns, inner, room_ = (fortran.word(v) for v in (m, n, j, length))
    info = f.alloca("i32")
    with f.loop("%lo", "%hi") as unit:
        count, of_left, of_right = f.mul(m, n), f.mul(m, k), f.mul(j, n)
        a, s = f.at(x, f.mul(unit, count), type), f.at(values, f.mul(unit, small), type)
        u, v = (a, a) if job == "N" else (f.at(left, f.mul(unit, of_left), type),
                                          f.at(right, f.mul(unit, of_right), type))
        f.store("i32", 1, info)
        with f.when(is_finite(f, type, a, count)):
            fortran.call(name, what, rows, columns, a, rows, s, u, rows, v, inner, work, room_,
                         integers, info)
        with f.when(f.compare("ne", f.load("i32", info), 0, "i32")):
            more = () if job == "N" else ((u, of_left), (v, of_right))
            filled(f, type, nan, (s, small), *more)
    return module(f, **{name: 14})


def _block(
    f: ir.Function, piece: str, blocks: str, width: str, free: str, count: str
) -> tuple[str, str, str]:
    """The matrix that a unit of work solves for, the index of the first of its right-hand sides,
    and their number, which is also stored in `count`."""
    matrix, block = f.divided(piece, blocks)
    first = f.mul(block, width)
    own = f.smin(width, f.sub(free, first))
    f.store("i32", f.value(f"trunc i64 {own} to i32"), count)
    return matrix, first, own


def _solve(
    fortran: Fortran, name: str, letter: str, left: bool, lower: bool, transposed: bool,
    unit: bool, sizes: tuple[str, str], a: str, lda: str, b: str, ldb: str,
) -> None:
    """Solve with a triangle of a row-major matrix; `sizes` are those of b as BLAS sees it."""
    f = fortran.f
    flags = [fortran.letter(c) for c in (
        "R" if left else "L", "U" if lower else "L", "T" if transposed else "N",
        "U" if unit else "N")]
    one = f.variable(TYPES[letter][0], "1.0")
    fortran.call(name, *flags, *sizes, one, a, lda, b, ldb)


@cache
def _triangular_text(letter: str, left: bool, lower: bool, transposed: bool, unit: bool) -> str:
    """The solution replaces the right-hand sides; a unit is a block of their free axis."""
    size, name = TYPES[letter][1], name_of(letter, "trsm")
    f = ir.kernel()
    r, fortran = Reader(f), Fortran(f)
    a, b, n, rows, columns, width, blocks = (r.buffer(), r.buffer(), *r.many(5))
    lda, ldb, count = fortran.word(n), fortran.word(columns), f.alloca("i32")
    other = fortran.word(n)
    with f.loop("%lo", "%hi") as piece:
        matrix, first, _ = _block(f, piece, blocks, width, columns if left else rows, count)
        start = first if left else f.mul(first, columns)
        at = f.offset(b, f.mul(f.add(f.mul(matrix, f.mul(rows, columns)), start), size))
        sizes = (count, other) if left else (other, count)
        _solve(fortran, name, letter, left, lower, transposed, unit, sizes,
               f.offset(a, f.mul(matrix, f.mul(f.mul(n, n), size))), lda, at, ldb)
    return module(f, **{name: 11})


@cache
def _factored_text(letter: str, transposed: bool) -> str:
    """Row swaps and two triangular solves, or the transposes of these in the other order."""
    type, size, _ = TYPES[letter]
    name = name_of(letter, "trsm")
    f = ir.kernel()
    r, fortran = Reader(f), Fortran(f)
    packed, pivots, b, n, columns, width, blocks = (
        r.buffer(), r.buffer(), r.buffer(), *r.many(4))
    lda, ldb, count = fortran.word(n), fortran.word(columns), f.alloca("i32")
    with f.loop("%lo", "%hi") as piece:
        matrix, first, own = _block(f, piece, blocks, width, columns, count)
        at = f.offset(b, f.mul(f.add(f.mul(matrix, f.mul(n, columns)), first), size))
        a = f.offset(packed, f.mul(matrix, f.mul(f.mul(n, n), size)))
        swaps = f.at(pivots, f.mul(matrix, n), "i32")

        def swap(backward: bool) -> None:
            with f.loop(0, n) as k:
                i = f.sub(f.sub(n, 1), k) if backward else k
                j = f.value(f"sext i32 {f.load('i32', f.at(swaps, i, 'i32'))} to i64")
                with f.when(f.compare("ne", i, j)):
                    one, two = (f.at(at, f.mul(v, columns), type) for v in (i, j))
                    with f.loop(0, own) as c:
                        p, q = f.at(one, c, type), f.at(two, c, type)
                        x, y = f.load(type, p, size), f.load(type, q, size)
                        f.store(type, y, p, size)
                        f.store(type, x, q, size)

        if not transposed:
            swap(False)
        for lower in ((False, True) if transposed else (True, False)):
            _solve(fortran, name, letter, True, lower, transposed, lower, (count, lda), a, lda, at,
                   ldb)
        if transposed:
            swap(True)
    return module(f, **{name: 11})
