"""The layer Dropout, which uses random numbers when it is called."""

from __future__ import annotations

from collections.abc import Sequence

from toile import numpy as jnp
from toile.core.nn.stochastic import drop
from toile.engine.extra_warnings import doubt
from toile.engine.source import here
from toile.linen.methods import compact
from toile.linen.module import Module, merge_param
from toile.typing import Array, PRNGKey

__all__ = ["Dropout"]


class Dropout(Module):
    """Sets each element to zero with probability `rate`, and divides the others by `1 - rate`.

    The expected value of the result is the input. For evaluation, set `deterministic=True`; the
    layer then returns the input unchanged. For training, the layer needs a key:
    `apply(..., rngs={"dropout": key})`. The layer has no parameters.

    Args:
        rate: probability that an element is dropped.
        broadcast_dims: axes along which all elements share one mask value, so that either all of
            them are dropped or none are.
        deterministic: whether to return the input unchanged. Pass this option either here or in the
            call.
        rng_collection: name of the random stream from which the keys are drawn.

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
        """Apply dropout to `inputs`.

        Args:
            inputs: array of any shape.
            deterministic: whether to return the input unchanged; if None, the layer's field is
                used.
            rng: key to use; if None, the next key of the random stream is used.

        Returns:
            An array with the shape of `inputs`.
        """
        deterministic = merge_param("deterministic", self.deterministic, deterministic)
        if self.rate == 0.0 or deterministic:
            return inputs
        if self.rate == 1.0:  # x / 0 would make gradients NaN
            return jnp.zeros_like(inputs)
        if isinstance(self.rate, (int, float)) and not 0 <= self.rate <= 1:
            doubt(ValueError(
                f"Dropout: needed a rate between 0 and 1, the share of elements that are set to "
                f"zero, got rate={self.rate} (write {self.rate}% as {self.rate / 100}){here()}"
            ))
        if rng is None:
            rng = self.make_rng(self.rng_collection)
        return drop(rng, inputs, self.rate, self.broadcast_dims)
