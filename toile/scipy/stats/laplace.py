"""The Laplace distribution."""

from __future__ import annotations

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.nn._promote import inexact
from toile.scipy.stats._common import standardized

__all__ = ["cdf", "logpdf", "pdf"]


def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the logarithm of the probability density of the Laplace distribution.

    The density is `exp(-|y|) / (2 scale)`, where `y` is `(x - loc) / scale`.

    Args:
        x: points at which the density is evaluated.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The logarithms, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy returns NaN where `scale` is not positive. toile does not check `scale`.
    """
    x, loc, scale = inexact("laplace.logpdf", x, loc, scale)
    return -(jnp.abs(x - loc) / scale + jnp.log(2 * scale))


def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the probability density of the Laplace distribution.

    The density is `exp(-|y|) / (2 scale)`, where `y` is `(x - loc) / scale`.

    Args:
        x: points at which the density is evaluated.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The densities, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy returns NaN where `scale` is not positive. toile does not check `scale`.

    >>> from toile.scipy.stats import laplace
    >>> laplace.pdf(jnp.array([-1.0, 0.0, 1.0])).round(3)
    Array([0.184, 0.5  , 0.184], dtype=float32)
    """
    return lax.exp(logpdf(x, loc, scale))


def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the probability that a Laplace-distributed random variable is at most `x`.

    The result is `exp(y) / 2` where `y ≤ 0`, and `1 - exp(-y) / 2` where `y > 0`, with
    `y = (x - loc) / scale`.

    Args:
        x: points at which the function is evaluated.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The probabilities, with the shape that the arguments broadcast to and the floating-point
        dtype that they promote to.

    Differences:
        SciPy returns NaN where `scale` is not positive. toile does not check `scale`.
    """
    y, _ = standardized("laplace.cdf", x, loc, scale)
    return jnp.where(y <= 0, 0.5 * jnp.exp(y), 1 - 0.5 * jnp.exp(-y))
