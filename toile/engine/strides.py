"""Strides, in elements, of row-major arrays and of the same elements under another shape.
"""

from __future__ import annotations

from collections.abc import Sequence


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides, in elements, of a row-major array without gaps."""
    out, step = [], 1
    for n in reversed(shape):
        out.append(step)
        step *= n
    return tuple(reversed(out))


def strides_in(
    new: Sequence[int], shape: Sequence[int], strides: Sequence[int]
) -> tuple[int, ...] | None:
    """Strides of the same elements under another shape; None if no such strides exist."""
    if 0 in new:
        return row_major(new)
    # Runs of old axes that are contiguous, each merged into one axis: (extent, stride).
    runs: list[list[int]] = []
    for n, s in zip(shape, strides, strict=True):
        if n == 1:
            continue
        if runs and runs[-1][1] == s * n:
            runs[-1][0] *= n
            runs[-1][1] = s
        else:
            runs.append([n, s])
    out = [0] * len(new)
    left = runs.pop() if runs else [1, 1]
    for i in reversed(range(len(new))):
        n = new[i]
        if n == 1:
            out[i] = 1
            continue
        if left[0] == 1 and runs:
            left = runs.pop()
        if left[0] % n:
            return None
        out[i] = left[1]
        left = [left[0] // n, left[1] * n]
    return tuple(out) if left[0] == 1 and not runs else None
