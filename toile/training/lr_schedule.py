"""Learning rate schedules configured in epochs; `toile.optim` has more general schedules.

All schedules have a base rate, a number of steps per epoch, and a warm-up of `warmup_length`
epochs, during which the rate rises linearly from zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toile import numpy as jnp
from toile.engine.annotations import ArrayLike

__all__ = [
    "create_constant_learning_rate_schedule", "create_cosine_learning_rate_schedule",
    "create_stepped_learning_rate_schedule",
]


def _warmed(lr: Any, step: Any, steps_per_epoch: float, warmup_length: float) -> Any:
    if warmup_length > 0.0:
        return lr * jnp.minimum(1.0, step / float(warmup_length) / steps_per_epoch)
    return lr


def create_constant_learning_rate_schedule(
    base_learning_rate: float, steps_per_epoch: float, warmup_length: float = 0.0
) -> Callable[[ArrayLike], Any]:
    """Create a learning rate schedule that is constant after a warm-up.

    Args:
        base_learning_rate: the learning rate.
        steps_per_epoch: number of steps in an epoch.
        warmup_length: number of warm-up epochs, during which the rate rises linearly from zero.

    Returns:
        A function that maps the step number to the learning rate.

    >>> from toile.training import lr_schedule
    >>> rate = lr_schedule.create_constant_learning_rate_schedule(0.1, 10, warmup_length=2.0)
    >>> round(float(rate(5)), 6), round(float(rate(50)), 6)
    (0.025, 0.1)
    """

    def learning_rate_fn(step: Any) -> Any:
        return _warmed(base_learning_rate, step, steps_per_epoch, warmup_length)

    return learning_rate_fn


def create_stepped_learning_rate_schedule(
    base_learning_rate: float, steps_per_epoch: float, lr_sched_steps: Sequence[Sequence[float]],
    warmup_length: float = 0.0,
) -> Callable[[ArrayLike], Any]:
    """Create a learning rate schedule that changes the rate at given epochs.

    Args:
        base_learning_rate: the initial learning rate, not counting the warm-up.
        steps_per_epoch: number of steps in an epoch.
        lr_sched_steps: pairs `[epochs, factor]`; after that number of epochs, the rate is the base
            rate times the factor.
        warmup_length: number of warm-up epochs, during which the rate rises linearly from zero.

    Returns:
        A function that maps the step number to the learning rate.

    >>> from toile.training import lr_schedule
    >>> rate = lr_schedule.create_stepped_learning_rate_schedule(1.0, 10, [[3, 0.1], [6, 0.01]])
    >>> [round(float(rate(step)), 6) for step in (30, 31, 61)]
    [1.0, 0.1, 0.01]
    """
    boundaries = np.array([pair[0] for pair in lr_sched_steps]) * steps_per_epoch
    boundaries = np.round(boundaries).astype(int)
    values = np.array([1.0, *(pair[1] for pair in lr_sched_steps)]) * base_learning_rate

    def learning_rate_fn(step: Any) -> Any:
        lr = jnp.take(values, jnp.sum(boundaries < step))
        return _warmed(lr, step, steps_per_epoch, warmup_length)

    return learning_rate_fn


def create_cosine_learning_rate_schedule(
    base_learning_rate: float, steps_per_epoch: float, halfcos_epochs: float,
    warmup_length: float = 0.0,
) -> Callable[[ArrayLike], Any]:
    """Create a learning rate schedule that falls to zero along half a cosine wave.

    Args:
        base_learning_rate: the initial learning rate, not counting the warm-up.
        steps_per_epoch: number of steps in an epoch.
        halfcos_epochs: number of epochs after which the rate is zero; after that, it rises again.
        warmup_length: number of warm-up epochs, during which the rate rises linearly from zero.

    Returns:
        A function that maps the step number to the learning rate.

    >>> from toile.training import lr_schedule
    >>> rate = lr_schedule.create_cosine_learning_rate_schedule(1.0, 10, halfcos_epochs=4)
    >>> round(float(rate(20)), 6)
    0.5
    """
    length = halfcos_epochs * steps_per_epoch

    def learning_rate_fn(step: Any) -> Any:
        lr = base_learning_rate * (jnp.cos(step * jnp.pi / length) * 0.5 + 0.5)
        return _warmed(lr, step, steps_per_epoch, warmup_length)

    return learning_rate_fn
