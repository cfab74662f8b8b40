"""Schedules of one piece: constant, polynomial, linear, exponential and cosine.

Outside of its transition a schedule keeps the value at the nearer end.
"""

from __future__ import annotations

from typing import Any

import toile.numpy as jnp
from toile.optim.base import Schedule

__all__ = [
    "constant_schedule", "cosine_decay_schedule", "exponential_decay", "linear_schedule",
    "polynomial_schedule",
]


def constant_schedule(value: Any) -> Schedule:
    """The same value at every step.

    >>> constant_schedule(0.1)(1000)
    0.1
    """
    return lambda count: value


def polynomial_schedule(
    init_value: Any, end_value: Any, power: Any, transition_steps: int, transition_begin: int = 0
) -> Schedule:
    """From init_value to end_value by `(1 - t)**power`, t going from 0 to 1 in transition_steps.

    With transition_steps <= 0 the value stays init_value; a negative transition_begin counts as 0.

    >>> schedule = polynomial_schedule(1.0, 0.0, power=2, transition_steps=10)
    >>> [round(float(schedule(step)), 4) for step in (0, 5, 20)]
    [1.0, 0.25, 0.0]
    """
    if transition_steps <= 0:
        return constant_schedule(init_value)
    begin = max(transition_begin, 0)

    def schedule(count: Any) -> Any:
        done = jnp.clip(count - begin, 0, transition_steps)
        left = 1 - done / transition_steps
        return (init_value - end_value) * (left**power) + end_value

    return schedule


def linear_schedule(
    init_value: Any, end_value: Any, transition_steps: int, transition_begin: int = 0
) -> Schedule:
    """A straight line from init_value to end_value in transition_steps steps.

    >>> float(linear_schedule(0.0, 1.0, transition_steps=4)(1))
    0.25
    """
    return polynomial_schedule(init_value, end_value, 1, transition_steps, transition_begin)


def exponential_decay(
    init_value: Any, transition_steps: int, decay_rate: Any, transition_begin: int = 0,
    staircase: bool = False, end_value: Any = None,
) -> Schedule:
    """`init_value * decay_rate**(steps / transition_steps)`; with staircase the power is whole.

    end_value bounds the result: from below if decay_rate < 1, else from above. The value stays
    init_value if transition_steps <= 0 or decay_rate is 0.

    >>> schedule = exponential_decay(1.0, transition_steps=10, decay_rate=0.5, staircase=True)
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
    init_value: Any, decay_steps: int, alpha: Any = 0.0, exponent: Any = 1.0
) -> Schedule:
    """Half a cosine wave from init_value down to `alpha * init_value` in decay_steps steps.

    >>> schedule = cosine_decay_schedule(1.0, decay_steps=10)
    >>> [round(float(schedule(step)), 4) for step in (0, 5, 10)]
    [1.0, 0.5, 0.0]
    """
    if not decay_steps > 0:
        raise ValueError(
            f"cosine_decay_schedule: needed positive decay_steps, got decay_steps={decay_steps!r}"
        )
    steps = _as_float(decay_steps)

    def schedule(count: Any) -> Any:
        done = jnp.minimum(_as_float(count), steps)
        wave = 0.5 * (1 + jnp.cos(jnp.pi * done / steps))
        return init_value * ((1 - alpha) * wave**exponent + alpha)

    return schedule


def _as_float(count: Any) -> Any:
    """A Python int as a float, because it may not fit into 32 bits."""
    return float(count) if isinstance(count, int) else count
