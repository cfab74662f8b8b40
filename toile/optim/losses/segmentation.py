"""Losses for segmentation, which measure the overlap of predicted and true regions.

The first axis is the batch axis, and the last axis is the class axis. The losses sum over the axes
between them.
"""

from __future__ import annotations

from typing import Any, Literal

import toile.numpy as jnp
from toile import nn
from toile.engine.source import here
from toile.optim.base import Array, ArrayLike
from toile.optim.losses.checks import check_rank, check_same_shape

__all__ = ["binary_dice_loss", "dice_loss", "multiclass_generalized_dice_loss"]


def dice_loss(
    predictions: ArrayLike, targets: ArrayLike, *, class_weights: ArrayLike | None = None,
    smooth: ArrayLike = 1.0, alpha: ArrayLike = 0.5, beta: ArrayLike = 0.5,
    apply_softmax: bool = True, reduction: Literal["mean", "sum", "none"] = "mean",
    ignore_background: bool = False, axis: int | tuple[int, ...] | None = None,
) -> Array:
    """Compute the Dice loss: one minus the overlap of predicted and true regions.

    The overlap for a class is `(t + smooth) / (t + alpha * p + beta * n + smooth)`, where `t`, `p`
    and `n` are the sums of true positives, false positives and false negatives. With the default
    `alpha` and `beta`, the overlap is the Dice coefficient; with other values, it is the Tversky
    index. If only one of `predictions` and `targets` has a class axis, a class axis of size 1 is
    added to the other.

    Args:
        predictions: logits, or probabilities if `apply_softmax` is False; an array of shape (batch,
            ..., classes). Logits are passed to a sigmoid if there is one class, otherwise to a
            softmax.
        targets: true regions, 1.0 inside and 0.0 outside; an array with the same shape as
            `predictions`.
        class_weights: weight of each class, of shape (classes,). If `class_weights` is None, all
            weights are equal.
        smooth: number added to the numerator and the denominator, to avoid 0 / 0 for empty regions.
        alpha: weight of false positives.
        beta: weight of false negatives.
        apply_softmax: whether predictions are logits. If False, predictions must be probabilities
            that sum to 1 over the classes.
        reduction: how to combine the losses of the classes: "mean", "sum" or "none".
        ignore_background: whether to exclude class 0, if there are several classes.
        axis: axes to sum over. If `axis` is None, the sums are over all axes except the first and
            the last.

    Returns:
        The loss of each example, of shape (batch,), or, if `reduction` is "none", the loss of each
        example and class, of shape (batch, classes).

    Raises:
        ValueError: the shapes differ, `reduction` is not supported, or probabilities do not sum to
            1.

    >>> from toile import optim
    >>> truth = jnp.array([[[1.0, 0.0], [0.0, 1.0]]])
    >>> optim.dice_loss(truth, truth, apply_softmax=False)
    Array([0.], dtype=float32)
    >>> optim.dice_loss(1 - truth, truth, apply_softmax=False)
    Array([0.5], dtype=float32)
    """
    if predictions.ndim == targets.ndim - 1:
        predictions = predictions[..., None]
    if targets.ndim == predictions.ndim - 1:
        targets = targets[..., None]
    check_same_shape("dice_loss", predictions=predictions, targets=targets)
    p = _probabilities(predictions, apply_softmax)
    axis = tuple(range(1, p.ndim - 1)) if axis is None else axis
    both = jnp.sum(p * targets, axis=axis)
    only_p = jnp.sum(p, axis=axis) - both
    only_targets = jnp.sum(targets, axis=axis) - both
    loss = 1.0 - (both + smooth) / (both + alpha * only_p + beta * only_targets + smooth)
    if class_weights is not None:
        check_rank("dice_loss", 1, class_weights=class_weights)
        loss = loss * class_weights
    if ignore_background and p.shape[-1] > 1:
        loss = loss[..., 1:]
    return _reduced(loss, reduction)


def _probabilities(predictions: Any, apply_softmax: bool) -> Any:
    if apply_softmax:
        one = predictions.shape[-1] == 1
        return nn.sigmoid(predictions) if one else nn.softmax(predictions, axis=-1)
    sums = jnp.sum(predictions, axis=-1)
    if not jnp.allclose(sums, 1.0, rtol=1e-5):
        raise ValueError(
            "dice_loss: needed predictions that sum to 1 over the last axis, as they must be valid"
            " probability distributions with apply_softmax=False, got sums between"
            f" {jnp.min(sums):.6f} and {jnp.max(sums):.6f}{here()}"
        )
    return predictions


def _reduced(loss: Any, reduction: str) -> Any:
    if reduction == "none":
        return loss
    if reduction not in ("mean", "sum"):
        raise ValueError(
            f"dice_loss: needed reduction 'mean', 'sum' or 'none', got {reduction!r} (Unsupported)"
            f"{here()}"
        )
    return (jnp.mean if reduction == "mean" else jnp.sum)(loss, axis=-1)


def multiclass_generalized_dice_loss(
    predictions: ArrayLike, targets: ArrayLike, *, smooth: ArrayLike = 1.0,
    apply_softmax: bool = True, ignore_background: bool = False,
) -> Array:
    """Compute the mean `dice_loss`, with each class weighted by the inverse square of its size.

    The weights give small regions the same influence as large regions (Sudre et al., 2017).

    Args:
        predictions: logits, or probabilities if `apply_softmax` is False; an array of shape (batch,
            ..., classes).
        targets: true regions, 1.0 inside and 0.0 outside; an array with the same shape as
            `predictions`.
        smooth: number added to the numerator and the denominator, to avoid 0 / 0 for empty regions.
        apply_softmax: whether predictions are logits. If False, predictions must be probabilities
            that sum to 1 over the classes.
        ignore_background: whether to exclude class 0.

    Returns:
        A scalar, the mean over examples and classes.

    Raises:
        ValueError: the shapes differ, or probabilities do not sum to 1.

    >>> from toile import optim
    >>> truth = jnp.array([[[1.0, 0.0], [0.0, 1.0]]])
    >>> optim.multiclass_generalized_dice_loss(truth, truth, apply_softmax=False)
    Array(0., dtype=float32)
    """
    check_same_shape(
        "multiclass_generalized_dice_loss", predictions=predictions, targets=targets
    )
    frequencies = jnp.sum(targets, axis=tuple(range(targets.ndim - 1)))
    weights = 1.0 / (frequencies**2 + 1e-7)
    loss = dice_loss(
        predictions,
        targets,
        class_weights=weights / jnp.sum(weights) * len(weights),
        smooth=smooth,
        apply_softmax=apply_softmax,
        reduction="none",
        ignore_background=ignore_background,
    )
    return jnp.mean(loss)


def binary_dice_loss(
    predictions: ArrayLike, targets: ArrayLike, *, smooth: ArrayLike = 1.0,
    apply_sigmoid: bool = True,
) -> Array:
    """Compute `dice_loss` for a single class.

    Args:
        predictions: logits, of shape (batch, ...) or (batch, ..., 1).
        targets: true region, 1.0 inside and 0.0 outside; an array with the same shape as
            `predictions`.
        smooth: number added to the numerator and the denominator, to avoid 0 / 0 for empty regions.
        apply_sigmoid: whether predictions are logits. If False, predictions must be 1 everywhere,
            because `dice_loss` requires probabilities that sum to 1 over the classes.

    Returns:
        The loss of each example, of shape (batch,).

    >>> from toile import optim
    >>> optim.binary_dice_loss(jnp.array([[9.0, -9.0]]), jnp.array([[1.0, 0.0]])).round(3)
    Array([0.], dtype=float32)
    """
    if predictions.ndim == targets.ndim and predictions.shape[-1] != 1:
        predictions, targets = predictions[..., None], targets[..., None]
    return dice_loss(predictions, targets, smooth=smooth, apply_softmax=apply_sigmoid)
