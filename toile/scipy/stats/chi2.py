"""The chi-squared distribution with `df` degrees of freedom."""

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.nn._promote import clamp, inexact
from toile.scipy.special import gammainc, gammaincc


def logpdf(x, df, loc=0, scale=1):
    """Log of the density."""
    x, df, loc, scale = inexact("chi2.logpdf", x, df, loc, scale)
    y = (x - loc) / scale
    half = df / 2
    kernel = (half - 1) * jnp.log(y) - y / 2
    constant = -(lax.lgamma(half) + np.log(2) * df / 2)
    return jnp.where(x < loc, -np.inf, constant - jnp.log(scale) + kernel)


def pdf(x, df, loc=0, scale=1):
    """Density."""
    return lax.exp(logpdf(x, df, loc, scale))


def _gamma_arguments(name, x, df, loc, scale):
    x, df, loc, scale = inexact(name, x, df, loc, scale)
    return df / 2, clamp(0, (x - loc) / (scale * 2), np.inf)


def cdf(x, df, loc=0, scale=1):
    """Distribution function."""
    return gammainc(*_gamma_arguments("chi2.cdf", x, df, loc, scale))


def logcdf(x, df, loc=0, scale=1):
    """Log of the distribution function."""
    return lax.log(cdf(x, df, loc, scale))


def sf(x, df, loc=0, scale=1):
    """Survival function 1 - cdf."""
    return gammaincc(*_gamma_arguments("chi2.sf", x, df, loc, scale))


def logsf(x, df, loc=0, scale=1):
    """Log of the survival function."""
    return lax.log(sf(x, df, loc, scale))
