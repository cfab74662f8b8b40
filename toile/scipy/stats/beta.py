"""The beta distribution on `[loc, loc + scale]`."""

from __future__ import annotations

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.nn._promote import clamp, inexact
from toile.scipy.special import betainc, betaln, xlog1py, xlogy

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


def logpdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0,
           scale: ArrayLike = 1) -> Array:
    """Compute the logarithm of the probability density of the beta distribution.

    On the interval `[loc, loc + scale]`, the density is `y^(a-1) (1-y)^(b-1) / (B(a, b) scale)`,
    where `y` is `(x - loc) / scale` and `B` is `special.beta`. The result is -inf outside the
    interval. It is NaN where `a`, `b` or `scale` is not positive.

    Args:
        x: points at which the density is evaluated.
        a, b: positive shape parameters. A larger `a` moves weight toward the upper end,
            `loc + scale`, and a larger `b` moves weight toward the lower end, `loc`.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The logarithms, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.
    """
    x, a, b, loc, scale = inexact("beta.logpdf", x, a, b, loc, scale)
    y = (x - loc) / scale
    value = -betaln(a, b) + (xlogy(a - 1, y) + xlog1py(b - 1, -y)) - jnp.log(scale)
    value = jnp.where((x > loc + scale) | (x < loc), -np.inf, value)
    return jnp.where((a <= 0) | (b <= 0) | (scale <= 0), np.nan, value)


def pdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0,
        scale: ArrayLike = 1) -> Array:
    """Compute the probability density of the beta distribution.

    On the interval `[loc, loc + scale]`, the density is `y^(a-1) (1-y)^(b-1) / (B(a, b) scale)`,
    where `y` is `(x - loc) / scale` and `B` is `special.beta`. The result is 0 outside the
    interval. It is NaN where `a`, `b` or `scale` is not positive.

    Args:
        x: points at which the density is evaluated.
        a, b: positive shape parameters. A larger `a` moves weight toward the upper end,
            `loc + scale`, and a larger `b` moves weight toward the lower end, `loc`.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The densities, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.
    """
    return lax.exp(logpdf(x, a, b, loc, scale))


def _standard(name, x, a, b, loc, scale):
    x, a, b, loc, scale = inexact(name, x, a, b, loc, scale)
    return clamp(0, (x - loc) / scale, 1), a, b


def cdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0,
        scale: ArrayLike = 1) -> Array:
    """Compute the probability that a beta-distributed random variable is at most `x`.

    The result is `special.betainc(a, b, y)`, where `y` is `(x - loc) / scale` clipped to `[0, 1]`.

    Args:
        x: points at which the function is evaluated.
        a, b: positive shape parameters. A larger `a` moves weight toward the upper end,
            `loc + scale`, and a larger `b` moves weight toward the lower end, `loc`.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The probabilities, with the shape that the arguments broadcast to and the floating-point
        dtype that they promote to.

    Differences:
        SciPy returns NaN where a parameter is outside its range. toile does not check the
        parameters.

    >>> from toile.scipy.stats import beta
    >>> beta.cdf(jnp.array([0.0, 0.5, 1.0]), 1, 1)
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    y, a, b = _standard("beta.cdf", x, a, b, loc, scale)
    return betainc(a, b, y)


def logcdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0,
           scale: ArrayLike = 1) -> Array:
    """Compute the logarithm of `cdf`, the distribution function of the beta distribution.

    Args:
        x: points at which the function is evaluated.
        a, b: positive shape parameters. A larger `a` moves weight toward the upper end,
            `loc + scale`, and a larger `b` moves weight toward the lower end, `loc`.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The logarithms, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy returns NaN where a parameter is outside its range. toile does not check the
        parameters.
    """
    return lax.log(cdf(x, a, b, loc, scale))


def sf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the probability that a beta-distributed random variable is greater than `x`.

    The result is `special.betainc(b, a, 1 - y)`, where `y` is `(x - loc) / scale` clipped to
    `[0, 1]`.

    Args:
        x: points at which the function is evaluated.
        a, b: positive shape parameters. A larger `a` moves weight toward the upper end,
            `loc + scale`, and a larger `b` moves weight toward the lower end, `loc`.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The probabilities, with the shape that the arguments broadcast to and the floating-point
        dtype that they promote to.

    Differences:
        SciPy returns NaN where a parameter is outside its range. toile does not check the
        parameters.
    """
    y, a, b = _standard("beta.sf", x, a, b, loc, scale)
    return betainc(b, a, 1 - y)


def logsf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0,
          scale: ArrayLike = 1) -> Array:
    """Compute the logarithm of `sf`, the survival function of the beta distribution.

    Args:
        x: points at which the function is evaluated.
        a, b: positive shape parameters. A larger `a` moves weight toward the upper end,
            `loc + scale`, and a larger `b` moves weight toward the lower end, `loc`.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The logarithms, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy returns NaN where a parameter is outside its range. toile does not check the
        parameters.
    """
    return lax.log(sf(x, a, b, loc, scale))
