"""Label smoothing."""

from __future__ import annotations

import toile.numpy as jnp
from toile.optim.base import Array, ArrayLike
from toile.optim.losses.checks import Axes, check_floating

__all__ = ["smooth_labels"]


def smooth_labels(
    labels: ArrayLike, alpha: ArrayLike, *, axis: Axes = -1, where: ArrayLike | None = None
) -> Array:
    """Mix one-hot labels with the uniform distribution.

    The result is `(1 - alpha) * labels + alpha / n`, where `n` is the number of classes. Training
    with smoothed labels keeps a classifier from becoming overconfident (Szegedy et al., 2016).

    Args:
        labels: floating-point array of one-hot vectors.
        alpha: weight of the uniform distribution; 0.1 is a typical value.
        axis: class axis or axes.
        where: boolean mask of the classes to count in `n`. If `where` is None, all classes are
            counted.

    Returns:
        An array with the shape of `labels`.

    Raises:
        TypeError: `labels` is not a floating-point array.

    >>> from toile import optim
    >>> optim.smooth_labels(jnp.array([0.0, 1.0]), 0.5)
    Array([0.25, 0.75], dtype=float32)
    """
    check_floating("smooth_labels", labels=labels)
    classes: ArrayLike = jnp.size(labels, axis)
    if where is not None:
        classes = jnp.sum(where, axis, keepdims=True)
    return (1.0 - alpha) * labels + alpha / classes
