"""The gamma distribution of shape a."""

from __future__ import annotations

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.nn._promote import clamp, inexact
from toile.scipy.special import gammainc, gammaincc, gammaln, xlogy

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


def logpdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the probability density of the gamma distribution.

    The density is `y^(a-1) exp(-y) / (Γ(a) scale)`, where `y` is `(x - loc) / scale`; the result is
    -inf below `loc`.

    Args:
        x: points at which the density is evaluated.
        a: shape parameter, which is positive.
        loc: location: the distribution is shifted by it.
        scale: scale, which is positive: the distribution is stretched by it.

    Returns:
        The logarithms: an array of the shape and floating dtype that the arguments promote to.

    Differences:
        SciPy returns NaN where `x` is NaN and for parameters outside their range; here neither is
        checked, and the density at NaN is 0.
    """
    x, a, loc, scale = inexact("gamma.logpdf", x, a, loc, scale)
    ok = x >= loc
    y = jnp.where(ok, (x - loc) / scale, jnp.ones_like(x))
    value = (xlogy(a - 1, y) - y) - (gammaln(a) + jnp.log(scale))
    return jnp.where(ok, value, -np.inf)


def pdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability density of the gamma distribution.

    The density is `y^(a-1) exp(-y) / (Γ(a) scale)`, where `y` is `(x - loc) / scale`; the result is
    0 below `loc`.

    Args:
        x: points at which the density is evaluated.
        a: shape parameter, which is positive.
        loc: location: the distribution is shifted by it.
        scale: scale, which is positive: the distribution is stretched by it.

    Returns:
        The densities: an array of the shape and floating dtype that the arguments promote to.

    Differences:
        SciPy returns NaN where `x` is NaN and for parameters outside their range; here neither is
        checked, and the density at NaN is 0.
    """
    return lax.exp(logpdf(x, a, loc, scale))


def cdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability that a variable with the gamma distribution is at most `x`.

    The result is `special.gammainc(a, y)`, where `y` is `(x - loc) / scale`, and 0 below `loc`.

    Args:
        x: bounds that the variable is compared with.
        a: shape parameter, which is positive.
        loc: location: the distribution is shifted by it.
        scale: scale, which is positive: the distribution is stretched by it.

    Returns:
        The probabilities: an array of the shape and floating dtype that the arguments promote to.

    Differences:
        SciPy returns NaN for parameters outside their range; here they are not checked.
    """
    x, a, loc, scale = inexact("gamma.cdf", x, a, loc, scale)
    return gammainc(a, clamp(0, (x - loc) / scale, np.inf))


def logcdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the distribution function `cdf` of the gamma distribution.

    Args:
        x: bounds that the variable is compared with.
        a: shape parameter, which is positive.
        loc: location: the distribution is shifted by it.
        scale: scale, which is positive: the distribution is stretched by it.

    Returns:
        The logarithms: an array of the shape and floating dtype that the arguments promote to.

    Differences:
        SciPy returns NaN for parameters outside their range; here they are not checked.
    """
    return lax.log(cdf(x, a, loc, scale))


def sf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability that a variable with the gamma distribution is greater than `x`.

    The result is `special.gammaincc(a, y)`, where `y` is `(x - loc) / scale`, and 1 below `loc`.

    Args:
        x: bounds that the variable is compared with.
        a: shape parameter, which is positive.
        loc: location: the distribution is shifted by it.
        scale: scale, which is positive: the distribution is stretched by it.

    Returns:
        The probabilities: an array of the shape and floating dtype that the arguments promote to.

    Differences:
        SciPy returns NaN for parameters outside their range; here they are not checked.
    """
    x, a, loc, scale = inexact("gamma.sf", x, a, loc, scale)
    y = (x - loc) / scale
    return jnp.where(y < 0, 1, gammaincc(a, y))


def logsf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the survival function `sf` of the gamma distribution.

    Args:
        x: bounds that the variable is compared with.
        a: shape parameter, which is positive.
        loc: location: the distribution is shifted by it.
        scale: scale, which is positive: the distribution is stretched by it.

    Returns:
        The logarithms: an array of the shape and floating dtype that the arguments promote to.

    Differences:
        SciPy returns NaN for parameters outside their range; here they are not checked.
    """
    return lax.log(sf(x, a, loc, scale))
