"""Losses of scores that want a margin: hinge, perceptron, sparsemax, for two and for many classes.

Two classes are targets in {-1, 1} (sparsemax: {0, 1}); many are integer labels over the last axis.
"""

from __future__ import annotations

from typing import Any

import toile.numpy as jnp
from toile import nn
from toile.api import vmap
from toile.optim.losses.checks import check_same_shape
from toile.optim.projections import projection_simplex

__all__ = [
    "hinge_loss", "multiclass_hinge_loss", "multiclass_perceptron_loss",
    "multiclass_sparsemax_loss", "perceptron_loss", "sparsemax_loss",
]


def hinge_loss(predictor_outputs: Any, targets: Any) -> Any:
    """`max(0, 1 - output * target)` for targets of -1 or 1.

    >>> hinge_loss(jnp.array([0.5, 2.0, -1.0]), jnp.array([1.0, 1.0, 1.0])).tolist()
    [0.5, 0.0, 2.0]
    """
    return jnp.maximum(0, 1 - predictor_outputs * targets)


def perceptron_loss(predictor_outputs: Any, targets: Any) -> Any:
    """`max(0, -output * target)` for targets of -1 or 1.

    >>> perceptron_loss(jnp.array([0.5, -1.0]), jnp.array([1.0, 1.0])).tolist()
    [0.0, 1.0]
    """
    check_same_shape("perceptron_loss", predictor_outputs=predictor_outputs, targets=targets)
    return jnp.maximum(0, -predictor_outputs * targets)


def sparsemax_loss(logits: Any, labels: Any) -> Any:
    """The binary sparsemax loss of logits with labels of 0 or 1.

    See https://arxiv.org/abs/1602.02068.

    >>> sparsemax_loss(jnp.array([0.0, 2.0, 2.0]), jnp.array([1, 1, 0])).tolist()
    [0.25, 0.0, 2.0]
    """
    return nn.sparse_plus(jnp.where(labels, -logits, logits))


def _score_of(scores: Any, one_hot: Any) -> Any:
    """The dot products of rows."""
    return jnp.vectorize(jnp.dot, signature="(n),(n)->()")(scores, one_hot)


def multiclass_hinge_loss(scores: Any, labels: Any) -> Any:
    """By how much a wrong score plus 1 exceeds the right one, at most.

    >>> multiclass_hinge_loss(jnp.array([[1.0, 1.5, 0.0]]), jnp.array([0])).tolist()
    [1.5]
    """
    one_hot = nn.one_hot(labels, scores.shape[-1])
    return jnp.max(scores + 1.0 - one_hot, axis=-1) - _score_of(scores, one_hot)


def multiclass_perceptron_loss(scores: Any, labels: Any) -> Any:
    """By how much a score exceeds the right one, at most.

    >>> multiclass_perceptron_loss(jnp.array([[1.0, 1.5, 0.0]]), jnp.array([0])).tolist()
    [0.5]
    """
    one_hot = nn.one_hot(labels, scores.shape[-1])
    return jnp.max(scores, axis=-1) - _score_of(scores, one_hot)


def multiclass_sparsemax_loss(scores: Any, labels: Any) -> Any:
    """The sparsemax loss of rows of scores.

    See https://arxiv.org/abs/1602.02068.

    >>> multiclass_sparsemax_loss(jnp.array([[2.0, 0.0], [0.0, 2.0]]), jnp.array([0, 0])).tolist()
    [0.0, 2.0]
    """
    return vmap(_sparsemax_of_row)(scores, labels)


def _sparsemax_of_row(scores: Any, label: Any) -> Any:
    scores = jnp.asarray(scores)
    p = projection_simplex(scores)
    # p.s + (1 - p.p)/2, the conjugate of Gini's negentropy, with scores relative to the label's
    relative = (scores - scores[label]).at[label].set(0.0)
    return jnp.dot(p, jnp.where(p, relative, 0.0)) + 0.5 * (1.0 - jnp.dot(p, p))
