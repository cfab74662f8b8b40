"""Updates applied to parameters, and parameters that track others slowly or periodically."""

from __future__ import annotations

from toile import lax
from toile import numpy as jnp
from toile.optim import base
from toile.optim.base import ArrayLike
from toile.optim.tree.maths import map_present

__all__ = ["apply_updates", "incremental_update", "periodic_update"]


def apply_updates(params: base.Params, updates: base.Updates) -> base.Params:
    """params + updates, each in the dtype of its parameter.

    >>> import toile.numpy as jnp
    >>> print(apply_updates({"w": jnp.ones(2)}, {"w": jnp.array([0.5, -0.5])})["w"])
    [1.5 0.5]
    """
    add = lambda p, u: jnp.asarray(p + u).astype(jnp.asarray(p).dtype)
    return map_present(add, params, updates)


def incremental_update(
    new_tensors: base.Params, old_tensors: base.Params, step_size: ArrayLike
) -> base.Params:
    """The old ones moved step_size of the way to the new ones (Polyak averaging)."""
    move = lambda new, old: step_size * new + (1.0 - step_size) * old
    return map_present(move, new_tensors, old_tensors)


def periodic_update(
    new_tensors: base.Params, old_tensors: base.Params, steps: ArrayLike, update_period: ArrayLike
) -> base.Params:
    """The new ones every update_period steps, otherwise the old ones."""
    now = jnp.mod(steps, update_period) == 0
    return lax.cond(now, lambda: new_tensors, lambda: old_tensors)
