"""Fenchel-Young losses, which subtract the target's score from a smoothed maximum of the scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import toile.numpy as jnp
from toile.optim.base import Array, ArrayLike

__all__ = ["make_fenchel_young_loss"]


def make_fenchel_young_loss(max_fun: Callable[..., ArrayLike]) -> Callable[..., Array]:
    """Create the loss `max_fun(scores) - dot(targets, scores)` from a smoothed maximum.

    With `logsumexp` as the smoothed maximum, the loss is softmax cross entropy (Blondel et al.,
    2020).

    Args:
        max_fun: function that maps a vector of scores, and optionally other arguments, to a scalar.

    Returns:
        A function `f(scores, targets, *args, **kwargs)` that returns the loss of each vector. The
        vectors lie along the last axis, and the additional arguments are passed to `max_fun`.

    >>> from toile import optim
    >>> loss = optim.make_fenchel_young_loss(toile.nn.logsumexp)
    >>> loss(jnp.array([0.0, 0.0]), jnp.array([1.0, 0.0])).round(3)
    Array(0.693, dtype=float32)
    """
    maximum = jnp.vectorize(max_fun, signature="(n)->()")
    product = jnp.vectorize(jnp.vdot, signature="(n),(n)->()")

    def fenchel_young_loss(scores: Any, targets: Any, *args: Any, **kwargs: Any) -> Any:
        return maximum(scores, *args, **kwargs) - product(targets, scores)

    return fenchel_young_loss
