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
    """Compute the logarithm of the probability density of the normal distribution.

    The density is `exp(-y²/2) / (scale √(2π))`, where `y` is `(x - loc) / scale`.

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
    x, loc, scale = inexact("norm.logpdf", x, loc, scale)
    variance = jnp.square(scale)
    return (jnp.log(2 * np.pi * variance) + jnp.square(x - loc) / variance) / -2


def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the probability density of the normal distribution.

    The density is `exp(-y²/2) / (scale √(2π))`, where `y` is `(x - loc) / scale`.

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
    """Compute the probability that a normally distributed random variable is at most `x`.

    The result is `Φ(y)`, where `y` is `(x - loc) / scale` and `Φ` is `special.ndtr`.

    Args:
        x: points at which the function is evaluated.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The probabilities, with the shape that the arguments broadcast to and the floating-point
        dtype that they promote to.

    Raises:
        TypeError: the arguments promote to `float16` or `bfloat16`.

    Differences:
        SciPy returns NaN where `scale` is not positive. toile does not check `scale`.

    >>> from toile.scipy.stats import norm
    >>> norm.cdf(jnp.array([-jnp.inf, 0.0, jnp.inf]))
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    return ndtr(standardized("norm.cdf", x, loc, scale)[0])


def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the logarithm of `cdf`, the distribution function of the normal distribution.

    The result is accurate even far in the lower tail, where `cdf` is rounded to 0.

    Args:
        x: points at which the function is evaluated.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The logarithms, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Raises:
        TypeError: the arguments promote to `float16` or `bfloat16`.

    Differences:
        SciPy returns NaN where `scale` is not positive. toile does not check `scale`.
    """
    return log_ndtr(standardized("norm.logcdf", x, loc, scale)[0])


def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute quantiles of the normal distribution (the inverse of `cdf`).

    The result is `loc + scale * special.ndtri(q)`. It is -inf at `q = 0`, inf at `q = 1`, and NaN
    where `q` is not in `[0, 1]`.

    Args:
        q: probabilities, from 0 to 1.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The quantiles, with the shape that the arguments broadcast to and the default float dtype.

    Raises:
        TypeError: the dtype of `q` is neither `float32` nor `float64`.

    Differences:
        SciPy returns NaN where `scale` is not positive. toile does not check `scale`.
    """
    return jnp.asarray(ndtri(q) * scale + loc, float)


def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the logarithm of `sf`, the survival function of the normal distribution.

    The result is accurate even far in the upper tail, where `sf` is rounded to 0.

    Args:
        x: points at which the function is evaluated.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The logarithms, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Raises:
        TypeError: the arguments promote to `float16` or `bfloat16`.

    Differences:
        SciPy returns NaN where `scale` is not positive. toile does not check `scale`.
    """
    x, loc, scale = inexact("norm.logsf", x, loc, scale)
    return logcdf(-x, -loc, scale)


def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the probability that a normally distributed random variable is greater than `x`.

    The result is 1 minus the result of `cdf`.

    Args:
        x: points at which the function is evaluated.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The probabilities, with the shape that the arguments broadcast to and the floating-point
        dtype that they promote to.

    Raises:
        TypeError: the arguments promote to `float16` or `bfloat16`.

    Differences:
        SciPy returns NaN where `scale` is not positive. toile does not check `scale`.
    """
    x, loc, scale = inexact("norm.sf", x, loc, scale)
    return cdf(-x, -loc, scale)


def isf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute upper quantiles of the normal distribution (the inverse of `sf`).

    The result is computed as `ppf(1 - q)`. For very small `q`, `-ppf(q, -loc, scale)` is more
    accurate.

    Args:
        q: probabilities, from 0 to 1.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The quantiles, with the shape that the arguments broadcast to and the default float dtype.

    Raises:
        TypeError: the dtype of `q` is neither `float32` nor `float64`.

    Differences:
        SciPy returns NaN where `scale` is not positive. toile does not check `scale`.
    """
    return ppf(1 - q, loc, scale)
