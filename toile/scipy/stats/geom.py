"""The geometric distribution: the number of trials up to and including the first success."""

from __future__ import annotations

import numpy as np

from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.nn._promote import inexact
from toile.scipy.special import xlog1py

__all__ = ["logpmf", "pmf"]


def logpmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Compute the logarithm of the probability mass function of the geometric distribution.

    The random variable is the number of trials up to and including the first success. The
    probability is `p (1 - p)^(y - 1)`, where `y` is `k - loc`. The result is -inf where `y` is not
    positive.

    Args:
        k: values whose probabilities are computed.
        p: probability of a success in one trial, in `(0, 1]`.
        loc: location, by which the distribution is shifted.

    Returns:
        The logarithms, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        In SciPy, the probability is 0 if `k` is not an integer, and NaN if a parameter is invalid.
        toile checks neither condition.
    """
    k, p, loc = inexact("geom.logpmf", k, p, loc)
    x = k - loc
    return jnp.where(x <= 0, -np.inf, xlog1py(x - 1, -p) + jnp.log(p))


def pmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Compute the probability that a geometric random variable equals `k`.

    The random variable is the number of trials up to and including the first success. The
    probability is `p (1 - p)^(y - 1)`, where `y` is `k - loc`. The result is 0 where `y` is not
    positive.

    Args:
        k: values whose probabilities are computed.
        p: probability of a success in one trial, in `(0, 1]`.
        loc: location, by which the distribution is shifted.

    Returns:
        The probabilities, with the shape that the arguments broadcast to and the floating-point
        dtype that they promote to.

    Differences:
        In SciPy, the probability is 0 if `k` is not an integer, and NaN if a parameter is invalid.
        toile checks neither condition.

    >>> from toile.scipy.stats import geom
    >>> geom.pmf(jnp.array([1, 2, 3]), 0.5)
    Array([0.5  , 0.25 , 0.125], dtype=float32)
    """
    return jnp.exp(logpmf(k, p, loc))
