"""Transformations that keep parameters valid by preventing negative values and NaN."""

from __future__ import annotations

from typing import NamedTuple

from toile import numpy as jnp
from toile import tree as trees
from toile.optim import base
from toile.optim.tree.maths import map_present

__all__ = ["NonNegativeParamsState", "ZeroNansState", "keep_params_nonnegative", "zero_nans"]

NonNegativeParamsState = base.EmptyState


def keep_params_nonnegative() -> base.GradientTransformation:
    """Change updates so that a parameter that would become negative becomes zero instead.

    Put this transformation last in a chain.

    Returns:
        A gradient transformation whose `update` needs the parameters.

    >>> from toile import optim
    >>> tx, params = optim.keep_params_nonnegative(), jnp.array([1.0, 1.0])
    >>> updates, state = tx.update(jnp.array([-0.5, -3.0]), tx.init(params), params)
    >>> optim.apply_updates(params, updates)
    Array([0.5, 0. ], dtype=float32)
    """

    def update_fn(updates, state, params=None):
        stop = lambda p, u: jnp.where((p + u) < 0.0, -p, u)
        return map_present(stop, base.required(params), updates), state

    return base.GradientTransformation(base.init_empty_state, update_fn)


class ZeroNansState(NamedTuple):
    """State of `zero_nans`.

    Args:
        found_nan: tree with one boolean scalar per leaf of the parameters. The scalar is True if
            the last update for that leaf contained NaN.

    >>> from toile import optim
    >>> optim.zero_nans().init({"w": jnp.zeros(2)})
    ZeroNansState(found_nan={'w': Array(False, dtype=bool)})
    """

    found_nan: base.ArrayTree


def zero_nans() -> base.GradientTransformation:
    """Replace NaN in updates with zero.

    Infinities stay unchanged. The state records which leaves contained NaN.

    Returns:
        A gradient transformation.

    >>> from toile import optim
    >>> tx = optim.zero_nans()
    >>> tx.update(jnp.array([1.0, jnp.nan]), tx.init(jnp.zeros(2)))
    (Array([1., 0.], dtype=float32), ZeroNansState(found_nan=Array(True, dtype=bool)))
    """

    def init_fn(params):
        return ZeroNansState(trees.map(lambda p: jnp.array(False, dtype=jnp.bool_), params))

    def update_fn(updates, state, params=None):
        found = trees.map(lambda u: jnp.any(jnp.isnan(u)), updates)
        without = trees.map(lambda u: jnp.where(jnp.isnan(u), jnp.zeros_like(u), u), updates)
        return without, ZeroNansState(found)

    return base.GradientTransformation(init_fn, update_fn)
