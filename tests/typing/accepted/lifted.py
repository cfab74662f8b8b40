"""Lifted transformations of modules."""
import toile.linen as nn
import toile.numpy as jnp
from toile import Array, random


class Cell(nn.Module):
    """A step of a loop."""
    features: int

    @nn.compact
    def __call__(self, carry: Array, x: Array) -> tuple[Array, Array]:
        """The next carry and an output."""
        carry = nn.tanh(nn.Dense(self.features)(carry) + x)
        return carry, carry

Scanned = nn.scan(Cell, variable_broadcast="params", split_rngs={"params": False}, in_axes=1, out_axes=1)
model = Scanned(features=4)
variables = model.init(random.key(0), jnp.zeros((2, 4)), jnp.zeros((2, 5, 4)))
Batched = nn.vmap(nn.Dense, variable_axes={"params": 0}, split_rngs={"params": True})
