"""Polar decomposition by QR-based dynamically weighted Halley iterations (QDWH).

The algorithm is described by Nakatsukasa, Bai and Gygi, SIAM J. Matrix Anal. Appl. 31 (2010) 2700.
The weights depend only on a lower bound on the smallest singular value, so they are computed before
the matrix is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.annotations import Array, ArrayLike
from toile.engine.avals import Aval
from toile.engine.conversion import as_array
from toile.engine.source import here
from toile.lax.loops import while_loop
from toile.primitives.bits import and_, eq, gt, lt, not_
from toile.primitives.dynamic_slices import DynamicSlice, dynamic_update_slice
from toile.primitives.elementwise import abs_, convert, select
from toile.primitives.families import (
    add,
    broadcast_in_dim,
    full_like,
    mul,
    reduce_sum,
    scalar,
    sub,
    zeros,
)
from toile.primitives.linalg import adjoint, conjugate, eye, matmul, swapped
from toile.primitives.linalg_factor import Cholesky, Qr
from toile.primitives.linalg_solve import TriangularSolve
from toile.primitives.reductions import ReduceMax
from toile.primitives.shapes import Concatenate, iota, pad, slice_
from toile.primitives.transcendental import Rsqrt, Sqrt

# Above this weight an iteration by Cholesky factors would lose accuracy: QR is used.
_CHOLESKY_LIMIT = 100.0
Weights = tuple[float, float, float]


def qdwh(x: ArrayLike, *, is_hermitian: bool = False, max_iterations: int | None = None,
         eps: float | None = None,
         dynamic_shape: tuple[int, int] | None = None) -> tuple[Array, Array, Array, Array]:
    """Compute the polar decomposition of a matrix.

    The decomposition is `x = u @ h`, where the columns of `u` are orthonormal, and `h` is Hermitian
    and positive semidefinite. It is computed by the QDWH algorithm (QR-based dynamically weighted
    Halley iterations).

    Args:
        x: matrix with at least as many rows as columns, of a float or complex dtype.
        is_hermitian: ignored.
        max_iterations: maximum number of iterations; None means 10.
        eps: relative precision, which determines how many iterations are needed; None for the
            machine epsilon of the dtype.
        dynamic_shape: shape of the matrix without its padding; the two sizes may be traced. Pass
            None if `x` is not padded.

    Returns:
        A tuple `(u, h, iterations, converged)`: the two factors, the number of iterations, and
        whether the iteration converged.

    Raises:
        ValueError: the matrix has fewer rows than columns.

    >>> u, h, iterations, converged = lax.linalg.qdwh(jnp.array([[0.0, -2.0], [3.0, 0.0]]))
    >>> jnp.diag(h).round(4)
    Array([3., 2.], dtype=float32)
    """
    a = as_array(x)
    rows, columns = a.shape
    if rows < columns:
        raise ValueError("qdwh: needed at least as many rows as columns, got shape "
                         f"{a.shape}{here()}")
    limit = 10 if max_iterations is None else int(max_iterations)
    eps = float(dtypes.finfo(a.dtype).eps) if eps is None else eps
    size = None
    if dynamic_shape is not None:
        size = tuple(convert(as_array(n), np.int32) for n in dynamic_shape)
        a = _cut(a, size, zeros(Aval(a.shape, a.dtype)))
    start, by_qr, by_cholesky = weights(eps, limit)
    u = _scaled(a)
    for w in by_qr:
        u = _qr_step(u, w, size)
    moving = scalar(True, np.bool_)
    tolerance = np.cbrt(start)
    for w in by_cholesky:
        u, moving = _tested(u, w, size, tolerance)

    def going(carry: tuple[Any, Any, Any]) -> Any:
        k, _, not_done = carry
        return and_(not_done, lt(k, full_like(k, limit)))

    def halley(carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        k, u, _ = carry
        u, not_done = _tested(u, (3.0, 1.0, 3.0), size, tolerance)
        return add(k, full_like(k, 1)), u, not_done

    done = len(by_qr) + len(by_cholesky)
    count, u, moving = while_loop(going, halley, (done, u, moving))
    # One Newton-Schulz step takes u to full accuracy.
    cubic = matmul(u, matmul(adjoint(u), u))
    u = sub(mul(u, full_like(u, 1.5)), mul(cubic, full_like(u, 0.5)))
    h = matmul(adjoint(u), a)
    h = mul(add(h, adjoint(h)), full_like(h, 0.5))
    return u, h, count, not_(moving)


def weights(eps: float, limit: int) -> tuple[float, list[Weights], list[Weights]]:
    """The tolerance, and the weights (a, b, c) of the iterations with QR and with Cholesky."""
    low, tolerance = eps, 10.0 * eps / 2.0
    by_qr: list[Weights] = []
    by_cholesky: list[Weights] = []
    while low + tolerance < 1 and len(by_qr) + len(by_cholesky) < limit:
        square = low * low
        d = (4 * (1 / square - 1) / square) ** (1 / 3)
        root = (1.0 + d) ** 0.5
        a = root + (2 - d + 2 * (2 - square) / (square * root)) ** 0.5
        b = (a - 1) ** 2 / 4
        c = a + b - 1
        low = low * (a + b * square) / (1 + c * square)
        (by_qr if c > _CHOLESKY_LIMIT else by_cholesky).append((a, b, c))
    return tolerance, by_qr, by_cholesky


def _scaled(x: Any) -> Any:
    """x divided by a bound on its 2-norm: the root of its 1-norm times its infinity norm."""
    size = abs_(x)
    one, sup = (ReduceMax((0,))(reduce_sum(size, (axis,))) for axis in (0, 1))
    factor = mul(Rsqrt()(one), Rsqrt()(sup))
    factor = select(eq(one, full_like(one, 0)), full_like(one, 1), factor)
    return mul(x, convert(factor, x.dtype))


def _cut(x: Any, size: Sequence[Any] | None, other: Any) -> Any:
    """`x` inside the unpadded size, and `other` outside it."""
    if size is None:
        return x
    inside = None
    for axis, n in enumerate(size):
        index = iota(np.int32, x.shape, axis)
        here = lt(index, broadcast_in_dim(n, x.shape, ()))
        inside = here if inside is None else and_(inside, here)
    return select(inside, x, other)


def _qr_step(u: Any, w: Weights, size: Sequence[Any] | None) -> Any:
    """One step with the QR factorization of [√c u; I]: u (b/c) + (a - b/c)/√c Q₁Q₂ᴴ."""
    a, b, c = w
    rows, n = u.shape
    top, unit = mul(u, full_like(u, c**0.5)), eye((n, n), u.dtype)
    if size is None:
        stacked = Concatenate(0)(top, unit)
    else:
        start = (size[0], scalar(0, np.int32))
        padded = pad(top, full_like(top, 0), ((0, n, 0), (0, 0, 0)))
        stacked = dynamic_update_slice(padded, unit, *start)
    q, _ = Qr(full_matrices=False)(stacked)
    q1 = slice_(q, (0, 0), (rows, n))
    if size is None:
        q2 = slice_(q, (rows, 0), (rows + n, n))
    else:
        q1 = _cut(q1, size, zeros(Aval(q1.shape, q.dtype)))
        square = (size[1], size[1])
        q2 = _cut(DynamicSlice((n, n))(q, *start), square, zeros(Aval((n, n), q.dtype)))
    product = matmul(q1, adjoint(q2))
    return add(mul(u, full_like(u, b / c)), mul(product, full_like(u, (a - b / c) / c**0.5)))


def _tested(u: Any, w: Weights, size: Sequence[Any] | None, tolerance: float) -> tuple[Any, Any]:
    """One step with a Cholesky factorization, and whether it changed u noticeably.

    The step computes u (b/c) + (a - b/c) u (I + c uᴴu)⁻¹."""
    a, b, c = w
    n = u.shape[1]
    unit = eye((n, n), u.dtype)
    gram = add(mul(matmul(adjoint(u), u), full_like(u, c)), unit)
    gram = _cut(gram, None if size is None else (size[1], size[1]), unit)
    l = Cholesky()(gram)
    kind = dtypes.kind(u.dtype) == "c"
    z = conjugate(TriangularSolve(True, True, False, kind)(l, swapped(u)))
    z = adjoint(TriangularSolve(True, True, True, kind)(l, z))
    new = add(mul(u, full_like(u, b / c)), mul(z, full_like(u, a - b / c)))
    size_of = abs_(sub(new, u))
    distance = Sqrt()(reduce_sum(mul(size_of, size_of), (0, 1)))
    return new, gt(distance, full_like(distance, tolerance))
