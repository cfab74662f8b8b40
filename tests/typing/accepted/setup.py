"""A model that declares its layers in `setup`."""
from collections.abc import Sequence

import toile.linen as nn
from toile import Array


class Encoder(nn.Module):
    """Layers in a list."""
    widths: Sequence[int]
    dropout: float = 0.1

    def setup(self) -> None:
        """Make the layers."""
        self.layers = [nn.Dense(width) for width in self.widths]
        self.drop = nn.Dropout(self.dropout)

    def __call__(self, x: Array, train: bool = False) -> Array:
        """Apply them in turn."""
        for layer in self.layers:
            x = self.drop(nn.gelu(layer(x)), deterministic=not train)
        return x

encoder = Encoder([8, 8])
widths: Sequence[int] = encoder.widths
