"""The von Mises distribution on the circle."""

from __future__ import annotations

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.nn._promote import inexact

__all__ = ["logpdf", "pdf"]


def logpdf(x: ArrayLike, kappa: ArrayLike) -> Array:
    """Compute the logarithm of the probability density of the von Mises distribution.

    The density is `exp(kappa cos(x)) / (2π I₀(kappa))`, where `I₀` is `special.i0`. The density has
    period 2π in `x`. The result is NaN where `kappa` is not positive.

    Args:
        x: angles at which the density is evaluated, in radians.
        kappa: positive concentration around 0.

    Returns:
        The logarithms, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy's function also accepts `loc` and `scale`. It also accepts `kappa = 0`, for which
        toile returns NaN.
    """
    x, kappa = inexact("vonmises.logpdf", x, kappa)
    value = kappa * (jnp.cos(x) - 1) - jnp.log(2 * np.pi * lax.bessel_i0e(kappa))
    return jnp.where(kappa > 0, value, np.nan)


def pdf(x: ArrayLike, kappa: ArrayLike) -> Array:
    """Compute the probability density of the von Mises distribution.

    The density is `exp(kappa cos(x)) / (2π I₀(kappa))`, where `I₀` is `special.i0`. The density has
    period 2π in `x`. The result is NaN where `kappa` is not positive.

    Args:
        x: angles at which the density is evaluated, in radians.
        kappa: positive concentration around 0.

    Returns:
        The densities, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy's function also accepts `loc` and `scale`. It also accepts `kappa = 0`, for which
        toile returns NaN.
    """
    return lax.exp(logpdf(x, kappa))
