"""The Pareto distribution with shape parameter `b`, on `[loc + scale, ∞)`."""

from __future__ import annotations

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.nn._promote import inexact

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def _standard(name: str, x: ArrayLike, b: ArrayLike, loc: ArrayLike,
              scale: ArrayLike) -> tuple[Array, Array, Array, Array]:
    """Return `(x - loc) / scale`, `b`, `scale`, and whether `x` is below the support."""
    x, b, loc, scale = inexact(name, x, b, loc, scale)
    return (x - loc) / scale, b, scale, x < loc + scale


def logpdf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the logarithm of the probability density of the Pareto distribution.

    The density is `b / (scale y^(b+1))`, where `y` is `(x - loc) / scale`. The result is -inf for
    `x` below `loc + scale`.

    Args:
        x: points at which the density is evaluated.
        b: positive shape parameter; a larger `b` makes the upper tail thinner.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The logarithms, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy returns NaN where a parameter is outside its range. toile does not check the
        parameters.
    """
    y, b, scale, below = _standard("pareto.logpdf", x, b, loc, scale)
    return jnp.where(below, -np.inf, -(jnp.log(scale / b) + (b + 1) * jnp.log(y)))


def pdf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the probability density of the Pareto distribution.

    The density is `b / (scale y^(b+1))`, where `y` is `(x - loc) / scale`. The result is 0 for `x`
    below `loc + scale`.

    Args:
        x: points at which the density is evaluated.
        b: positive shape parameter; a larger `b` makes the upper tail thinner.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The densities, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy returns NaN where a parameter is outside its range. toile does not check the
        parameters.
    """
    return lax.exp(logpdf(x, b, loc, scale))


def cdf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the probability that a Pareto-distributed random variable is at most `x`.

    The result is `1 - y^-b`, where `y` is `(x - loc) / scale`. For `x` below `loc + scale`, the
    result is 0.

    Args:
        x: points at which the function is evaluated.
        b: positive shape parameter; a larger `b` makes the upper tail thinner.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The probabilities, with the shape that the arguments broadcast to and the floating-point
        dtype that they promote to.

    Differences:
        SciPy returns NaN where a parameter is outside its range. toile does not check the
        parameters.
    """
    y, b, _, below = _standard("pareto.cdf", x, b, loc, scale)
    value = 1 - y**-b
    return jnp.where(below, jnp.zeros_like(value), value)


def logcdf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the logarithm of `cdf`, the distribution function of the Pareto distribution.

    Args:
        x: points at which the function is evaluated.
        b: positive shape parameter; a larger `b` makes the upper tail thinner.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The logarithms, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy returns NaN where a parameter is outside its range. toile does not check the
        parameters.
    """
    y, b, _, below = _standard("pareto.logcdf", x, b, loc, scale)
    return jnp.where(below, -np.inf, jnp.log1p(-(y**-b)))


def logsf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the logarithm of `sf`, the survival function of the Pareto distribution.

    The result is `-b log(y)`, where `y` is `(x - loc) / scale`. For `x` below `loc + scale`, the
    result is 0.

    Args:
        x: points at which the function is evaluated.
        b: positive shape parameter; a larger `b` makes the upper tail thinner.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The logarithms, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy returns NaN where a parameter is outside its range. toile does not check the
        parameters.
    """
    y, b, _, below = _standard("pareto.logsf", x, b, loc, scale)
    value = -(b * jnp.log(y))
    return jnp.where(below, jnp.zeros_like(value), value)


def sf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the probability that a Pareto-distributed random variable is greater than `x`.

    The result is `y^-b`, where `y` is `(x - loc) / scale`. For `x` below `loc + scale`, the result
    is 1.

    Args:
        x: points at which the function is evaluated.
        b: positive shape parameter; a larger `b` makes the upper tail thinner.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The probabilities, with the shape that the arguments broadcast to and the floating-point
        dtype that they promote to.

    Differences:
        SciPy returns NaN where a parameter is outside its range. toile does not check the
        parameters.

    >>> from toile.scipy.stats import pareto
    >>> pareto.sf(jnp.array([1.0, 2.0, 4.0]), 1)
    Array([1.  , 0.5 , 0.25], dtype=float32)
    """
    return lax.exp(logsf(x, b, loc, scale))


def ppf(q: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute quantiles of the Pareto distribution (the inverse of `cdf`).

    The result is `loc + scale * (1 - q)^(-1/b)`. It is inf at `q = 1`, and NaN where `q` is not in
    `[0, 1]`.

    Args:
        q: probabilities, from 0 to 1.
        b: positive shape parameter; a larger `b` makes the upper tail thinner.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The quantiles, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy returns NaN where a parameter is outside its range. toile does not check the
        parameters.
    """
    q, b, loc, scale = inexact("pareto.ppf", q, b, loc, scale)
    bad = jnp.isnan(q) | (q < 0) | (q > 1)
    return jnp.where(bad, np.nan, loc + scale * (1 - q) ** -(1 / b))
