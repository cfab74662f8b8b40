"""The left-skewed Gumbel distribution (of minima)."""

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.nn._promote import inexact
from toile.scipy.special import xlog1py, xlogy
from toile.scipy.stats._common import standardized, where_positive


def logpdf(x, loc=0, scale=1):
    """Log of the density."""
    z, scale = standardized("gumbel_l.logpdf", x, loc, scale)
    return where_positive(scale, xlogy(-1, scale) + (z - jnp.exp(z)))


def pdf(x, loc=0, scale=1):
    """Density."""
    return lax.exp(logpdf(x, loc, scale))


def logcdf(x, loc=0, scale=1):
    """Log of the distribution function."""
    z, scale = standardized("gumbel_l.logcdf", x, loc, scale)
    return where_positive(scale, jnp.log(-jnp.expm1(-jnp.exp(z))))


def cdf(x, loc=0, scale=1):
    """Distribution function."""
    return lax.exp(logcdf(x, loc, scale))


def ppf(p, loc=0, scale=1):
    """Inverse of the distribution function."""
    p, loc, scale = inexact("gumbel_l.ppf", p, loc, scale)
    value = loc + scale * jnp.log(xlog1py(-1, -p))
    return jnp.where((p > 0) & (p < 1), value, np.nan)


def sf(x, loc=0, scale=1):
    """Survival function 1 - cdf."""
    return jnp.exp(logsf(x, loc, scale))


def logsf(x, loc=0, scale=1):
    """Log of the survival function."""
    z, scale = standardized("gumbel_l.logsf", x, loc, scale)
    return where_positive(scale, -jnp.exp(z))
