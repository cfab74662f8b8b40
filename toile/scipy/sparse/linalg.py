"""Iterative solvers for `A x = b`: conjugate gradients, BiCGSTAB and GMRES.

`A` and the preconditioner `M` are matrices, or functions that multiply a vector by a matrix. `b`
may be a pytree. Derivatives are computed by solving another linear system, not by differentiating
the iterations.
"""

# Derivatives come from the equation, by `lax.custom_linear_solve`.

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Literal

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike, PyTree
from toile.engine.source import here
from toile.scipy.linalg import solve, solve_triangular
from toile.tree_util import tree_leaves, tree_map, tree_structure

__all__ = ["bicgstab", "cg", "gmres"]

_HIGH = lax.Precision.HIGHEST


def _dot(a, b):
    return jnp.dot(a, b, precision=_HIGH)


def _real_inner(x, y):
    """Return the real part of the inner product of two trees."""

    def part(x, y):
        out = jnp.vdot(x.real, y.real, precision=_HIGH)
        if jnp.iscomplexobj(x) or jnp.iscomplexobj(y):
            out = out + jnp.vdot(x.imag, y.imag, precision=_HIGH)
        return out

    return sum(tree_leaves(tree_map(part, x, y)))


def _inner(x, y):
    return sum(tree_leaves(tree_map(lambda a, b: jnp.vdot(a, b, precision=_HIGH), x, y)))


def _norm(x):
    return jnp.sqrt(_real_inner(x, x))


def _plus(x, scale, y):
    """Return `x + scale * y` for trees `x` and `y`."""
    return tree_map(lambda a, b: a + scale * b, x, y)


_sub = functools.partial(tree_map, operator.sub)
_add = functools.partial(tree_map, operator.add)


def _identity(x):
    return x


def _matvec(f):
    if f is None:
        return _identity
    if callable(f):
        return f
    if not (isinstance(f, np.ndarray) or hasattr(f, "__matmul__")):
        raise TypeError(f"linear operator must be either a function or ndarray: {f}{here()}")
    if len(f.shape) != 2 or f.shape[0] != f.shape[1]:
        raise ValueError("linear operator must be a square matrix, but has shape: "
                         f"{f.shape}{here()}")
    if isinstance(f, (np.ndarray, jnp.ndarray)):
        return functools.partial(_dot, f)
    return functools.partial(operator.matmul, f)


def _prepare(A, b, x0, M):
    """Convert `A` and `M` to functions, and check that `b` and `x0` match."""
    x0 = tree_map(jnp.zeros_like, b) if x0 is None else x0
    b, x0 = tree_map(jnp.asarray, b), tree_map(jnp.asarray, x0)
    if tree_structure(x0) != tree_structure(b):
        raise ValueError(f"x0 and b must have matching tree structure: {tree_structure(x0)} vs "
                         f"{tree_structure(b)}{here()}")
    shapes = [[v.shape for v in tree_leaves(t)] for t in (x0, b)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"arrays in x0 and b must have matching shapes: {shapes[0]} vs "
                         f"{shapes[1]}{here()}")
    return _matvec(A), b, x0, _matvec(M)


def _size(b):
    return sum(v.size for v in tree_leaves(b))


def _threshold(b, tol, atol):
    """Return the squared norm of the residual at which the iteration stops."""
    return jnp.maximum(jnp.square(tol) * _real_inner(b, b), jnp.square(atol))


def _cg(A, b, x0, maxiter, tol, atol, M):
    limit = _threshold(b, tol, atol)
    r = _sub(b, A(x0))
    p = M(r)
    dtype = jnp.result_type(*tree_leaves(p))
    gamma = _real_inner(r, p).astype(dtype)

    def running(state):
        _, r, gamma, _, k = state
        residual = gamma.real if M is _identity else _real_inner(r, r)
        return (residual > limit) & (k < maxiter)

    def body(state):
        x, r, gamma, p, k = state
        Ap = A(p)
        alpha = gamma / _real_inner(p, Ap).astype(dtype)
        x, r = _plus(x, alpha, p), _plus(r, -alpha, Ap)
        z = M(r)
        new = _real_inner(r, z).astype(dtype)
        return x, r, new, _plus(z, new / gamma, p), k + 1

    return lax.while_loop(running, body, (x0, r, gamma, p, 0))[0]


def _bicgstab(A, b, x0, maxiter, tol, atol, M):
    limit = _threshold(b, tol, atol)
    r = _sub(b, A(x0))
    one = jnp.ones((), jnp.result_type(*tree_leaves(r)))

    def running(state):
        return (_real_inner(state[1], state[1]) > limit) & (0 <= state[-1]) & (state[-1] < maxiter)

    def body(state):
        x, r, rhat, alpha, omega, rho, p, q, k = state
        new_rho = _inner(rhat, r)
        beta = new_rho / rho * alpha / omega
        p = _plus(r, beta, _plus(p, -omega, q))
        phat = M(p)
        q = A(phat)
        alpha = new_rho / _inner(rhat, q)
        s = _plus(r, -alpha, q)
        early = _real_inner(s, s) < limit
        shat = M(s)
        t = A(shat)
        omega = _inner(t, s) / _inner(t, t)
        half = _plus(x, alpha, phat)
        choose = functools.partial(tree_map, functools.partial(jnp.where, early))
        x = choose(half, _plus(half, omega, shat))
        r = choose(s, _plus(s, -omega, t))
        # A negative count is a breakdown, and ends the loop.
        k = jnp.where((omega == 0) | (alpha == 0), -11, k + 1)
        k = jnp.where(new_rho == 0, -10, k)
        return x, r, rhat, alpha, omega, new_rho, p, q, k

    init = (x0, r, r, one, one, one, r, r, jnp.zeros((), np.int32))
    return lax.while_loop(running, body, init)[0]


def _solve(method, A, b, x0, tol, atol, maxiter, M, symmetric):
    A, b, x0, M = _prepare(A, b, x0, M)
    maxiter = 10 * _size(b) if maxiter is None else maxiter

    def iterate(A, b):
        return method(A, b, x0, maxiter, tol, atol, M)

    real = all(not jnp.iscomplexobj(v) for v in tree_leaves(b))
    x = lax.custom_linear_solve(A, b, solve=iterate, transpose_solve=iterate,
                                symmetric=symmetric and real)
    return x, None


def cg(A: ArrayLike | Callable[[PyTree], PyTree], b: PyTree, x0: PyTree | None = None, *,
       tol: float = 1e-5, atol: float = 0.0, maxiter: int | None = None,
       M: ArrayLike | Callable[[PyTree], PyTree] | None = None) -> tuple[PyTree, None]:
    """Solve `A x = b` for Hermitian positive definite `A` by the conjugate gradient method.

    Derivatives are those of the exact solution: they are computed by solving another linear system,
    not by differentiating the iterations.

    Args:
        A: Hermitian positive definite matrix, or a linear function that multiplies its argument by
            this matrix. The argument and the result of the function have the structure of `b`.
        b: right-hand side, an array or a pytree of arrays.
        x0: initial guess, with the structure and shapes of `b`; None for zeros.
        tol, atol: tolerances. The iteration stops when the norm of the residual `b - A x` is at
            most `max(tol * norm(b), atol)`.
        maxiter: maximum number of iterations; None for 10 times the number of elements of `b`.
        M: preconditioner, a matrix or a function that approximates the inverse of `A`; None for no
            preconditioner.

    Returns:
        A tuple `(x, None)`, where `x` has the structure of `b`. The result does not indicate
        whether the iteration converged.

    Raises:
        TypeError: `A` or `M` is neither a matrix nor a function.
        ValueError: a matrix is not square, or `x0` does not match `b`.

    Differences:
        Instead of None, SciPy returns a number that indicates whether the iteration converged.

    >>> from toile.scipy.sparse.linalg import cg
    >>> x, _ = cg(lambda x: 2 * x, jnp.array([2.0, 4.0]))
    >>> x
    Array([1., 2.], dtype=float32)
    """
    return _solve(_cg, A, b, x0, tol, atol, maxiter, M, symmetric=True)


def bicgstab(A: ArrayLike | Callable[[PyTree], PyTree], b: PyTree, x0: PyTree | None = None, *,
             tol: float = 1e-5, atol: float = 0.0, maxiter: int | None = None,
             M: ArrayLike | Callable[[PyTree], PyTree] | None = None) -> tuple[PyTree, None]:
    """Solve `A x = b` for general `A` by the stabilized biconjugate gradient method.

    Derivatives are those of the exact solution: they are computed by solving another linear system,
    not by differentiating the iterations.

    Args:
        A: square matrix, or a linear function that multiplies its argument by this matrix. The
            argument and the result of the function have the structure of `b`.
        b: right-hand side, an array or a pytree of arrays.
        x0: initial guess, with the structure and shapes of `b`; None for zeros.
        tol, atol: tolerances. The iteration stops when the norm of the residual `b - A x` is at
            most `max(tol * norm(b), atol)`.
        maxiter: maximum number of iterations; None for 10 times the number of elements of `b`.
        M: preconditioner, a matrix or a function that approximates the inverse of `A`; None for no
            preconditioner.

    Returns:
        A tuple `(x, None)`, where `x` has the structure of `b`. The result does not indicate
        whether the iteration converged.

    Raises:
        TypeError: `A` or `M` is neither a matrix nor a function.
        ValueError: a matrix is not square, or `x0` does not match `b`.

    Differences:
        Instead of None, SciPy returns a number that indicates whether the iteration converged.
    """
    return _solve(_bicgstab, A, b, x0, tol, atol, maxiter, M, symmetric=False)


# -- GMRES ---------------------------------------------------------------------------------------


def _normalized(x, threshold=None):
    """Return `x/|x|` and `|x|`, or zeros if the norm is not above the threshold."""
    norm = _norm(x)
    threshold = float(jnp.finfo(norm.dtype).eps) if threshold is None else threshold
    keep = norm > threshold
    safe = jnp.where(keep, norm, 1.0)
    unit = tree_map(lambda v: jnp.where(keep, v / safe.astype(v.dtype), 0.0), x)
    return unit, jnp.where(keep, norm, 0.0)


def _project(V, v):
    """Return `v` without its components along the columns of `V`, and the components.

    The components are removed twice for accuracy."""

    def once(v):
        h = tree_map(lambda X, y: jnp.einsum("...n,...->n", X.conj(), y, precision=_HIGH), V, v)
        h = sum(tree_leaves(h))
        return _sub(v, tree_map(lambda X: _dot(X, h), V)), h

    v, first = once(v)
    v, second = once(v)
    return v, first + second


def _arnoldi(k, A, M, V, H):
    """Extend the orthonormal basis `V` by one vector, and `H` by one row of coefficients."""
    v = M(A(tree_map(lambda X: X[..., k], V)))
    before = _norm(v)
    v, h = _project(V, v)
    unit, after = _normalized(v, float(jnp.finfo(before.dtype).eps) * before)
    V = tree_map(lambda X, y: X.at[..., k + 1].set(y), V, unit)
    h = h.at[k + 1].set(after.astype(h.dtype))
    return V, H.at[k, :].set(h.astype(H.dtype)), after == 0.0


def _basis(unit, restart):
    return tree_map(lambda v: jnp.pad(v[..., None], ((0, 0),) * v.ndim + ((0, restart),)), unit)


def _finish(A, b, x, V, y, M):
    x = _add(x, tree_map(lambda X: _dot(X[..., :-1], y), V))
    unit, norm = _normalized(M(_sub(b, A(x))))
    return x, unit, norm


def _batched_cycle(A, b, x, unit, norm, ptol, restart, M):
    """Run one restart: build the whole basis, then solve one least-squares problem."""
    V = _basis(unit, restart)
    dtype = jnp.result_type(*tree_leaves(b))

    def body(state):
        V, H, _, k = state
        V, H, breakdown = _arnoldi(k, A, M, V, H)
        return V, H, breakdown, k + 1

    init = (V, jnp.eye(restart, restart + 1, dtype=dtype), jnp.zeros((), bool), 0)
    V, H, _, _ = lax.while_loop(lambda s: (s[3] < restart) & ~s[2], body, init)
    target = jnp.zeros(restart + 1, dtype).at[0].set(norm.astype(dtype))
    a = H.T  # normal equations: the matrix is tiny and well scaled
    y = solve(_dot(a.T.conj(), a), _dot(a.T.conj(), target), assume_a="pos")
    return _finish(A, b, x, V, y, M)


def _givens(a, b):
    """Return the cosine and sine of the rotation of `(a, b)` that makes `b` zero."""
    swap = jnp.abs(a) < jnp.abs(b)
    zero = jnp.abs(b) == 0
    below = jnp.where(swap, b, a)
    t = -jnp.where(swap, a, b) / jnp.where(below == 0, 1, below)
    r = lax.rsqrt(1 + jnp.abs(t) ** 2).astype(t.dtype)
    cs = jnp.where(zero, 1, jnp.where(swap, r * t, r))
    sn = jnp.where(zero, 0, jnp.where(swap, r, r * t))
    return cs.astype(t.dtype), sn.astype(t.dtype)


def _rotate(row, i, cs, sn):
    x, y = row[i], row[i + 1]
    row = row.at[i].set(cs.conj() * x - sn.conj() * y)
    return row.at[i + 1].set(sn * x + cs * y)


def _incremental_cycle(A, b, x, unit, norm, ptol, restart, M):
    """Run one restart; updating the least-squares problem by rotations allows it to stop early."""
    V = _basis(unit, restart)
    dtype = jnp.result_type(*tree_leaves(b))
    target = jnp.zeros(restart + 1, dtype).at[0].set(norm.astype(dtype))

    def body(state):
        k, _, V, R, target, givens = state
        V, H, _ = _arnoldi(k, A, M, V, R)
        row = lax.fori_loop(0, k, lambda i, row: _rotate(row, i, *givens[i]), H[k, :])
        factors = _givens(row[k], row[k + 1])
        givens = givens.at[k, :].set(jnp.stack(factors))
        R = R.at[k, :].set(_rotate(row, k, *factors))
        target = _rotate(target, k, *factors)
        return k + 1, jnp.abs(target[k + 1]), V, R, target, givens

    init = (
        0, norm, V, jnp.eye(restart, restart + 1, dtype=dtype), target,
        jnp.zeros((restart, 2), dtype),
    )
    state = lax.while_loop(lambda s: (s[0] < restart) & (s[1] > ptol), body, init)
    _, _, V, R, target, _ = state
    y = solve_triangular(R[:, :-1].T, target[:-1])
    return _finish(A, b, x, V, y, M)


def gmres(A: ArrayLike | Callable[[PyTree], PyTree], b: PyTree, x0: PyTree | None = None, *,
          tol: float = 1e-5, atol: float = 0.0, restart: int = 20, maxiter: int | None = None,
          M: ArrayLike | Callable[[PyTree], PyTree] | None = None,
          solve_method: Literal["batched", "incremental"] = "batched") -> tuple[PyTree, Array]:
    """Solve `A x = b` for general `A` by the generalized minimal residual method.

    Derivatives are those of the exact solution: they are computed by solving another linear system,
    not by differentiating the iterations.

    Args:
        A: square matrix, or a linear function that multiplies its argument by this matrix. The
            argument and the result of the function have the structure of `b`.
        b: right-hand side, an array or a pytree of arrays.
        x0: initial guess, with the structure and shapes of `b`; None for zeros.
        tol, atol: tolerances. The iteration stops when the norm of the preconditioned residual
            `M (b - A x)` is at most `max(tol * norm(b), atol)`.
        restart: number of basis vectors to build before the method restarts from the current
            solution. It is limited to the number of elements of `b`. All of these vectors are kept
            in memory.
        maxiter: maximum number of restarts; None for 10 times the number of elements of `b`.
        M: preconditioner, a matrix or a function that approximates the inverse of `A`; None for no
            preconditioner.
        solve_method: `"batched"` to solve one least-squares problem per restart, or `"incremental"`
            to update the problem after each new basis vector, which allows the method to stop
            before the basis is complete.

    Returns:
        A tuple `(x, info)`. `x` has the structure of `b`. `info` is -1 if `x` contains NaN, and
        otherwise 0, even if the iteration did not converge.

    Raises:
        TypeError: `A` or `M` is neither a matrix nor a function.
        ValueError: a matrix is not square, `x0` does not match `b`, or `solve_method` is invalid.
    """
    multiply, b, x0, precondition = _prepare(A, b, x0, M)
    size = _size(b)
    maxiter = 10 * size if maxiter is None else maxiter
    restart = min(restart, size)
    cycles = {"incremental": _incremental_cycle, "batched": _batched_cycle}
    if solve_method not in cycles:
        raise ValueError(f"invalid solve_method {solve_method}, must be either 'incremental' or "
                         f"'batched'{here()}")
    b_norm = _norm(b)
    limit = jnp.maximum(tol * b_norm, atol)
    ptol = _norm(precondition(b)) * jnp.minimum(1.0, limit / b_norm)

    def iterate(A, b):
        unit, norm = _normalized(precondition(_sub(b, A(x0))))

        def body(state):
            x, k, unit, norm = state
            x, unit, norm = cycles[solve_method](A, b, x, unit, norm, ptol, restart,
                                                 precondition)
            return x, k + 1, unit, norm

        def running(state):
            return (state[1] < maxiter) & (state[3] > limit)

        return lax.while_loop(running, body, (x0, 0, unit, norm))[0]

    x = lax.custom_linear_solve(multiply, b, solve=iterate, transpose_solve=iterate)
    return x, jnp.where(jnp.isnan(_norm(x)), -1, 0)
