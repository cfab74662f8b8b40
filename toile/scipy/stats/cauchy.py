"""The Cauchy distribution."""

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.nn._promote import inexact
from toile.scipy.stats._common import standardized


def logpdf(x, loc=0, scale=1):
    """Log of the density."""
    y, scale = standardized("cauchy.logpdf", x, loc, scale)
    return -(jnp.log(np.pi * scale) + lax.log1p(y * y))


def pdf(x, loc=0, scale=1):
    """Density."""
    return lax.exp(logpdf(x, loc, scale))


def cdf(x, loc=0, scale=1):
    """Distribution function."""
    return 0.5 + 1 / np.pi * jnp.arctan(standardized("cauchy.cdf", x, loc, scale)[0])


def logcdf(x, loc=0, scale=1):
    """Log of the distribution function."""
    return lax.log(cdf(x, loc, scale))


def sf(x, loc=0, scale=1):
    """Survival function 1 - cdf."""
    x, loc, scale = inexact("cauchy.sf", x, loc, scale)
    return cdf(-x, -loc, scale)


def logsf(x, loc=0, scale=1):
    """Log of the survival function."""
    x, loc, scale = inexact("cauchy.logsf", x, loc, scale)
    return logcdf(-x, -loc, scale)


def isf(q, loc=0, scale=1):
    """Inverse of the survival function."""
    q, loc, scale = inexact("cauchy.isf", q, loc, scale)
    return lax.neg(ppf(q, lax.neg(loc), scale))


def ppf(q, loc=0, scale=1):
    """Inverse of the distribution function."""
    q, loc, scale = inexact("cauchy.ppf", q, loc, scale)
    # tan(pi (q - 1/2)) is -1 / tan(pi q) and 1 / tan(pi (1 - q)), exact near q = 0 and q = 1.
    middle = abs(q - 0.5) < 0.25
    upper = q > 0.5
    tail = jnp.where(upper, 1, -1) / jnp.tan(np.pi * jnp.where(upper, 1 - q, abs(q)))
    value = jnp.where(middle, jnp.tan(np.pi * (q - 0.5)), tail)
    return jnp.where((q < 0) | (q > 1), np.nan, value * scale + loc)
