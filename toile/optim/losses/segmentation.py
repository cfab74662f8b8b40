"""Losses of masks: one minus the overlap of predicted and true regions.

The first axis is the batch, the last the classes; the axes between are summed over.
"""

from __future__ import annotations

from typing import Any

import toile.numpy as jnp
from toile import nn
from toile.optim.losses.checks import check_rank, check_same_shape

__all__ = ["binary_dice_loss", "dice_loss", "multiclass_generalized_dice_loss"]


def dice_loss(
    predictions: Any, targets: Any, *, class_weights: Any = None, smooth: Any = 1.0,
    alpha: Any = 0.5, beta: Any = 0.5, apply_softmax: bool = True, reduction: str = "mean",
    ignore_background: bool = False, axis: Any = None,
) -> Any:
    """One minus the Dice coefficient of each class (Tversky's, with alpha and beta of false
    positives and false negatives), reduced over classes by "mean", "sum" or "none".

    Predictions are logits (a single class: of a sigmoid), or probabilities that sum to 1 if
    apply_softmax is false. ignore_background leaves out class 0.

    >>> mask = jnp.array([[[1.0, 0.0], [0.0, 1.0]]])
    >>> dice_loss(mask, mask, apply_softmax=False).tolist()
    [0.0]
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
            f" {jnp.min(sums):.6f} and {jnp.max(sums):.6f}"
        )
    return predictions


def _reduced(loss: Any, reduction: str) -> Any:
    if reduction == "none":
        return loss
    if reduction not in ("mean", "sum"):
        raise ValueError(
            f"dice_loss: needed reduction 'mean', 'sum' or 'none', got Unsupported {reduction!r}"
        )
    return (jnp.mean if reduction == "mean" else jnp.sum)(loss, axis=-1)


def multiclass_generalized_dice_loss(
    predictions: Any, targets: Any, *, smooth: Any = 1.0, apply_softmax: bool = True,
    ignore_background: bool = False,
) -> Any:
    """The mean `dice_loss` with classes weighted by the inverse square of their frequencies.

    >>> mask = jnp.array([[[1.0, 0.0], [0.0, 1.0]]])
    >>> float(multiclass_generalized_dice_loss(mask, mask, apply_softmax=False))
    0.0
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
    predictions: Any, targets: Any, *, smooth: Any = 1.0, apply_sigmoid: bool = True
) -> Any:
    """`dice_loss` of one class, with or without a last axis of 1.

    >>> binary_dice_loss(jnp.array([[9.0, -9.0]]), jnp.array([[1.0, 0.0]])).round(3).tolist()
    [0.0]
    """
    if predictions.ndim == targets.ndim and predictions.shape[-1] != 1:
        predictions, targets = predictions[..., None], targets[..., None]
    return dice_loss(predictions, targets, smooth=smooth, apply_softmax=apply_sigmoid)
