"""A wrapper that concatenates all leaves into one vector before it applies a transformation."""

from __future__ import annotations

import numpy as np

from toile import numpy as jnp
from toile import tree as trees
from toile.optim import base

__all__ = ["flatten"]


def flatten(inner: base.GradientTransformation) -> base.GradientTransformationExtraArgs:
    """Apply a transformation to one vector that contains all leaves.

    Flattening replaces many operations on small arrays with a few operations on one long vector.
    The inner transformation does not see the separate leaves, so it cannot compute the norm of
    each leaf or apply a mask. All leaves are converted to one dtype, because they are
    concatenated.

    Args:
        inner: transformation to apply to the vector. Its state, too, contains vectors instead of
            trees.

    Returns:
        A gradient transformation that accepts and returns trees.

    >>> from toile import optim
    >>> tx = optim.flatten(optim.sgd(0.5, momentum=0.9))
    >>> params = {"a": jnp.ones(2), "b": jnp.ones((1, 1))}
    >>> updates, state = tx.update(params, tx.init(params))
    >>> updates, state[0]
    ({'a': Array([-0.5, -0.5], dtype=float32), 'b': Array([[-0.5]], dtype=float32)},
    TraceState(trace=Array([1., 1., 1.], dtype=float32)))
    """
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
