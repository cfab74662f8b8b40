"""The geometric distribution: the number of trials up to and including the first success."""

from __future__ import annotations

import numpy as np

from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.nn._promote import inexact
from toile.scipy.special import xlog1py

__all__ = ["logpmf", "pmf"]


def logpmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Compute the logarithm of the probability `pmf` of the geometric distribution.

    The variable is the number of trials up to and including the first success. The probability is
    `p (1 - p)^(y - 1)`, where `y` is `k - loc`; the result is -inf where `y` is not positive.

    Args:
        k: values whose probability is computed.
        p: probability of a success in one trial, in (0, 1].
        loc: location, by which the distribution is shifted.

    Returns:
        The logarithms, in the shape that the arguments broadcast to and the floating dtype that
        they promote to.

    Differences:
        SciPy gives probability 0 for a `k` that is not an integer, and NaN for invalid parameters;
        here neither is checked.
    """
    k, p, loc = inexact("geom.logpmf", k, p, loc)
    x = k - loc
    return jnp.where(x <= 0, -np.inf, xlog1py(x - 1, -p) + jnp.log(p))


def pmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Compute the probability that a variable with the geometric distribution equals `k`.

    The variable is the number of trials up to and including the first success. The probability is
    `p (1 - p)^(y - 1)`, where `y` is `k - loc`; the result is 0 where `y` is not positive.

    Args:
        k: values whose probability is computed.
        p: probability of a success in one trial, in (0, 1].
        loc: location, by which the distribution is shifted.

    Returns:
        The probabilities, in the shape that the arguments broadcast to and the floating dtype that
        they promote to.

    Differences:
        SciPy gives probability 0 for a `k` that is not an integer, and NaN for invalid parameters;
        here neither is checked.

    >>> from toile.scipy.stats import geom
    >>> geom.pmf(jnp.array([1, 2, 3]), 0.5)
    Array([0.5  , 0.25 , 0.125], dtype=float32)
    """
    return jnp.exp(logpmf(k, p, loc))
