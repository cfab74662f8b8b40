"""The beta-binomial distribution: a binomial distribution whose `p` has a beta distribution."""

from __future__ import annotations

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.nn._promote import inexact
from toile.scipy.special import betaln

__all__ = ["logpmf", "pmf"]


def logpmf(k: ArrayLike, n: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Compute the logarithm of the probability mass function of the beta-binomial distribution.

    The random variable is the number of successes in `n` trials that share one probability of
    success, which is drawn from a beta distribution. The probability is
    `C(n, y) B(y + a, n - y + b) / B(a, b)`, where `y` is `k - loc`, `C` is the binomial coefficient
    and `B` is `special.beta`. The result is -inf outside the support `0 ≤ y ≤ n`. It is NaN where
    `n` is negative, or where `a` or `b` is not positive.

    Args:
        k: values whose probabilities are computed.
        n: number of trials.
        a, b: positive shape parameters of the beta distribution.
        loc: location, by which the distribution is shifted.

    Returns:
        The logarithms, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        In SciPy, the probability is 0 if `k` is not an integer. toile rounds `k` down. In toile,
        the probability of a negative `k` is 0 even if `loc` is negative.
    """
    k, n, a, b, loc = inexact("betabinom.logpmf", k, n, a, b, loc)
    y = jnp.floor(k) - loc
    choices = -(jnp.log1p(n) + betaln(n - y + 1, y + 1))
    value = choices + (betaln(y + a, n - y + b) - betaln(a, b))
    value = jnp.where((y == 0) & (n == 0), 0.0, value)
    value = jnp.where((y < -loc) | (y > n) | (y + a <= 0), -np.inf, value)
    return jnp.where((n < 0) | (a <= 0) | (b <= 0), np.nan, value)


def pmf(k: ArrayLike, n: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Compute the probability that a beta-binomial random variable equals `k`.

    The random variable is the number of successes in `n` trials that share one probability of
    success, which is drawn from a beta distribution. The probability is
    `C(n, y) B(y + a, n - y + b) / B(a, b)`, where `y` is `k - loc`, `C` is the binomial coefficient
    and `B` is `special.beta`. The result is 0 outside the support `0 ≤ y ≤ n`. It is NaN where `n`
    is negative, or where `a` or `b` is not positive.

    Args:
        k: values whose probabilities are computed.
        n: number of trials.
        a, b: positive shape parameters of the beta distribution.
        loc: location, by which the distribution is shifted.

    Returns:
        The probabilities, with the shape that the arguments broadcast to and the floating-point
        dtype that they promote to.

    Differences:
        In SciPy, the probability is 0 if `k` is not an integer. toile rounds `k` down. In toile,
        the probability of a negative `k` is 0 even if `loc` is negative.
    """
    return lax.exp(logpmf(k, n, a, b, loc))
