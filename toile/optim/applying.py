"""Functions that add updates to parameters or move parameters toward other parameters."""

from __future__ import annotations

from toile import lax
from toile import numpy as jnp
from toile.optim import base
from toile.optim.base import ArrayLike
from toile.optim.tree.maths import map_present

__all__ = ["apply_updates", "incremental_update", "periodic_update"]


def apply_updates(params: base.Params, updates: base.Updates) -> base.Params:
    """Add updates to parameters.

    Each new parameter has the dtype of the old parameter. A parameter that is None stays None.

    Args:
        params: tree of parameters.
        updates: updates returned by an optimizer, a tree with the structure of `params`.

    Returns:
        The new parameters.

    >>> from toile import optim
    >>> optim.apply_updates({"w": jnp.ones(2)}, {"w": jnp.array([0.5, -0.5])})
    {'w': Array([1.5, 0.5], dtype=float32)}
    """
    add = lambda p, u: jnp.asarray(p + u).astype(jnp.asarray(p).dtype)
    return map_present(add, params, updates)


def incremental_update(
    new_tensors: base.Params, old_tensors: base.Params, step_size: ArrayLike
) -> base.Params:
    """Move parameters part of the way toward new parameters (Polyak averaging).

    The result is `step_size * new_tensors + (1 - step_size) * old_tensors`. Use this function to
    average parameters or to update target networks in reinforcement learning.

    Args:
        new_tensors: tree to move toward.
        old_tensors: tree to move from.
        step_size: fraction of the way to move, from 0 (keep the old tree) to 1 (return the new
            tree).

    Returns:
        A tree with the structure of `new_tensors`.

    >>> from toile import optim
    >>> optim.incremental_update({"w": jnp.array([1.0])}, {"w": jnp.array([0.0])}, 0.25)
    {'w': Array([0.25], dtype=float32)}
    """
    move = lambda new, old: step_size * new + (1.0 - step_size) * old
    return map_present(move, new_tensors, old_tensors)


def periodic_update(
    new_tensors: base.Params, old_tensors: base.Params, steps: ArrayLike, update_period: ArrayLike
) -> base.Params:
    """Replace parameters with new parameters every `update_period` steps.

    Args:
        new_tensors: tree to return if `steps` is a multiple of `update_period`.
        old_tensors: tree to return otherwise.
        steps: number of steps taken.
        update_period: number of steps between successive replacements.

    Returns:
        `new_tensors` or `old_tensors`.

    >>> from toile import optim
    >>> for step in (4, 5):
    ...     print(optim.periodic_update(jnp.array(1.0), jnp.array(0.0), step, update_period=5))
    0.0
    1.0
    """
    now = jnp.mod(steps, update_period) == 0
    return lax.cond(now, lambda: new_tensors, lambda: old_tensors)
