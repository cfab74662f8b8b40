"""The gamma distribution of shape a."""

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.nn._promote import clamp, inexact
from toile.scipy.special import gammainc, gammaincc, gammaln, xlogy


def logpdf(x, a, loc=0, scale=1):
    """Log of the density."""
    x, a, loc, scale = inexact("gamma.logpdf", x, a, loc, scale)
    ok = x >= loc
    y = jnp.where(ok, (x - loc) / scale, jnp.ones_like(x))
    value = (xlogy(a - 1, y) - y) - (gammaln(a) + jnp.log(scale))
    return jnp.where(ok, value, -np.inf)


def pdf(x, a, loc=0, scale=1):
    """Density."""
    return lax.exp(logpdf(x, a, loc, scale))


def cdf(x, a, loc=0, scale=1):
    """Distribution function."""
    x, a, loc, scale = inexact("gamma.cdf", x, a, loc, scale)
    return gammainc(a, clamp(0, (x - loc) / scale, np.inf))


def logcdf(x, a, loc=0, scale=1):
    """Log of the distribution function."""
    return lax.log(cdf(x, a, loc, scale))


def sf(x, a, loc=0, scale=1):
    """Survival function 1 - cdf."""
    x, a, loc, scale = inexact("gamma.sf", x, a, loc, scale)
    y = (x - loc) / scale
    return jnp.where(y < 0, 1, gammaincc(a, y))


def logsf(x, a, loc=0, scale=1):
    """Log of the survival function."""
    return lax.log(sf(x, a, loc, scale))
