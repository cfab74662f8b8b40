"""Losses for pairs of answers, one of which is preferred."""

from __future__ import annotations

from typing import Literal

from toile import nn
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.engine.source import here

__all__ = ["dpo_loss"]


def dpo_loss(
    chosen: ArrayLike, rejected: ArrayLike, reference_chosen: ArrayLike,
    reference_rejected: ArrayLike, *, beta: float = 0.1, label_smoothing: float = 0.0,
    kind: Literal["sigmoid", "ipo", "hinge"] = "sigmoid",
) -> Array:
    """Compute the losses of direct preference optimization (DPO) for pairs of answers.

    All arguments are log-probabilities of whole answers, summed over their tokens. Let `h` be
    `(chosen - reference_chosen) - (rejected - reference_rejected)`. The loss is
    `-log(sigmoid(beta * h))`, so it decreases if the model prefers the chosen answer more strongly
    than the reference model does.

    Args:
        chosen: log-probabilities of the preferred answers.
        rejected: log-probabilities of the other answers.
        reference_chosen: log-probabilities of the preferred answers in the reference model, which
            is usually the model before training. These numbers must not depend on the parameters
            that are trained.
        reference_rejected: log-probabilities of the other answers in the reference model.
        beta: strength with which the model is kept close to the reference model; larger values keep
            it closer.
        label_smoothing: probability that the preference of a pair is wrong, from 0 to 0.5, for the
            kind "sigmoid".
        kind: "sigmoid" for DPO. "ipo" for the squared error `(h - 1 / (2 * beta)) ** 2`, which
            does not push `h` to infinity. "hinge" for `max(0, 1 - beta * h)`.

    Returns:
        The loss of each pair, an array with the shape of the arguments.

    Raises:
        ValueError: `kind` is unknown, or an option is out of range.

    >>> from toile.finetuning import dpo_loss
    >>> dpo_loss(-3.0, -4.0, -4.0, -4.0, beta=1.0).round(4)
    Array(0.3133, dtype=float32, weak_type=True)
    """
    if kind not in ("sigmoid", "ipo", "hinge"):
        raise ValueError(f"dpo_loss: needed kind='sigmoid', 'ipo' or 'hinge', got {kind!r}{here()}")
    if not 0 <= label_smoothing <= 0.5 or (label_smoothing and kind != "sigmoid"):
        raise ValueError(f"dpo_loss: needed label_smoothing from 0 to 0.5, and 0 unless kind is "
                         f"'sigmoid', got {label_smoothing} with kind={kind!r}{here()}")
    h = (jnp.asarray(chosen) - jnp.asarray(reference_chosen)) - (
        jnp.asarray(rejected) - jnp.asarray(reference_rejected))
    if kind == "ipo":
        return (h - 1 / (2 * beta)) ** 2
    if kind == "hinge":
        return nn.relu(1 - beta * h)
    return -((1 - label_smoothing) * nn.log_sigmoid(beta * h)
             + label_smoothing * nn.log_sigmoid(-beta * h))
