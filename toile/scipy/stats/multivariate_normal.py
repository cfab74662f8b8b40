"""The multivariate normal distribution; batches over leading axes."""

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.source import here
from toile.nn._promote import inexact
from toile.scipy.linalg import solve_triangular

_LOG_2PI = np.log(2 * np.pi)


def logpdf(x, mean, cov, allow_singular=None):
    """Log of the density; `cov` is a matrix, or a scalar variance of every component."""
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


def pdf(x, mean, cov):
    """Density."""
    return lax.exp(logpdf(x, mean, cov))
