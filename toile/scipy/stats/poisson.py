"""The Poisson distribution with mean `mu`."""

from __future__ import annotations

import numpy as np

from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.nn._promote import inexact
from toile.scipy.special import entr, gammaincc, gammaln, xlogy

__all__ = ["cdf", "entropy", "logpmf", "pmf"]


def logpmf(k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Compute the logarithm of the probability mass function of the Poisson distribution.

    The probability is `mu^y exp(-mu) / y!`, where `y` is `k - loc`. The result is -inf for `k`
    below `loc` and where `k` is not an integer.

    Args:
        k: values whose probabilities are computed.
        mu: nonnegative mean of the distribution before it is shifted by `loc`.
        loc: location, by which the distribution is shifted.

    Returns:
        The logarithms, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy checks whether `k - loc` is an integer, while toile checks whether `k` is an integer.

    >>> from toile.scipy.stats import poisson
    >>> poisson.logpmf(0, jnp.array([1.0, 2.0]))
    Array([-1., -2.], dtype=float32)
    """
    k, mu, loc = inexact("poisson.logpmf", k, mu, loc)
    x = k - loc
    value = xlogy(x, mu) - gammaln(x + 1) - mu
    return jnp.where((x < 0) | (jnp.round(k) != k), -np.inf, value)


def pmf(k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Compute the probability that a Poisson-distributed random variable equals `k`.

    The probability is `mu^y exp(-mu) / y!`, where `y` is `k - loc`. The result is 0 for `k` below
    `loc` and where `k` is not an integer.

    Args:
        k: values whose probabilities are computed.
        mu: nonnegative mean of the distribution before it is shifted by `loc`.
        loc: location, by which the distribution is shifted.

    Returns:
        The probabilities, with the shape that the arguments broadcast to and the floating-point
        dtype that they promote to.

    Differences:
        SciPy checks whether `k - loc` is an integer, while toile checks whether `k` is an integer.
    """
    return jnp.exp(logpmf(k, mu, loc))


def cdf(k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Compute the probability that a Poisson-distributed random variable is at most `k`.

    The result is `special.gammaincc(floor(y) + 1, mu)`, where `y` is `k - loc`. For `k` below
    `loc`, the result is 0.

    Args:
        k: points at which the function is evaluated.
        mu: nonnegative mean of the distribution before it is shifted by `loc`.
        loc: location, by which the distribution is shifted.

    Returns:
        The probabilities, with the shape that the arguments broadcast to and the floating-point
        dtype that they promote to.
    """
    k, mu, loc = inexact("poisson.cdf", k, mu, loc)
    x = k - loc
    value = gammaincc(jnp.floor(1 + x), mu)
    return jnp.where(x < 0, jnp.zeros_like(value), value)


def _entropy_sum(mu, terms, reach):
    """Compute `-Σ p log p` over the first `terms` values of `k` that are below `reach`."""
    k = jnp.arange(terms, dtype=mu.dtype).reshape((terms,) + (1,) * mu.ndim)
    p = jnp.where(k < jnp.ceil(reach), pmf(k, mu), 0.0)
    return jnp.sum(entr(p), axis=0)


def entropy(mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Compute the entropy of the Poisson distribution, in nats.

    For `mu` below 100, the entropy is computed as a sum over the possible values. For larger `mu`,
    it is computed from the asymptotic expansion `log(2πe mu)/2 - 1/(12 mu)`.

    Args:
        mu: nonnegative mean of the distribution before it is shifted by `loc`.
        loc: location, by which the distribution is shifted; it does not change the entropy.

    Returns:
        The entropies, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    >>> from toile.scipy.stats import poisson
    >>> poisson.entropy(jnp.array([0.0, 1.0])).round(3)
    Array([0.   , 1.305], dtype=float32)
    """
    mu, loc = inexact("poisson.entropy", mu, loc)
    small = _entropy_sum(mu, 35, mu + 20)
    medium = _entropy_sum(mu, 250, mu + 10 * jnp.sqrt(mu) + 20)
    large = 0.5 * jnp.log(2 * np.pi * np.e * mu) - 1.0 / (12 * mu)
    value = jnp.where(mu < 10, small, jnp.where(mu < 100, medium, large))
    value = jnp.where(mu == 0, jnp.zeros_like(mu), value)
    return jnp.broadcast_to(value, jnp.broadcast_shapes(mu.shape, loc.shape))
