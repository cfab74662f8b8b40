"""The wrapped Cauchy distribution on [0, 2π]."""

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.nn._promote import inexact


def logpdf(x, c):
    """Log of the density."""
    x, c = inexact("wrapcauchy.logpdf", x, c)
    value = jnp.log(1 - c * c) - np.log(2 * np.pi) - jnp.log(1 + c * c - 2 * c * jnp.cos(x))
    value = jnp.where((x >= 0) & (x <= np.pi * 2), value, -np.inf)
    return jnp.where((c > 0) & (c < 1), value, np.nan)


def pdf(x, c):
    """Density."""
    return lax.exp(logpdf(x, c))
