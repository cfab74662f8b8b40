"""Cross-entropies of the next token, where labels of -100 are ignored."""

from __future__ import annotations

from toile import nn
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.engine.source import here

__all__ = ["IGNORED", "log_probs", "token_loss"]

IGNORED = -100  # the label of tokens that a model is not trained to predict


def log_probs(logits: ArrayLike, labels: ArrayLike) -> Array:
    """Compute the log-probabilities of labels, each given the tokens before it.

    The logits at position i predict the label at position i + 1.

    Args:
        logits: array of shape (..., length, vocabulary).
        labels: tokens, an array of integers of shape (..., length). Labels of -100 are ignored.

    Returns:
        An array of float32 numbers of shape (..., length). It is 0 at the first position of each
        row and at labels that are ignored.

    Raises:
        ValueError: the shapes do not fit.

    >>> from toile.finetuning import log_probs
    >>> log_probs(jnp.zeros((4, 2)), jnp.array([0, 1, -100, 0])).round(2)
    Array([ 0.  , -0.69,  0.  , -0.69], dtype=float32)
    """
    logits, labels = jnp.asarray(logits), jnp.asarray(labels)
    if logits.shape[:-1] != labels.shape or not labels.ndim:
        raise ValueError(f"log_probs: needed logits [..., length, vocabulary] and labels [..., "
                         f"length], got {logits.shape} and {labels.shape}{here()}")
    trained = labels[..., 1:] != IGNORED
    chosen = jnp.where(trained, labels[..., 1:], 0)[..., None]
    scores = nn.log_softmax(logits[..., :-1, :].astype(jnp.float32), axis=-1)
    found = jnp.take_along_axis(scores, chosen, axis=-1)[..., 0]
    first = [(0, 0)] * (labels.ndim - 1) + [(1, 0)]
    return jnp.pad(jnp.where(trained, found, 0), first)


def token_loss(logits: ArrayLike, labels: ArrayLike) -> Array:
    """Compute the mean cross-entropy of labels, each given the tokens before it.

    Args:
        logits: array of shape (..., length, vocabulary).
        labels: tokens, an array of integers of shape (..., length). Labels of -100 and the first
            label of each row are ignored.

    Returns:
        A scalar; 0 if all labels are ignored.

    >>> from toile.finetuning import token_loss
    >>> token_loss(jnp.zeros((1, 4, 2)), jnp.array([[0, 1, -100, 0]])).round(2)
    Array(0.69, dtype=float32)
    """
    count = jnp.sum(jnp.asarray(labels)[..., 1:] != IGNORED)
    return -jnp.sum(log_probs(logits, labels)) / jnp.maximum(count, 1)
