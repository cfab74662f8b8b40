"""Norms, eigenvalues, inverse roots of matrices and least squares, as optimizers need them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toile import lax, random
from toile import numpy as jnp
from toile.engine.trace import Array
from toile.optim import base, tree
from toile.optim.base import ArrayLike

__all__ = ["global_norm", "matrix_inverse_pth_root", "nnls", "power_iteration"]


def global_norm(updates: base.PyTree) -> Array:
    """The Euclidean norm of all leaves together.

    >>> import toile.numpy as jnp
    >>> print(global_norm([jnp.array([3.0]), jnp.array([4.0])]))
    5.0
    """
    return tree.norm(updates)


def _unit(x: Any) -> Any:
    return tree.scale(1.0 / tree.norm(x), x)


def power_iteration(
    matrix: ArrayLike | Callable[[base.ArrayTree], base.ArrayTree], *,
    v0: base.ArrayTree | None = None, num_iters: ArrayLike = 100, error_tolerance: ArrayLike = 1e-6,
    precision: lax.Precision = lax.Precision.HIGHEST, key: base.PRNGKey | None = None,
) -> tuple[ArrayLike, base.ArrayTree]:
    """The eigenvalue of largest magnitude and its eigenvector, of a matrix or a product with it.

    >>> import toile.numpy as jnp
    >>> value, vector = power_iteration(jnp.diag(jnp.array([1.0, 3.0])))
    >>> print(round(float(value), 4))
    3.0
    """
    if callable(matrix):
        product = matrix
        if v0 is None:
            raise ValueError("power_iteration: needed v0 where matrix is a function, got None")
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
    """x to the power p by repeated squaring, for p of 1, 2, 4 or 8."""

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
    """matrix^(-1/p) of a positive semidefinite matrix, p in 1, 2, 4, 8, and the residual error.

    The coupled Newton iteration: with Mᵢ = (1-a) I + a M and a = -1/p, the products
    M <- Mᵢᵖ M and H <- H Mᵢ bring M to the identity and H to the root.
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
    # Where the last step made it worse, the one before is the answer.
    good = jnp.asarray(converged, last_h.dtype)
    root = good * h + (1 - good) * last_h
    return jnp.asarray(root, matrix.dtype), jnp.max(jnp.abs(m - identity))


def nnls(
    A: Array, b: Array, iters: int, unroll: int | bool = 1, L: ArrayLike | None = None
) -> Array:
    """The x >= 0 of least |A x - b|, by accelerated projected gradients; L bounds |AᵀA|.

    >>> import toile.numpy as jnp
    >>> A = jnp.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> print(nnls(A, A @ jnp.array([1.0, 0.0]), 200).round(2))
    [1. 0.]
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
