"""Schedules that combine other schedules, such as a warm-up followed by a decay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import toile.numpy as jnp
from toile.engine.source import here
from toile.optim.base import ArrayLike, Schedule
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
    """Join several schedules into one schedule that uses them one after another.

    Args:
        schedules: schedules, in order. Each schedule counts steps from the boundary at which it
            begins.
        boundaries: steps at which the second and later schedules begin.

    Returns:
        A schedule: a function that maps the number of steps taken to a value.

    >>> from toile import optim
    >>> parts = [optim.constant_schedule(1.0), optim.linear_schedule(1.0, 0.0, 10)]
    >>> schedule = optim.join_schedules(parts, [100])
    >>> [round(float(schedule(step)), 4) for step in (99, 100, 105)]
    [1.0, 1.0, 0.5]
    """
    if len(boundaries) != len(schedules) - 1:
        raise ValueError(
            f"join_schedules: needed a boundary between each two schedules, got {len(schedules)} "
            f"schedules and the boundaries {list(boundaries)} (pass len(schedules) - 1 of them)"
            f"{here()}"
        )

    def joined(step: Any) -> Any:
        value = schedules[0](step)
        for boundary, later in zip(boundaries, schedules[1:], strict=False):
            value = jnp.where(step < boundary, value, later(step - boundary))
        return value

    return joined


def warmup_constant_schedule(
    init_value: ArrayLike, peak_value: ArrayLike, warmup_steps: int
) -> Schedule:
    """Create a schedule that rises linearly and then stays constant.

    If `warmup_steps <= 0`, the value is always `init_value`.

    Args:
        init_value: initial value.
        peak_value: value from step `warmup_steps` on.
        warmup_steps: number of steps over which the value rises.

    Returns:
        A schedule: a function that maps the number of steps taken to a value.

    >>> from toile import optim
    >>> schedule = optim.warmup_constant_schedule(0.0, 1.0, warmup_steps=4)
    >>> [float(schedule(step)) for step in (0, 1, 4, 100)]
    [0.0, 0.25, 1.0, 1.0]
    """
    return linear_schedule(init_value, peak_value, warmup_steps)


def warmup_cosine_decay_schedule(
    init_value: ArrayLike, peak_value: ArrayLike, warmup_steps: int, decay_steps: int,
    end_value: ArrayLike = 0.0, exponent: ArrayLike = 1.0,
) -> Schedule:
    """Create a schedule that rises linearly and then falls along half a cosine wave.

    Args:
        init_value: initial value.
        peak_value: value at step `warmup_steps`.
        warmup_steps: number of steps over which the value rises.
        decay_steps: total number of steps, including the warm-up.
        end_value: value from step `decay_steps` on.
        exponent: power to which the cosine wave is raised.

    Returns:
        A schedule: a function that maps the number of steps taken to a value.

    Raises:
        ValueError: `decay_steps` is not greater than `warmup_steps`.

    >>> from toile import optim
    >>> schedule = optim.warmup_cosine_decay_schedule(0.0, 1.0, warmup_steps=10, decay_steps=110)
    >>> [round(float(schedule(step)), 4) for step in (0, 5, 10, 60, 110)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    alpha = 0.0 if peak_value == 0.0 else end_value / peak_value
    up = linear_schedule(init_value, peak_value, warmup_steps)
    down = cosine_decay_schedule(peak_value, decay_steps - warmup_steps, alpha, exponent)
    return join_schedules([up, down], [warmup_steps])


def warmup_exponential_decay_schedule(
    init_value: ArrayLike, peak_value: ArrayLike, warmup_steps: int, transition_steps: int,
    decay_rate: ArrayLike, transition_begin: int = 0, staircase: bool = False,
    end_value: ArrayLike | None = None,
) -> Schedule:
    """Create a schedule that rises linearly and then decays exponentially.

    Args:
        init_value: initial value.
        peak_value: value at step `warmup_steps`.
        warmup_steps: number of steps over which the value rises.
        transition_steps: number of steps after which the value has been multiplied by `decay_rate`.
        decay_rate: factor by which the value is multiplied; less than 1 for a decay.
        transition_begin: number of steps between the warm-up and the decay.
        staircase: whether the value changes only every `transition_steps` steps.
        end_value: bound for the value during the decay: a lower bound if `decay_rate < 1`,
            otherwise an upper bound. If `end_value` is None, there is no bound.

    Returns:
        A schedule: a function that maps the number of steps taken to a value.

    >>> from toile import optim
    >>> schedule = optim.warmup_exponential_decay_schedule(0.0, 1.0, 10, 10, 0.5)
    >>> [round(float(schedule(step)), 4) for step in (0, 5, 10, 20)]
    [0.0, 0.5, 1.0, 0.5]
    """
    up = linear_schedule(init_value, peak_value, warmup_steps)
    down = exponential_decay(
        peak_value, transition_steps, decay_rate, transition_begin, staircase, end_value
    )
    return join_schedules([up, down], [warmup_steps])


def sgdr_schedule(cosine_kwargs: Iterable[Mapping[str, Any]]) -> Schedule:
    """Create a schedule of several cycles, each with a warm-up and a cosine decay (warm restarts).

    Args:
        cosine_kwargs: for each cycle, a dict of arguments for `warmup_cosine_decay_schedule`. A
            cycle lasts `decay_steps` steps.

    Returns:
        A schedule: a function that maps the number of steps taken to a value.

    >>> from toile import optim
    >>> cycle = dict(init_value=0.0, peak_value=1.0, warmup_steps=2, decay_steps=10)
    >>> schedule = optim.sgdr_schedule([cycle, dict(cycle, peak_value=0.5)])
    >>> [round(float(schedule(step)), 4) for step in (2, 10, 12)]
    [1.0, 0.0, 0.5]
    """
    cycles, ends, step = [], [], 0
    for kwargs in cosine_kwargs:
        cycles.append(warmup_cosine_decay_schedule(**kwargs))
        step += kwargs["decay_steps"]
        ends.append(step)
    return join_schedules(cycles, ends[:-1])
