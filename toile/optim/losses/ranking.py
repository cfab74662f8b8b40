"""Losses for ranking, in which the last axis lists the items to be ranked by their scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import toile.numpy as jnp
from toile import nn
from toile.optim.base import Array, ArrayLike
from toile.optim.losses.checks import check_broadcast, check_floating

__all__ = ["ranking_softmax_loss"]


def ranking_softmax_loss(
    logits: ArrayLike, labels: ArrayLike, *, where: ArrayLike | None = None,
    weights: ArrayLike | None = None, reduce_fn: Callable[..., Array] | None = jnp.mean,
) -> Array:
    """Compute the cross entropy between `softmax(logits)` and the relevance of the items in a list.

    The loss of a list is `-sum(labels * log_softmax(logits))`, where the sum is over its items.

    Args:
        logits: scores of the items, a floating-point array. Each list lies along the last axis.
        labels: relevance of the items, an array with the same shape as `logits`; larger is better.
        where: boolean mask of the items to include. If `where` is None, all items are included. A
            list with no included items is left out of the reduction; if there is no reduction, its
            loss is 0.
        weights: weights of the items. If `weights` is None, all weights are equal.
        reduce_fn: function, such as `jnp.mean`, that reduces the losses of the lists. If
            `reduce_fn` is None, the losses are not reduced.

    Returns:
        The reduced loss or, if `reduce_fn` is None, the loss of each list, with the shape of
        `logits` without the last axis.

    Raises:
        TypeError: `logits` is not floating-point.

    >>> from toile import optim
    >>> scores, labels = jnp.array([2.0, 1.0, 3.0]), jnp.array([1.0, 0.0, 0.0])
    >>> optim.ranking_softmax_loss(scores, labels).round(3)
    Array(1.408, dtype=float32)
    """
    check_floating("ranking_softmax_loss", logits=logits)
    check_broadcast("ranking_softmax_loss", logits=logits, labels=labels)
    labels = labels.astype(logits.dtype)
    if where is not None:
        labels = jnp.where(where, labels, jnp.zeros_like(labels))
        logits = jnp.where(where, logits, -jnp.ones_like(logits) * jnp.inf)
    if weights is not None:
        labels *= weights
    loss = -jnp.sum(labels * nn.log_softmax(logits, axis=-1), axis=-1, where=where)
    return _reduced(loss, None if where is None else jnp.any(where, axis=-1), reduce_fn)


def _reduced(loss: Any, where: Any, reduce_fn: Callable[..., Any] | None) -> Any:
    """Return the reduced loss; lists without included items do not contribute to it."""
    if reduce_fn is None:
        return loss if where is None else jnp.where(where, loss, 0.0)
    out = reduce_fn(loss, where=where)
    if reduce_fn is jnp.mean:  # the mean of nothing is NaN; NaNs of the losses have to stay
        sound = jnp.logical_not(jnp.any(jnp.isnan(loss)))
        out = jnp.where(jnp.isnan(out) & sound, 0.0, out)
    return out
