"""Linear algebra, with the names and results of `jax.numpy.linalg`.

Matrices are in the last two axes; leading axes are batch axes. If a matrix is singular in `solve`,
or not positive definite in `cholesky`, the result is not finite, whereas NumPy raises an error.
"""

# Factorizations come from `lax.linalg`. `solve` and `inv` factor once and are differentiated
# through the system they solve, not through the factorization. Norms are in norms.py.

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, SupportsIndex, overload

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.api import custom_jvp, vmap
from toile.engine.annotations import ArrayLike, DTypeLike
from toile.engine.arrays import Array
from toile.engine.source import here
from toile.engine.trace import Tracer
from toile.numpy import _helpers as h
from toile.numpy._helpers import as_array, promote_inexact
from toile.numpy._singular_values import cutoff, inverse_values, pinv_tangent
from toile.numpy.norms import matrix_norm, norm, vector_norm

__all__ = [
    "cholesky", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv",
    "lstsq", "matmul", "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose",
    "multi_dot", "norm", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot",
    "tensorinv", "tensorsolve", "trace", "vecdot", "vector_norm",
]


class EigResult(NamedTuple):
    """The result of `eig`: eigenvalues, and right eigenvectors in the columns of a matrix."""

    eigenvalues: Array
    eigenvectors: Array


class EighResult(NamedTuple):
    """The result of `eigh`: eigenvalues, and eigenvectors in the columns of a matrix."""

    eigenvalues: Array
    eigenvectors: Array


class QRResult(NamedTuple):
    """The result of `qr`: `Q`, which has orthonormal columns, and the upper triangular `R`."""

    Q: Array
    R: Array


class SlogdetResult(NamedTuple):
    """The result of `slogdet`: signs of determinants, and logarithms of their absolute values."""

    sign: Array
    logabsdet: Array


class SVDResult(NamedTuple):
    """The result of `svd`: left singular vectors, singular values, and right singular vectors."""

    U: Array
    S: Array
    Vh: Array


def _matrix(name: str, a: Any, square: bool = False, error: type[Exception] = ValueError) -> Array:
    """Convert `a` to an inexact array of matrices; raise `error` if its rank is too low."""
    a, = promote_inexact(*h.as_arrays(name, a))
    a = h.with_dtype(a, a.dtype, False)
    if square and (a.ndim < 2 or a.shape[-1] != a.shape[-2]):
        raise ValueError(f"Argument to {name} must have shape [..., n, n], got shape {a.shape} "
                         f"(needed square matrices){here()}")
    if a.ndim < 2:
        raise error(f"{name}: input must have rank at least 2, but got shape={a.shape}{here()}")
    return a


def _h(a: Any) -> Array:
    """The conjugate transpose of the last two axes."""
    a = jnp.matrix_transpose(a)
    return jnp.conj(a) if h.issubdtype(a.dtype, np.complexfloating) else a


# Factorizations.

def cholesky(a: ArrayLike, *, upper: bool = False, symmetrize_input: bool = True) -> Array:
    """Factor each positive definite matrix into a triangular matrix and its conjugate transpose.

    Args:
        a: Hermitian matrices in the last two axes.
        upper: True to return the upper triangular factor U, for which `a = U.mT.conj() @ U`; False
            to return the lower triangular factor L, for which `a = L @ L.mT.conj()`.
        symmetrize_input: whether to first replace `a` with the mean of `a` and its conjugate
            transpose; if False, only the triangle that `upper` selects is read.

    Returns:
        The triangular factors, with the shape of `a`. If a matrix is not positive definite, the
        elements of its triangular factor are NaN.

    Differences:
        NumPy raises an error for matrices that are not positive definite.

    >>> jnp.linalg.cholesky(jnp.array([[4.0, 2.0], [2.0, 5.0]]))
    Array([[2., 0.],
           [1., 2.]], dtype=float32)
    """
    a = _matrix("jnp.linalg.cholesky", a, square=True)
    lower = lax.linalg.cholesky(_h(a) if upper else a, symmetrize_input=symmetrize_input)
    return _h(lower) if upper else lower


def _reflected(a):
    """Reduce a matrix to R with the tails of the reflecting vectors below it, and their factors."""
    m, n = a.shape
    rows = lax.iota(np.int32, m)
    columns = lax.iota(np.int32, n)

    def step(j, carry):
        a, taus = carry
        x, alpha = a[:, j], a[j, j]
        tail = jnp.where(rows > j, x, 0)
        rest = jnp.sum(jnp.square(abs(tail)))
        size = jnp.sqrt(jnp.square(abs(alpha)) + rest)
        beta = jnp.where(jnp.real(alpha) >= 0, -size, size)
        done = (rest == 0) & (jnp.imag(alpha) == 0)
        beta = jnp.where(done, alpha, lax.convert_element_type(beta, a.dtype))
        tau = jnp.where(done, 0, (beta - alpha) / jnp.where(done, 1, beta))
        tail = tail / jnp.where(done, 1, alpha - beta)
        v = jnp.where(rows == j, 1, tail)
        moved = jnp.matmul(jnp.conj(v), a, precision=lax.Precision.HIGHEST)
        later = a - jnp.conj(tau) * jnp.outer(v, moved)
        kept = jnp.where(rows == j, beta, jnp.where(rows > j, tail, x))
        a = jnp.where(columns > j, later, a)
        return a.at[:, j].set(kept), taus.at[j].set(tau)

    start = a, lax.full((min(m, n),), 0, a.dtype)
    return lax.fori_loop(0, min(m, n), step, start) if a.size else start


@overload
def qr(a: ArrayLike, mode: Literal["r"]) -> Array: ...
@overload
def qr(a: ArrayLike,
       mode: Literal["reduced", "complete", "full", "raw"] = "reduced") -> QRResult: ...
def qr(a: ArrayLike, mode: str = "reduced") -> Array | QRResult:
    """Factor each matrix into a matrix with orthonormal columns and an upper triangular matrix.

    Args:
        a: matrices of shape (m, n) in the last two axes.
        mode: "reduced" (or "full") for factors of shapes (m, k) and (k, n) with k = min(m, n);
            "complete" for (m, m) and (m, n); "r" for the triangular factor alone; "raw" for the
            Householder reflectors (in LAPACK's packed form, transposed) and their scale factors.

    Returns:
        A named tuple of `Q` and `R`; in mode "raw", these are the reflectors and their scale
        factors. In mode "r", only the array `R` is returned.
    """
    a = _matrix("jnp.linalg.qr", a, error=TypeError)
    if mode == "raw":
        reduce = _reflected
        for _ in a.shape[:-2]:
            reduce = vmap(reduce)
        packed, taus = reduce(a)
        return QRResult(jnp.matrix_transpose(packed), taus)
    if mode not in ("reduced", "complete", "full", "r"):
        raise ValueError(f"Unsupported QR decomposition mode '{mode}'{here()}")
    q, r = lax.linalg.qr(a, full_matrices=mode == "complete")
    return r if mode == "r" else QRResult(q, r)


@overload
def svd(a: ArrayLike, full_matrices: bool = True, compute_uv: Literal[True] = True,
        hermitian: bool = False, subset_by_index: tuple[int, int] | None = None) -> SVDResult: ...
@overload
def svd(a: ArrayLike, full_matrices: bool = True, *, compute_uv: Literal[False],
        hermitian: bool = False, subset_by_index: tuple[int, int] | None = None) -> Array: ...
def svd(a: ArrayLike, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False,
        subset_by_index: tuple[int, int] | None = None) -> Array | SVDResult:
    """Compute the singular value decomposition `a = U @ diag(S) @ Vh` of each matrix.

    Args:
        a: matrices of shape (m, n) in the last two axes.
        full_matrices: whether U and Vh are square; if False, U has k = min(m, n) columns and Vh has
            k rows.
        compute_uv: whether to compute the singular vectors too.
        hermitian: True to promise that the matrices are Hermitian, which allows a faster algorithm.
        subset_by_index: pair (start, stop) that selects the singular values to compute, as a slice
            does; None for all. A pair requires `full_matrices=False`, and is ignored if `hermitian`
            is True.

    Returns:
        A named tuple of `U`, the singular values `S` in decreasing order, and `Vh`. If `compute_uv`
        is False, only the singular values are returned.

    >>> jnp.linalg.svd(jnp.array([[1.0, 0.0], [0.0, 2.0]]), compute_uv=False)
    Array([2., 1.], dtype=float32)
    """
    a = _matrix("jnp.linalg.svd", a, error=TypeError)
    if hermitian:
        return _hermitian_svd(a, compute_uv)
    out = lax.linalg.svd(a, full_matrices=full_matrices, compute_uv=compute_uv,
                         subset_by_index=subset_by_index)
    return SVDResult(*out) if compute_uv else out


def _hermitian_svd(a: Array, compute_uv: bool) -> Any:
    """Compute the singular values as the absolute values of the eigenvalues."""
    w, v = eigh(a)
    s = jnp.absolute(w)
    order = jnp.flip(_argsort_last(s), -1)
    s = jnp.take_along_axis(s, order, axis=-1)
    if not compute_uv:
        return s
    sign = jnp.take_along_axis(jnp.sign(w), order, axis=-1).astype(v.dtype)
    rows = lax.expand_dims(order, (order.ndim - 1,))
    u = jnp.take_along_axis(v, rows, axis=-1)
    vh = _h(jnp.multiply(u, lax.expand_dims(sign, (sign.ndim - 1,))))
    return SVDResult(u, s, vh)


def _argsort_last(x: Any) -> Array:
    places = lax.broadcasted_iota(np.int32, x.shape, x.ndim - 1)
    return lax.sort((x, places), dimension=x.ndim - 1, num_keys=1)[1]


def svdvals(x: ArrayLike, /) -> Array:
    """Compute the singular values of matrices, in decreasing order.

    Args:
        x: matrices of shape (m, n) in the last two axes.

    Returns:
        An array with min(m, n) singular values along the last axis.
    """
    return svd(x, compute_uv=False, hermitian=False)


def _general(name: str, a: Any) -> Array:
    a = _matrix(name, a, error=TypeError)
    if a.shape[-1] != a.shape[-2]:
        raise ValueError(f"The input to eig must be a square matrix. Got shape {a.shape} in "
                         f"{name}.{here()}")
    return a


def eig(a: ArrayLike) -> EigResult:
    """Compute the eigenvalues and right eigenvectors of general matrices.

    Args:
        a: square matrices in the last two axes.

    Returns:
        A named tuple of complex `eigenvalues`, in no particular order, and `eigenvectors`, whose
        columns have norm 1.
    """
    a = _general("jnp.linalg.eig", a)
    w, v = lax.linalg.eig(a, compute_left_eigenvectors=False)
    return EigResult(w, v)


def eigvals(a: ArrayLike) -> Array:
    """Compute the eigenvalues of general matrices.

    Args:
        a: square matrices in the last two axes.

    Returns:
        Complex eigenvalues along the last axis, in no particular order.
    """
    a = _general("jnp.linalg.eigvals", a)
    return lax.linalg.eig(a, compute_left_eigenvectors=False, compute_right_eigenvectors=False)[0]


def eigh(a: ArrayLike, UPLO: Literal["L", "U"] | None = None,
         symmetrize_input: bool = True) -> EighResult:
    """Compute the eigenvalues and eigenvectors of Hermitian or real symmetric matrices.

    Args:
        a: Hermitian matrices in the last two axes.
        UPLO: triangle that is read if `symmetrize_input` is False: "L" or None for the lower
            triangle, "U" for the upper triangle.
        symmetrize_input: whether to first replace `a` with the mean of `a` and its conjugate
            transpose.

    Returns:
        A named tuple of real `eigenvalues`, in increasing order, and `eigenvectors`, whose columns
        are orthonormal.
    """
    a = _matrix("jnp.linalg.eigh", a, square=True)
    if UPLO not in (None, "L", "U"):
        raise ValueError(f"UPLO must be one of None, 'L', or 'U', got {UPLO}{here()}")
    v, w = lax.linalg.eigh(a, lower=UPLO != "U", symmetrize_input=symmetrize_input)
    return EighResult(w, v)


def eigvalsh(a: ArrayLike, UPLO: Literal["L", "U"] | None = "L", *,
             symmetrize_input: bool = True) -> Array:
    """Compute the eigenvalues of Hermitian or real symmetric matrices, in increasing order.

    Args:
        a: Hermitian matrices in the last two axes.
        UPLO: triangle that is read if `symmetrize_input` is False: "L" or None for the lower
            triangle, "U" for the upper triangle.
        symmetrize_input: whether to first replace `a` with the mean of `a` and its conjugate
            transpose.

    Returns:
        Real eigenvalues along the last axis.

    >>> jnp.linalg.eigvalsh(jnp.array([[2.0, 1.0], [1.0, 2.0]]))
    Array([1., 3.], dtype=float32)
    """
    return eigh(a, UPLO, symmetrize_input)[0]


# Linear systems.

def _rows(x: Any, order: Any) -> Array:
    """Put the rows of each matrix in `x` in the given order."""
    order = lax.expand_dims(order, (order.ndim,))
    return jnp.take_along_axis(x, order, axis=-2, mode="promise_in_bounds")


def _lu_solve(lu, permutation, b, transposed):
    """Solve with the factors of P a = L U, or with their (plain) transposes."""
    solve_with = functools.partial(lax.linalg.triangular_solve, lu, left_side=True)
    if not transposed:
        y = solve_with(_rows(b, permutation), lower=True, unit_diagonal=True)
        return solve_with(y, lower=False)
    y = solve_with(b, lower=False, transpose_a=True)
    y = solve_with(y, lower=True, transpose_a=True, unit_diagonal=True)
    return _rows(y, _argsort_last(permutation))


def _solve_matrix(a: Any, b: Any) -> Array:
    """Solve a x = b for matrices with equal leading axes."""
    lu, _, permutation = lax.linalg.lu(lax.stop_gradient(a))
    return lax.custom_linear_solve(
        lambda x: jnp.matmul(a, x, precision=lax.Precision.HIGHEST), b,
        lambda _, v: _lu_solve(lu, permutation, v, False),
        lambda _, v: _lu_solve(lu, permutation, v, True))


def solve(a: ArrayLike, b: ArrayLike) -> Array:
    """Solve systems of linear equations `a @ x = b`.

    Args:
        a: square matrices in the last two axes.
        b: right-hand sides. An array with one axis is a single right-hand side; otherwise, the last
            two axes contain matrices with one right-hand side in each column. Leading axes are
            broadcast.

    Returns:
        The solutions. If a matrix is singular, the corresponding solution is not finite.

    Differences:
        NumPy raises an error for singular matrices.

    >>> jnp.linalg.solve(jnp.array([[2.0, 0.0], [0.0, 4.0]]), jnp.array([2.0, 2.0]))
    Array([1. , 0.5], dtype=float32)
    """
    a, b = promote_inexact(*h.as_arrays("jnp.linalg.solve", a, b))
    if a.ndim < 2:
        raise ValueError("left hand array must be at least two dimensional; got "
                         f"a.shape={a.shape}{here()}")
    if b.ndim < 1:
        raise ValueError("right hand array must be at least one dimensional; got "
                         f"b.shape={b.shape}{here()}")
    if a.shape[-1] != a.shape[-2]:
        raise ValueError("The arguments to solve must have shapes a=[..., m, m] and b=[..., m, k] "
                         f"or b=[..., m]; got a={a.shape} and b={b.shape}{here()}")
    vector = b.ndim == 1
    if vector:
        b = jnp.expand_dims(b, 1)
    if b.shape[-2] != a.shape[-1]:
        raise ValueError(f"solve: needed b with {a.shape[-1]} rows, got a={a.shape} and "
                         f"b={b.shape}{here()}")
    lead = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a = h.broadcast_to(a, (*lead, *a.shape[-2:]))
    b = h.broadcast_to(b, (*lead, *b.shape[-2:]))
    x = _solve_matrix(h.with_dtype(a, a.dtype, False), h.with_dtype(b, b.dtype, False))
    return lax.squeeze(x, (x.ndim - 1,)) if vector else x


def inv(a: ArrayLike) -> Array:
    """Compute the inverses of matrices.

    Args:
        a: square matrices in the last two axes.

    Returns:
        An array with the shape of `a`. If a matrix is singular, the corresponding part of the
        result is not finite.

    Differences:
        NumPy raises an error for singular matrices.
    """
    a = _matrix("jnp.linalg.inv", a, square=True)
    eye = h.broadcast_to(jnp.eye(a.shape[-1], dtype=a.dtype), a.shape)
    return _solve_matrix(a, eye)


def _lu_diagonal(a):
    """Return the diagonal of U and the sign of the row exchanges in P a = L U."""
    lu, pivots, _ = lax.linalg.lu(a)
    places = lax.broadcasted_iota(pivots.dtype, pivots.shape, pivots.ndim - 1)
    moved = lax.convert_element_type(lax.ne(pivots, places), np.int32)
    parity = lax.rem(lax.reduce_sum(moved, (moved.ndim - 1,)), np.int32(2))
    sign = lax.sub(lax.full_like(parity, 1), lax.mul(parity, lax.full_like(parity, 2)))
    return jnp.diagonal(lu, 0, -2, -1), lax.convert_element_type(sign, a.dtype)


def slogdet(a: ArrayLike, *, method: Literal["lu", "qr"] | None = None) -> SlogdetResult:
    """Compute the signs of determinants and the logarithms of their absolute values.

    Args:
        a: square matrices in the last two axes.
        method: accepted for compatibility with JAX, and ignored; the LU decomposition is always
            used.

    Returns:
        A named tuple (`sign`, `logabsdet`). For a singular matrix, these are 0 and minus infinity.
        The sign of a complex determinant is a complex number of absolute value 1.
    """
    a = _matrix("jnp.linalg.slogdet", a, square=True)
    if method not in (None, "lu", "qr"):
        raise ValueError(f"Unknown slogdet method '{method}'. Supported methods are 'lu' and "
                         f"'qr'.{here()}")
    lead = a.shape[:-2]
    if a.shape[-1] == 0:
        real = h.dtypes.dtype_to_real(a.dtype)
        return SlogdetResult(lax.full(lead, 1, a.dtype), lax.full(lead, 0, real))
    diag, flip = _lu_diagonal(a)
    logs = jnp.sum(jnp.log(abs(diag)), axis=-1)
    sign = jnp.prod(jnp.sign(diag), axis=-1) * flip
    # a zero pivot makes the determinant exactly zero
    none = jnp.any(diag == 0, axis=-1)
    return SlogdetResult(jnp.where(none, 0, sign), jnp.where(none, -np.inf, logs))


def det(a: ArrayLike) -> Array:
    """Compute determinants.

    Args:
        a: square matrices in the last two axes.

    Returns:
        An array without the last two axes.

    >>> jnp.linalg.det(jnp.array([[1.0, 2.0], [3.0, 4.0]]))
    Array(-2., dtype=float32)
    """
    a = _matrix("jnp.linalg.det", a, square=True)
    n = a.shape[-1]
    e = lambda i, j: a[..., i, j]
    if n == 0:
        return lax.full(a.shape[:-2], 1, a.dtype)
    if n == 1:
        return e(0, 0)
    if n == 2:
        return e(0, 0) * e(1, 1) - e(0, 1) * e(1, 0)
    if n == 3:
        minor = lambda i, j: e(1, i) * e(2, j) - e(1, j) * e(2, i)
        return e(0, 0) * minor(1, 2) - e(0, 1) * minor(0, 2) + e(0, 2) * minor(0, 1)
    return _det(a)


@custom_jvp
def _det(a):
    diag, sign = _lu_diagonal(a)
    return jnp.prod(diag, axis=-1) * sign


@_det.defjvp
def _det_jvp(primals, tangents):
    (a,), (da,) = primals, tangents
    value = _det(a)
    singular = jnp.any(jnp.equal(value, 0))  # the derivative of LU is then NaN
    adjugate = lax.cond(singular, _adjugate_by_svd, lambda a: value[..., None, None] * inv(a), a)
    return value, jnp.sum(jnp.swapaxes(adjugate, -1, -2) * da, axis=(-2, -1))


def _adjugate_by_svd(a):
    """Return det(a) a⁻¹, also of singular matrices: for a = U S Vᴴ, it is det(U Vᴴ) V adj(S) Uᴴ."""
    u, s, vh = svd(a)
    diag, sign = _lu_diagonal(jnp.matmul(u, vh))
    turn = jnp.prod(diag, axis=-1) * sign
    n = a.shape[-1]
    rows = jnp.broadcast_to(s[..., None, :], (*s.shape[:-1], n, n))
    own = jnp.broadcast_to(jnp.eye(n, dtype=bool), rows.shape)
    others = jnp.prod(jnp.where(own, 1, rows), axis=-1).astype(a.dtype)
    return jnp.matmul(_h(vh) * (turn[..., None] * others)[..., None, :], _h(u))


# Rank and inverses.

def pinv(a: ArrayLike, rtol: ArrayLike | None = None, hermitian: bool = False, *,
         rcond: ArrayLike | None = None) -> Array:
    """Compute the pseudoinverses of matrices.

    Args:
        a: matrices of shape (m, n) in the last two axes.
        rtol: relative tolerance; singular values up to `rtol` times the largest singular value
            count as 0. The default is `10 * max(m, n)` times the machine epsilon of the dtype.
        hermitian: True to promise that the matrices are Hermitian, which allows a faster algorithm.
        rcond: older name for `rtol`.

    Returns:
        An array of matrices of shape (n, m).

    Raises:
        ValueError: both `rtol` and `rcond` are given.
    """
    a = _matrix("jnp.linalg.pinv", a)
    if rtol is not None and rcond is not None:
        raise ValueError("pinv: only one of rtol and rcond may be specified." + here())
    rtol = rcond if rtol is None else rtol
    m, n = a.shape[-2:]
    if m == 0 or n == 0:
        return lax.full((*a.shape[:-2], n, m), 0, a.dtype)
    return _pinv(a, rtol if rtol is None else h.arr(rtol), hermitian)


@functools.partial(custom_jvp, nondiff_argnums=(2,))
def _pinv(a: Array, rtol: Array | None, hermitian: bool) -> Array:
    u, s, vh = svd(a, full_matrices=False, hermitian=hermitian)
    keep = jnp.greater(s, cutoff(a, rtol, s[..., :1]))
    inverse = inverse_values(s, keep)
    left = _h(vh) * lax.convert_element_type(lax.expand_dims(inverse, (inverse.ndim - 1,)), a.dtype)
    return jnp.matmul(left, _h(u), precision=lax.Precision.HIGHEST)


@_pinv.defjvp
def _pinv_jvp(hermitian: bool, primals: Any, tangents: Any) -> tuple[Array, Array]:
    p = _pinv(*primals, hermitian)
    return p, pinv_tangent(p, primals[0], tangents[0])


def matrix_rank(M: ArrayLike, rtol: ArrayLike | None = None, *, hermitian: bool = False,
                tol: ArrayLike | None = None) -> Array:
    """Compute the rank of each matrix: the number of its nonzero singular values.

    Args:
        M: matrices of shape (m, n) in the last two axes. For an array with fewer than two axes, the
            result is 1 if the array contains a nonzero element, and 0 otherwise.
        rtol: relative tolerance; singular values up to `rtol` times the largest singular value
            count as 0. The default is `max(m, n)` times the machine epsilon of the dtype.
        hermitian: True to promise that the matrices are Hermitian, which allows a faster algorithm.
        tol: another name for `rtol`.

    Returns:
        An array of integers without the last two axes.

    Raises:
        ValueError: both `rtol` and `tol` are given.

    Differences:
        In NumPy, `tol` is an absolute tolerance.
    """
    M, = promote_inexact(M, name="jnp.linalg.matrix_rank")
    if rtol is not None and tol is not None:
        raise ValueError("matrix_rank: only one of tol or rtol may be specified." + here())
    rtol = tol if rtol is None else rtol
    if M.ndim < 2:
        return lax.convert_element_type(jnp.any(jnp.not_equal(M, 0)), h.index_dtype())
    s = svd(M, full_matrices=False, compute_uv=False, hermitian=hermitian)
    if rtol is None:
        rtol = max(M.shape[-2:]) * float(h.dtypes.finfo(s.dtype).eps)
    limit = cutoff(M, rtol, jnp.max(s, axis=-1, keepdims=True))
    return jnp.sum(jnp.greater(s, limit), axis=-1)


def cond(x: ArrayLike, p: float | str | None = None) -> Array:
    """Compute the condition number of each matrix: its norm times the norm of its inverse.

    Args:
        x: matrices in the last two axes; they must be square unless `p` is None, 2 or -2.
        p: order of the norm, as in `norm`. The default is 2, for which the result is the largest
            singular value divided by the smallest.

    Returns:
        An array without the last two axes. If the computation produces NaN for a matrix that
        contains no NaN, the result is infinity.

    Raises:
        ValueError: `x` is empty or has fewer than two axes.
    """
    x, = promote_inexact(*h.as_arrays("jnp.linalg.cond", x))
    if x.ndim < 2:
        raise ValueError("jnp.linalg.cond: input array must be at least 2D; got shape "
                         f"{x.shape}{here()}")
    if not x.size:
        raise ValueError("jnp.linalg.cond: input array must not be empty; got shape "
                         f"{x.shape}{here()}")
    x = h.with_dtype(x, x.dtype, False)
    if p in (None, 2, -2):
        s = svd(x, compute_uv=False)
        largest, smallest = s[..., 0], s[..., s.shape[-1] - 1]
        r = smallest / largest if p == -2 else largest / smallest
    else:
        if x.shape[-1] != x.shape[-2]:
            raise ValueError(f"jnp.linalg.cond: for {p=}, array must be square; got shape "
                             f"{x.shape}{here()}")
        r = norm(x, p, axis=(-2, -1)) * norm(inv(x), p, axis=(-2, -1))
    bad = jnp.any(jnp.isnan(x), axis=(-2, -1))
    return jnp.where(jnp.isnan(r) & ~bad, np.inf, r)


def lstsq(a: ArrayLike, b: ArrayLike, rcond: ArrayLike | None = None, *,
          numpy_resid: bool = False) -> tuple[Array, Array, Array, Array]:
    """Find the least-squares solution of a system of linear equations `a @ x = b`.

    If there are several solutions, the one with the smallest norm is returned.

    Args:
        a: matrix of shape (m, n).
        b: vector of length m, or matrix whose columns are right-hand sides.
        rcond: relative tolerance; singular values less than `rcond` times the largest singular
            value count as 0. The default is `max(m, n)` times the machine epsilon of the dtype; if
            `rcond` is negative, the machine epsilon itself is used.
        numpy_resid: if True, the array of residuals is empty, as in NumPy, when the rank is less
            than n or when `m <= n`; True is not supported under `jit`.

    Returns:
        A tuple of the solution, the residuals (the sum of squared errors for each right-hand side),
        the rank of `a`, and the singular values of `a`.
    """
    a, b = promote_inexact(*h.as_arrays("jnp.linalg.lstsq", a, b))
    if a.ndim != 2:
        raise TypeError(f"{a.ndim}-dimensional array given. Array must be two-dimensional{here()}")
    if b.ndim not in (1, 2):
        raise TypeError(f"{b.ndim}-dimensional array given. Array must be one or "
                        f"two-dimensional{here()}")
    if a.shape[0] != b.shape[0]:
        raise ValueError("Leading dimensions of input arrays must match: needed one row of b for "
                         f"each row of a, got {a.shape} and {b.shape} (transpose one){here()}")
    m, n = a.shape
    vector = b.ndim == 1
    if vector:
        b = jnp.expand_dims(b, 1)
    dtype, high = a.dtype, lax.Precision.HIGHEST
    if rcond is None:
        rcond = float(h.dtypes.finfo(dtype).eps) * max(m, n)
    else:
        rcond = jnp.where(jnp.less(rcond, 0), float(h.dtypes.finfo(dtype).eps), rcond)
    if a.size == 0:
        s = lax.full((0,), 0, dtype)
        rank = h.arr(np.asarray(0, np.int32))
        x = lax.full((n, b.shape[1]), 0, dtype)
    else:
        u, s, vh = svd(a, full_matrices=False)
        keep = (s > 0) & (s >= lax.convert_element_type(h.arr(rcond), s.dtype) * s[0])
        rank = jnp.sum(keep)
        inverse = lax.expand_dims(inverse_values(s, keep), (1,))
        inner = jnp.matmul(_h(u), b, precision=high)
        inner = lax.convert_element_type(inverse, dtype) * inner
        x = jnp.matmul(_h(vh), inner, precision=high)
    error = b - jnp.matmul(a, x, precision=high)
    residuals = jnp.sum(jnp.square(abs(error)), axis=0)
    if numpy_resid and (int(h.concrete(rank, "rank with numpy_resid=True")) < n or m <= n):
        residuals = lax.full((0,), 0, s.dtype)
    return (lax.squeeze(x, (1,)) if vector else x), residuals, rank, s


# Compositions.

def matrix_power(a: ArrayLike, n: SupportsIndex) -> Array:
    """Raise square matrices to an integer power.

    Args:
        a: square matrices in the last two axes.
        n: exponent, which cannot be traced. For 0, the results are identity matrices; for negative
            numbers, they are powers of the inverses.

    Returns:
        An array with the shape of `a`.

    >>> jnp.linalg.matrix_power(jnp.array([[1, 1], [0, 1]]), 3)
    Array([[1, 3],
           [0, 1]], dtype=int32)
    """
    a = as_array("jnp.linalg.matrix_power", a)
    if a.ndim < 2:
        raise TypeError(f"{a.ndim}-dimensional array given. Array must be at least two-dimensional"
                        f" (in matrix_power){here()}")
    if a.shape[-1] != a.shape[-2]:
        raise TypeError("Last 2 dimensions of the array must be square (in matrix_power); got "
                        f"{a.shape}{here()}")
    try:
        n = operator.index(n) if not isinstance(n, Array) else h.static_int(
            n, "exponent of jnp.linalg.matrix_power")
    except TypeError:
        if isinstance(n, Tracer):
            raise
        raise TypeError(f"exponent must be an integer, got {n} (for other powers, "
                        f"use toile.numpy.linalg.eigh){here()}") from None
    if n == 0:
        return h.broadcast_to(jnp.eye(a.shape[-1], dtype=a.dtype), a.shape)
    if n < 0:
        a, n = inv(a), -n
    result: Any = None
    while n:
        if n & 1:
            result = a if result is None else jnp.matmul(result, a)
        n >>= 1
        a = jnp.matmul(a, a) if n else a
    return result


def multi_dot(arrays: Sequence[ArrayLike], *, precision: lax.PrecisionLike = None) -> Array:
    """Multiply several matrices in an order that needs few operations.

    The order is optimal for up to four matrices.

    Args:
        arrays: two or more matrices; the first and the last may be vectors.
        precision: precision of the multiplication; see `lax.Precision`.

    Returns:
        The matrix product.
    """
    arrays = h.as_arrays("jnp.linalg.multi_dot", *arrays)
    if len(arrays) < 2:
        raise ValueError("multi_dot requires at least two arrays; got "
                         f"len(arrays)={len(arrays)}{here()}")
    shapes = [a.shape for a in arrays]
    ends = arrays[0].ndim, arrays[-1].ndim
    if not {1, 2}.issuperset(ends) or any(a.ndim != 2 for a in arrays[1:-1]):
        raise ValueError("multi_dot: input arrays must all be two-dimensional, except for the first"
                         f" and last, of one dimension or two. Got array shapes {shapes}{here()}")
    if any(s[-1] != t[0] for s, t in zip(shapes, shapes[1:])):
        raise ValueError("multi_dot: last dimension of each array must match first dimension of "
                         f"following array. Got array shapes {shapes}{here()}")
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    terms = [letters[i:i + 2] for i in range(len(arrays))]
    terms[0] = terms[0][1:] if arrays[0].ndim == 1 else terms[0]
    terms[-1] = terms[-1][:1] if arrays[-1].ndim == 1 else terms[-1]
    out = (terms[0][0] if arrays[0].ndim == 2 else "") + (
        terms[-1][1] if arrays[-1].ndim == 2 else "")
    return jnp.einsum(",".join(terms) + "->" + out, *arrays, precision=precision)


def tensorinv(a: ArrayLike, ind: int = 2) -> Array:
    """Compute the inverse of an array that represents a linear map between arrays.

    Args:
        a: array in which the product of the lengths of the first `ind` axes equals the product of
            the lengths of the other axes.
        ind: number of leading axes of `a` that belong to the outputs of the map; the other axes
            belong to its inputs.

    Returns:
        An array of shape `a.shape[ind:] + a.shape[:ind]`.
    """
    a = as_array("tensorinv", a)
    ind = h.static_int(ind, "ind argument of jnp.linalg.tensorinv")
    if ind <= 0:
        raise ValueError(f"ind must be a positive integer; got ind={ind}{here()}")
    left, right = a.shape[:ind], a.shape[ind:]
    size = math.prod(left)
    if size != math.prod(right):
        raise ValueError("tensorinv is only possible when the product of the first `ind` "
                         f"dimensions equals that of the remaining dimensions. Got shape {a.shape} "
                         f"with ind={ind}.{here()}")
    return lax.reshape(inv(lax.reshape(a, (size, size))), (*right, *left))


def tensorsolve(a: ArrayLike, b: ArrayLike, axes: Sequence[int] | None = None) -> Array:
    """Solve `tensordot(a, x, x.ndim) = b` for the array x.

    Args:
        a: array of coefficients. Its first axes correspond to the axes of `b`, and its other axes
            correspond to the axes of x; the product of the lengths is the same for both groups.
        b: right-hand side.
        axes: axes of `a` to move to the end before solving; None to leave the axes in place.

    Returns:
        The solution, of shape `a.shape[b.ndim:]`.
    """
    a, b = h.as_arrays("tensorsolve", a, b)
    if axes is not None:
        a = jnp.moveaxis(a, tuple(axes), tuple(range(a.ndim - len(axes), a.ndim)))
    out = a.shape[b.ndim:]
    if a.shape[:b.ndim] != b.shape:
        raise ValueError("After moving axes to end, leading shape of a must match shape of b. got "
                         f"a.shape={a.shape}, b.shape={b.shape}{here()}")
    if int(np.prod(out)) != b.size:
        raise ValueError(f"Input arrays must have prod(a.shape[:b.ndim]) == prod(a.shape[b.ndim:]);"
                         f" got a.shape={a.shape}, b.ndim={b.ndim}.{here()}")
    flat = lax.reshape(a, (b.size, b.size))
    return lax.reshape(solve(flat, lax.reshape(b, (b.size,))), out)


def cross(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Array:
    """Compute cross products of vectors of length 3.

    Args:
        x1, x2: arrays with vectors along `axis`; the other axes are broadcast.
        axis: axis along which the vectors lie.

    Returns:
        An array with the cross products along `axis`.
    """
    x1, x2 = h.as_arrays("jnp.linalg.cross", x1, x2)
    if x1.shape[axis] != 3 or x2.shape[axis] != 3:
        raise ValueError("Both input arrays must be (arrays of) 3-dimensional vectors, but they "
                         f"have lengths {x1.shape[axis]} and {x2.shape[axis]}{here()}")
    return jnp.cross(x1, x2, axis=axis)


def outer(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Multiply each element of one vector by each element of another.

    Args:
        x1, x2: one-dimensional arrays.

    Returns:
        A matrix with a row for each element of `x1` and a column for each element of `x2`.
    """
    x1, x2 = h.as_arrays("jnp.linalg.outer", x1, x2)
    if x1.ndim != 1 or x2.ndim != 1:
        raise ValueError(f"Input arrays must be one-dimensional, but they are {x1.ndim=} "
                         f"{x2.ndim=}{here()}")
    return jnp.outer(x1, x2)


def matrix_transpose(x: ArrayLike, /) -> Array:
    """Transpose the matrices in the last two axes.

    Args:
        x: array with at least two axes.

    Returns:
        The transposed matrices.
    """
    return jnp.matrix_transpose(x)


def diagonal(x: ArrayLike, /, *, offset: int = 0) -> Array:
    """Extract a diagonal of each matrix in the last two axes.

    Args:
        x: array with at least two axes.
        offset: which diagonal to use: 0 is the main diagonal, positive numbers are diagonals above
            it, and negative numbers are diagonals below it.

    Returns:
        An array with the diagonals along the last axis.
    """
    return jnp.diagonal(x, offset, -2, -1)


def trace(x: ArrayLike, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Array:
    """Sum the elements on a diagonal of each matrix in the last two axes.

    Args:
        x: array with at least two axes.
        offset: which diagonal to use: 0 is the main diagonal, positive numbers are diagonals above
            it, and negative numbers are diagonals below it.
        dtype: dtype of the sums and of the result; None for the dtype that `jnp.sum` chooses.

    Returns:
        An array without the last two axes.
    """
    return jnp.trace(x, offset, -2, -1, dtype)


def matmul(x1: ArrayLike, x2: ArrayLike, /, *, precision: lax.PrecisionLike = None,
           preferred_element_type: DTypeLike | None = None) -> Array:
    """Multiply matrices, as `jnp.matmul` does.

    Args:
        x1, x2: matrices in the last two axes, or one-dimensional arrays; leading axes are
            broadcast.
        precision: precision of the multiplication; see `lax.Precision`.
        preferred_element_type: dtype of the sums and of the result; None for the dtype that the
            operands promote to.

    Returns:
        The matrix products.
    """
    return jnp.matmul(x1, x2, precision=precision, preferred_element_type=preferred_element_type)


def vecdot(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1,
           precision: lax.PrecisionLike = None,
           preferred_element_type: DTypeLike | None = None) -> Array:
    """Compute dot products of pairs of vectors, after conjugating the first vector of each pair.

    Args:
        x1, x2: arrays with vectors along `axis`; the other axes are broadcast.
        axis: axis along which the vectors lie.
        precision: precision of the multiplication; see `lax.Precision`.
        preferred_element_type: dtype of the sums and of the result; None for the dtype that the
            operands promote to.

    Returns:
        An array of dot products, without the axis of the vectors.
    """
    return jnp.vecdot(x1, x2, axis=axis, precision=precision,
                               preferred_element_type=preferred_element_type)


def tensordot(x1: ArrayLike, x2: ArrayLike, /, *,
              axes: int | Sequence[int] | Sequence[Sequence[int]] = 2,
              precision: lax.PrecisionLike = None,
              preferred_element_type: DTypeLike | None = None,
              out_sharding: object = None) -> Array:
    """Multiply two arrays and sum over pairs of their axes, as `jnp.tensordot` does.

    Args:
        x1, x2: the operands.
        axes: number of axes to sum over; the last axes of `x1` are paired with the first axes of
            `x2`. Alternatively, a list of axes of `x1` and a list of axes of `x2`, whose elements
            are paired in order.
        precision: precision of the multiplication; see `lax.Precision`.
        preferred_element_type: dtype of the sums and of the result; None for the dtype that the
            operands promote to.
        out_sharding: accepted for compatibility with JAX, and ignored.

    Returns:
        An array with the remaining axes of `x1`, followed by the remaining axes of `x2`.
    """
    return jnp.tensordot(x1, x2, axes, precision=precision,
                                  preferred_element_type=preferred_element_type)
