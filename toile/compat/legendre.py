"""`jax.scipy.special.lpmn_values`, which JAX has deprecated and e3nn-jax uses."""

from __future__ import annotations

import math
from typing import Any

import toile.numpy as jnp
from toile.engine.annotations import ArrayLike
from toile.engine.conversion import as_array
from toile.engine.source import here


def _factors(m: int, k: int, is_normalized: bool) -> tuple[float, float]:
    """a and b in the recurrence P(m, k) = a x P(m, k - 1) - b P(m, k - 2)."""
    if not is_normalized:
        return (2 * k - 1) / (k - m), (k + m - 1) / (k - m)
    rest = k * k - m * m
    return (math.sqrt((4 * k * k - 1) / rest),
            math.sqrt((2 * k + 1) * ((k - 1) ** 2 - m * m) / ((2 * k - 3) * rest)))


def lpmn_values(m: int, n: int, z: ArrayLike, is_normalized: bool) -> Any:
    """Associated Legendre functions of the first kind, for all orders and degrees up to `n`.

    Args:
        m: the largest order, which must be equal to `n`.
        n: the largest degree.
        z: the points, a float32 or float64 vector.
        is_normalized: whether the spherical harmonics with these functions are orthonormal.

    Returns:
        An array with the axes (order, degree, point).
    """
    x = as_array(z)
    if x.dtype not in ("float32", "float64"):
        raise TypeError(f"lpmn_values: needed float32 or float64, got z.dtype={x.dtype}{here()}")
    if x.ndim != 1:
        raise ValueError(f"lpmn_values: z must be a 1D array, got {x.aval.str_short()}{here()}")
    if m != n:
        raise NotImplementedError(f"lpmn_values: needed m equal to n, got {m} and {n}{here()}")
    first = jnp.full_like(x, 0.5 / math.sqrt(math.pi) if is_normalized else 1.0)
    rows = []
    for order in range(n + 1):
        if order:
            first *= jnp.sqrt(1 - x * x) * (
                -math.sqrt(1 + 0.5 / order) if is_normalized else 1.0 - 2 * order)
        row = [jnp.zeros_like(x)] * order + [first]
        for degree in range(order + 1, n + 1):
            a, b = _factors(order, degree, is_normalized)
            row.append(a * x * row[-1] - (b * row[-2] if degree > order + 1 else 0))
        rows.append(jnp.stack(row))
    return jnp.stack(rows)
