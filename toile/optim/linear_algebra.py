"""Linear algebra for optimizers: norms, eigenvalues, inverse matrix roots and least squares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toile import lax, random
from toile import numpy as jnp
from toile.engine.source import here
from toile.engine.trace import Array
from toile.optim import base, tree
from toile.optim.base import ArrayLike

__all__ = ["global_norm", "matrix_inverse_pth_root", "nnls", "power_iteration"]


def global_norm(updates: base.PyTree) -> Array:
    """Compute the Euclidean norm of all leaves together.

    Args:
        updates: tree of arrays.

    Returns:
        A real scalar.

    >>> from toile import optim
    >>> optim.global_norm({"a": jnp.array([3.0]), "b": jnp.array([4.0])})
    Array(5., dtype=float32)
    """
    return tree.norm(updates)


def _unit(x: Any) -> Any:
    return tree.scale(1.0 / tree.norm(x), x)


def power_iteration(
    matrix: ArrayLike | Callable[[base.ArrayTree], base.ArrayTree], *,
    v0: base.ArrayTree | None = None, num_iters: ArrayLike = 100, error_tolerance: ArrayLike = 1e-6,
    precision: lax.Precision = lax.Precision.HIGHEST, key: base.PRNGKey | None = None,
) -> tuple[Array, base.ArrayTree]:
    """Find the eigenvalue with the largest magnitude and its eigenvector by power iteration.

    Args:
        matrix: square matrix, or a function that multiplies a vector by the matrix. The vector may
            be a tree.
        v0: initial vector, which is required if `matrix` is a function. Otherwise, `v0` may be
            None, in which case a random vector is used.
        num_iters: maximum number of iterations.
        error_tolerance: the iteration ends when the norm of the residual, relative to the
            eigenvalue, is smaller than this number.
        precision: precision of the matrix product.
        key: random key for the initial vector; if None, a fixed key is used.

    Returns:
        The eigenvalue and the eigenvector, whose norm is 1.

    Raises:
        ValueError: `matrix` is a function and `v0` is None.

    >>> from toile import optim
    >>> value, vector = optim.power_iteration(jnp.diag(jnp.array([1.0, 3.0])))
    >>> value.round(3), jnp.abs(vector).round(3)
    (Array(3., dtype=float32), Array([0., 1.], dtype=float32))
    """
    if callable(matrix):
        product = matrix
        if v0 is None:
            raise ValueError(
                f"power_iteration: needed v0 if matrix is a function, got None{here()}"
            )
    else:
        product = lambda v: jnp.matmul(matrix, v, precision=precision)
        if v0 is None:
            key = random.PRNGKey(0) if key is None else key
            v0 = random.uniform(key, matrix.shape[-1:], matrix.dtype, minval=-1.0, maxval=1.0)

    def unfinished(state):
        vector, image, value, i = state
        residual = tree.norm(tree.sub(image, tree.scale(value, vector)))
        converged = jnp.abs(residual / value) < error_tolerance
        return ~converged & (i < num_iters)

    def iterate(state):
        _, image, _, i = state
        vector = _unit(image)
        image = product(vector)
        return vector, image, tree.vdot(vector, image), i + 1

    start = _unit(v0)
    state = start, product(start), jnp.asarray(0.0), jnp.asarray(0)
    _, image, value, _ = lax.while_loop(unfinished, iterate, state)
    return value, _unit(image)


def _small_power(x: Array, p: ArrayLike, precision: Any) -> Array:
    """Compute `x` to the power `p` by repeated squaring, for `p` equal to 1, 2, 4 or 8."""

    def squared(times):
        def power(x):
            for _ in range(times):
                x = jnp.matmul(x, x, precision=precision)
            return x

        return power

    index = jnp.asarray(jnp.round(jnp.log2(p)), jnp.int32)
    return lax.switch(index, [squared(n) for n in range(4)], x)


def matrix_inverse_pth_root(
    matrix: ArrayLike, p: ArrayLike, num_iters: ArrayLike = 100, ridge_epsilon: ArrayLike = 1e-6,
    error_tolerance: ArrayLike = 1e-6, precision: lax.Precision = lax.Precision.HIGHEST,
) -> tuple[Array, ArrayLike]:
    """Compute the inverse `p`-th root of a positive semidefinite matrix by Newton's iteration.

    The result is `matrix**(-1/p)`. With `a = -1/p`, each iteration computes
    `T = (1 - a) * I + a * M`, then sets `M = T**p @ M` and `H = H @ T`. `M` starts as a multiple of
    the matrix and converges to the identity `I`; `H` converges to the inverse root.

    Args:
        matrix: symmetric matrix without negative eigenvalues.
        p: order of the root: 1, 2, 4 or 8.
        num_iters: maximum number of iterations.
        ridge_epsilon: small number. The identity, multiplied by this number and by the largest
            eigenvalue, is added to the matrix.
        error_tolerance: the iteration ends when no element of `M` differs from the identity by more
            than this number.
        precision: precision of matrix products.

    Returns:
        The inverse root, with the dtype of `matrix`, and the largest absolute difference between an
        element of `M` and the corresponding element of the identity.

    >>> from toile import optim
    >>> root, error = optim.matrix_inverse_pth_root(jnp.diag(jnp.array([4.0, 16.0])), 2)
    >>> root.round(3)
    Array([[0.5 , 0.  ],
           [0.  , 0.25]], dtype=float32)
    """
    size = matrix.shape[0]
    alpha = jnp.asarray(-1.0 / p, jnp.float32)
    identity = jnp.eye(size, dtype=jnp.float32)
    largest, _ = power_iteration(matrix, precision=precision)
    ridge = ridge_epsilon * jnp.maximum(largest, 1e-16)
    if size == 1:
        return (matrix + ridge) ** alpha, 0

    def unfinished(state):
        i, _, _, _, error, improving = state
        return (i < num_iters) & (error > error_tolerance) & improving

    def iterate(state):
        i, m, h, _, error, _ = state
        step = (1 - alpha) * identity + alpha * m
        new_m = jnp.matmul(_small_power(step, p, precision), m, precision=precision)
        new_h = jnp.matmul(h, step, precision=precision)
        new_error = jnp.max(jnp.abs(new_m - identity))
        return i + 1, new_m, new_h, h, new_error, new_error < error * 1.2

    damped = matrix + ridge * identity
    z = (1 + p) / (2 * jnp.linalg.norm(damped))
    m = damped * z
    h = identity * jnp.power(z, 1.0 / p)
    error = jnp.max(jnp.abs(m - identity))
    state = (0, m, h, h, error, True)
    _, m, h, last_h, _, converged = lax.while_loop(unfinished, iterate, state)
    # If the last iteration made the error worse, return the previous root.
    good = jnp.asarray(converged, last_h.dtype)
    root = good * h + (1 - good) * last_h
    return jnp.asarray(root, matrix.dtype), jnp.max(jnp.abs(m - identity))


def nnls(
    A: Array, b: Array, iters: int, unroll: int | bool = 1, L: ArrayLike | None = None
) -> Array:
    """Solve a least-squares problem whose solution must not contain negative numbers.

    Accelerated projected gradient descent finds an approximation to the `x >= 0` that minimizes
    `norm(A @ x - b)`.

    Args:
        A: matrix of shape (m, n).
        b: vector of shape (m,), or matrix of shape (m, k) to solve `k` problems at once.
        iters: number of iterations.
        unroll: number of iterations to unroll, as in `lax.scan`.
        L: upper bound on the largest eigenvalue of `A.T @ A`. If None, a bound is computed.

    Returns:
        An array of shape (n,) or (n, k).

    >>> from toile import optim
    >>> A = jnp.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> optim.nnls(A, A @ jnp.array([1.0, 0.0]), 200).round(2)
    Array([1., 0.], dtype=float32)
    """
    assert A.ndim == 2 and b.ndim in (1, 2) and b.shape[0] == A.shape[0], (A.shape, b.shape)
    Q, q = A.mT @ A, A.mT @ b
    if L is None:  # the spectral radius is at most any of these norms
        columns = jnp.linalg.matrix_norm(Q, ord=1) if Q.size != 0 else 0
        L = jnp.minimum(jnp.linalg.matrix_norm(Q, ord="fro"), columns)
    L = jnp.where(L == 0, 1, L)

    def step(state, _):
        x, ahead, c = state
        next_c = (1 + jnp.sqrt(1 + 4 * c**2)) / 2
        next_x = (ahead - (Q @ ahead - q) / L).clip(0)
        ahead = next_x + (c - 1) / next_c * (next_x - x)
        return (next_x, ahead, next_c), None

    x = jnp.zeros_like(b, shape=A.shape[-1:] + b.shape[1:])
    (x, _, _), _ = lax.scan(step, (x, x, 0.0), length=iters, unroll=unroll)
    return x
