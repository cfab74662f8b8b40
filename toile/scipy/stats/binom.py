"""The binomial distribution."""

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.nn._promote import inexact
from toile.scipy.special import gammaln, xlog1py, xlogy


def logpmf(k, n, p, loc=0):
    """Log of the probability of k - loc successes in n trials."""
    k, n, p, loc = inexact("binom.logpmf", k, n, p, loc)
    y = k - loc
    choices = gammaln(n + 1) - (gammaln(y + 1) + gammaln(n - y + 1))
    powers = xlogy(y, p) + xlog1py(n - y, -p)
    certain = ((y == 0) & (n == 0)) | (powers == 0)
    value = jnp.where(certain, 0.0, choices + powers)
    return jnp.where((k >= loc) & (k < loc + n + 1), value, -np.inf)


def pmf(k, n, p, loc=0):
    """Probability of k - loc successes in n trials."""
    return lax.exp(logpmf(k, n, p, loc))
