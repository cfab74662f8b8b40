"""The logistic distribution."""

from __future__ import annotations

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.nn._promote import inexact
from toile.scipy.special import expit, logit
from toile.scipy.stats._common import standardized

__all__ = ["cdf", "isf", "logpdf", "pdf", "ppf", "sf"]


def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the logarithm of the probability density of the logistic distribution.

    The density is `exp(-y) / (scale (1 + exp(-y))²)`, where `y` is `(x - loc) / scale`.

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
    y, scale = standardized("logistic.logpdf", x, loc, scale)
    half = y / 2
    return -2 * jnp.logaddexp(half, -half) - jnp.log(scale)


def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the probability density of the logistic distribution.

    The density is `exp(-y) / (scale (1 + exp(-y))²)`, where `y` is `(x - loc) / scale`.

    Args:
        x: points at which the density is evaluated.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The densities, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy returns NaN where `scale` is not positive. toile does not check `scale`.
    """
    return lax.exp(logpdf(x, loc, scale))


def ppf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute quantiles of the logistic distribution (the inverse of `cdf`).

    The result is `loc + scale * log(x / (1 - x))`. It is -inf at `x = 0`, inf at `x = 1`, and NaN
    where `x` is not in `[0, 1]`.

    Args:
        x: probabilities, from 0 to 1.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The quantiles, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy returns NaN where `scale` is not positive. toile does not check `scale`.
    """
    x, loc, scale = inexact("logistic.ppf", x, loc, scale)
    return logit(x) * scale + loc


def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the probability that a logistic random variable is greater than `x`.

    The result is `1 / (1 + exp(y))`, where `y` is `(x - loc) / scale`.

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
    return expit(-standardized("logistic.sf", x, loc, scale)[0])


def isf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute upper quantiles of the logistic distribution (the inverse of `sf`).

    The result is `loc - scale * log(x / (1 - x))`. It is inf at `x = 0`, -inf at `x = 1`, and NaN
    where `x` is not in `[0, 1]`.

    Args:
        x: probabilities, from 0 to 1.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The quantiles, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy returns NaN where `scale` is not positive. toile does not check `scale`.
    """
    x, loc, scale = inexact("logistic.isf", x, loc, scale)
    return -logit(x) * scale + loc


def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the probability that a logistic random variable is at most `x`.

    The result is `1 / (1 + exp(-y))`, where `y` is `(x - loc) / scale`.

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
    return expit(standardized("logistic.cdf", x, loc, scale)[0])
