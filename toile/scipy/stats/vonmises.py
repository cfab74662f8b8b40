"""The von Mises distribution on the circle."""

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.nn._promote import inexact


def logpdf(x, kappa):
    """Log of the density."""
    x, kappa = inexact("vonmises.logpdf", x, kappa)
    value = kappa * (jnp.cos(x) - 1) - jnp.log(2 * np.pi * lax.bessel_i0e(kappa))
    return jnp.where(kappa > 0, value, np.nan)


def pdf(x, kappa):
    """Density."""
    return lax.exp(logpdf(x, kappa))
