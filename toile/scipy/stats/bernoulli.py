"""The Bernoulli distribution: 1 with probability `p` and 0 otherwise, shifted by `loc`."""

from __future__ import annotations

import numpy as np

from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.nn._promote import inexact
from toile.scipy.special import xlog1py, xlogy

__all__ = ["cdf", "logpmf", "pmf", "ppf"]


def logpmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Compute the logarithm of the probability mass function of the Bernoulli distribution.

    The probability is `p` where `k - loc` is 1, and `1 - p` where `k - loc` is 0. The result is
    -inf where `k - loc` is outside `[0, 1]`.

    Args:
        k: values whose probabilities are computed.
        p: probability of a success (1), in `[0, 1]`.
        loc: location, by which the distribution is shifted.

    Returns:
        The logarithms, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        In SciPy, the probability is 0 if `k` is not an integer, and NaN if a parameter is invalid.
        toile checks neither condition.
    """
    k, p, loc = inexact("bernoulli.logpmf", k, p, loc)
    x = k - loc
    value = xlogy(x, p) + xlog1py(1 - x, -p)
    return jnp.where((x < 0) | (x > 1), -np.inf, value)


def pmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Compute the probability that a Bernoulli-distributed random variable equals `k`.

    The probability is `p` where `k - loc` is 1, and `1 - p` where `k - loc` is 0. The result is 0
    where `k - loc` is outside `[0, 1]`.

    Args:
        k: values whose probabilities are computed.
        p: probability of a success (1), in `[0, 1]`.
        loc: location, by which the distribution is shifted.

    Returns:
        The probabilities, with the shape that the arguments broadcast to and the floating-point
        dtype that they promote to.

    Differences:
        In SciPy, the probability is 0 if `k` is not an integer, and NaN if a parameter is invalid.
        toile checks neither condition.
    """
    return jnp.exp(logpmf(k, p, loc))


def cdf(k: ArrayLike, p: ArrayLike) -> Array:
    """Compute the probability that a Bernoulli-distributed random variable is at most `k`.

    The result is 0 where `k < 0`, `1 - p` where `0 ≤ k < 1`, and 1 where `k ≥ 1`. It is NaN where
    `p` is not in `[0, 1]`.

    Args:
        k: points at which the function is evaluated.
        p: probability of a success (1), in `[0, 1]`.

    Returns:
        The probabilities, with the shape that the arguments broadcast to and the floating-point
        dtype that they promote to.

    Differences:
        SciPy's function also accepts `loc`.
    """
    k, p = inexact("bernoulli.cdf", k, p)
    bad = jnp.isnan(k) | jnp.isnan(p) | (p < 0) | (p > 1)
    one = jnp.ones_like(k)
    return jnp.select([bad, k < 0, k < 1, k >= 1], [np.nan, 0 * one, 1 - p, one])


def ppf(q: ArrayLike, p: ArrayLike) -> Array:
    """Compute quantiles of the Bernoulli distribution (the inverse of `cdf`).

    The result is 0 where `q ≤ 1 - p`, and 1 where `q > 1 - p`. It is NaN where `p` or `q` is not in
    `[0, 1]`.

    Args:
        q: probabilities, from 0 to 1.
        p: probability of a success (1), in `[0, 1]`.

    Returns:
        The quantiles, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy's function also accepts `loc`, and its result is -1 at `q = 0`.

    >>> from toile.scipy.stats import bernoulli
    >>> bernoulli.ppf(jnp.array([0.2, 0.8]), 0.5)
    Array([0., 1.], dtype=float32)
    """
    q, p = inexact("bernoulli.ppf", q, p)
    bad = jnp.isnan(q) | jnp.isnan(p) | (p < 0) | (p > 1) | (q < 0) | (q > 1)
    one = jnp.ones_like(q)
    return jnp.where(bad, np.nan, jnp.where(q <= 1 - p, 0 * one, one))
