"""The wrapped Cauchy distribution on `[0, 2π]`."""

from __future__ import annotations

import math

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.nn._promote import inexact

__all__ = ["logpdf", "pdf"]


def logpdf(x: ArrayLike, c: ArrayLike) -> Array:
    """Compute the logarithm of the probability density of the wrapped Cauchy distribution.

    On the interval `[0, 2π]`, the density is `(1 - c²) / (2π (1 + c² - 2c cos(x)))`. The result is
    -inf outside the interval. It is NaN where `c` is not strictly between 0 and 1.

    Args:
        x: angles at which the density is evaluated, in radians.
        c: concentration around 0, strictly between 0 and 1.

    Returns:
        The logarithms, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy's function also accepts `loc` and `scale`.
    """
    x, c = inexact("wrapcauchy.logpdf", x, c)
    value = jnp.log(1 - c * c) - math.log(2 * math.pi) - jnp.log(1 + c * c - 2 * c * jnp.cos(x))
    value = jnp.where((x >= 0) & (x <= np.pi * 2), value, -np.inf)
    return jnp.where((c > 0) & (c < 1), value, np.nan)


def pdf(x: ArrayLike, c: ArrayLike) -> Array:
    """Compute the probability density of the wrapped Cauchy distribution.

    On the interval `[0, 2π]`, the density is `(1 - c²) / (2π (1 + c² - 2c cos(x)))`. The result is
    0 outside the interval. It is NaN where `c` is not strictly between 0 and 1.

    Args:
        x: angles at which the density is evaluated, in radians.
        c: concentration around 0, strictly between 0 and 1.

    Returns:
        The densities, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy's function also accepts `loc` and `scale`.
    """
    return lax.exp(logpdf(x, c))
