"""The binomial distribution."""

from __future__ import annotations

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.nn._promote import inexact
from toile.scipy.special import gammaln, xlog1py, xlogy

__all__ = ["logpmf", "pmf"]


def logpmf(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Compute the logarithm of the probability mass function of the binomial distribution.

    The random variable is the number of successes in `n` independent trials. The probability is
    `C(n, y) p^y (1 - p)^(n - y)`, where `y` is `k - loc` and `C` is the binomial coefficient. The
    result is -inf outside the support `0 ≤ y ≤ n`.

    Args:
        k: values whose probabilities are computed.
        n: number of trials.
        p: probability of a success in one trial, in `[0, 1]`.
        loc: location, by which the distribution is shifted.

    Returns:
        The logarithms, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        In SciPy, the probability is 0 if `k` is not an integer, and NaN if a parameter is invalid.
        toile checks neither condition.
    """
    k, n, p, loc = inexact("binom.logpmf", k, n, p, loc)
    y = k - loc
    choices = gammaln(n + 1) - (gammaln(y + 1) + gammaln(n - y + 1))
    powers = xlogy(y, p) + xlog1py(n - y, -p)
    certain = ((y == 0) & (n == 0)) | (powers == 0)
    value = jnp.where(certain, 0.0, choices + powers)
    return jnp.where((k >= loc) & (k < loc + n + 1), value, -np.inf)


def pmf(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Compute the probability that a binomial random variable equals `k`.

    The random variable is the number of successes in `n` independent trials. The probability is
    `C(n, y) p^y (1 - p)^(n - y)`, where `y` is `k - loc` and `C` is the binomial coefficient. The
    result is 0 outside the support `0 ≤ y ≤ n`.

    Args:
        k: values whose probabilities are computed.
        n: number of trials.
        p: probability of a success in one trial, in `[0, 1]`.
        loc: location, by which the distribution is shifted.

    Returns:
        The probabilities, with the shape that the arguments broadcast to and the floating-point
        dtype that they promote to.

    Differences:
        In SciPy, the probability is 0 if `k` is not an integer, and NaN if a parameter is invalid.
        toile checks neither condition.

    >>> from toile.scipy.stats import binom
    >>> binom.pmf(jnp.arange(4), 3, 0.5).round(3)
    Array([0.125, 0.375, 0.375, 0.125], dtype=float32)
    """
    return lax.exp(logpmf(k, n, p, loc))
