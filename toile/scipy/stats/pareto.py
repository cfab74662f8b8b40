"""The Pareto distribution of shape b, on [loc + scale, ∞)."""

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.nn._promote import inexact


def _standard(name, x, b, loc, scale):
    """((x - loc)/scale, b, scale, whether x is below the support)."""
    x, b, loc, scale = inexact(name, x, b, loc, scale)
    return (x - loc) / scale, b, scale, x < loc + scale


def logpdf(x, b, loc=0, scale=1):
    """Log of the density."""
    y, b, scale, below = _standard("pareto.logpdf", x, b, loc, scale)
    return jnp.where(below, -np.inf, -(jnp.log(scale / b) + (b + 1) * jnp.log(y)))


def pdf(x, b, loc=0, scale=1):
    """Density."""
    return lax.exp(logpdf(x, b, loc, scale))


def cdf(x, b, loc=0, scale=1):
    """Distribution function."""
    y, b, _, below = _standard("pareto.cdf", x, b, loc, scale)
    value = 1 - y**-b
    return jnp.where(below, jnp.zeros_like(value), value)


def logcdf(x, b, loc=0, scale=1):
    """Log of the distribution function."""
    y, b, _, below = _standard("pareto.logcdf", x, b, loc, scale)
    return jnp.where(below, -np.inf, jnp.log1p(-(y**-b)))


def logsf(x, b, loc=0, scale=1):
    """Log of the survival function."""
    y, b, _, below = _standard("pareto.logsf", x, b, loc, scale)
    value = -(b * jnp.log(y))
    return jnp.where(below, jnp.zeros_like(value), value)


def sf(x, b, loc=0, scale=1):
    """Survival function 1 - cdf."""
    return lax.exp(logsf(x, b, loc, scale))


def ppf(q, b, loc=0, scale=1):
    """Inverse of the distribution function."""
    q, b, loc, scale = inexact("pareto.ppf", q, b, loc, scale)
    bad = jnp.isnan(q) | (q < 0) | (q > 1)
    return jnp.where(bad, np.nan, loc + scale * (1 - q) ** -(1 / b))
