"""Schedules made of others: one after another, a warm-up before a decay, warm restarts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import toile.numpy as jnp
from toile.optim.base import Schedule
from toile.optim.schedules.decay import (
    cosine_decay_schedule,
    exponential_decay,
    linear_schedule,
)

__all__ = [
    "join_schedules", "sgdr_schedule", "warmup_constant_schedule", "warmup_cosine_decay_schedule",
    "warmup_exponential_decay_schedule",
]


def join_schedules(schedules: Sequence[Schedule], boundaries: Sequence[int]) -> Schedule:
    """One schedule after another; each counts its steps from the boundary where it begins.

    >>> from toile.optim.schedules import constant_schedule
    >>> schedule = join_schedules([constant_schedule(1.0), constant_schedule(0.1)], [100])
    >>> [round(float(schedule(step)), 4) for step in (99, 100)]
    [1.0, 0.1]
    """

    def joined(step: Any) -> Any:
        value = schedules[0](step)
        for boundary, later in zip(boundaries, schedules[1:], strict=False):
            value = jnp.where(step < boundary, value, later(step - boundary))
        return value

    return joined


def warmup_constant_schedule(init_value: Any, peak_value: Any, warmup_steps: int) -> Schedule:
    """A straight line from init_value to peak_value, which it keeps.

    >>> float(warmup_constant_schedule(0.0, 1.0, warmup_steps=4)(100))
    1.0
    """
    return linear_schedule(init_value, peak_value, warmup_steps)


def warmup_cosine_decay_schedule(
    init_value: Any, peak_value: Any, warmup_steps: int, decay_steps: int, end_value: Any = 0.0,
    exponent: Any = 1.0,
) -> Schedule:
    """A straight line up to peak_value, then a cosine down to end_value at step decay_steps.

    decay_steps is the length of the whole, warm-up included.

    >>> schedule = warmup_cosine_decay_schedule(0.0, 1.0, warmup_steps=10, decay_steps=110)
    >>> [round(float(schedule(step)), 4) for step in (0, 5, 10, 60, 110)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    alpha = 0.0 if peak_value == 0.0 else end_value / peak_value
    up = linear_schedule(init_value, peak_value, warmup_steps)
    down = cosine_decay_schedule(peak_value, decay_steps - warmup_steps, alpha, exponent)
    return join_schedules([up, down], [warmup_steps])


def warmup_exponential_decay_schedule(
    init_value: Any, peak_value: Any, warmup_steps: int, transition_steps: int, decay_rate: Any,
    transition_begin: int = 0, staircase: bool = False, end_value: Any = None,
) -> Schedule:
    """A straight line up to peak_value, then `exponential_decay` of the remaining arguments.

    >>> schedule = warmup_exponential_decay_schedule(0.0, 1.0, 10, 10, 0.5)
    >>> [round(float(schedule(step)), 4) for step in (0, 5, 10, 20)]
    [0.0, 0.5, 1.0, 0.5]
    """
    up = linear_schedule(init_value, peak_value, warmup_steps)
    down = exponential_decay(
        peak_value, transition_steps, decay_rate, transition_begin, staircase, end_value
    )
    return join_schedules([up, down], [warmup_steps])


def sgdr_schedule(cosine_kwargs: Iterable[Mapping[str, Any]]) -> Schedule:
    """Warm restarts: cycles of `warmup_cosine_decay_schedule`, each given by its arguments.

    >>> cycle = dict(init_value=0.0, peak_value=1.0, warmup_steps=2, decay_steps=10)
    >>> schedule = sgdr_schedule([cycle, dict(cycle, peak_value=0.5)])
    >>> [round(float(schedule(step)), 4) for step in (2, 10, 12)]
    [1.0, 0.0, 0.5]
    """
    cycles, ends, step = [], [], 0
    for kwargs in cosine_kwargs:
        cycles.append(warmup_cosine_decay_schedule(**kwargs))
        step += kwargs["decay_steps"]
        ends.append(step)
    return join_schedules(cycles, ends[:-1])
