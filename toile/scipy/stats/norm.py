"""The normal distribution."""

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.nn._promote import inexact
from toile.scipy.special import log_ndtr, ndtr, ndtri
from toile.scipy.stats._common import standardized


def logpdf(x, loc=0, scale=1):
    """Log of the density."""
    x, loc, scale = inexact("norm.logpdf", x, loc, scale)
    variance = jnp.square(scale)
    return (jnp.log(2 * np.pi * variance) + jnp.square(x - loc) / variance) / -2


def pdf(x, loc=0, scale=1):
    """Density."""
    return lax.exp(logpdf(x, loc, scale))


def cdf(x, loc=0, scale=1):
    """Distribution function."""
    return ndtr(standardized("norm.cdf", x, loc, scale)[0])


def logcdf(x, loc=0, scale=1):
    """Log of the distribution function, accurate in the tail."""
    return log_ndtr(standardized("norm.logcdf", x, loc, scale)[0])


def ppf(q, loc=0, scale=1):
    """Inverse of the distribution function."""
    return jnp.asarray(ndtri(q) * scale + loc, float)


def logsf(x, loc=0, scale=1):
    """Log of the survival function."""
    x, loc, scale = inexact("norm.logsf", x, loc, scale)
    return logcdf(-x, -loc, scale)


def sf(x, loc=0, scale=1):
    """Survival function 1 - cdf."""
    x, loc, scale = inexact("norm.sf", x, loc, scale)
    return cdf(-x, -loc, scale)


def isf(q, loc=0, scale=1):
    """Inverse of the survival function."""
    return ppf(1 - q, loc, scale)
