"""Integration of sampled functions."""

from toile import numpy as jnp

__all__ = ["trapezoid"]


def trapezoid(y, x=None, dx=1.0, axis=-1):
    """Integral of `y` along `axis` by the trapezoidal rule, at points `x` or with spacing `dx`."""
    return jnp.trapezoid(y, x, dx, axis)
