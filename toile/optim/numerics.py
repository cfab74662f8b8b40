"""Arithmetic that stays finite, with its derivatives: norms with a floor, saturating counters."""

from __future__ import annotations

from typing import Any

import numpy as np

from toile import numpy as jnp
from toile.engine.trace import Array
from toile.optim.base import ArrayLike

__all__ = [
    "abs_sq", "safe_increment", "safe_int32_increment", "safe_norm", "safe_root_mean_squares",
]  # fmt: skip


def abs_sq(x: ArrayLike) -> Array:
    """|x|², real also for complex x, without the square root that abs takes."""
    if not isinstance(x, (np.ndarray, Array)):
        raise ValueError(f"abs_sq: needed an array, got {x!r}")
    out: Any = (x.conj() * x).real
    return out


def safe_norm(
    x: ArrayLike, min_norm: ArrayLike, ord: int | float | str | None = None,
    axis: None | tuple[int, ...] | int = None, keepdims: bool = False,
) -> Array:
    """max(norm(x), min_norm), whose derivative is finite at x = 0 too.

    >>> import toile.numpy as jnp
    >>> print(safe_norm(jnp.zeros(3), 0.5))
    0.5
    """
    norm = jnp.linalg.norm(x, ord=ord, axis=axis, keepdims=True)
    # Where the floor holds, the norm is taken of ones instead: no 0/0 reaches the derivative.
    x = jnp.where(norm <= min_norm, jnp.ones_like(x), x)
    floored = norm <= min_norm if keepdims else jnp.squeeze(norm, axis=axis) <= min_norm
    return jnp.where(floored, min_norm, jnp.linalg.norm(x, ord=ord, axis=axis, keepdims=keepdims))


def safe_root_mean_squares(x: ArrayLike, min_rms: ArrayLike) -> Array:
    """max(sqrt(mean |x|²), min_rms), whose derivative is finite at x = 0 too."""
    floored = jnp.sqrt(jnp.mean(abs_sq(x))) <= min_rms
    x = jnp.where(floored, jnp.ones_like(x), x)
    return jnp.where(floored, min_rms, jnp.sqrt(jnp.mean(abs_sq(x))))


def safe_increment(count: ArrayLike) -> ArrayLike:
    """count + 1, or count itself at the largest number of its dtype.

    >>> import toile.numpy as jnp
    >>> print(safe_increment(jnp.int8(126)), safe_increment(jnp.int8(127)))
    127 127
    """
    dtype = jnp.asarray(count).dtype
    if jnp.issubdtype(dtype, jnp.integer):
        largest: Any = jnp.iinfo(dtype).max
    elif jnp.issubdtype(dtype, jnp.floating):
        largest = jnp.finfo(dtype).max
    else:
        raise ValueError(f"safe_increment: needed an integer or floating count, got dtype {dtype}")
    largest, one = jnp.array(largest, dtype), jnp.array(1, dtype)
    return jnp.where(count < largest, count + one, largest)


safe_int32_increment = safe_increment
