"""The uniform distribution on [loc, loc + scale]."""

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.nn._promote import inexact


def logpdf(x, loc=0, scale=1):
    """Log of the density."""
    x, loc, scale = inexact("uniform.logpdf", x, loc, scale)
    return jnp.where((x > loc + scale) | (x < loc), -np.inf, -jnp.log(scale))


def pdf(x, loc=0, scale=1):
    """Density."""
    return lax.exp(logpdf(x, loc, scale))


def cdf(x, loc=0, scale=1):
    """Distribution function."""
    x, loc, scale = inexact("uniform.cdf", x, loc, scale)
    zero, one = jnp.array(0, x.dtype), jnp.array(1, x.dtype)
    high = loc + scale
    inside = (x >= loc) & (x <= high)
    return jnp.select([x < loc, x > high, inside], [zero, one, (x - loc) / scale])


def ppf(q, loc=0, scale=1):
    """Inverse of the distribution function."""
    q, loc, scale = inexact("uniform.ppf", q, loc, scale)
    bad = jnp.isnan(q) | (q < 0) | (q > 1)
    return jnp.where(bad, np.nan, loc + scale * q)
