"""Losses of orderings: the last axis lists the items that are to be ordered by their scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import toile.numpy as jnp
from toile import nn
from toile.optim.losses.checks import check_floating

__all__ = ["ranking_softmax_loss"]


def ranking_softmax_loss(
    logits: Any, labels: Any, *, where: Any = None, weights: Any = None,
    reduce_fn: Callable[..., Any] | None = jnp.mean,
) -> Any:
    """The cross entropy between softmax(logits) and the relevance labels of the items.

    `where` marks the items that count, `weights` weighs them; reduce_fn joins the lists' losses.

    >>> scores, labels = jnp.array([2.0, 1.0, 3.0]), jnp.array([1.0, 0.0, 0.0])
    >>> round(float(ranking_softmax_loss(scores, labels)), 3)
    1.408
    """
    check_floating("ranking_softmax_loss", logits=logits)
    labels = labels.astype(logits.dtype)
    if where is not None:
        labels = jnp.where(where, labels, jnp.zeros_like(labels))
        logits = jnp.where(where, logits, -jnp.ones_like(logits) * jnp.inf)
    if weights is not None:
        labels *= weights
    loss = -jnp.sum(labels * nn.log_softmax(logits, axis=-1), axis=-1, where=where)
    return _reduced(loss, None if where is None else jnp.any(where, axis=-1), reduce_fn)


def _reduced(loss: Any, where: Any, reduce_fn: Callable[..., Any] | None) -> Any:
    """The reduced loss; lists without an item that counts contribute 0."""
    if reduce_fn is None:
        return loss if where is None else jnp.where(where, loss, 0.0)
    out = reduce_fn(loss, where=where)
    if reduce_fn is jnp.mean:  # the mean of nothing is NaN; NaNs of the losses have to stay
        sound = jnp.logical_not(jnp.any(jnp.isnan(loss)))
        out = jnp.where(jnp.isnan(out) & sound, 0.0, out)
    return out
