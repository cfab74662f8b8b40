"""Integration of sampled functions, as in `jax.scipy.integrate`."""

from __future__ import annotations

from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike

__all__ = ["trapezoid"]


def trapezoid(y: ArrayLike, x: ArrayLike | None = None, dx: ArrayLike = 1.0,
              axis: int = -1) -> Array:
    """Integrate samples along an axis by the trapezoidal rule.

    Args:
        y: values of the function.
        x: positions of the samples; None if the samples are evenly spaced at a distance of `dx`.
        dx: distance between neighboring samples; ignored if `x` is given.
        axis: axis to integrate along.

    Returns:
        A floating-point array with the shape of `y` without `axis`.

    >>> from toile.scipy import integrate
    >>> integrate.trapezoid(jnp.array([0.0, 1.0, 4.0]))
    Array(3., dtype=float32)
    """
    return jnp.trapezoid(y, x, dx, axis)
