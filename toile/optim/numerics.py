"""Norms with finite derivatives, and counters that do not overflow."""

from __future__ import annotations

from typing import Any

import numpy as np

from toile import numpy as jnp
from toile.engine.source import here
from toile.engine.trace import Array
from toile.optim.base import ArrayLike

__all__ = [
    "abs_sq", "safe_increment", "safe_int32_increment", "safe_norm", "safe_root_mean_squares",
]  # fmt: skip


def abs_sq(x: ArrayLike) -> Array:
    """Compute `|x|²` for each element without taking a square root.

    Args:
        x: toile or NumPy array, real or complex.

    Returns:
        A real array.

    Raises:
        ValueError: `x` is not an array.

    >>> from toile import optim
    >>> optim.abs_sq(jnp.array([3.0 + 4.0j, -2.0]))
    Array([25.,  4.], dtype=float32)
    """
    if not isinstance(x, (np.ndarray, Array)):
        raise ValueError(f"abs_sq: needed an array, got {x!r}{here()}")
    out: Any = (x.conj() * x).real
    return out


def safe_norm(
    x: ArrayLike, min_norm: ArrayLike, ord: int | float | str | None = None,
    axis: None | tuple[int, ...] | int = None, keepdims: bool = False,
) -> Array:
    """Compute `max(norm(x), min_norm)`, with a derivative that is finite even at zero.

    Args:
        x: array.
        min_norm: minimum result.
        ord: order of the norm, as in `jnp.linalg.norm`; if None, the Euclidean norm is computed.
        axis: axis or axes over which the norm is computed; if None, the norm of the whole array is
            computed.
        keepdims: whether to keep the reduced axes, with size 1.

    Returns:
        A real array with the shape of `x` without `axis`.

    >>> from toile import optim
    >>> optim.safe_norm(jnp.zeros(3), 0.5)
    Array(0.5, dtype=float32)
    >>> toile.grad(optim.safe_norm)(jnp.zeros(3), 0.5)
    Array([0., 0., 0.], dtype=float32)
    """
    norm = jnp.linalg.norm(x, ord=ord, axis=axis, keepdims=True)
    # Where the floor holds, the norm is taken of ones instead: no 0/0 reaches the derivative.
    x = jnp.where(norm <= min_norm, jnp.ones_like(x), x)
    floored = norm <= min_norm if keepdims else jnp.squeeze(norm, axis=axis) <= min_norm
    return jnp.where(floored, min_norm, jnp.linalg.norm(x, ord=ord, axis=axis, keepdims=keepdims))


def safe_root_mean_squares(x: ArrayLike, min_rms: ArrayLike) -> Array:
    """Compute `max(sqrt(mean(|x|²)), min_rms)`, with a derivative that is finite even at zero.

    Args:
        x: array.
        min_rms: minimum result.

    Returns:
        A real scalar.

    >>> from toile import optim
    >>> optim.safe_root_mean_squares(jnp.array([3.0, -3.0]), 0.5)
    Array(3., dtype=float32)
    """
    floored = jnp.sqrt(jnp.mean(abs_sq(x))) <= min_rms
    x = jnp.where(floored, jnp.ones_like(x), x)
    return jnp.where(floored, min_rms, jnp.sqrt(jnp.mean(abs_sq(x))))


def safe_increment(count: ArrayLike) -> Array:
    """Add 1 to a counter, unless the counter is already the largest number of its dtype.

    Args:
        count: integer or floating-point number or array.

    Returns:
        The new counter, with the dtype of `count`.

    Raises:
        ValueError: `count` is neither integer nor floating-point.

    >>> from toile import optim
    >>> optim.safe_increment(jnp.int8(126)), optim.safe_increment(jnp.int8(127))
    (Array(127, dtype=int8), Array(127, dtype=int8))
    """
    dtype = jnp.asarray(count).dtype
    if jnp.issubdtype(dtype, jnp.integer):
        largest: Any = jnp.iinfo(dtype).max
    elif jnp.issubdtype(dtype, jnp.floating):
        largest = jnp.finfo(dtype).max
    else:
        raise ValueError(
            f"safe_increment: needed an integer or floating count, got dtype {dtype}{here()}"
        )
    largest, one = jnp.array(largest, dtype), jnp.array(1, dtype)
    return jnp.where(count < largest, count + one, largest)


safe_int32_increment = safe_increment
