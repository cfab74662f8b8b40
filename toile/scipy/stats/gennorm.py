"""The generalized normal distribution, with a density proportional to `exp(-|x|^beta)`."""

from __future__ import annotations

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.nn._promote import inexact
from toile.scipy.special import gammainc

__all__ = ["cdf", "logpdf", "pdf"]


def logpdf(x: ArrayLike, beta: ArrayLike) -> Array:
    """Compute the logarithm of the probability density of the generalized normal distribution.

    The density is `beta exp(-|x|^beta) / (2 Γ(1/beta))`. The distribution is a Laplace distribution
    for `beta = 1`, and a normal distribution with scale `1/√2` for `beta = 2`.

    Args:
        x: points at which the density is evaluated.
        beta: positive shape parameter.

    Returns:
        The logarithms, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy's function also accepts `loc` and `scale`. In toile, compute
        `logpdf((x - loc) / scale, beta) - log(scale)`.
    """
    x, beta = inexact("gennorm.logpdf", x, beta)
    return jnp.log(0.5 * beta) - lax.lgamma(1 / beta) - jnp.abs(x) ** beta


def cdf(x: ArrayLike, beta: ArrayLike) -> Array:
    """Compute the probability that a generalized normal random variable is at most `x`.

    The result is `(1 + sign(x) special.gammainc(1/beta, |x|^beta)) / 2`.

    Args:
        x: points at which the function is evaluated.
        beta: positive shape parameter.

    Returns:
        The probabilities, with the shape that the arguments broadcast to and the floating-point
        dtype that they promote to.

    Differences:
        SciPy's function also accepts `loc` and `scale`. In toile, compute
        `cdf((x - loc) / scale, beta)`.
    """
    x, beta = inexact("gennorm.cdf", x, beta)
    return 0.5 * (1 + jnp.sign(x) * gammainc(1 / beta, jnp.abs(x) ** beta))


def pdf(x: ArrayLike, beta: ArrayLike) -> Array:
    """Compute the probability density of the generalized normal distribution.

    The density is `beta exp(-|x|^beta) / (2 Γ(1/beta))`. The distribution is a Laplace distribution
    for `beta = 1`, and a normal distribution with scale `1/√2` for `beta = 2`.

    Args:
        x: points at which the density is evaluated.
        beta: positive shape parameter.

    Returns:
        The densities, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy's function also accepts `loc` and `scale`. In toile, compute
        `pdf((x - loc) / scale, beta) / scale`.
    """
    return lax.exp(logpdf(x, beta))
