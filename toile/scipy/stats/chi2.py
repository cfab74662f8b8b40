"""The chi-squared distribution with `df` degrees of freedom."""

from __future__ import annotations

import math

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.nn._promote import clamp, inexact
from toile.scipy.special import gammainc, gammaincc

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


def logpdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the logarithm of the probability density of the chi-squared distribution.

    The density is `y^(df/2 - 1) exp(-y/2) / (2^(df/2) Γ(df/2) scale)`, where `y` is
    `(x - loc) / scale`. The result is -inf for `x` below `loc`.

    Args:
        x: points at which the density is evaluated.
        df: degrees of freedom, a positive number.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The logarithms, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy returns NaN where a parameter is outside its range. toile does not check the
        parameters. At `x = loc` with `df = 2`, toile's result is NaN, while SciPy's result is
        finite.
    """
    x, df, loc, scale = inexact("chi2.logpdf", x, df, loc, scale)
    y = (x - loc) / scale
    half = df / 2
    kernel = (half - 1) * jnp.log(y) - y / 2
    constant = -(lax.lgamma(half) + math.log(2) * df / 2)
    return jnp.where(x < loc, -np.inf, constant - jnp.log(scale) + kernel)


def pdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the probability density of the chi-squared distribution.

    The density is `y^(df/2 - 1) exp(-y/2) / (2^(df/2) Γ(df/2) scale)`, where `y` is
    `(x - loc) / scale`. The result is 0 for `x` below `loc`.

    Args:
        x: points at which the density is evaluated.
        df: degrees of freedom, a positive number.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The densities, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy returns NaN where a parameter is outside its range. toile does not check the
        parameters. At `x = loc` with `df = 2`, toile's result is NaN, while SciPy's result is
        finite.
    """
    return lax.exp(logpdf(x, df, loc, scale))


def _gamma_arguments(name, x, df, loc, scale):
    x, df, loc, scale = inexact(name, x, df, loc, scale)
    return df / 2, clamp(0, (x - loc) / (scale * 2), np.inf)


def cdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the probability that a chi-squared random variable is at most `x`.

    The result is `special.gammainc(df / 2, y / 2)`, where `y` is `(x - loc) / scale`. For `x` below
    `loc`, the result is 0.

    Args:
        x: points at which the function is evaluated.
        df: degrees of freedom, a positive number.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The probabilities, with the shape that the arguments broadcast to and the floating-point
        dtype that they promote to.

    Differences:
        SciPy returns NaN where a parameter is outside its range. toile does not check the
        parameters.
    """
    return gammainc(*_gamma_arguments("chi2.cdf", x, df, loc, scale))


def logcdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the logarithm of `cdf`, the distribution function of the chi-squared distribution.

    Args:
        x: points at which the function is evaluated.
        df: degrees of freedom, a positive number.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The logarithms, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy returns NaN where a parameter is outside its range. toile does not check the
        parameters.
    """
    return lax.log(cdf(x, df, loc, scale))


def sf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the probability that a chi-squared random variable is greater than `x`.

    The result is `special.gammaincc(df / 2, y / 2)`, where `y` is `(x - loc) / scale`. For `x`
    below `loc`, the result is 1.

    Args:
        x: points at which the function is evaluated.
        df: degrees of freedom, a positive number.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The probabilities, with the shape that the arguments broadcast to and the floating-point
        dtype that they promote to.

    Differences:
        SciPy returns NaN where a parameter is outside its range. toile does not check the
        parameters.
    """
    return gammaincc(*_gamma_arguments("chi2.sf", x, df, loc, scale))


def logsf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the logarithm of `sf`, the survival function of the chi-squared distribution.

    Args:
        x: points at which the function is evaluated.
        df: degrees of freedom, a positive number.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The logarithms, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy returns NaN where a parameter is outside its range. toile does not check the
        parameters.
    """
    return lax.log(sf(x, df, loc, scale))
