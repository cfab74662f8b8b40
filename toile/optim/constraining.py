"""Updates changed so that parameters stay valid: no negative values, no NaN."""

from __future__ import annotations

from typing import Any, NamedTuple

from toile import numpy as jnp
from toile import tree as trees
from toile.optim import base
from toile.optim.tree.maths import map_present

__all__ = ["NonNegativeParamsState", "ZeroNansState", "keep_params_nonnegative", "zero_nans"]

NonNegativeParamsState = base.EmptyState


def keep_params_nonnegative() -> base.GradientTransformation:
    """Updates that would make a parameter negative make it zero; for the end of a chain."""

    def update_fn(updates, state, params=None):
        stop = lambda p, u: jnp.where((p + u) < 0.0, -p, u)
        return map_present(stop, base.required(params), updates), state

    return base.GradientTransformation(base.init_empty_state, update_fn)


class ZeroNansState(NamedTuple):
    """For each leaf, whether the last update had NaN."""

    found_nan: Any


def zero_nans() -> base.GradientTransformation:
    """Zeros in place of NaN."""

    def init_fn(params):
        return ZeroNansState(trees.map(lambda p: jnp.array(False, dtype=jnp.bool_), params))

    def update_fn(updates, state, params=None):
        found = trees.map(lambda u: jnp.any(jnp.isnan(u)), updates)
        without = trees.map(lambda u: jnp.where(jnp.isnan(u), jnp.zeros_like(u), u), updates)
        return without, ZeroNansState(found)

    return base.GradientTransformation(init_fn, update_fn)
