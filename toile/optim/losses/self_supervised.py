"""Losses of embeddings: like examples lie near each other, unlike ones far apart."""

from __future__ import annotations

from typing import Any

import toile.numpy as jnp
from toile import lax
from toile.optim.losses.checks import check_floating
from toile.optim.losses.regression import cosine_similarity

__all__ = ["ntxent", "triplet_margin_loss"]


def ntxent(embeddings: Any, labels: Any, temperature: Any = 0.07) -> Any:
    """The normalized temperature-scaled cross entropy, a mean over pairs with equal labels.

    embeddings is [batch, features], labels [batch]. See https://arxiv.org/abs/2002.05709.

    >>> embeddings = jnp.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> round(float(ntxent(embeddings, jnp.array([0, 0, 1, 1]), temperature=1.0)), 4)
    0.5514
    """
    check_floating("ntxent", embeddings=embeddings)
    if labels.shape[0] != embeddings.shape[0]:
        raise ValueError(
            "ntxent: needed labels and embeddings with the same leading dimension, got"
            f" {labels.shape[0]} labels and {embeddings.shape[0]} embeddings"
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
    anchors: Any, positives: Any, negatives: Any, axis: int = -1, norm_degree: Any = 2,
    margin: Any = 1.0, eps: Any = 1e-6,
) -> Any:
    """By how much the positive is not nearer to the anchor than the negative by the margin.

    >>> anchor, near, far = jnp.array([[[0.0, 0.0]], [[3.0, 4.0]], [[0.0, 5.5]]])
    >>> triplet_margin_loss(anchor, near, far).tolist()
    [0.5]
    """
    check_floating(
        "triplet_margin_loss", anchors=anchors, positives=positives, negatives=negatives
    )

    def distance(others: Any) -> Any:
        powers = jnp.power(anchors - others, norm_degree).sum(axis)
        return jnp.power(powers + eps, 1 / norm_degree)

    return jnp.maximum(distance(positives) - distance(negatives) + margin, 0)
