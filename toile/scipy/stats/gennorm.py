"""The generalised normal distribution, density proportional to exp(-|x|^beta)."""

from toile import lax
from toile import numpy as jnp
from toile.nn._promote import inexact
from toile.scipy.special import gammainc


def logpdf(x, beta):
    """Log of the density."""
    x, beta = inexact("gennorm.logpdf", x, beta)
    return jnp.log(0.5 * beta) - lax.lgamma(1 / beta) - jnp.abs(x) ** beta


def cdf(x, beta):
    """Distribution function."""
    x, beta = inexact("gennorm.cdf", x, beta)
    return 0.5 * (1 + jnp.sign(x) * gammainc(1 / beta, jnp.abs(x) ** beta))


def pdf(x, beta):
    """Density."""
    return lax.exp(logpdf(x, beta))
