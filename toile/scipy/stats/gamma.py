"""The gamma distribution with shape parameter `a`."""

from __future__ import annotations

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.nn._promote import clamp, inexact
from toile.scipy.special import gammainc, gammaincc, gammaln, xlogy

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


def logpdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the logarithm of the probability density of the gamma distribution.

    The density is `y^(a-1) exp(-y) / (Γ(a) scale)`, where `y` is `(x - loc) / scale`. The result is
    -inf for `x` below `loc`.

    Args:
        x: points at which the density is evaluated.
        a: positive shape parameter.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The logarithms, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy returns NaN where `x` is NaN or a parameter is outside its range. toile checks
        neither condition; where `x` is NaN, the density is 0.
    """
    x, a, loc, scale = inexact("gamma.logpdf", x, a, loc, scale)
    ok = x >= loc
    y = jnp.where(ok, (x - loc) / scale, jnp.ones_like(x))
    value = (xlogy(a - 1, y) - y) - (gammaln(a) + jnp.log(scale))
    return jnp.where(ok, value, -np.inf)


def pdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the probability density of the gamma distribution.

    The density is `y^(a-1) exp(-y) / (Γ(a) scale)`, where `y` is `(x - loc) / scale`. The result is
    0 for `x` below `loc`.

    Args:
        x: points at which the density is evaluated.
        a: positive shape parameter.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The densities, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy returns NaN where `x` is NaN or a parameter is outside its range. toile checks
        neither condition; where `x` is NaN, the density is 0.
    """
    return lax.exp(logpdf(x, a, loc, scale))


def cdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the probability that a gamma-distributed random variable is at most `x`.

    The result is `special.gammainc(a, y)`, where `y` is `(x - loc) / scale`. For `x` below `loc`,
    the result is 0.

    Args:
        x: points at which the function is evaluated.
        a: positive shape parameter.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The probabilities, with the shape that the arguments broadcast to and the floating-point
        dtype that they promote to.

    Differences:
        SciPy returns NaN where a parameter is outside its range. toile does not check the
        parameters.
    """
    x, a, loc, scale = inexact("gamma.cdf", x, a, loc, scale)
    return gammainc(a, clamp(0, (x - loc) / scale, np.inf))


def logcdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the logarithm of `cdf`, the distribution function of the gamma distribution.

    Args:
        x: points at which the function is evaluated.
        a: positive shape parameter.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The logarithms, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy returns NaN where a parameter is outside its range. toile does not check the
        parameters.
    """
    return lax.log(cdf(x, a, loc, scale))


def sf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the probability that a gamma-distributed random variable is greater than `x`.

    The result is `special.gammaincc(a, y)`, where `y` is `(x - loc) / scale`. For `x` below `loc`,
    the result is 1.

    Args:
        x: points at which the function is evaluated.
        a: positive shape parameter.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The probabilities, with the shape that the arguments broadcast to and the floating-point
        dtype that they promote to.

    Differences:
        SciPy returns NaN where a parameter is outside its range. toile does not check the
        parameters.
    """
    x, a, loc, scale = inexact("gamma.sf", x, a, loc, scale)
    y = (x - loc) / scale
    return jnp.where(y < 0, 1, gammaincc(a, y))


def logsf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the logarithm of `sf`, the survival function of the gamma distribution.

    Args:
        x: points at which the function is evaluated.
        a: positive shape parameter.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The logarithms, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy returns NaN where a parameter is outside its range. toile does not check the
        parameters.
    """
    return lax.log(sf(x, a, loc, scale))
