"""The normal distribution."""

from __future__ import annotations

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.nn._promote import inexact
from toile.scipy.special import log_ndtr, ndtr, ndtri
from toile.scipy.stats._common import standardized

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the probability density of the normal distribution.

    The density is `exp(-y²/2) / (scale √(2π))`, where `y` is `(x - loc) / scale`.

    Args:
        x: points at which the density is evaluated.
        loc: location: the distribution is shifted by it.
        scale: scale, which is positive: the distribution is stretched by it.

    Returns:
        The logarithms: an array of the shape and floating dtype that the arguments promote to.

    Differences:
        SciPy returns NaN where `scale` is not positive; here it is not checked.
    """
    x, loc, scale = inexact("norm.logpdf", x, loc, scale)
    variance = jnp.square(scale)
    return (jnp.log(2 * np.pi * variance) + jnp.square(x - loc) / variance) / -2


def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability density of the normal distribution.

    The density is `exp(-y²/2) / (scale √(2π))`, where `y` is `(x - loc) / scale`.

    Args:
        x: points at which the density is evaluated.
        loc: location: the distribution is shifted by it.
        scale: scale, which is positive: the distribution is stretched by it.

    Returns:
        The densities: an array of the shape and floating dtype that the arguments promote to.

    Differences:
        SciPy returns NaN where `scale` is not positive; here it is not checked.
    """
    return lax.exp(logpdf(x, loc, scale))


def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability that a variable with the normal distribution is at most `x`.

    The result is `Φ(y)`, where `y` is `(x - loc) / scale` and `Φ` is `special.ndtr`.

    Args:
        x: bounds that the variable is compared with.
        loc: location: the distribution is shifted by it.
        scale: scale, which is positive: the distribution is stretched by it.

    Returns:
        The probabilities: an array of the shape and floating dtype that the arguments promote to.

    Raises:
        TypeError: the arguments promote to `float16` or `bfloat16`.

    Differences:
        SciPy returns NaN where `scale` is not positive; here it is not checked.

    >>> from toile.scipy.stats import norm
    >>> norm.cdf(jnp.array([-jnp.inf, 0.0, jnp.inf]))
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    return ndtr(standardized("norm.cdf", x, loc, scale)[0])


def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the distribution function `cdf` of the normal distribution.

    The result is accurate far into the lower tail, where `cdf` is 0.

    Args:
        x: bounds that the variable is compared with.
        loc: location: the distribution is shifted by it.
        scale: scale, which is positive: the distribution is stretched by it.

    Returns:
        The logarithms: an array of the shape and floating dtype that the arguments promote to.

    Raises:
        TypeError: the arguments promote to `float16` or `bfloat16`.

    Differences:
        SciPy returns NaN where `scale` is not positive; here it is not checked.
    """
    return log_ndtr(standardized("norm.logcdf", x, loc, scale)[0])


def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Quantiles of the normal distribution: the inverse of `cdf`.

    The result is `loc + scale * special.ndtri(q)`: -inf at 0, inf at 1, NaN outside.

    Args:
        q: probabilities, from 0 to 1.
        loc: location: the distribution is shifted by it.
        scale: scale, which is positive: the distribution is stretched by it.

    Returns:
        The quantiles: an array of the shape that the arguments broadcast to, of the default float
        dtype.

    Raises:
        TypeError: `q` is neither `float32` nor `float64`.

    Differences:
        SciPy returns NaN where `scale` is not positive; here it is not checked.
    """
    return jnp.asarray(ndtri(q) * scale + loc, float)


def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the survival function `sf` of the normal distribution.

    The result is accurate far into the upper tail, where `sf` is 0.

    Args:
        x: bounds that the variable is compared with.
        loc: location: the distribution is shifted by it.
        scale: scale, which is positive: the distribution is stretched by it.

    Returns:
        The logarithms: an array of the shape and floating dtype that the arguments promote to.

    Raises:
        TypeError: the arguments promote to `float16` or `bfloat16`.

    Differences:
        SciPy returns NaN where `scale` is not positive; here it is not checked.
    """
    x, loc, scale = inexact("norm.logsf", x, loc, scale)
    return logcdf(-x, -loc, scale)


def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability that a variable with the normal distribution is greater than `x`.

    The result is `1 - cdf`.

    Args:
        x: bounds that the variable is compared with.
        loc: location: the distribution is shifted by it.
        scale: scale, which is positive: the distribution is stretched by it.

    Returns:
        The probabilities: an array of the shape and floating dtype that the arguments promote to.

    Raises:
        TypeError: the arguments promote to `float16` or `bfloat16`.

    Differences:
        SciPy returns NaN where `scale` is not positive; here it is not checked.
    """
    x, loc, scale = inexact("norm.sf", x, loc, scale)
    return cdf(-x, -loc, scale)


def isf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Quantiles of the normal distribution from the upper end: the inverse of `sf`.

    It is computed as `ppf(1 - q)`: for very small `q`, `-ppf(q, -loc, scale)` is more accurate.

    Args:
        q: probabilities, from 0 to 1.
        loc: location: the distribution is shifted by it.
        scale: scale, which is positive: the distribution is stretched by it.

    Returns:
        The quantiles: an array of the shape that the arguments broadcast to, of the default float
        dtype.

    Raises:
        TypeError: `q` is neither `float32` nor `float64`.

    Differences:
        SciPy returns NaN where `scale` is not positive; here it is not checked.
    """
    return ppf(1 - q, loc, scale)
