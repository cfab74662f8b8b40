"""Linear algebra with sparse matrices: a direct solver and a method for the largest eigenvalues."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

import toile.lax as lax
import toile.numpy as jnp
from toile.api import jit
from toile.api.callbacks import pure_callback
from toile.engine.annotations import Array, ArrayLike
from toile.engine.avals import aval_of
from toile.engine.source import here
from toile.experimental.sparse.bcsr_functions import rows_of
from toile.experimental.sparse.coo import matrix_product
from toile.experimental.sparse.storage import JAXSparse

__all__ = ["lobpcg_standard", "spsolve"]


# ---------------------------------------------------------------------------------- direct solver


def spsolve(
    data: ArrayLike, indices: ArrayLike, indptr: ArrayLike, b: ArrayLike, tol: float = 1e-6,
    reorder: int = 1,
) -> Array:
    """Solve a linear system `A x = b` whose matrix is in CSR format.

    SciPy's `spsolve` solves the system on the CPU. The result can be differentiated with respect to
    `data` and `b`.

    Args:
        data: stored values of the matrix.
        indices: the column index of each stored value.
        indptr: for each row, the position of its first stored value.
        b: right-hand side, a vector.
        tol: ignored.
        reorder: ignored.

    Returns:
        The solution, a vector.

    >>> from toile.experimental import sparse
    >>> mat = sparse.BCSR.fromdense(jnp.array([[2.0, 0.0], [1.0, 4.0]]))
    >>> sparse.linalg.spsolve(mat.data, mat.indices, mat.indptr, jnp.array([2.0, 9.0]))
    Array([1., 2.], dtype=float32)
    """
    data, indices, indptr, b = map(jnp.asarray, (data, indices, indptr, b))
    if data.dtype != b.dtype:
        raise ValueError(
            f"spsolve: data types do not match: needed equal dtypes, got {data.dtype} and "
            f"{b.dtype}{here()}"
        )
    if not all(jnp.issubdtype(x.dtype, jnp.integer) for x in (indices, indptr)):
        raise ValueError(
            f"spsolve: index arrays must be integer typed; got {indices.dtype} and {indptr.dtype}"
            f"{here()}"
        )
    if not data.ndim == b.ndim == indptr.ndim == 1 or data.shape != indices.shape or (
            indptr.size != b.size + 1):
        raise ValueError(
            f"spsolve: invalid CSR buffer sizes: needed vectors, got {data.shape}, {indices.shape} "
            f"and {indptr.shape} for {b.shape}{here()}"
        )
    rows, n = rows_of(indices, indptr), b.size

    def matvec(x: Any) -> Any:
        return matrix_product(data, rows, indices, x, (n, n))

    def solve(transposed: bool, _: Any, b: Any) -> Any:
        known = [lax.stop_gradient(data), indices, indptr]
        fun = functools.partial(_solved, transposed)
        return pure_callback(fun, aval_of(b), *known, b, vmap_method="sequential")

    return lax.custom_linear_solve(
        matvec, b, functools.partial(solve, False), functools.partial(solve, True))


def _solved(transposed: bool, data: Any, indices: Any, indptr: Any, b: Any) -> np.ndarray:
    """SciPy's solution of the system, or of that with the transposed matrix."""
    buffers = map(np.asarray, (data, indices, indptr))
    matrix = scipy.sparse.csr_matrix(tuple(buffers), shape=(b.size, b.size))
    matrix = (matrix.T if transposed else matrix).tocsc()
    return scipy.sparse.linalg.spsolve(matrix, np.asarray(b)).astype(b.dtype)


# ------------------------------------------------------------------------------------ eigenvalues


def lobpcg_standard(
    A: Array | np.ndarray | JAXSparse | Callable[[Array], Array], X: Array, m: int = 100,
    tol: Array | float | None = None,
) -> tuple[Array, Array, Array]:
    """Compute the largest eigenvalues of a symmetric matrix with the LOBPCG method.

    LOBPCG, the locally optimal block preconditioned conjugate gradient method (Knyazev, 2001),
    requires only products with the matrix.

    Args:
        A: symmetric matrix of shape `(n, n)`, dense or sparse, or a function that multiplies this
            matrix by a matrix of shape `(n, k)`.
        X: initial search directions, of shape `(n, k)`: linearly independent columns, one for each
            eigenvalue, where `0 < 5 * k < n`.
        m: maximum number of iterations.
        tol: tolerance; an eigenpair has converged if the norm of its residual is less than
            `tol * 10 * n * (eigenvalue + norm(A v))`. None means the precision of the dtype.

    Returns:
        The triple (eigenvalues in decreasing order, eigenvectors in columns, number of iterations).

    Raises:
        ValueError: the shapes or dtypes do not match, or `k` is too large.

    >>> from toile.experimental import sparse
    >>> mat = sparse.BCOO.fromdense(jnp.diag(jnp.arange(20.0)))
    >>> values, _, _ = sparse.linalg.lobpcg_standard(mat, jnp.ones((20, 1)))
    >>> print(values.round(2))
    [19.]
    """
    if isinstance(A, (Array, np.ndarray)):
        return _lobpcg_matrix(A, X, m, tol)
    if isinstance(A, JAXSparse):
        return _lobpcg_matrix(A, X, m, tol)
    return _lobpcg(A, X, m, tol)


@functools.partial(jit, static_argnames=["m"])
def _lobpcg_matrix(A: Any, X: Any, m: int, tol: Any) -> Any:
    product = (lambda x: A @ x) if isinstance(A, JAXSparse) else functools.partial(_mm, A)
    return _lobpcg(product, X, m, tol)


@functools.partial(jit, static_argnames=["A", "m"])
def _lobpcg(A: Callable[[Any], Any], X: Any, m: int, tol: Any) -> Any:
    """The columns of the basis [X, P, R] are orthonormal or zero: the best eigenvectors, the
    previous search directions and the residuals."""
    n, k = X.shape
    _check_inputs(A, X)
    tol = float(jnp.finfo(X.dtype).eps) if tol is None else tol
    X = _orthonormalized(X)
    P = _complement(X)
    AX = A(X)
    theta = jnp.sum(X * AX, axis=0)

    def goes_on(state: Any) -> Any:
        i, _, _, _, converged, _ = state
        return (i < m) & (converged < k)

    def step(state: Any) -> Any:
        i, X, P, R, _, _ = state
        R = _projected_out(jnp.concatenate([X, P], axis=1), R)
        basis = jnp.concatenate([X, P, R], axis=1)
        theta, Q = _eigh_descending(_mm(basis.T, A(basis)))
        X = _normalized(_mm(basis, _normalized(Q[:, :k])))
        # The part of the new vectors outside of the old X, made orthogonal to the new X.
        q, _ = jnp.linalg.qr(Q[:k, k:].T)
        P = _normalized(_mm(basis, _mm(Q[:, k:], q)))
        AX = A(X)
        theta = theta[:k]
        R = AX - theta[None] * X
        allowed = tol * 10 * n * (_norms(AX)[0] + theta)
        return i + 1, X, P, R, jnp.sum(_norms(R)[0] < allowed), theta

    start = (0, X, P, AX - theta[None] * X, 0, theta)
    i, X, _, _, _, theta = lax.while_loop(goes_on, step, start)
    return theta, X, i


def _check_inputs(A: Callable[[Any], Any], X: Any) -> None:
    n, k = X.shape
    if k == 0 or 5 * k >= n:
        raise ValueError(
            f"must have search dim > 0, and expected search dim * 5 < matrix dim (got {k * 5}, {n})"
            f"{here()}"
        )
    out = A(jnp.zeros((n, 1), X.dtype))
    if out.dtype != X.dtype or out.shape != (n, 1):
        raise ValueError(
            f"A must be ({n}, {n}) matrix, and A, X must have same dtypes: got {out.dtype}"
            f"{list(out.shape)} for a vector of {X.dtype}{here()}"
        )


def _mm(a: Any, b: Any) -> Any:
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def _norms(x: Any) -> Any:
    """The norms of the columns, as a row."""
    return jnp.linalg.norm(x, axis=0, keepdims=True)


def _normalized(x: Any) -> Any:
    norms = _norms(x)
    return x / jnp.where(norms == 0, 1, norms)


def _eigh_descending(x: Any) -> tuple[Any, Any]:
    w, v = jnp.linalg.eigh(x)
    return w[::-1], v[:, ::-1]


def _svqb(x: Any) -> Any:
    """Orthonormal columns with the span of those of x; surplus columns become zero.

    The eigenvectors of the small matrix x.T @ x give them (Stathopoulos and Wu, 2002)."""
    x = _normalized(x)
    inner = _mm(x.T, x)
    w, v = _eigh_descending(inner)
    tau = jnp.finfo(x.dtype).eps * w[0]
    scale = jnp.where(tau > 0, jnp.maximum(w, tau), 1) ** -0.5
    kept = (w > tau) & (jnp.diag(inner) > 0)
    made = jnp.where(kept[None], _mm(x, v * scale[None]), 0)
    return _normalized(made)


def _orthonormalized(x: Any) -> Any:
    return _svqb(_svqb(x))  # "twice is enough" (Parlett, The Symmetric Eigenvalue Problem, 6.9)


def _projected_out(basis: Any, x: Any) -> Any:
    """The part of x orthogonal to an orthonormal basis, as orthonormal columns; near the end of
    the iterations, columns that are not orthogonal because of cancellation become zero."""

    def subtracted(x: Any) -> Any:
        return x - _mm(basis, _mm(basis.T, x))

    for _ in range(2):
        x = _orthonormalized(subtracted(x))
    x = subtracted(subtracted(x))
    return jnp.where(_norms(x) >= 0.99, x, 0)


def _complement(x: Any) -> Any:
    """As many orthonormal columns as x has, orthogonal to those of x: columns of a block
    Householder reflector (Schreiber and Parlett, 1988)."""
    n, k = x.shape
    u, s, vt = jnp.linalg.svd(x[:k])
    y = x.at[:k].add(_mm(u, vt))
    w = _mm(y, vt.T * ((2 * (1 + s)) ** -0.5)[None])
    other = jnp.eye(n - k, k, dtype=x.dtype)
    return (-2 * _mm(w, _mm(w[k:].T, other))).at[k:].add(other)
