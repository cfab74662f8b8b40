"""Losses for embeddings, which move similar examples together and dissimilar examples apart."""

from __future__ import annotations

from typing import Any

import toile.numpy as jnp
from toile import lax
from toile.engine.source import here
from toile.optim.base import Array, ArrayLike
from toile.optim.losses.checks import check_broadcast, check_floating
from toile.optim.losses.regression import cosine_similarity

__all__ = ["ntxent", "triplet_margin_loss"]


def ntxent(embeddings: ArrayLike, labels: ArrayLike, temperature: ArrayLike = 0.07) -> Array:
    """Compute the NT-Xent loss, which is low if embeddings with the same label are similar.

    NT-Xent stands for normalized temperature-scaled cross entropy. The loss of a pair of
    examples with the same label is a softmax cross entropy, in which the second example is the
    correct class and all examples with other labels are the wrong classes. The logits are the
    cosine similarities to the first example, divided by `temperature`. The result is the mean over
    all such pairs (SimCLR; Chen et al., 2020). If there are no pairs, the result is NaN.

    Args:
        embeddings: floating-point array of shape (batch, features).
        labels: array of shape (batch,). Examples with equal labels form pairs.
        temperature: number by which the similarities are divided. Smaller values give more weight
            to the most similar examples.

    Returns:
        A scalar.

    Raises:
        ValueError: the batch sizes differ.
        TypeError: `embeddings` is not floating-point.

    >>> from toile import optim
    >>> embeddings = jnp.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> optim.ntxent(embeddings, jnp.array([0, 0, 1, 1]), temperature=1.0).round(3)
    Array(0.551, dtype=float32)
    """
    check_floating("ntxent", embeddings=embeddings)
    if labels.shape[0] != embeddings.shape[0]:
        raise ValueError(
            "ntxent: needed labels and embeddings with the same leading dimension, got"
            f" {labels.shape[0]} labels and {embeddings.shape[0]} embeddings{here()}"
        )
    eps = jnp.finfo(embeddings.dtype).eps
    angles = cosine_similarity(embeddings[None, :, :], embeddings[:, None, :], epsilon=eps)
    angles = angles / temperature
    same = jnp.expand_dims(labels, axis=1) == jnp.expand_dims(labels, axis=0)
    alike = same & ~jnp.eye(same.shape[0], dtype=bool)  # an example does not pair with itself
    unlike = jnp.where(same, -jnp.inf, angles)
    matched = jnp.where(alike, angles, -jnp.inf)
    top = jnp.max(jnp.concatenate((unlike, matched), axis=-1), axis=1, keepdims=True)
    top = lax.stop_gradient(top)  # a shift that keeps exp from overflowing
    others = jnp.sum(jnp.exp(unlike - top), axis=1, keepdims=True)
    logp = (matched - top) - jnp.log(others + jnp.exp(matched - top))
    return -jnp.where(alike, logp, 0.0).sum() / alike.sum()


def triplet_margin_loss(
    anchors: ArrayLike, positives: ArrayLike, negatives: ArrayLike, axis: int = -1,
    norm_degree: ArrayLike = 2, margin: ArrayLike = 1.0, eps: ArrayLike = 1e-6,
) -> Array:
    """Compute the triplet loss, which is low if anchors are nearer to positives than to negatives.

    The loss is `max(0, distance(anchor, positive) - distance(anchor, negative) + margin)`, where
    the distance between `a` and `b` is `(sum((a - b)**norm_degree) + eps)**(1 / norm_degree)`.

    Args:
        anchors: floating-point array of vectors.
        positives: vectors that are similar to the anchors, an array with the same shape.
        negatives: vectors that are not similar to the anchors, an array with the same shape.
        axis: axis along which the vectors lie.
        norm_degree: order of the norm. The order should be even, because the absolute values of the
            differences are not taken.
        margin: amount by which the positive should be nearer than the negative.
        eps: small number that keeps the derivative finite where two vectors are equal.

    Returns:
        The loss of each triplet, with the shape of the inputs without `axis`.

    Raises:
        TypeError: an input is not floating-point.

    >>> from toile import optim
    >>> anchor, near, far = jnp.array([[[0.0, 0.0]], [[3.0, 4.0]], [[0.0, 5.5]]])
    >>> optim.triplet_margin_loss(anchor, near, far)
    Array([0.5], dtype=float32)
    """
    check_floating(
        "triplet_margin_loss", anchors=anchors, positives=positives, negatives=negatives
    )

    check_broadcast("triplet_margin_loss", anchors=anchors, positives=positives)
    check_broadcast("triplet_margin_loss", anchors=anchors, negatives=negatives)

    def distance(others: Any) -> Any:
        powers = jnp.power(anchors - others, norm_degree).sum(axis)
        return jnp.power(powers + eps, 1 / norm_degree)

    return jnp.maximum(distance(positives) - distance(negatives) + margin, 0)
