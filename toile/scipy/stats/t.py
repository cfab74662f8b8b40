"""Student's t distribution with `df` degrees of freedom."""

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.nn._promote import inexact


def logpdf(x, df, loc=0, scale=1):
    """Log of the density."""
    x, df, loc, scale = inexact("t.logpdf", x, df, loc, scale)
    y = (x - loc) / scale
    half = df / 2
    power = half + 0.5
    spread = jnp.log(scale * scale * np.pi * df) / 2
    constant = lax.lgamma(half) + spread - lax.lgamma(power)
    return -(constant + power * lax.log1p(y * y / df))


def pdf(x, df, loc=0, scale=1):
    """Density."""
    return lax.exp(logpdf(x, df, loc, scale))
