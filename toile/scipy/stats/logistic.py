"""The logistic distribution."""

from toile import lax
from toile import numpy as jnp
from toile.nn._promote import inexact
from toile.scipy.special import expit, logit
from toile.scipy.stats._common import standardized


def logpdf(x, loc=0, scale=1):
    """Log of the density."""
    y, scale = standardized("logistic.logpdf", x, loc, scale)
    half = y / 2
    return -2 * jnp.logaddexp(half, -half) - jnp.log(scale)


def pdf(x, loc=0, scale=1):
    """Density."""
    return lax.exp(logpdf(x, loc, scale))


def ppf(x, loc=0, scale=1):
    """Inverse of the distribution function."""
    x, loc, scale = inexact("logistic.ppf", x, loc, scale)
    return logit(x) * scale + loc


def sf(x, loc=0, scale=1):
    """Survival function 1 - cdf."""
    return expit(-standardized("logistic.sf", x, loc, scale)[0])


def isf(x, loc=0, scale=1):
    """Inverse of the survival function."""
    x, loc, scale = inexact("logistic.isf", x, loc, scale)
    return -logit(x) * scale + loc


def cdf(x, loc=0, scale=1):
    """Distribution function."""
    return expit(standardized("logistic.cdf", x, loc, scale)[0])
