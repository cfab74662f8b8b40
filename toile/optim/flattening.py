"""All leaves as one vector while they are transformed: few large operations in place of many."""

from __future__ import annotations

import numpy as np

from toile import numpy as jnp
from toile import tree as trees
from toile.optim import base

__all__ = ["flatten"]


def flatten(inner: base.GradientTransformation) -> base.GradientTransformationExtraArgs:
    """The inner transformation on one vector of all parameters; its state is flat too."""
    inner = base.with_extra_args_support(inner)

    def joined(tree):
        return jnp.concatenate([jnp.reshape(x, [-1]) for x in trees.leaves(tree)])

    def parted(vector, like):
        leaves, structure = trees.flatten(like)
        ends = np.cumsum([np.size(x) for x in leaves])[:-1].tolist()
        parts = jnp.split(vector, ends)
        return trees.unflatten(structure, [jnp.reshape(p, x.shape) for p, x in zip(parts, leaves)])

    init_fn = lambda params: inner.init(joined(params))

    def update_fn(updates, state, params=None, **extra_args):
        flat_params = None if params is None else joined(params)
        flat, state = inner.update(joined(updates), state, flat_params, **extra_args)
        return parted(flat, updates), state

    return base.GradientTransformationExtraArgs(init_fn, update_fn)
