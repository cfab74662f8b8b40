"""The beta-binomial distribution: binomial with a beta-distributed probability."""

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.nn._promote import inexact
from toile.scipy.special import betaln


def logpmf(k, n, a, b, loc=0):
    """Log of the probability of k successes in n trials."""
    k, n, a, b, loc = inexact("betabinom.logpmf", k, n, a, b, loc)
    y = jnp.floor(k) - loc
    choices = -(jnp.log1p(n) + betaln(n - y + 1, y + 1))
    value = choices + (betaln(y + a, n - y + b) - betaln(a, b))
    value = jnp.where((y == 0) & (n == 0), 0.0, value)
    value = jnp.where((y < -loc) | (y > n) | (y + a <= 0), -np.inf, value)
    return jnp.where((n < 0) | (a <= 0) | (b <= 0), np.nan, value)


def pmf(k, n, a, b, loc=0):
    """Probability of k successes in n trials."""
    return lax.exp(logpmf(k, n, a, b, loc))
