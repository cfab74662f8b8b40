"""Layers that draw random numbers when they are called: Dropout."""

from __future__ import annotations

from collections.abc import Sequence

from toile import numpy as jnp
from toile.core.nn.stochastic import drop
from toile.linen.methods import compact
from toile.linen.module import Module, merge_param
from toile.typing import Array, PRNGKey

__all__ = ["Dropout"]


class Dropout(Module):
    """Set elements to zero with probability `rate`, and divide the others by `1 - rate`.

    The mean of the result is that of the input. In evaluation, with `deterministic=True`, the
    input is returned unchanged. In training the layer needs a key:
    `apply(..., rngs={"dropout": key})`. There are no parameters.

    Args:
        rate: probability that an element is dropped.
        broadcast_dims: axes along which all elements are dropped together, or none.
        deterministic: whether nothing is dropped; it is given here or to the call.
        rng_collection: name of the random stream that keys come from.

    >>> import toile.linen as nn
    >>> layer = nn.Dropout(0.5)
    >>> x = jnp.ones((2, 3))
    >>> layer.init(key(0), x, deterministic=True)
    {}
    >>> layer.apply({}, x, deterministic=True)
    Array([[1., 1., 1.],
           [1., 1., 1.]], dtype=float32)
    >>> layer.apply({}, x, deterministic=False, rngs={"dropout": key(3)})
    Array([[2., 2., 0.],
           [2., 0., 0.]], dtype=float32)
    """

    rate: float
    broadcast_dims: Sequence[int] = ()
    deterministic: bool | None = None
    rng_collection: str = "dropout"

    @compact
    def __call__(
        self, inputs: Array, deterministic: bool | None = None, rng: PRNGKey | None = None
    ) -> Array:
        """Drop elements of `inputs`.

        Args:
            inputs: array of any shape.
            deterministic: whether nothing is dropped, if it is not a field of the layer.
            rng: key to use instead of the next key of the stream; None for the stream.

        Returns:
            An array of the shape of `inputs`.
        """
        deterministic = merge_param("deterministic", self.deterministic, deterministic)
        if self.rate == 0.0 or deterministic:
            return inputs
        if self.rate == 1.0:  # x / 0 would make gradients NaN
            return jnp.zeros_like(inputs)
        if rng is None:
            rng = self.make_rng(self.rng_collection)
        return drop(rng, inputs, self.rate, self.broadcast_dims)
