"""The Laplace distribution."""

from toile import lax
from toile import numpy as jnp
from toile.nn._promote import inexact
from toile.scipy.stats._common import standardized


def logpdf(x, loc=0, scale=1):
    """Log of the density."""
    x, loc, scale = inexact("laplace.logpdf", x, loc, scale)
    return -(jnp.abs(x - loc) / scale + jnp.log(2 * scale))


def pdf(x, loc=0, scale=1):
    """Density."""
    return lax.exp(logpdf(x, loc, scale))


def cdf(x, loc=0, scale=1):
    """Distribution function."""
    y, _ = standardized("laplace.cdf", x, loc, scale)
    return jnp.where(y <= 0, 0.5 * jnp.exp(y), 1 - 0.5 * jnp.exp(-y))
