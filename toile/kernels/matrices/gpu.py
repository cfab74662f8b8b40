"""Decompositions of matrices, and solutions from their factors, by cuSOLVER and cuBLAS.

The libraries store matrices by columns: they see the transpose of a row-major matrix. With the
other triangle, a triangular solve or a Cholesky factor of the transpose is the transpose of the
wanted one; this does not hold for other factors, so matrices are transposed before and after. Many
small matrices take one call where a library has such a routine. Where a decomposition fails, its
results are NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from toile.compiler.ir.geometry import dense, in_place, part, room
from toile.compiler.ir.operands import Operand, Ref
from toile.engine import dtypes
from toile.kernels.copy.gpu_relayout import Fill, addresses
from toile.kernels.matrices import gpu_qr
from toile.kernels.matrices import gpu_texts as texts
from toile.kernels.matrices import gpu_tiny as tiny
from toile.kernels.matrices.shared import by_columns, transposed
from toile.targets.cuda import cusolver
from toile.targets.cuda.cusolver import LEFT, LOWER, NO_VECTORS, RIGHT, UPPER, VECTORS

# Measured on an H200.
_TINY = 32  # rows up to which the libraries have kernels of their own for batches
_MANY = 32  # rows, for each matrix of a batch, up to which LU factors are found in one call
_LARGE = 1024  # rows from which a few Cholesky factors are found one after the other
_JACOBI = 1024  # rows and columns up to which singular values are found by Jacobi's method
_INT = np.dtype(np.int32)


def _engine(x: Operand) -> Any:
    """The libraries; None if there are none, or if they do not support this dtype."""
    if not x.size or x.dtype.name not in cusolver.LETTERS:
        return None
    return cusolver.engine()


def _count(x: Operand) -> int:
    return prod(x.shape[:-2])


def _nbytes(*extents: int, dtype: Any) -> int:
    return prod(extents) * dtype.itemsize


def _kept(x: Operand, axis: int, start: int, stop: int) -> Operand:
    """A part of an array along one axis."""
    shape = [*x.shape]
    starts = [0] * len(shape)
    shape[axis], starts[axis] = stop - start, start
    return part(x, starts, shape)


def _addressed(plan: Any, count: int, *arrays: tuple[Ref, int]) -> list[Ref]:
    """For each array, given with its step in bytes, an array of the addresses of its matrices."""
    held = plan.scratch(24 * count)
    given = [*arrays, *[arrays[-1]] * (3 - len(arrays))]
    axes = [(count, *(step for _, step in given))]
    plan.stage(addresses(held, [ref for ref, _ in given], axes))
    return [held.at(8 * count * i) for i in range(len(arrays))]


def _called(
    plan: Any, on: Any, name: str, x: Operand, numbers: Sequence[int],
    *places: tuple[Ref, int], given: int = 0,
) -> None:
    """Add calls of a routine for all matrices of a batch."""
    cusolver.call(plan, on, name, x.dtype, numbers, places, _count(x), given)


# ----------------------------------------------------------------------------------- factorizations


def lower_cholesky(op: Any, ins: list[Operand], outs: list[Operand], plan: Any) -> bool:
    """Cholesky. The libraries are faster with lower triangles, except for the smallest matrices."""
    (x,), (out,) = ins, outs
    on = _engine(x)
    if on is None:
        return False
    n, count = x.shape[-1], _count(x)
    if tiny.fits(x.dtype, n):
        plan.stage(tiny.cholesky(out.ref, plan.contiguous(x).ref, x.dtype, n, count))
        return True
    status, step = plan.scratch(4 * count), _nbytes(n, n, dtype=x.dtype)
    turned = n > _TINY
    if turned:
        made = by_columns(plan, x)
    else:
        made = out
        if not in_place(x, out):
            plan.copy(out, x)
    numbers = (LOWER if turned else UPPER, n)
    if count > 4 or (count > 1 and n < _LARGE):
        (at,) = _addressed(plan, count, (made.ref, step))
        cusolver.call(plan, on, "potrfBatched", x.dtype, numbers, [(at, 0), (status, 0)], count,
                      behind=[made.ref])
    else:
        _called(plan, on, "potrf", x, numbers, (made.ref, step), (status, 4))
    if turned:
        plan.copy(out, transposed(made))
    plan.stage(texts.lower_triangle(out.ref, status, x.dtype, n, count))
    return True


def lower_lu(op: Any, ins: list[Operand], outs: list[Operand], plan: Any) -> bool:
    """Lu and LuFactors, which does not return the order of the rows."""
    (x,), (packed, pivots, *order) = ins, outs
    on = _engine(x)
    if on is None:
        return False
    *_, m, n = x.shape
    count, small = _count(x), min(m, n)
    if tiny.fits(x.dtype, m, n):
        plan.stage(tiny.lu(packed.ref, pivots.ref, order[0].ref if order else None,
                           plan.contiguous(x).ref, x.dtype, m, n, count))
        return True
    columns, status = by_columns(plan, x), plan.scratch(4 * count)
    step = _nbytes(m, n, dtype=x.dtype)
    if count > 1 and m == n <= _MANY * count:
        (at,) = _addressed(plan, count, (columns.ref, step))
        places = [(at, 0), (pivots.ref, 0), (status, 0)]
        cusolver.call(plan, on, "getrfBatched", x.dtype, (n,), places, count, behind=[columns.ref])
    else:
        _called(plan, on, "getrf", x, (m, n), (columns.ref, step), (pivots.ref, 4 * small),
                (status, 4))
    plan.stage(texts.one_less(pivots.ref, count * small))
    if order:
        plan.stage(texts.row_order(order[0].ref, pivots.ref, m, small, count))
    plan.copy(packed, transposed(columns))
    return True


def lower_order(op: Any, ins: list[Operand], outs: list[Operand], plan: Any) -> bool:
    """LuPivotsToPermutation."""
    (swaps,), (out,) = ins, outs
    if not swaps.size:
        return False
    swaps = plan.contiguous(swaps)
    plan.stage(texts.row_order(out.ref, swaps.ref, out.shape[-1], swaps.shape[-1],
                               prod(swaps.shape[:-1])))
    return True


def lower_qr(op: Any, ins: list[Operand], outs: list[Operand], plan: Any) -> bool:
    """Qr without pivoting."""
    (x,) = ins
    on = None if op.pivoting else _engine(x)
    if on is None:
        return False
    q, r = outs
    *batch, m, n = x.shape
    k, small, count = q.shape[-1], min(m, n), _count(x)
    if gpu_qr.fits(x.dtype, m, n) and (count > 1 or max(m, n) <= _TINY):
        plan.stage(gpu_qr.launch(q.ref, r.ref, plan.contiguous(x).ref, x.dtype, (m, n, k), count))
        return True
    columns, wide = by_columns(plan, x), room(plan, (*batch, k, m), x.dtype)
    factors, status = room(plan, (*batch, small), x.dtype), plan.scratch(4 * count)
    taus = (factors.ref, _nbytes(small, dtype=x.dtype))
    _called(plan, on, "geqrf", x, (m, n), (columns.ref, _nbytes(m, n, dtype=x.dtype)), taus,
            (status, 4))
    plan.stage(texts.upper_triangle(r.ref, columns.ref, x.dtype, (k, n, m), count))
    copied = min(k, n)
    if copied < k:
        plan.call(Fill(wide.ref, _nbytes(*wide.shape, dtype=x.dtype)))
    plan.copy(_kept(wide, -2, 0, copied), _kept(columns, -2, 0, copied))
    _called(plan, on, "orgqr", x, (m, k, small), (wide.ref, _nbytes(m, k, dtype=x.dtype)), taus,
            (status, 4))
    plan.copy(q, transposed(wide))
    return True


def lower_eigh(op: Any, ins: list[Operand], outs: list[Operand], plan: Any) -> bool:
    """Eigh."""
    (x,), (vectors, values) = ins, outs
    on = _engine(x)
    if on is None or not vectors.size:
        return False
    *batch, n, _ = x.shape
    count, real = _count(x), values.dtype
    columns, status = by_columns(plan, x), plan.scratch(4 * count)
    found = values if values.shape[-1] == n else room(plan, (*batch, n), real)
    name = "syevjBatched" if n <= _TINY else "syevd"
    if count > 1 and n > _TINY and on.has("XsyevBatched"):
        name = "XsyevBatched"
    _called(plan, on, name, x, (VECTORS, LOWER if op.lower else UPPER, n),
            (columns.ref, _nbytes(n, n, dtype=x.dtype)), (found.ref, _nbytes(n, dtype=real)),
            (status, 4))
    _nan_if_failed(plan, status, count, columns, found)
    start, stop = op.subset_by_index or (0, n)
    plan.copy(vectors, _kept(transposed(columns), -1, start, stop))
    if found is not values:
        plan.copy(values, _kept(found, -1, start, stop))
    return True


def _nan_if_failed(plan: Any, status: Ref, count: int, *arrays: Operand) -> None:
    """Replace the results for matrices whose decomposition failed by NaN."""
    plan.stage(*(texts.nan_where_failed(a.ref, status, a.dtype, a.size // count, count)
                 for a in arrays))


def lower_svd(op: Any, ins: list[Operand], outs: list[Operand], plan: Any) -> bool:
    """Svd."""
    (x,), (values, *vectors) = ins, outs
    on = _engine(x)
    if on is None or not values.size:
        return False
    *batch, m, n = x.shape
    small, count = min(m, n), _count(x)
    status, found = plan.scratch(4 * count), values
    if values.shape[-1] != small:
        found = room(plan, (*batch, small), values.dtype)
    jacobi = max(m, n) <= _JACOBI and op.algorithm != "qr"
    decompose = _by_jacobi if jacobi else _by_qr
    left, right = decompose(plan, on, x, found, status, bool(vectors), op.full_matrices)
    made = [left, right] if vectors else []
    _nan_if_failed(plan, status, count, found, *(_dense_of(a) for a in made))
    start, stop = op.subset_by_index or (0, small)
    stop = min(stop, small)
    if found is not values:
        plan.copy(values, _kept(found, -1, start, stop))
    for target, source, axis in zip(vectors, made, (-1, -2), strict=False):
        kept = (0, target.shape[axis]) if op.full_matrices else (start, stop)
        plan.copy(target, _kept(source, axis, *kept))
    return True


def _dense_of(x: Operand) -> Operand:
    """The array or its transpose, whichever is dense."""
    return x if x.contiguous else transposed(x)


_Vectors = tuple[Operand, Operand]


def _by_jacobi(
    plan: Any, on: Any, x: Operand, values: Operand, status: Ref, vectors: bool, full: bool
) -> _Vectors:
    """U and the adjoint of V, by Jacobi's method."""
    *batch, m, n = x.shape
    small = min(m, n)
    at_once = max(m, n) <= _TINY  # the batched routine returns square U and V
    k, j = (m, n) if full or at_once else (small, small)
    columns = by_columns(plan, x)
    # The library uses the memory of vectors even if none are wanted.
    left, right = room(plan, (*batch, k, m), x.dtype), room(plan, (*batch, j, n), x.dtype)
    job = VECTORS if vectors else NO_VECTORS
    numbers = (job, m, n) if at_once else (job, int(not full), m, n)
    _called(plan, on, "gesvdjBatched" if at_once else "gesvdj", x, numbers,
            (columns.ref, _nbytes(m, n, dtype=x.dtype)),
            (values.ref, _nbytes(small, dtype=values.dtype)),
            (left.ref, _nbytes(m, k, dtype=x.dtype)), (right.ref, _nbytes(n, j, dtype=x.dtype)),
            (status, 4))
    if vectors and dtypes.kind(x.dtype) == "c":
        plan.stage(texts.conjugate(right.ref, right.dtype, right.size))
    return transposed(left), right


def _by_qr(
    plan: Any, on: Any, x: Operand, values: Operand, status: Ref, vectors: bool, full: bool
) -> _Vectors:
    """U and the adjoint of V, by QR iterations, which need at least as many rows as columns: a
    wide matrix is transposed for the library, which exchanges U and V."""
    *batch, m, n = x.shape
    wide, small = m < n, min(m, n)
    rows = max(m, n)
    if wide:
        columns = room(plan, x.shape, x.dtype)
        plan.copy(columns, x)
    else:
        columns = by_columns(plan, x)
    k = rows if full else small
    left = room(plan, (*batch, k, rows), x.dtype)
    right = room(plan, (*batch, small, small), x.dtype)
    job = ord("N" if not vectors else "A" if full else "S")
    _called(plan, on, "gesvd", x, (job, rows, small, small),
            (columns.ref, _nbytes(m, n, dtype=x.dtype)),
            (values.ref, _nbytes(small, dtype=values.dtype)),
            (left.ref, _nbytes(rows, k, dtype=x.dtype)),
            (right.ref, _nbytes(small, small, dtype=x.dtype)), (status, 4))
    return (right, left) if wide else (transposed(left), transposed(right))


# --------------------------------------------------------------------------------------- solutions


def lower_triangular_solve(op: Any, ins: list[Operand], outs: list[Operand], plan: Any) -> bool:
    """TriangularSolve."""
    (a, b), (out,) = ins, outs
    on = _engine(b)
    if on is None:
        return False
    a = plan.contiguous(a)
    if tiny.fits(a.dtype, a.shape[-1]):
        how = op.left_side, op.lower, op.transpose_a, op.unit_diagonal
        plan.stage(tiny.triangular(out.ref, a.ref, plan.contiguous(b).ref, a.dtype,
                                   (a.shape[-1], *b.shape[-2:], _count(b)), how))
        return True
    if op.conjugate_a and not op.transpose_a and dtypes.kind(a.dtype) == "c":
        conjugated = room(plan, a.shape, a.dtype)
        plan.copy(conjugated, a)
        plan.stage(texts.conjugate(conjugated.ref, a.dtype, a.size))
        a = conjugated
    if not in_place(b, out):
        plan.copy(out, b)
    operation = _operation(op.transpose_a, op.conjugate_a)
    _solve(plan, on, a, out, op.left_side, op.lower, operation, op.unit_diagonal)
    return True


def _operation(transposed: bool, conjugated: bool) -> int:
    """The code of an operation on a matrix: none, transposed or adjoint."""
    return 0 if not transposed else 2 if conjugated else 1


def _solve(
    plan: Any, on: Any, a: Operand, b: Operand, left: bool, lower: bool, how: int, unit: bool
) -> None:
    """Solve with triangles of row-major matrices; the solutions replace b."""
    *_, rows, columns = b.shape
    n, count, dtype = a.shape[-1], _count(b), b.dtype
    sizes = (columns, n) if left else (n, rows)
    numbers = (RIGHT if left else LEFT, UPPER if lower else LOWER, how, int(unit), *sizes, n,
               columns)
    steps = _nbytes(n, n, dtype=dtype), _nbytes(rows, columns, dtype=dtype)
    if count == 1 and sizes[0 if left else 1] == 1 and (how < 2 or dtype.kind != "c"):
        # One vector: this routine is ten times as fast. The matrix is transposed in memory.
        vector = UPPER if lower else LOWER, int(left == (how == 0)), int(unit), n, 1
        _called(plan, on, "trsv", b, vector, (a.ref, steps[0]), (b.ref, steps[1]), given=1)
    elif count > 1:
        at = _addressed(plan, count, (a.ref, steps[0]), (b.ref, steps[1]))
        cusolver.call(plan, on, "trsmBatched", dtype, numbers, [(r, 0) for r in at], count, given=2,
                      behind=[a.ref, b.ref], behind_given=1)
    else:
        _called(plan, on, "trsm", b, numbers, (a.ref, steps[0]), (b.ref, steps[1]), given=1)


def lower_factored_solve(op: Any, ins: list[Operand], outs: list[Operand], plan: Any) -> bool:
    """FactoredSolve."""
    (_, packed, pivots, b), (out,) = ins, outs
    on = _engine(b)
    if on is None:
        return False
    packed, pivots = plan.contiguous(packed), plan.contiguous(pivots)
    *batch, n, columns = b.shape
    count = _count(b)
    if tiny.fits(b.dtype, n):
        plan.stage(tiny.factored(out.ref, packed.ref, pivots.ref, plan.contiguous(b).ref, b.dtype,
                                 (n, columns, count), op.transposed))
        return True
    order = dense(plan.scratch(4 * count * n), (*batch, n), _INT)
    plan.stage(texts.row_order(order.ref, pivots.ref, n, n, count))
    how, sizes = int(op.transposed), (b.dtype.itemsize, columns, n, count)
    if op.transposed:
        made = room(plan, b.shape, b.dtype)
        plan.copy(made, b)
        _solve(plan, on, packed, made, True, False, how, False)
        _solve(plan, on, packed, made, True, True, how, True)
        plan.stage(texts.rows_moved(out.ref, made.ref, order.ref, sizes, True))
        return True
    if b.ref.buffer is out.ref.buffer or not b.contiguous:
        copied = room(plan, b.shape, b.dtype)
        plan.copy(copied, b)
        b = copied
    plan.stage(texts.rows_moved(out.ref, b.ref, order.ref, sizes, False))
    _solve(plan, on, packed, out, True, True, how, True)
    _solve(plan, on, packed, out, True, False, how, False)
    return True
