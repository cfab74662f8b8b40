"""The multinomial distribution."""

from __future__ import annotations

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.engine.source import here
from toile.nn._promote import inexact, is_integer, promoted
from toile.scipy.special import gammaln, xlogy

__all__ = ["logpmf", "pmf"]


def logpmf(x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
    """Compute the logarithm of the probability mass function of the multinomial distribution.

    The probability of the counts `x` in `n` independent trials is `n! Π p[i]^x[i] / x[i]!`. The
    result is -inf where the sum of `x` is not `n`.

    Args:
        x: vector of integers, the counts of the outcomes.
        n: number of trials, of an integer dtype.
        p: probabilities of the outcomes, along the last axis.

    Returns:
        An array with the dtype of `p`. Its shape is the shape of `n` broadcast against the leading
        axes of `p`.

    Raises:
        ValueError: `x` or `n` does not have an integer dtype.

    Differences:
        SciPy accepts batches of `x` and checks that `p` sums to 1. In toile, `x` must be a single
        vector, because all of its elements are summed. toile does not check `p`.
    """
    (p,) = inexact("multinomial.logpmf", p)
    x, n = promoted("multinomial.logpmf", x, n)
    if not is_integer(x):
        raise ValueError(f"x and n must be of integer type; got x.dtype={x.dtype}, "
                         f"n.dtype={n.dtype}{here()}")
    x, n = x.astype(p.dtype), n.astype(p.dtype)
    value = gammaln(n + 1) + jnp.sum(xlogy(x, p) - gammaln(x + 1), axis=-1)
    return jnp.where(jnp.equal(jnp.sum(x), n), value, -np.inf)


def pmf(x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
    """Compute the probability of the given counts of outcomes in the multinomial distribution.

    The probability of the counts `x` in `n` independent trials is `n! Π p[i]^x[i] / x[i]!`. The
    result is 0 where the sum of `x` is not `n`.

    Args:
        x: vector of integers, the counts of the outcomes.
        n: number of trials, of an integer dtype.
        p: probabilities of the outcomes, along the last axis.

    Returns:
        An array with the dtype of `p`. Its shape is the shape of `n` broadcast against the leading
        axes of `p`.

    Raises:
        ValueError: `x` or `n` does not have an integer dtype.

    Differences:
        SciPy accepts batches of `x` and checks that `p` sums to 1. In toile, `x` must be a single
        vector, because all of its elements are summed. toile does not check `p`.

    >>> from toile.scipy.stats import multinomial
    >>> multinomial.pmf(jnp.array([1, 1]), 2, jnp.array([0.5, 0.5])).round(3)
    Array(0.5, dtype=float32)
    """
    return lax.exp(logpmf(x, n, p))
