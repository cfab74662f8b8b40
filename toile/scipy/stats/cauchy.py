"""The Cauchy distribution."""

from __future__ import annotations

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.nn._promote import inexact
from toile.scipy.stats._common import standardized

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the logarithm of the probability density of the Cauchy distribution.

    The density is `1 / (π scale (1 + y²))`, where `y` is `(x - loc) / scale`.

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
    y, scale = standardized("cauchy.logpdf", x, loc, scale)
    return -(jnp.log(np.pi * scale) + lax.log1p(y * y))


def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the probability density of the Cauchy distribution.

    The density is `1 / (π scale (1 + y²))`, where `y` is `(x - loc) / scale`.

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


def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the probability that a Cauchy-distributed random variable is at most `x`.

    The result is `1/2 + arctan(y)/π`, where `y` is `(x - loc) / scale`.

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
    return 0.5 + 1 / np.pi * jnp.arctan(standardized("cauchy.cdf", x, loc, scale)[0])


def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the logarithm of `cdf`, the distribution function of the Cauchy distribution.

    Args:
        x: points at which the function is evaluated.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The logarithms, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy returns NaN where `scale` is not positive. toile does not check `scale`.
    """
    return lax.log(cdf(x, loc, scale))


def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the probability that a Cauchy-distributed random variable is greater than `x`.

    The result is 1 minus the result of `cdf`.

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
    x, loc, scale = inexact("cauchy.sf", x, loc, scale)
    return cdf(-x, -loc, scale)


def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the logarithm of `sf`, the survival function of the Cauchy distribution.

    Args:
        x: points at which the function is evaluated.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The logarithms, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy returns NaN where `scale` is not positive. toile does not check `scale`.
    """
    x, loc, scale = inexact("cauchy.logsf", x, loc, scale)
    return logcdf(-x, -loc, scale)


def isf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute upper quantiles of the Cauchy distribution (the inverse of `sf`).

    The result is `loc - scale * tan(π (q - 1/2))`. It is inf at `q = 0`, -inf at `q = 1`, and NaN
    where `q` is not in `[0, 1]`.

    Args:
        q: probabilities, from 0 to 1.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The quantiles, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy returns NaN where `scale` is not positive. toile does not check `scale`.
    """
    q, loc, scale = inexact("cauchy.isf", q, loc, scale)
    return lax.neg(ppf(q, lax.neg(loc), scale))


def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute quantiles of the Cauchy distribution (the inverse of `cdf`).

    The result is `loc + scale * tan(π (q - 1/2))`. It is -inf at `q = 0`, inf at `q = 1`, and NaN
    where `q` is not in `[0, 1]`.

    Args:
        q: probabilities, from 0 to 1.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The quantiles, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy returns NaN where `scale` is not positive. toile does not check `scale`.
    """
    q, loc, scale = inexact("cauchy.ppf", q, loc, scale)
    # tan(pi (q - 1/2)) is -1 / tan(pi q) and 1 / tan(pi (1 - q)), exact near q = 0 and q = 1.
    middle = abs(q - 0.5) < 0.25
    upper = q > 0.5
    tail = jnp.where(upper, 1, -1) / jnp.tan(np.pi * jnp.where(upper, 1 - q, abs(q)))
    value = jnp.where(middle, jnp.tan(np.pi * (q - 0.5)), tail)
    return jnp.where((q < 0) | (q > 1), np.nan, value * scale + loc)
