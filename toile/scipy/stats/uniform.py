"""The uniform distribution on `[loc, loc + scale]`."""

from __future__ import annotations

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.nn._promote import inexact

__all__ = ["cdf", "logpdf", "pdf", "ppf"]


def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the logarithm of the probability density of the uniform distribution.

    The density is `1 / scale` on the interval `[loc, loc + scale]`, including both ends. The result
    is -inf outside the interval.

    Args:
        x: points at which the density is evaluated.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The logarithms, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy returns NaN where `x` is NaN or `scale` is not positive. toile checks neither
        condition.
    """
    x, loc, scale = inexact("uniform.logpdf", x, loc, scale)
    return jnp.where((x > loc + scale) | (x < loc), -np.inf, -jnp.log(scale))


def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the probability density of the uniform distribution.

    The density is `1 / scale` on the interval `[loc, loc + scale]`, including both ends. The result
    is 0 outside the interval.

    Args:
        x: points at which the density is evaluated.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The densities, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy returns NaN where `x` is NaN or `scale` is not positive. toile checks neither
        condition.

    >>> from toile.scipy.stats import uniform
    >>> uniform.pdf(jnp.array([1.0, 3.0, 5.0]), loc=2, scale=2)
    Array([0. , 0.5, 0. ], dtype=float32)
    """
    return lax.exp(logpdf(x, loc, scale))


def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the probability that a uniformly distributed random variable is at most `x`.

    The result is `(x - loc) / scale` on the interval `[loc, loc + scale]`, 0 below it and 1 above
    it.

    Args:
        x: points at which the function is evaluated.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The probabilities, with the shape that the arguments broadcast to and the floating-point
        dtype that they promote to.

    Differences:
        SciPy returns NaN where `x` is NaN or `scale` is not positive. toile checks neither
        condition.
    """
    x, loc, scale = inexact("uniform.cdf", x, loc, scale)
    zero, one = jnp.array(0, x.dtype), jnp.array(1, x.dtype)
    high = loc + scale
    inside = (x >= loc) & (x <= high)
    return jnp.select([x < loc, x > high, inside], [zero, one, (x - loc) / scale])


def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute quantiles of the uniform distribution (the inverse of `cdf`).

    The result is `loc + scale * q`. It is NaN where `q` is not in `[0, 1]`.

    Args:
        q: probabilities, from 0 to 1.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The quantiles, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy returns NaN where `scale` is not positive. toile does not check `scale`.

    >>> from toile.scipy.stats import uniform
    >>> uniform.ppf(jnp.array([0.0, 0.5, 1.0]), loc=2, scale=2)
    Array([2., 3., 4.], dtype=float32)
    """
    q, loc, scale = inexact("uniform.ppf", q, loc, scale)
    bad = jnp.isnan(q) | (q < 0) | (q > 1)
    return jnp.where(bad, np.nan, loc + scale * q)
