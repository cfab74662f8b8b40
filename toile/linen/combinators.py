"""Layers that combine others: Sequential."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toile.engine.source import here
from toile.linen.methods import compact
from toile.linen.module import Module

__all__ = ["Sequential"]


class Sequential(Module):
    """Apply layers (or functions) one after another.

    A tuple that a layer returns becomes the positional arguments of the next one, a dict its
    keyword arguments. A function may make layers that depend on the shape of their input.

    >>> import toile, toile.linen as nn, toile.numpy as jnp
    >>> model = nn.Sequential([nn.Dense(4), nn.relu, lambda x: nn.Dense(2 * x.shape[-1])(x)])
    >>> variables = model.init(toile.random.key(0), jnp.ones((1, 3)))
    >>> toile.tree.map(jnp.shape, variables["params"])
    {'Dense_0': {'bias': (8,), 'kernel': (4, 8)}, 'layers_0': {'bias': (4,), 'kernel': (3, 4)}}

    Args:
      layers: the callables, in order.
    """

    layers: Sequence[Callable[..., Any]]

    def __post_init__(self) -> None:
        if not isinstance(self.layers, Sequence):
            raise ValueError(
                f"'layers' must be a sequence, got '{type(self.layers).__name__}' "
                f"(write Sequential([a, b])).{here()}"
            )
        super().__post_init__()

    @compact
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The last layer's result; the first layer gets the arguments."""
        if not self.layers:
            raise ValueError(f"Empty Sequential module {self.name}.{here()}")
        first, *rest = self.layers
        out = first(*args, **kwargs)
        for layer in rest:
            if isinstance(out, tuple):
                out = layer(*out)
            elif isinstance(out, dict):
                out = layer(**out)
            else:
                out = layer(out)
        return out
