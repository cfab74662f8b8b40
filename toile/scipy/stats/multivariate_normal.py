"""The multivariate normal distribution of vectors whose elements lie along the last axis."""

from __future__ import annotations

import math

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.engine.source import here
from toile.nn._promote import inexact
from toile.scipy.linalg import solve_triangular

__all__ = ["logpdf", "pdf"]

_LOG_2PI = math.log(2 * math.pi)


def logpdf(x: ArrayLike, mean: ArrayLike, cov: ArrayLike, allow_singular: None = None) -> Array:
    """Compute the logarithm of the probability density of the multivariate normal distribution.

    The density is `exp(-(x - mean)ᵀ cov⁻¹ (x - mean) / 2) / √((2π)^n det(cov))`.

    Args:
        x: points at which the density is evaluated, vectors of length `n` along the last axis.
        mean: mean vectors along the last axis. If `mean` is a scalar, the distribution is
            one-dimensional.
        cov: positive definite covariance matrices along the last two axes. If `cov` is a scalar,
            the components are independent, and each of them has this variance.
        allow_singular: must be None; other values are not supported.

    Returns:
        An array with the shape that the leading axes of `x`, `mean` and `cov` broadcast to. It is
        NaN where `cov` is not positive definite.

    Raises:
        NotImplementedError: `allow_singular` is given.
        ValueError: `cov` is not a scalar, and its last two axes do not have length `n`.

    Differences:
        SciPy has default values for `mean` and `cov`, and raises an error if `cov` is not positive
        definite.
    """
    if allow_singular is not None:
        raise NotImplementedError("allow_singular argument of multivariate_normal.logpdf" + here())
    x, mean, cov = inexact("multivariate_normal.logpdf", *map(jnp.asarray, (x, mean, cov)))
    if not mean.shape:
        return -0.5 * jnp.square(x - mean) / cov - 0.5 * (_LOG_2PI + jnp.log(cov))
    n = mean.shape[-1]
    y = x - mean
    if not cov.shape:
        return -0.5 * jnp.sum(y * y, -1) / cov - n / 2 * (_LOG_2PI + jnp.log(cov))
    if cov.ndim < 2 or cov.shape[-2:] != (n, n):
        raise ValueError("multivariate_normal.logpdf got incompatible shapes" + here())
    factor = lax.linalg.cholesky(cov)
    whiten = jnp.vectorize(lambda l, y: solve_triangular(l, y, lower=True),
                           signature="(n,n),(n)->(n)")
    y = whiten(factor, y)
    log_det = jnp.sum(jnp.log(jnp.diagonal(factor, axis1=-1, axis2=-2)), -1)
    return -0.5 * jnp.sum(y * y, -1) - n / 2 * _LOG_2PI - log_det


def pdf(x: ArrayLike, mean: ArrayLike, cov: ArrayLike) -> Array:
    """Compute the probability density of the multivariate normal distribution.

    The density is `exp(-(x - mean)ᵀ cov⁻¹ (x - mean) / 2) / √((2π)^n det(cov))`.

    Args:
        x: points at which the density is evaluated, vectors of length `n` along the last axis.
        mean: mean vectors along the last axis. If `mean` is a scalar, the distribution is
            one-dimensional.
        cov: positive definite covariance matrices along the last two axes. If `cov` is a scalar,
            the components are independent, and each of them has this variance.

    Returns:
        An array with the shape that the leading axes of `x`, `mean` and `cov` broadcast to. It is
        NaN where `cov` is not positive definite.

    Raises:
        ValueError: `cov` is not a scalar, and its last two axes do not have length `n`.

    Differences:
        SciPy has default values for `mean` and `cov`, and raises an error if `cov` is not positive
        definite.

    >>> from toile.scipy.stats import multivariate_normal
    >>> multivariate_normal.pdf(jnp.zeros(2), jnp.zeros(2), jnp.eye(2)).round(4)
    Array(0.1592, dtype=float32)
    """
    return lax.exp(logpdf(x, mean, cov))
