"""Mistakes in the use of modules."""
import toile.linen as nn
import toile.numpy as jnp
from toile import random


class MLP(nn.Module):
    """A layer."""
    width: int
    rate: float = 0.1

    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.width)(x)

MLP()  # error: no width
MLP("wide")  # error: no integer
MLP(4, depth=3)  # error: no such field
MLP(4, rate="much")  # error: no number
nn.Dense()  # error: no features
nn.Dense(4, bias=False)  # error: it is use_bias
nn.Dence(4)  # error: misspelled
MLP(4).widht  # error: misspelled
nn.Dropout(rate="half")  # error: no number
MLP(4).inti(random.key(0), jnp.zeros(3))  # error: misspelled
