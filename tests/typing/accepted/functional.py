"""Modules bound, and functions of modules."""
import toile.linen as nn
import toile.numpy as jnp
from toile import Array, random


class AutoEncoder(nn.Module):
    """Two parts, used apart."""
    width: int = 4

    def setup(self) -> None:
        """Both parts."""
        self.encoder = nn.Dense(self.width)
        self.decoder = nn.Dense(8)

    def __call__(self, x: Array) -> Array:
        """There and back."""
        return self.decoder(self.encoder(x))

    def encode(self, x: Array) -> Array:
        """There."""
        return self.encoder(x)

model = AutoEncoder()
variables = model.init(random.key(0), jnp.ones((1, 8)))
code = model.apply(variables, jnp.ones((1, 8)), method=model.encode)
bound = model.bind(variables)
again = bound.encode(jnp.ones((1, 8)))
print(model.tabulate(random.key(0), jnp.ones((1, 8))))
