"""The negative binomial distribution: the number of failures before the `n`-th success."""

from __future__ import annotations

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.nn._promote import inexact
from toile.scipy.special import gammaln, xlogy

__all__ = ["logpmf", "pmf"]


def logpmf(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Compute the logarithm of the probability mass function of the negative binomial distribution.

    The random variable is the number of failures before the `n`-th success. The probability is
    `C(y + n - 1, y) p^n (1 - p)^y`, where `y` is `k - loc` and `C` is the binomial coefficient. The
    result is -inf for `k` below `loc`.

    Args:
        k: values whose probabilities are computed.
        n: number of successes, a positive number.
        p: probability of a success in one trial, in `(0, 1]`.
        loc: location, by which the distribution is shifted.

    Returns:
        The logarithms, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        In SciPy, the probability is 0 if `k` is not an integer, and NaN if a parameter is invalid.
        toile checks neither condition.
    """
    k, n, p, loc = inexact("nbinom.logpmf", k, n, p, loc)
    y = k - loc
    choices = gammaln(y + n) - gammaln(n) - gammaln(y + 1)
    value = choices + (xlogy(n, p) + xlogy(y, 1 - p))
    return jnp.where(k < loc, -np.inf, value)


def pmf(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Compute the probability that a negative binomial random variable equals `k`.

    The random variable is the number of failures before the `n`-th success. The probability is
    `C(y + n - 1, y) p^n (1 - p)^y`, where `y` is `k - loc` and `C` is the binomial coefficient. The
    result is 0 for `k` below `loc`.

    Args:
        k: values whose probabilities are computed.
        n: number of successes, a positive number.
        p: probability of a success in one trial, in `(0, 1]`.
        loc: location, by which the distribution is shifted.

    Returns:
        The probabilities, with the shape that the arguments broadcast to and the floating-point
        dtype that they promote to.

    Differences:
        In SciPy, the probability is 0 if `k` is not an integer, and NaN if a parameter is invalid.
        toile checks neither condition.

    >>> from toile.scipy.stats import nbinom
    >>> nbinom.pmf(jnp.array([0, 1, 2]), 1, 0.5)
    Array([0.5  , 0.25 , 0.125], dtype=float32)
    """
    return lax.exp(logpmf(k, n, p, loc))
