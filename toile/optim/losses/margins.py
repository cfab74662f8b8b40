"""Losses that require a margin between scores: hinge, perceptron, sparsemax.

For two classes, targets are -1 or 1 (0 or 1 for sparsemax). For more classes, targets are integer
labels, and the last axis of the scores contains the classes.
"""

from __future__ import annotations

from typing import Any

import toile.numpy as jnp
from toile import nn
from toile.api import vmap
from toile.optim.base import Array, ArrayLike
from toile.optim.losses.checks import check_broadcast, check_same_shape, labels_within
from toile.optim.projections import projection_simplex

__all__ = [
    "hinge_loss", "multiclass_hinge_loss", "multiclass_perceptron_loss",
    "multiclass_sparsemax_loss", "perceptron_loss", "sparsemax_loss",
]


def hinge_loss(predictor_outputs: ArrayLike, targets: ArrayLike) -> Array:
    """Compute the hinge loss for two classes, `max(0, 1 - output * target)`.

    The loss is 0 for outputs that have the sign of the target and an absolute value of at least 1.
    Support vector machines use this loss.

    Args:
        predictor_outputs: real scores.
        targets: array of -1s and 1s, which is broadcast against the scores.

    Returns:
        The loss of each element.

    >>> from toile import optim
    >>> optim.hinge_loss(jnp.array([0.5, 2.0, -1.0]), jnp.array([1.0, 1.0, 1.0]))
    Array([0.5, 0. , 2. ], dtype=float32)
    """
    check_broadcast("hinge_loss", predictor_outputs=predictor_outputs, targets=targets)
    return jnp.maximum(0, 1 - predictor_outputs * targets)


def perceptron_loss(predictor_outputs: ArrayLike, targets: ArrayLike) -> Array:
    """Compute the perceptron loss for two classes, `max(0, -output * target)`.

    Args:
        predictor_outputs: real scores.
        targets: array of -1s and 1s with the same shape as the scores.

    Returns:
        The loss of each element.

    Raises:
        ValueError: the shapes differ.

    >>> from toile import optim
    >>> optim.perceptron_loss(jnp.array([0.5, -1.0]), jnp.array([-1.0, -1.0]))
    Array([0.5, 0. ], dtype=float32)
    """
    check_same_shape("perceptron_loss", predictor_outputs=predictor_outputs, targets=targets)
    return jnp.maximum(0, -predictor_outputs * targets)


def sparsemax_loss(logits: ArrayLike, labels: ArrayLike) -> Array:
    """Compute the sparsemax loss for two classes.

    Let `x` be the logit, negated where the label is 1. The loss is 0 for `x <= -1`, `x` for
    `x >= 1`, and `(x + 1)**2 / 4` in between (Martins and Astudillo, 2016).

    Args:
        logits: real scores for class 1.
        labels: array of 0s and 1s, which is broadcast against the logits.

    Returns:
        The loss of each element.

    >>> from toile import optim
    >>> optim.sparsemax_loss(jnp.array([0.0, 2.0, 2.0]), jnp.array([1, 1, 0]))
    Array([0.25, 0.  , 2.  ], dtype=float32)
    """
    check_broadcast("sparsemax_loss", logits=logits, labels=labels)
    return nn.sparse_plus(jnp.where(labels, -logits, logits))


def _one_hot(name: str, scores: Any, labels: Any) -> Any:
    classes = scores.shape[-1]
    one_hot = nn.one_hot(labels_within(name, labels, classes), classes)
    check_broadcast(name, scores=scores, one_hot_labels=one_hot)
    return one_hot


def _score_of(scores: Any, one_hot: Any) -> Any:
    """Compute the dot product of each pair of rows."""
    return jnp.vectorize(jnp.dot, signature="(n),(n)->()")(scores, one_hot)


def multiclass_hinge_loss(scores: ArrayLike, labels: ArrayLike) -> Array:
    """Compute the hinge loss for several classes.

    The loss is `max(scores + 1 - one_hot(labels)) - scores[labels]`, which is 0 if the score of the
    correct class exceeds all other scores by at least 1.

    Args:
        scores: scores of the classes, which lie along the last axis.
        labels: index of each example's correct class.

    Returns:
        The loss of each example.

    >>> from toile import optim
    >>> optim.multiclass_hinge_loss(jnp.array([[1.0, 1.5, 0.0]]), jnp.array([0]))
    Array([1.5], dtype=float32)
    """
    one_hot = _one_hot("multiclass_hinge_loss", scores, labels)
    return jnp.max(scores + 1.0 - one_hot, axis=-1) - _score_of(scores, one_hot)


def multiclass_perceptron_loss(scores: ArrayLike, labels: ArrayLike) -> Array:
    """Compute the perceptron loss for several classes, `max(scores) - scores[labels]`.

    Args:
        scores: scores of the classes, which lie along the last axis.
        labels: index of each example's correct class.

    Returns:
        The loss of each example. It is 0 if the correct class has the highest score.

    >>> from toile import optim
    >>> optim.multiclass_perceptron_loss(jnp.array([[1.0, 1.5, 0.0]]), jnp.array([0]))
    Array([0.5], dtype=float32)
    """
    one_hot = _one_hot("multiclass_perceptron_loss", scores, labels)
    return jnp.max(scores, axis=-1) - _score_of(scores, one_hot)


def multiclass_sparsemax_loss(scores: ArrayLike, labels: ArrayLike) -> Array:
    """Compute the sparsemax loss for several classes.

    The loss is 0 if the score of the correct class exceeds all other scores by at least 1.
    Sparsemax maps scores to the nearest point in the probability simplex. This loss is to sparsemax
    what cross entropy is to softmax (Martins and Astudillo, 2016).

    Args:
        scores: scores of the classes, of shape (batch, classes).
        labels: index of each example's correct class, of shape (batch,).

    Returns:
        The loss of each example, of shape (batch,).

    >>> from toile import optim
    >>> scores = jnp.array([[2.0, 0.0], [0.0, 2.0]])
    >>> optim.multiclass_sparsemax_loss(scores, jnp.array([0, 0]))
    Array([0., 2.], dtype=float32)
    """
    labels = labels_within("multiclass_sparsemax_loss", labels, scores.shape[-1])
    return vmap(_sparsemax_of_row)(scores, labels)


def _sparsemax_of_row(scores: Any, label: Any) -> Any:
    scores = jnp.asarray(scores)
    p = projection_simplex(scores)
    # p.s + (1 - p.p)/2, the conjugate of Gini's negentropy, with scores relative to the label's
    own = scores.at[label].get(mode="clip")  # labels are checked already
    relative = (scores - own).at[label].set(0.0, mode="drop")
    return jnp.dot(p, jnp.where(p, relative, 0.0)) + 0.5 * (1.0 - jnp.dot(p, p))
