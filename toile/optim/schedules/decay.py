"""Basic schedules: constant, polynomial, linear, exponential and cosine.

Before its transition, a schedule has the initial value. After the transition, most schedules keep
the final value.
"""

from __future__ import annotations

from typing import Any

import toile.numpy as jnp
from toile.engine.source import here
from toile.optim.base import ArrayLike, Schedule

__all__ = [
    "constant_schedule", "cosine_decay_schedule", "exponential_decay", "linear_schedule",
    "polynomial_schedule",
]


def constant_schedule(value: ArrayLike) -> Schedule:
    """Create a schedule with the same value at every step.

    Args:
        value: the value.

    Returns:
        A schedule: a function that maps the number of steps taken to a value.

    >>> from toile import optim
    >>> optim.constant_schedule(0.1)(1000)
    0.1
    """
    return lambda count: value


def polynomial_schedule(
    init_value: ArrayLike, end_value: ArrayLike, power: ArrayLike, transition_steps: int,
    transition_begin: int = 0,
) -> Schedule:
    """Create a schedule that goes from one value to another along a polynomial.

    The value is `(init_value - end_value) * (1 - t)**power + end_value`, where `t` goes from 0 to 1
    in `transition_steps` steps. Before and after the transition, the value is constant. If
    `transition_steps <= 0`, the value is always `init_value`.

    Args:
        init_value: initial value.
        end_value: final value.
        power: exponent; with 1, the transition is linear.
        transition_steps: number of steps in the transition.
        transition_begin: number of steps before the transition starts; negative values are treated
            as 0.

    Returns:
        A schedule: a function that maps the number of steps taken to a value.

    >>> from toile import optim
    >>> schedule = optim.polynomial_schedule(1.0, 0.0, power=2, transition_steps=10)
    >>> [round(float(schedule(step)), 4) for step in (0, 5, 20)]
    [1.0, 0.25, 0.0]
    """
    if isinstance(transition_steps, str):
        raise TypeError(
            f"needed a number of transition_steps, got {transition_steps!r} (convert it with int)"
            f"{here()}"
        )
    if transition_steps <= 0:
        return constant_schedule(init_value)
    begin = max(transition_begin, 0)

    def schedule(count: Any) -> Any:
        done = jnp.clip(count - begin, 0, transition_steps)
        left = 1 - done / transition_steps
        return (init_value - end_value) * (left**power) + end_value

    return schedule


def linear_schedule(
    init_value: ArrayLike, end_value: ArrayLike, transition_steps: int, transition_begin: int = 0
) -> Schedule:
    """Create a schedule that goes linearly from one value to another.

    Before and after the transition, the value is constant. If `transition_steps <= 0`, the value is
    always `init_value`.

    Args:
        init_value: initial value.
        end_value: final value.
        transition_steps: number of steps in the transition.
        transition_begin: number of steps before the transition starts; negative values are treated
            as 0.

    Returns:
        A schedule: a function that maps the number of steps taken to a value.

    >>> from toile import optim
    >>> schedule = optim.linear_schedule(0.0, 1.0, transition_steps=4)
    >>> [float(schedule(step)) for step in (0, 1, 4, 100)]
    [0.0, 0.25, 1.0, 1.0]
    """
    return polynomial_schedule(init_value, end_value, 1, transition_steps, transition_begin)


def exponential_decay(
    init_value: ArrayLike, transition_steps: int, decay_rate: ArrayLike, transition_begin: int = 0,
    staircase: bool = False, end_value: ArrayLike | None = None,
) -> Schedule:
    """Create a schedule that decays exponentially.

    The value is `init_value * decay_rate**(step / transition_steps)`, where steps are counted from
    `transition_begin`. If `transition_steps <= 0` or `decay_rate == 0`, the value is always
    `init_value`.

    Args:
        init_value: initial value.
        transition_steps: number of steps after which the value has been multiplied by `decay_rate`.
        decay_rate: factor by which the value is multiplied; less than 1 for a decay.
        transition_begin: number of steps before the transition starts; negative values are treated
            as 0.
        staircase: whether to round down the exponent, so that the value changes only every
            `transition_steps` steps.
        end_value: bound for the value: a lower bound if `decay_rate < 1`, otherwise an upper bound.
            If `end_value` is None, there is no bound.

    Returns:
        A schedule: a function that maps the number of steps taken to a value.

    >>> from toile import optim
    >>> schedule = optim.exponential_decay(1.0, transition_steps=10, decay_rate=0.5, staircase=True)
    >>> [float(schedule(step)) for step in (0, 9, 10, 25)]
    [1.0, 1.0, 0.5, 0.25]
    """
    if transition_steps <= 0 or decay_rate == 0:
        return constant_schedule(init_value)
    begin = max(transition_begin, 0)
    bound = jnp.maximum if decay_rate < 1.0 else jnp.minimum

    def schedule(count: Any) -> Any:
        done = count - begin
        exponent = done / transition_steps
        if staircase:
            exponent = jnp.floor(exponent)
        decayed = init_value * jnp.power(decay_rate, exponent)
        value = jnp.where(done <= 0, init_value, decayed)
        return value if end_value is None else bound(value, end_value)

    return schedule


def cosine_decay_schedule(
    init_value: ArrayLike, decay_steps: int, alpha: ArrayLike = 0.0, exponent: ArrayLike = 1.0
) -> Schedule:
    """Create a schedule that decays along half a cosine wave.

    The value is `init_value * ((1 - alpha) * (0.5 * (1 + cos(pi * t)))**exponent + alpha)`, where
    `t` goes from 0 to 1 in `decay_steps` steps. After that, the value is constant (Loshchilov and
    Hutter, 2017).

    Args:
        init_value: initial value.
        decay_steps: number of steps over which the value decays.
        alpha: final value, relative to `init_value`.
        exponent: power to which the cosine wave is raised.

    Returns:
        A schedule: a function that maps the number of steps taken to a value.

    Raises:
        ValueError: `decay_steps` is not positive.

    >>> from toile import optim
    >>> schedule = optim.cosine_decay_schedule(1.0, decay_steps=10)
    >>> [round(float(schedule(step)), 4) for step in (0, 5, 10)]
    [1.0, 0.5, 0.0]
    """
    if not decay_steps > 0:
        raise ValueError(
            f"cosine_decay_schedule: needed positive decay_steps, got decay_steps={decay_steps!r}"
            f"{here()}"
        )
    steps = _as_float(decay_steps)

    def schedule(count: Any) -> Any:
        done = jnp.minimum(_as_float(count), steps)
        wave = 0.5 * (1 + jnp.cos(jnp.pi * done / steps))
        return init_value * ((1 - alpha) * wave**exponent + alpha)

    return schedule


def _as_float(count: Any) -> Any:
    """Convert a Python int to a float, because it may not fit into 32 bits."""
    return float(count) if isinstance(count, int) else count
