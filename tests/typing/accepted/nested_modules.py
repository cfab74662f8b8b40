"""Modules as fields of modules, and fields with and without defaults below each other."""
from collections.abc import Callable
from typing import Any

import toile.linen as nn
import toile.numpy as jnp
from toile import Array


class Block(nn.Module):
    """A residual block."""
    features: int
    act: Callable[[Array], Array] = nn.relu

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """x plus two layers of it."""
        return x + nn.Dense(self.features)(self.act(nn.Dense(self.features)(x)))

class Wide(Block):
    """A block with a field of its own."""
    factor: int = 2

class Model(nn.Module):
    """A stem and a head."""
    stem: nn.Module
    head: nn.Module
    dtype: Any = jnp.float32

    def __call__(self, x: Array) -> Array:
        """Both."""
        return self.head(self.stem(x).astype(self.dtype))

model = Model(stem=Block(4), head=Wide(4, factor=3))
