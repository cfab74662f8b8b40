"""Padding of raw arrays: low, high and interior; low and high may be negative.

`pad` is the base of windows and convolutions. Nothing here depends on tracing; `xp` is the array
module (numpy or cupy). The result may be a view of the operand: buffers are never written to after
an operation has returned them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Array = Any
Module = Any
PadConfig = Sequence[tuple[int, int, int]]


def padded_size(size: int, low: int, high: int, interior: int = 0) -> int:
    """Length of an axis of `size` elements after padding."""
    return max(0, low + high + size + max(size - 1, 0) * interior)


def _cropped(x: Array, config: PadConfig) -> Array:
    """A view of an array from which padding only removes elements."""
    if not any(low or high for low, high, _ in config):
        return x
    return x[tuple(
        slice(-low, max(-low, n + high)) for n, (low, high, _) in zip(x.shape, config, strict=True)
    )]


def pad(xp: Module, x: Array, value: Any, config: PadConfig) -> Array:
    """Put `low` and `high` copies of `value` around each axis and `interior` between elements."""
    shape = x.shape
    if all(low <= 0 and high <= 0 and (interior == 0 or n < 2)
           for n, (low, high, interior) in zip(shape, config, strict=True)):
        return _cropped(x, config)
    out_shape = tuple(padded_size(n, *c) for n, c in zip(shape, config, strict=True))
    if type(value) in (int, float) and value == 0:
        out = xp.zeros(out_shape, x.dtype)
    else:
        out = xp.full(out_shape, value, dtype=x.dtype)
    source, target = [], []
    for n, m, (low, _, interior) in zip(shape, out_shape, config, strict=True):
        step = interior + 1
        # Element i goes to low + i*step: keep the i that land inside 0..m-1.
        first = max(0, -(low // step))
        last = min(n, -((low - m) // step))
        if last <= first:
            return out
        source.append(slice(first, last))
        start = low + first * step
        target.append(slice(start, start + (last - first - 1) * step + 1, step))
    out[tuple(target)] = x[tuple(source)]
    return out
