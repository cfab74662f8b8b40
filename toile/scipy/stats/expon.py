"""The exponential distribution."""

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.nn._promote import inexact


def logpdf(x, loc=0, scale=1):
    """Log of the density."""
    x, loc, scale = inexact("expon.logpdf", x, loc, scale)
    return jnp.where(x < loc, -np.inf, -((x - loc) / scale + jnp.log(scale)))


def pdf(x, loc=0, scale=1):
    """Density."""
    return lax.exp(logpdf(x, loc, scale))


def cdf(x, loc=0, scale=1):
    """Distribution function."""
    x, loc, scale = inexact("expon.cdf", x, loc, scale)
    y = (loc - x) / scale
    return jnp.where(x < loc, jnp.zeros_like(y), -jnp.expm1(y))


def logcdf(x, loc=0, scale=1):
    """Log of the distribution function."""
    return lax.log1p(-sf(x, loc, scale))


def logsf(x, loc=0, scale=1):
    """Log of the survival function."""
    x, loc, scale = inexact("expon.logsf", x, loc, scale)
    y = (loc - x) / scale
    return jnp.where(x < loc, jnp.zeros_like(y), y)


def sf(x, loc=0, scale=1):
    """Survival function 1 - cdf."""
    return lax.exp(logsf(x, loc, scale))


def ppf(q, loc=0, scale=1):
    """Inverse of the distribution function."""
    q, loc, scale = inexact("expon.ppf", q, loc, scale)
    bad = jnp.isnan(q) | (q < 0) | (q > 1)
    return jnp.where(bad, np.nan, loc - scale * jnp.log1p(-q))
