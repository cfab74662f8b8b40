"""The negative binomial distribution: failures before the n-th success."""

from __future__ import annotations

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.nn._promote import inexact
from toile.scipy.special import gammaln, xlogy

__all__ = ["logpmf", "pmf"]


def logpmf(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Logarithm of the probabilities `pmf` of the negative binomial distribution.

    The variable is the number of failures before the `n`-th success. The probability is
    `C(y + n - 1, y) p^n (1 - p)^y`, where `y` is `k - loc` and `C` the binomial coefficient; the
    result is -inf below `loc`.

    Args:
        k: values whose probability is asked for.
        n: number of successes, a positive number.
        p: probability of a success in one trial, in (0, 1].
        loc: location: the distribution is shifted by it.

    Returns:
        The logarithms: an array of the shape and floating dtype that the arguments promote to.

    Differences:
        SciPy gives probability 0 to a `k` that is not an integer, and NaN for invalid parameters;
        here the formula is evaluated without checks.
    """
    k, n, p, loc = inexact("nbinom.logpmf", k, n, p, loc)
    y = k - loc
    choices = gammaln(y + n) - gammaln(n) - gammaln(y + 1)
    value = choices + (xlogy(n, p) + xlogy(y, 1 - p))
    return jnp.where(k < loc, -np.inf, value)


def pmf(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Probability that a variable with the negative binomial distribution equals `k`.

    The variable is the number of failures before the `n`-th success. The probability is
    `C(y + n - 1, y) p^n (1 - p)^y`, where `y` is `k - loc` and `C` the binomial coefficient; the
    result is 0 below `loc`.

    Args:
        k: values whose probability is asked for.
        n: number of successes, a positive number.
        p: probability of a success in one trial, in (0, 1].
        loc: location: the distribution is shifted by it.

    Returns:
        The probabilities: an array of the shape and floating dtype that the arguments promote to.

    Differences:
        SciPy gives probability 0 to a `k` that is not an integer, and NaN for invalid parameters;
        here the formula is evaluated without checks.

    >>> from toile.scipy.stats import nbinom
    >>> nbinom.pmf(jnp.array([0, 1, 2]), 1, 0.5)
    Array([0.5  , 0.25 , 0.125], dtype=float32)
    """
    return lax.exp(logpmf(k, n, p, loc))
