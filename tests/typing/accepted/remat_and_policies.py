"""Recomputation in the backward pass."""
import functools

import toile
import toile.linen as nn
import toile.numpy as jnp
from toile import Array


@functools.partial(toile.checkpoint, policy=toile.checkpoint_policies.dots_saveable)
def block(x: Array) -> Array:
    """Something with products."""
    return jnp.sin(x @ x.T)

plain = toile.remat(lambda x: jnp.cos(x))
Layer = nn.remat(nn.Dense)
gradient = toile.grad(lambda x: block(x).sum())(jnp.ones((3, 3)))
