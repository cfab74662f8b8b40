"""The negative binomial distribution: failures before the n-th success."""

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.nn._promote import inexact
from toile.scipy.special import gammaln, xlogy


def logpmf(k, n, p, loc=0):
    """Log of the probability of k."""
    k, n, p, loc = inexact("nbinom.logpmf", k, n, p, loc)
    y = k - loc
    choices = gammaln(y + n) - gammaln(n) - gammaln(y + 1)
    value = choices + (xlogy(n, p) + xlogy(y, 1 - p))
    return jnp.where(k < loc, -np.inf, value)


def pmf(k, n, p, loc=0):
    """Probability of k."""
    return lax.exp(logpmf(k, n, p, loc))
