"""Student's t distribution with `df` degrees of freedom."""

from __future__ import annotations

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.nn._promote import inexact

__all__ = ["logpdf", "pdf"]


def logpdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the logarithm of the probability density of Student's t distribution.

    The density is `Γ((df+1)/2) / (√(π df) Γ(df/2) scale) (1 + y²/df)^(-(df+1)/2)`, where `y` is
    `(x - loc) / scale`.

    Args:
        x: points at which the density is evaluated.
        df: degrees of freedom, a positive number.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The logarithms, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy returns NaN where `scale` is not positive. toile does not check `scale`. For infinite
        `df`, SciPy uses the normal distribution, while toile returns NaN.
    """
    x, df, loc, scale = inexact("t.logpdf", x, df, loc, scale)
    y = (x - loc) / scale
    half = df / 2
    power = half + 0.5
    spread = jnp.log(scale * scale * np.pi * df) / 2
    constant = lax.lgamma(half) + spread - lax.lgamma(power)
    return -(constant + power * lax.log1p(y * y / df))


def pdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Compute the probability density of Student's t distribution.

    The density is `Γ((df+1)/2) / (√(π df) Γ(df/2) scale) (1 + y²/df)^(-(df+1)/2)`, where `y` is
    `(x - loc) / scale`.

    Args:
        x: points at which the density is evaluated.
        df: degrees of freedom, a positive number.
        loc: location, by which the distribution is shifted.
        scale: positive scale, by which the distribution is stretched.

    Returns:
        The densities, with the shape that the arguments broadcast to and the floating-point dtype
        that they promote to.

    Differences:
        SciPy returns NaN where `scale` is not positive. toile does not check `scale`. For infinite
        `df`, SciPy uses the normal distribution, while toile returns NaN.
    """
    return lax.exp(logpdf(x, df, loc, scale))
