"""The left-skewed Gumbel distribution, which describes minima."""

from __future__ import annotations

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.nn._promote import inexact
from toile.scipy.special import xlog1py, xlogy
from toile.scipy.stats._common import standardized, where_positive

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the logarithm of the probability density of the left-skewed Gumbel distribution.

    The density is `exp(y - exp(y)) / scale`, where `y` is `(x - loc) / scale`. The result is NaN
    where `scale` is not positive.

    Args:
        x: points at which the density is evaluated.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The logarithms, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.
    """
    z, scale = standardized("gumbel_l.logpdf", x, loc, scale)
    return where_positive(scale, xlogy(-1, scale) + (z - jnp.exp(z)))


def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the probability density of the left-skewed Gumbel distribution.

    The density is `exp(y - exp(y)) / scale`, where `y` is `(x - loc) / scale`. The result is NaN
    where `scale` is not positive.

    Args:
        x: points at which the density is evaluated.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The densities, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.
    """
    return lax.exp(logpdf(x, loc, scale))


def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the logarithm of `cdf` for the left-skewed Gumbel distribution.

    The result is NaN where `scale` is not positive.

    Args:
        x: points at which the function is evaluated.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The logarithms, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.
    """
    z, scale = standardized("gumbel_l.logcdf", x, loc, scale)
    return where_positive(scale, jnp.log(-jnp.expm1(-jnp.exp(z))))


def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the probability that a left-skewed Gumbel random variable is at most `x`.

    The result is `1 - exp(-exp(y))`, where `y` is `(x - loc) / scale`. It is NaN where `scale` is
    not positive.

    Args:
        x: points at which the function is evaluated.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The probabilities, with the shape that the arguments broadcast to and the floating-point
        dtype that they promote to.
    """
    return lax.exp(logcdf(x, loc, scale))


def ppf(p: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute quantiles of the left-skewed Gumbel distribution (the inverse of `cdf`).

    The result is `loc + scale * log(-log(1 - p))`. It is NaN where `p` is not strictly between 0
    and 1.

    Args:
        p: probabilities, strictly between 0 and 1.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The quantiles, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy's result is -inf at `p = 0`, inf at `p = 1`, and NaN where `scale` is not positive.
        toile does not check `scale`.
    """
    p, loc, scale = inexact("gumbel_l.ppf", p, loc, scale)
    value = loc + scale * jnp.log(xlog1py(-1, -p))
    return jnp.where((p > 0) & (p < 1), value, np.nan)


def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the probability that a left-skewed Gumbel random variable is greater than `x`.

    The result is `exp(-exp(y))`, where `y` is `(x - loc) / scale`. It is NaN where `scale` is not
    positive.

    Args:
        x: points at which the function is evaluated.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The probabilities, with the shape that the arguments broadcast to and the floating-point
        dtype that they promote to.
    """
    return jnp.exp(logsf(x, loc, scale))


def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the logarithm of `sf`, the survival function of the left-skewed Gumbel distribution.

    The result is `-exp(y)`, where `y` is `(x - loc) / scale`. It is NaN where `scale` is not
    positive.

    Args:
        x: points at which the function is evaluated.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The logarithms, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.
    """
    z, scale = standardized("gumbel_l.logsf", x, loc, scale)
    return where_positive(scale, -jnp.exp(z))
