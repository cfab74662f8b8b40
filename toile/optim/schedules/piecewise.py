"""Schedules that are given by their values at some steps: stairs, lines or cosines between them.

A dict {step: factor} says by what the value is multiplied at each step; the factors accumulate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import toile.numpy as jnp
from toile.optim.base import Schedule

__all__ = [
    "cosine_onecycle_schedule", "linear_onecycle_schedule", "piecewise_constant_schedule",
    "piecewise_interpolate_schedule",
]


def _check_scales(name: str, scales: Mapping[int, Any]) -> None:
    wrong = {step: scale for step, scale in scales.items() if not scale >= 0.0}
    if wrong:
        raise ValueError(f"{name}: needed non-negative scale factors, got {wrong}")


def piecewise_constant_schedule(
    init_value: Any, boundaries_and_scales: Mapping[int, Any] | None = None
) -> Schedule:
    """init_value, multiplied by each factor from its boundary on.

    >>> schedule = piecewise_constant_schedule(1.0, {10: 0.5, 20: 0.5})
    >>> [float(schedule(step)) for step in (9, 10, 20)]
    [1.0, 0.5, 0.25]
    """
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
    interpolate_type: str, init_value: Any, boundaries_and_scales: Mapping[int, Any] | None = None
) -> Schedule:
    """Lines ("linear") or half waves ("cosine") between the values that accumulated factors give.

    >>> schedule = piecewise_interpolate_schedule("linear", 1.0, {4: 0.5, 8: 0.5})
    >>> [float(schedule(step)) for step in (0, 2, 4, 6, 8, 9)]
    [1.0, 0.75, 0.5, 0.375, 0.25, 0.25]
    """
    if interpolate_type not in _CURVES:
        raise ValueError(
            "piecewise_interpolate_schedule: needed interpolate_type 'cosine' or 'linear', got"
            f" {interpolate_type!r}"
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
        raise ValueError(f"{name}: needed positive transition_steps, got {transition_steps}")


def linear_onecycle_schedule(
    transition_steps: int, peak_value: Any, pct_start: float = 0.3, pct_final: float = 0.85,
    div_factor: float = 25.0, final_div_factor: float = 1e4,
) -> Schedule:
    """Three lines: from peak/div_factor up to the peak, back, and on down by final_div_factor.

    The peak is at the fraction pct_start of the steps, the end of the second line at pct_final.

    >>> schedule = linear_onecycle_schedule(100, 1.0, div_factor=4.0)
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
    transition_steps: int, peak_value: Any, pct_start: float = 0.3, div_factor: float = 25.0,
    final_div_factor: float = 1e4,
) -> Schedule:
    """Two half waves: from peak/div_factor up to the peak, and down by both factors.

    >>> schedule = cosine_onecycle_schedule(100, 1.0, div_factor=4.0)
    >>> [round(float(schedule(step)), 4) for step in (0, 30, 65, 100)]
    [0.25, 1.0, 0.5, 0.0]
    """
    _check_steps("cosine_onecycle_schedule", transition_steps)
    scales = {
        int(pct_start * transition_steps): div_factor,
        int(transition_steps): 1.0 / (div_factor * final_div_factor),
    }
    return piecewise_interpolate_schedule("cosine", peak_value / div_factor, scales)
