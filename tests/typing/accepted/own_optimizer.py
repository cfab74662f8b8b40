"""A gradient transformation of one's own."""
from typing import NamedTuple

import toile
import toile.numpy as jnp
from toile import Array, optim


class SignState(NamedTuple):
    """How many updates there were."""
    steps: Array

def scale_by_sign(rate: float) -> optim.GradientTransformation:
    """Steps of one size, in the direction of the gradient's sign."""
    def init(params):
        return SignState(jnp.zeros((), jnp.int32))
    def update(updates, state, params=None):
        del params
        updates = toile.tree.map(lambda g: -rate * jnp.sign(g), updates)
        return updates, SignState(state.steps + 1)
    return optim.GradientTransformation(init, update)

tx = optim.chain(scale_by_sign(0.1), optim.add_decayed_weights(1e-3))
