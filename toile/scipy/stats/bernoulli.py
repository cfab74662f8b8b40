"""The Bernoulli distribution: 1 with probability p, else 0, shifted by `loc`."""

import numpy as np

from toile import numpy as jnp
from toile.nn._promote import inexact
from toile.scipy.special import xlog1py, xlogy


def logpmf(k, p, loc=0):
    """Log of the probability of k."""
    k, p, loc = inexact("bernoulli.logpmf", k, p, loc)
    x = k - loc
    value = xlogy(x, p) + xlog1py(1 - x, -p)
    return jnp.where((x < 0) | (x > 1), -np.inf, value)


def pmf(k, p, loc=0):
    """Probability of k."""
    return jnp.exp(logpmf(k, p, loc))


def cdf(k, p):
    """Probability of at most k."""
    k, p = inexact("bernoulli.cdf", k, p)
    bad = jnp.isnan(k) | jnp.isnan(p) | (p < 0) | (p > 1)
    one = jnp.ones_like(k)
    return jnp.select([bad, k < 0, k < 1, k >= 1], [np.nan, 0 * one, 1 - p, one])


def ppf(q, p):
    """The least k whose distribution function reaches q."""
    q, p = inexact("bernoulli.ppf", q, p)
    bad = jnp.isnan(q) | jnp.isnan(p) | (p < 0) | (p > 1) | (q < 0) | (q > 1)
    one = jnp.ones_like(q)
    return jnp.where(bad, np.nan, jnp.where(q <= 1 - p, 0 * one, one))
