"""The Poisson distribution of mean mu."""

import numpy as np

from toile import numpy as jnp
from toile.nn._promote import inexact
from toile.scipy.special import entr, gammaincc, gammaln, xlogy


def logpmf(k, mu, loc=0):
    """Log of the probability of k; -inf for non-integers."""
    k, mu, loc = inexact("poisson.logpmf", k, mu, loc)
    x = k - loc
    value = xlogy(x, mu) - gammaln(x + 1) - mu
    return jnp.where((x < 0) | (jnp.round(k) != k), -np.inf, value)


def pmf(k, mu, loc=0):
    """Probability of k."""
    return jnp.exp(logpmf(k, mu, loc))


def cdf(k, mu, loc=0):
    """Probability of at most k."""
    k, mu, loc = inexact("poisson.cdf", k, mu, loc)
    x = k - loc
    value = gammaincc(jnp.floor(1 + x), mu)
    return jnp.where(x < 0, jnp.zeros_like(value), value)


def _entropy_sum(mu, terms, reach):
    """-Σ p log p over k up to `reach`, in `terms` terms."""
    k = jnp.arange(terms, dtype=mu.dtype).reshape((terms,) + (1,) * mu.ndim)
    p = jnp.where(k < jnp.ceil(reach), pmf(k, mu), 0.0)
    return jnp.sum(entr(p), axis=0)


def entropy(mu, loc=0):
    """Entropy: summed for small mu, by its asymptotic expansion from 100 on."""
    mu, loc = inexact("poisson.entropy", mu, loc)
    small = _entropy_sum(mu, 35, mu + 20)
    medium = _entropy_sum(mu, 250, mu + 10 * jnp.sqrt(mu) + 20)
    large = 0.5 * jnp.log(2 * np.pi * np.e * mu) - 1.0 / (12 * mu)
    value = jnp.where(mu < 10, small, jnp.where(mu < 100, medium, large))
    value = jnp.where(mu == 0, jnp.zeros_like(mu), value)
    return jnp.broadcast_to(value, jnp.broadcast_shapes(mu.shape, loc.shape))
