"""Layers that draw random numbers when they are called: Dropout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toile import numpy as jnp
from toile.core.nn.stochastic import drop
from toile.linen.methods import compact
from toile.linen.module import Module, merge_param

__all__ = ["Dropout"]


class Dropout(Module):
    """Set elements to zero with probability `rate` and divide the others by 1 - rate.

    In training it needs a key: `apply(..., rngs={'dropout': key})`.

    >>> import toile, toile.linen as nn, toile.numpy as jnp
    >>> model = nn.Sequential([nn.Dense(4), nn.Dropout(0.5, deterministic=False)])
    >>> x, keys = jnp.ones((1, 3)), toile.random.split(toile.random.key(0))
    >>> variables = model.init({"params": keys[0], "dropout": keys[1]}, x)
    >>> toile.tree.map(jnp.shape, variables)
    {'params': {'layers_0': {'bias': (4,), 'kernel': (3, 4)}}}
    >>> (model.apply(variables, x, rngs={"dropout": toile.random.key(1)}) == 0).sum()
    Array(2, dtype=int32)

    Args:
      rate: the probability that an element is dropped.
      broadcast_dims: axes along which elements are dropped together.
      deterministic: give the input as it is; here or at the call.
      rng_collection: the random stream.
    """

    rate: float
    broadcast_dims: Sequence[int] = ()
    deterministic: bool | None = None
    rng_collection: str = "dropout"

    @compact
    def __call__(self, inputs: Any, deterministic: bool | None = None, rng: Any = None) -> Any:
        """Drop elements of `inputs`; `rng` is used instead of the stream's next key."""
        deterministic = merge_param("deterministic", self.deterministic, deterministic)
        if self.rate == 0.0 or deterministic:
            return inputs
        if self.rate == 1.0:  # x / 0 would make gradients NaN
            return jnp.zeros_like(inputs)
        if rng is None:
            rng = self.make_rng(self.rng_collection)
        return drop(rng, inputs, self.rate, self.broadcast_dims)
