"""The beta distribution on [loc, loc + scale]."""

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.nn._promote import clamp, inexact
from toile.scipy.special import betainc, betaln, xlog1py, xlogy


def logpdf(x, a, b, loc=0, scale=1):
    """Log of the density."""
    x, a, b, loc, scale = inexact("beta.logpdf", x, a, b, loc, scale)
    y = (x - loc) / scale
    value = -betaln(a, b) + (xlogy(a - 1, y) + xlog1py(b - 1, -y)) - jnp.log(scale)
    value = jnp.where((x > loc + scale) | (x < loc), -np.inf, value)
    return jnp.where((a <= 0) | (b <= 0) | (scale <= 0), np.nan, value)


def pdf(x, a, b, loc=0, scale=1):
    """Density."""
    return lax.exp(logpdf(x, a, b, loc, scale))


def _standard(name, x, a, b, loc, scale):
    x, a, b, loc, scale = inexact(name, x, a, b, loc, scale)
    return clamp(0, (x - loc) / scale, 1), a, b


def cdf(x, a, b, loc=0, scale=1):
    """Distribution function."""
    y, a, b = _standard("beta.cdf", x, a, b, loc, scale)
    return betainc(a, b, y)


def logcdf(x, a, b, loc=0, scale=1):
    """Log of the distribution function."""
    return lax.log(cdf(x, a, b, loc, scale))


def sf(x, a, b, loc=0, scale=1):
    """Survival function 1 - cdf."""
    y, a, b = _standard("beta.sf", x, a, b, loc, scale)
    return betainc(b, a, 1 - y)


def logsf(x, a, b, loc=0, scale=1):
    """Log of the survival function."""
    return lax.log(sf(x, a, b, loc, scale))
