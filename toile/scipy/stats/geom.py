"""The geometric distribution: number of trials up to the first success."""

import numpy as np

from toile import numpy as jnp
from toile.nn._promote import inexact
from toile.scipy.special import xlog1py


def logpmf(k, p, loc=0):
    """Log of the probability of k."""
    k, p, loc = inexact("geom.logpmf", k, p, loc)
    x = k - loc
    return jnp.where(x <= 0, -np.inf, xlog1py(x - 1, -p) + jnp.log(p))


def pmf(k, p, loc=0):
    """Probability of k."""
    return jnp.exp(logpmf(k, p, loc))
