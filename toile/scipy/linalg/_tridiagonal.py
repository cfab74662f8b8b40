"""Eigenvalues and eigenvectors of a symmetric tridiagonal matrix.

Eigenvalues are found by bisection. The number of negative pivots in the LDLᵀ factorization of
`T - x` is the number of eigenvalues below `x`, so all eigenvalues can be refined together.
Eigenvectors are found by inverse iteration. The eigenvectors of close eigenvalues are
orthogonalized against each other.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from toile import lax, random
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.engine.source import here
from toile.nn._promote import is_complex


def _targets(n, select, select_range):
    """Return the indices of the selected eigenvalues."""
    if select == "a":
        return np.arange(n, dtype=np.int32)
    if select == "i":
        if select_range is None:
            raise ValueError("for select='i', select_range must be specified." + here())
        if select_range[0] > select_range[1]:
            raise ValueError("Got empty index range in select_range." + here())
        return np.arange(select_range[0], select_range[1] + 1, dtype=np.int32)
    if select == "v":
        raise NotImplementedError("eigh_tridiagonal(..., select='v') is not implemented" + here())
    raise ValueError("'select must have a value in {'a', 'i', 'v'}." + here())


def _count_below(alpha, beta_sq, pivmin, perturbation, x):
    """Count the eigenvalues below each `x`, as the negative pivots of the Sturm sequence."""
    q = alpha[0] - x
    count = (q < 0).astype(np.int32)
    q = jnp.where(alpha[0] == x, perturbation, q)

    def step(carry, entries):
        q, count = carry
        a, b2 = entries
        q = a - b2 / q - x
        low = q <= pivmin
        q = jnp.where(low, jnp.minimum(q, -pivmin), q)  # keeps the next division away from zero
        return (q, count + low.astype(np.int32)), None

    return lax.scan(step, (q, count), (alpha[1:], beta_sq))[0][1]


def _bisect(alpha, beta_abs, beta_sq, targets, tol):
    info = np.finfo(alpha.dtype)
    padded = jnp.pad(beta_abs, 1)
    radius = padded[:-1] + padded[1:]  # Gershgorin
    high, low = jnp.max(alpha + radius), jnp.min(alpha - radius)
    norm = jnp.maximum(jnp.abs(low), jnp.abs(high))
    safe = max(1 / info.max, (1 + info.eps) * info.tiny)
    pivmin = safe * jnp.maximum(1, jnp.max(beta_sq))
    perturbation = jnp.square(info.eps * beta_abs[0])
    abs_tol = info.eps * norm if tol is None else jnp.maximum(tol, info.eps * norm)
    slack = alpha.shape[0] * 2.1 * info.eps * norm
    shape = targets.shape
    lower = jnp.broadcast_to(low - slack - 4.2 * pivmin, shape)
    upper = jnp.broadcast_to(high + slack + 2.1 * pivmin, shape)

    def running(state):
        i, lower, upper = state
        return (i < info.nmant + 1) & (abs_tol < jnp.max(upper - lower))

    def halve(state):
        i, lower, upper = state
        mid = 0.5 * (lower + upper)
        below = _count_below(alpha, beta_sq, pivmin, perturbation, mid)
        left = below <= targets
        return i + 1, jnp.where(left, mid, lower), jnp.where(left, upper, mid)

    _, lower, upper = lax.while_loop(running, halve, (0, lower, upper))
    return 0.5 * (lower + upper)


def _orthogonalize(vectors, cluster):
    """Orthogonalize each row against the earlier rows of its cluster (Gram-Schmidt)."""
    k = vectors.shape[0]
    index = jnp.arange(k)

    def row(i, v):
        def project(x):
            mates = (index < i) & (cluster == cluster[i])
            weights = jnp.where(mates, jnp.conj(v) @ x, 0)
            return x - weights @ v

        x = project(project(v[i]))  # twice is enough
        norm = jnp.linalg.norm(x).astype(v.dtype)
        return v.at[i].set(x / jnp.where(norm == 0, 1, norm))

    return lax.fori_loop(0, k, row, vectors)


def _eigenvectors(alpha, beta, values, key):
    n, k = alpha.shape[0], values.shape[0]
    dtype = np.result_type(alpha.dtype, beta.dtype)
    norm = jnp.maximum(jnp.abs(values[0]), jnp.abs(values[-1]))
    close = (values[1:] - values[:-1]) < np.sqrt(np.finfo(values.dtype).eps) * norm
    cluster = jnp.concatenate([jnp.zeros(1, np.int32), jnp.cumsum(~close).astype(np.int32)])
    v = random.normal(key, (k, n), dtype=alpha.dtype).astype(dtype)
    v = v / jnp.linalg.norm(v, axis=-1, keepdims=True).astype(dtype)
    shifted = (alpha[None, :] - values[:, None]).astype(dtype)
    below = jnp.broadcast_to(jnp.pad(jnp.conj(beta), (1, 0)), (k, n)).astype(dtype)
    above = jnp.broadcast_to(jnp.pad(beta, (0, 1)), (k, n)).astype(dtype)

    def running(state):
        i, _, growth, before = state
        return (i < 5) & jnp.any(growth >= 1.1 * before)

    def step(state):
        i, v, growth, _ = state
        x = lax.linalg.tridiagonal_solve(
            below, shifted, above, v[:, :, None], perturb_singular=True
        )[..., 0]
        size = jnp.linalg.norm(x, axis=-1)
        x = _orthogonalize(x / size[:, None].astype(dtype), cluster)
        return i + 1, x, size, growth

    init = (0, v, jnp.ones(k, values.dtype), jnp.zeros(k, values.dtype))
    return lax.while_loop(running, step, init)[1]


def eigh_tridiagonal(d: ArrayLike, e: ArrayLike, *, eigvals_only: bool = False,
                     select: Literal["a", "i"] = "a",
                     select_range: tuple[int, int] | None = None, tol: float | None = None,
                     key: Array | None = None) -> Array | tuple[Array, Array]:
    """Compute the eigenvalues and eigenvectors of a Hermitian tridiagonal matrix.

    Args:
        d: diagonal, a vector of length `n`. If `d` is complex, only its real part is used.
        e: elements above the diagonal, a vector of length `n - 1` with the dtype of `d`.
        eigvals_only: whether to return only the eigenvalues.
        select: `"a"` to compute all eigenvalues, or `"i"` to compute those whose indices are in
            `select_range`.
        select_range: first and last index of the eigenvalues to compute, both included. The
            smallest eigenvalue has index 0.
        tol: absolute precision of the eigenvalues; None for the best precision that the dtype
            allows.
        key: random key, which determines the initial vectors of the iteration that finds the
            eigenvectors; None for a fixed key.

    Returns:
        A tuple `(eigenvalues, eigenvectors)`, or only the eigenvalues if `eigvals_only` is True.
        The eigenvalues are real and in ascending order. Column `i` of the eigenvectors belongs to
        eigenvalue `i`.

    Raises:
        NotImplementedError: `select` is `"v"`.
        TypeError: the dtypes differ, or are not float32, float64, complex64 or complex128.

    Differences:
        SciPy can also select the eigenvalues in an interval (`select="v"`), and accepts integers.

    >>> from toile.scipy import linalg
    >>> d, e = jnp.array([2.0, 2.0]), jnp.array([1.0])
    >>> linalg.eigh_tridiagonal(d, e, eigvals_only=True).round(3)
    Array([1., 3.], dtype=float32)
    """
    alpha, beta = jnp.asarray(d), jnp.asarray(e)
    if alpha.dtype != beta.dtype:
        raise TypeError(f"diagonal and off-diagonal values must have same dtype, got {alpha.dtype} "
                        f"and {beta.dtype}{here()}")
    if alpha.dtype not in (np.float32, np.float64, np.complex64, np.complex128):
        raise TypeError("Only float32 and float64 inputs are supported as inputs to "
                        f"jax.scipy.linalg.eigh_tridiagonal, got {alpha.dtype} and "
                        f"{beta.dtype}{here()}")
    n = alpha.shape[0]
    if n <= 1:
        values = jnp.real(alpha)
        return values if eigvals_only else (values, jnp.eye(n, dtype=alpha.dtype))
    if is_complex(alpha):
        alpha = jnp.real(alpha)
        beta_sq = jnp.real(beta * jnp.conj(beta))
        beta_abs = jnp.sqrt(beta_sq)
    else:
        beta_abs, beta_sq = jnp.abs(beta), jnp.square(beta)
    values = _bisect(alpha, beta_abs, beta_sq, _targets(n, select, select_range), tol)
    if eigvals_only:
        return values
    key = random.key(42) if key is None else key
    return values, _eigenvectors(alpha, beta, values, key).T
