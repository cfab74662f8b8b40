"""Helpers for distributions with a location and a scale."""

from __future__ import annotations

import numpy as np

from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.nn._promote import inexact


def standardized(name: str, x: ArrayLike, loc: ArrayLike,
                 scale: ArrayLike) -> tuple[Array, Array]:
    """Return `(x - loc) / scale` and the scale, in one floating-point dtype."""
    x, loc, scale = inexact(name, x, loc, scale)
    return (x - loc) / scale, scale


def where_positive(scale: Array, value: Array) -> Array:
    """Return `value`, with NaN where the scale is not positive."""
    return jnp.where(scale > 0, value, np.nan)
