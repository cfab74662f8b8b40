"""The Dirichlet distribution of vectors whose elements lie along the first axis."""

from __future__ import annotations

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.engine.source import here
from toile.nn._promote import inexact
from toile.scipy.special import gammaln, xlogy

__all__ = ["logpdf", "pdf"]


def logpdf(x: ArrayLike, alpha: ArrayLike) -> Array:
    """Compute the logarithm of the probability density of the Dirichlet distribution.

    The density at proportions `x` that sum to 1 is proportional to the product of
    `x[i]^(alpha[i] - 1)`. The result is -inf where a proportion is not positive or the sum differs
    from 1 by 1e-6 or more.

    Args:
        x: proportions along the first axis, one for each element of `alpha`. The last proportion
            may be left out; it is then 1 minus the sum of the others. The other axes are batch
            axes.
        alpha: vector of positive concentrations.

    Returns:
        An array with the shape of `x` without its first axis.

    Raises:
        ValueError: `alpha` is not a vector, or the number of proportions in `x` does not match
            `alpha`.

    Differences:
        SciPy raises an error if `alpha` is invalid, or if a proportion is negative or the sum is
        not 1. toile does not check `alpha`.
    """
    x, alpha = inexact("dirichlet.logpdf", jnp.asarray(x), jnp.asarray(alpha))
    if alpha.ndim != 1:
        raise ValueError(f"`alpha` must be one-dimensional; got alpha.shape={alpha.shape}{here()}")
    size = alpha.shape[0]
    if x.shape[0] not in (size, size - 1):
        raise ValueError("`x` must have either the same number of entries as `alpha` or one entry "
                         f"fewer; got x.shape={x.shape}, alpha.shape={alpha.shape}{here()}")
    parts: Array = x
    if x.shape[0] != size:
        parts = jnp.concatenate([x, 1 - jnp.sum(x, axis=0, keepdims=True)], axis=0)
    constant = jnp.sum(gammaln(alpha)) - gammaln(jnp.sum(alpha))
    powers = jnp.reshape(alpha, (size,) + (1,) * (parts.ndim - 1)) - 1
    value = jnp.sum(xlogy(powers, parts), axis=0) - constant
    on_simplex = jnp.all(parts > 0, axis=0) & (jnp.abs(jnp.sum(parts, axis=0) - 1) < 1e-6)
    return jnp.where(on_simplex, value, -np.inf)


def pdf(x: ArrayLike, alpha: ArrayLike) -> Array:
    """Compute the probability density of the Dirichlet distribution.

    The density at proportions `x` that sum to 1 is proportional to the product of
    `x[i]^(alpha[i] - 1)`. The result is 0 where a proportion is not positive or the sum differs
    from 1 by 1e-6 or more.

    Args:
        x: proportions along the first axis, one for each element of `alpha`. The last proportion
            may be left out; it is then 1 minus the sum of the others. The other axes are batch
            axes.
        alpha: vector of positive concentrations.

    Returns:
        An array with the shape of `x` without its first axis.

    Raises:
        ValueError: `alpha` is not a vector, or the number of proportions in `x` does not match
            `alpha`.

    Differences:
        SciPy raises an error if `alpha` is invalid, or if a proportion is negative or the sum is
        not 1. toile does not check `alpha`.

    >>> from toile.scipy.stats import dirichlet
    >>> dirichlet.pdf(jnp.array([0.25, 0.75]), jnp.array([1.0, 1.0]))
    Array(1., dtype=float32)
    """
    return lax.exp(logpdf(x, alpha))
