"""The normal distribution truncated to [a, b] standard deviations around `loc`."""

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.nn._promote import inexact
from toile.scipy.special import log_ndtr, logsumexp, ndtr
from toile.scipy.stats import norm


def _log_difference(x, y):
    """log(exp(x) - exp(y))."""
    signs = jnp.stack([jnp.ones_like(x), -jnp.ones_like(y)])
    return logsumexp(jnp.stack([x, y]), b=signs, axis=0)


def _log_mass(a, b):
    """log(Φ(b) - Φ(a)); the right tail is mirrored to the left, where Φ is accurate."""
    a, b = jnp.broadcast_arrays(a, b)
    left, right = b <= 0, a > 0
    low = jnp.where(right, -b, a)
    high = jnp.where(right, -a, b)
    tail = _log_difference(log_ndtr(high), log_ndtr(low))
    central = jnp.log1p(-ndtr(a) - ndtr(-b))
    return jnp.where(left | right, tail, central)


def logpdf(x, a, b, loc=0, scale=1):
    """Log of the density."""
    x, a, b, loc, scale = inexact("truncnorm.logpdf", x, a, b, loc, scale)
    value = norm.logpdf(x, loc, scale) - _log_mass(a, b)
    y = (x - loc) / scale
    value = jnp.where((y < a) | (y > b), -np.inf, value)
    return jnp.where(a >= b, np.nan, value)


def pdf(x, a, b, loc=0, scale=1):
    """Density."""
    return lax.exp(logpdf(x, a, b, loc, scale))


def logcdf(x, a, b, loc=0, scale=1):
    """Log of the distribution function."""
    x, a, b, loc, scale = inexact("truncnorm.logcdf", x, a, b, loc, scale)
    x, a, b = jnp.broadcast_arrays(x, a, b)
    y = (x - loc) / scale
    whole = _log_mass(a, b)
    below = _log_mass(a, y) - whole
    above = _log_mass(y, b) - whole
    # Near 1 the complement keeps the digits.
    cases = [y >= b, y <= a, below > -0.1, y > a]
    value = jnp.select(cases, [0, -np.inf, jnp.log1p(-jnp.exp(above)), below])
    return jnp.where(a >= b, np.nan, value)


def cdf(x, a, b, loc=0, scale=1):
    """Distribution function."""
    return lax.exp(logcdf(x, a, b, loc, scale))


def logsf(x, a, b, loc=0, scale=1):
    """Log of the survival function."""
    x, a, b, loc, scale = inexact("truncnorm.logsf", x, a, b, loc, scale)
    return logcdf(-x, -b, -a, -loc, scale)


def sf(x, a, b, loc=0, scale=1):
    """Survival function 1 - cdf."""
    return lax.exp(logsf(x, a, b, loc, scale))
