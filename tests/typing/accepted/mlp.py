"""A model with layers in `compact`, used at once."""
import toile.linen as nn
import toile.numpy as jnp
from toile import random


class MLP(nn.Module):
    """Two layers."""
    width: int
    classes: int = 10

    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Dense(self.width)(x))
        return nn.Dense(features=self.classes, use_bias=False, name="out")(x)

model = MLP(4)
named = MLP(width=4, classes=3, name="named")
variables = model.init(random.key(0), jnp.zeros((2, 3)))
logits = model.apply(variables, jnp.zeros((2, 3)))
