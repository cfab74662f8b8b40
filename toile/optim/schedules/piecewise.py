"""Schedules that are constant, linear or cosine-shaped between given steps.

A dict `{step: factor}` specifies the steps at which the value is multiplied and the corresponding
factors. The factors accumulate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import toile.numpy as jnp
from toile.engine.source import describe, here
from toile.optim.base import ArrayLike, Schedule

__all__ = [
    "cosine_onecycle_schedule", "linear_onecycle_schedule", "piecewise_constant_schedule",
    "piecewise_interpolate_schedule",
]


def _check_scales(name: str, scales: Mapping[int, Any]) -> None:
    wrong = {step: scale for step, scale in scales.items() if not scale >= 0.0}
    if wrong:
        raise ValueError(f"{name}: needed non-negative scale factors, got {wrong}{here()}")


def piecewise_constant_schedule(
    init_value: ArrayLike, boundaries_and_scales: Mapping[int, ArrayLike] | None = None
) -> Schedule:
    """Create a piecewise constant schedule whose value is multiplied by factors at given steps.

    Args:
        init_value: initial value.
        boundaries_and_scales: dict from steps to factors; the factors accumulate. If None, the
            schedule is constant.

    Returns:
        A schedule: a function that maps the number of steps taken to a value.

    Raises:
        ValueError: a factor is negative.

    >>> from toile import optim
    >>> schedule = optim.piecewise_constant_schedule(1.0, {10: 0.5, 20: 0.5})
    >>> [float(schedule(step)) for step in (9, 10, 20)]
    [1.0, 0.5, 0.25]
    """
    if boundaries_and_scales is not None and not isinstance(boundaries_and_scales, Mapping):
        given = describe(boundaries_and_scales)
        raise AttributeError(
            f"{type(boundaries_and_scales).__name__!r} object has no attribute 'values': "
            "piecewise_constant_schedule needed a dict that maps steps to factors, got "
            f"{given} (write {{100: 0.5, 200: 0.1}}){here()}"
        )
    scales = dict(boundaries_and_scales or {})
    _check_scales("piecewise_constant_schedule", scales)

    def schedule(count: Any) -> Any:
        value = init_value
        for boundary, scale in sorted(scales.items()):
            before = jnp.maximum(0.0, jnp.sign(boundary - count))  # 1 before the boundary, then 0
            value = value * before + (1 - before) * scale * value
        return value

    return schedule


def _line(start: Any, end: Any, t: Any) -> Any:
    return (end - start) * t + start


def _half_wave(start: Any, end: Any, t: Any) -> Any:
    return end + (start - end) / 2.0 * (jnp.cos(jnp.pi * t) + 1)


_CURVES = {"linear": _line, "cosine": _half_wave}


def piecewise_interpolate_schedule(
    interpolate_type: Literal["linear", "cosine"], init_value: ArrayLike,
    boundaries_and_scales: Mapping[int, ArrayLike] | None = None,
) -> Schedule:
    """Create a schedule that interpolates between values at given steps.

    Args:
        interpolate_type: shape of the curve between successive steps in `boundaries_and_scales`:
            "linear" for a straight line, "cosine" for half a cosine wave.
        init_value: value at step 0.
        boundaries_and_scales: dict from steps to factors; the factors accumulate. At each of these
            steps, the value is the factor times the value at the previous step in the dict
            (`init_value` for the first step in the dict). After the last step in the dict, the
            value is constant. If None, the whole schedule is constant.

    Returns:
        A schedule: a function that maps the number of steps taken to a value.

    Raises:
        ValueError: a factor is negative, or `interpolate_type` is not supported.

    >>> from toile import optim
    >>> schedule = optim.piecewise_interpolate_schedule("linear", 1.0, {4: 0.5, 8: 0.5})
    >>> [float(schedule(step)) for step in (0, 2, 4, 6, 8, 9)]
    [1.0, 0.75, 0.5, 0.375, 0.25, 0.25]
    """
    if interpolate_type not in _CURVES:
        raise ValueError(
            "piecewise_interpolate_schedule: needed interpolate_type 'cosine' or 'linear', got"
            f" {interpolate_type!r}{here()}"
        )
    curve = _CURVES[interpolate_type]
    _check_scales("piecewise_interpolate_schedule", boundaries_and_scales or {})
    pairs = sorted((boundaries_and_scales or {}).items())
    boundaries, scales = [b for b, _ in pairs], [s for _, s in pairs]

    def schedule(count: Any) -> Any:
        bounds = jnp.stack([0, *boundaries])
        values = jnp.cumprod(jnp.stack([init_value, *scales]))
        lengths = jnp.maximum(bounds[1:] - bounds[:-1], 1)
        inside = jnp.logical_and(bounds[:-1] <= count, count < bounds[1:])
        curves = curve(values[:-1], values[1:], (count - bounds[:-1]) / lengths)
        return inside.dot(curves) + (bounds[-1] <= count) * values[-1]

    return schedule


def _check_steps(name: str, transition_steps: int) -> None:
    if transition_steps <= 0:
        raise ValueError(
            f"{name}: needed positive transition_steps, got {transition_steps}{here()}"
        )


def linear_onecycle_schedule(
    transition_steps: int, peak_value: ArrayLike, pct_start: float = 0.3, pct_final: float = 0.85,
    div_factor: float = 25.0, final_div_factor: float = 1e4,
) -> Schedule:
    """Create a schedule that rises linearly to a peak and then falls linearly in two parts.

    The value starts at `peak_value / div_factor`. After the peak, it falls back to this value, and
    then almost to zero, to `peak_value / (div_factor * final_div_factor)` (Smith and Topin, 2018).

    Args:
        transition_steps: total number of steps.
        peak_value: maximum value.
        pct_start: fraction of the steps after which the peak is reached.
        pct_final: fraction of the steps after which the last part begins.
        div_factor: ratio of the peak to the first value.
        final_div_factor: ratio of the first value to the last.

    Returns:
        A schedule: a function that maps the number of steps taken to a value.

    Raises:
        ValueError: `transition_steps` is not positive.

    >>> from toile import optim
    >>> schedule = optim.linear_onecycle_schedule(100, 1.0, div_factor=4.0)
    >>> [round(float(schedule(step)), 4) for step in (0, 30, 85, 100)]
    [0.25, 1.0, 0.25, 0.0]
    """
    _check_steps("linear_onecycle_schedule", transition_steps)
    scales = {
        int(pct_start * transition_steps): div_factor,
        int(pct_final * transition_steps): 1.0 / div_factor,
        transition_steps: 1.0 / final_div_factor,
    }
    return piecewise_interpolate_schedule("linear", peak_value / div_factor, scales)


def cosine_onecycle_schedule(
    transition_steps: int, peak_value: ArrayLike, pct_start: float = 0.3, div_factor: float = 25.0,
    final_div_factor: float = 1e4,
) -> Schedule:
    """Create a schedule of two half cosine waves: up to a peak, and then almost to zero.

    The schedule starts at `peak_value / div_factor` and ends at
    `peak_value / (div_factor * final_div_factor)` (Smith and Topin, 2018).

    Args:
        transition_steps: total number of steps.
        peak_value: maximum value.
        pct_start: fraction of the steps after which the peak is reached.
        div_factor: ratio of the peak to the first value.
        final_div_factor: ratio of the first value to the last.

    Returns:
        A schedule: a function that maps the number of steps taken to a value.

    Raises:
        ValueError: `transition_steps` is not positive.

    >>> from toile import optim
    >>> schedule = optim.cosine_onecycle_schedule(100, 1.0, div_factor=4.0)
    >>> [round(float(schedule(step)), 4) for step in (0, 30, 65, 100)]
    [0.25, 1.0, 0.5, 0.0]
    """
    _check_steps("cosine_onecycle_schedule", transition_steps)
    scales = {
        int(pct_start * transition_steps): div_factor,
        int(transition_steps): 1.0 / (div_factor * final_div_factor),
    }
    return piecewise_interpolate_schedule("cosine", peak_value / div_factor, scales)
