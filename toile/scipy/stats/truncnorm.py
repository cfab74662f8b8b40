"""The normal distribution, truncated at `a` and `b` standard deviations from `loc`."""

from __future__ import annotations

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.nn._promote import inexact
from toile.scipy.special import log_ndtr, logsumexp, ndtr
from toile.scipy.stats import norm

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


def _log_difference(x: Array, y: Array) -> Array:
    """Compute `log(exp(x) - exp(y))`."""
    signs = jnp.stack([jnp.ones_like(x), -jnp.ones_like(y)])
    return logsumexp(jnp.stack([x, y]), b=signs, axis=0)


def _log_mass(a: Array, b: Array) -> Array:
    """Compute `log(Φ(b) - Φ(a))`; the right tail is mirrored to the left, where Φ is accurate."""
    a, b = jnp.broadcast_arrays(a, b)
    left, right = b <= 0, a > 0
    low = jnp.where(right, -b, a)
    high = jnp.where(right, -a, b)
    tail = _log_difference(log_ndtr(high), log_ndtr(low))
    central = jnp.log1p(-ndtr(a) - ndtr(-b))
    return jnp.where(left | right, tail, central)


def logpdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0,
           scale: ArrayLike = 1) -> Array:
    """Compute the logarithm of the probability density of the truncated normal distribution.

    The distribution is a normal distribution with location `loc` and scale `scale` that is
    restricted to `loc + a scale ≤ x ≤ loc + b scale`. The density is
    `φ(y) / (scale (Φ(b) - Φ(a)))`, where `y` is `(x - loc) / scale`, and `φ` and `Φ` are the
    standard normal density and distribution function. The result is -inf outside the interval. It
    is NaN where `a` is not less than `b`.

    Args:
        x: points at which the density is evaluated.
        a, b: ends of the interval to which the distribution is restricted, as signed distances from
            `loc` in units of `scale`. They may be infinite.
        loc: location of the normal distribution before it is truncated.
        scale: positive scale of the normal distribution before it is truncated.

    Returns:
        The logarithms, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Raises:
        TypeError: the arguments promote to `float16` or `bfloat16`.

    Differences:
        SciPy returns NaN where `scale` is not positive. toile does not check `scale`.
    """
    x, a, b, loc, scale = inexact("truncnorm.logpdf", x, a, b, loc, scale)
    value = norm.logpdf(x, loc, scale) - _log_mass(a, b)
    y = (x - loc) / scale
    value = jnp.where((y < a) | (y > b), -np.inf, value)
    return jnp.where(a >= b, np.nan, value)


def pdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0,
        scale: ArrayLike = 1) -> Array:
    """Compute the probability density of the truncated normal distribution.

    The distribution is a normal distribution with location `loc` and scale `scale` that is
    restricted to `loc + a scale ≤ x ≤ loc + b scale`. The density is
    `φ(y) / (scale (Φ(b) - Φ(a)))`, where `y` is `(x - loc) / scale`, and `φ` and `Φ` are the
    standard normal density and distribution function. The result is 0 outside the interval. It is
    NaN where `a` is not less than `b`.

    Args:
        x: points at which the density is evaluated.
        a, b: ends of the interval to which the distribution is restricted, as signed distances from
            `loc` in units of `scale`. They may be infinite.
        loc: location of the normal distribution before it is truncated.
        scale: positive scale of the normal distribution before it is truncated.

    Returns:
        The densities, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Raises:
        TypeError: the arguments promote to `float16` or `bfloat16`.

    Differences:
        SciPy returns NaN where `scale` is not positive. toile does not check `scale`.

    >>> from toile.scipy.stats import truncnorm
    >>> truncnorm.pdf(jnp.array([-1.0, 0.0, 1.0]), 0, jnp.inf)
    Array([0.        , 0.79788446, 0.4839414 ], dtype=float32)
    """
    return lax.exp(logpdf(x, a, b, loc, scale))


def logcdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0,
           scale: ArrayLike = 1) -> Array:
    """Compute the logarithm of `cdf` for the truncated normal distribution.

    The result is NaN where `a` is not less than `b`.

    Args:
        x: points at which the function is evaluated.
        a, b: ends of the interval to which the distribution is restricted, as signed distances from
            `loc` in units of `scale`. They may be infinite.
        loc: location of the normal distribution before it is truncated.
        scale: positive scale of the normal distribution before it is truncated.

    Returns:
        The logarithms, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Raises:
        TypeError: the arguments promote to `float16` or `bfloat16`.

    Differences:
        SciPy returns NaN where `x` is NaN or `scale` is not positive. toile checks neither
        condition.
    """
    x, a, b, loc, scale = inexact("truncnorm.logcdf", x, a, b, loc, scale)
    points, low, high = jnp.broadcast_arrays(x, a, b)
    y = (points - loc) / scale
    whole = _log_mass(low, high)
    below = _log_mass(low, y) - whole
    above = _log_mass(y, high) - whole
    # Near 1 the complement keeps the digits.
    cases = [y >= high, y <= low, below > -0.1, y > low]
    value = jnp.select(cases, [0, -np.inf, jnp.log1p(-jnp.exp(above)), below])
    return jnp.where(low >= high, np.nan, value)


def cdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0,
        scale: ArrayLike = 1) -> Array:
    """Compute the probability that a truncated normal random variable is at most `x`.

    The result is `(Φ(y) - Φ(a)) / (Φ(b) - Φ(a))`, where `y` is `(x - loc) / scale` and `Φ` is the
    standard normal distribution function. It is 0 below the interval given by `a` and `b`, 1 above
    the interval, and NaN where `a` is not less than `b`.

    Args:
        x: points at which the function is evaluated.
        a, b: ends of the interval to which the distribution is restricted, as signed distances from
            `loc` in units of `scale`. They may be infinite.
        loc: location of the normal distribution before it is truncated.
        scale: positive scale of the normal distribution before it is truncated.

    Returns:
        The probabilities, with the shape that the arguments broadcast to and the floating-point
        dtype that they promote to.

    Raises:
        TypeError: the arguments promote to `float16` or `bfloat16`.

    Differences:
        SciPy returns NaN where `x` is NaN or `scale` is not positive. toile checks neither
        condition.
    """
    return lax.exp(logcdf(x, a, b, loc, scale))


def logsf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0,
          scale: ArrayLike = 1) -> Array:
    """Compute the logarithm of `sf`, the survival function of the truncated normal distribution.

    The result is NaN where `a` is not less than `b`.

    Args:
        x: points at which the function is evaluated.
        a, b: ends of the interval to which the distribution is restricted, as signed distances from
            `loc` in units of `scale`. They may be infinite.
        loc: location of the normal distribution before it is truncated.
        scale: positive scale of the normal distribution before it is truncated.

    Returns:
        The logarithms, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Raises:
        TypeError: the arguments promote to `float16` or `bfloat16`.

    Differences:
        SciPy returns NaN where `x` is NaN or `scale` is not positive. toile checks neither
        condition.
    """
    x, a, b, loc, scale = inexact("truncnorm.logsf", x, a, b, loc, scale)
    return logcdf(-x, -b, -a, -loc, scale)


def sf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the probability that a truncated normal random variable is greater than `x`.

    The result is 1 minus the result of `cdf`. It is NaN where `a` is not less than `b`.

    Args:
        x: points at which the function is evaluated.
        a, b: ends of the interval to which the distribution is restricted, as signed distances from
            `loc` in units of `scale`. They may be infinite.
        loc: location of the normal distribution before it is truncated.
        scale: positive scale of the normal distribution before it is truncated.

    Returns:
        The probabilities, with the shape that the arguments broadcast to and the floating-point
        dtype that they promote to.

    Raises:
        TypeError: the arguments promote to `float16` or `bfloat16`.

    Differences:
        SciPy returns NaN where `x` is NaN or `scale` is not positive. toile checks neither
        condition.
    """
    return lax.exp(logsf(x, a, b, loc, scale))
