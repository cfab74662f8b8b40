"""Views: arrays that are another array's elements in another order, and need no code of their own.

`View` says where the elements of a variable lie in the row-major buffer of another one. Transposes,
broadcasts, slices, reversals and most reshapes are views.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from toile.engine.operation import Operation
from toile.engine.program import Literal, Var
from toile.primitives.families import BroadcastInDim, Reshape, Transpose
from toile.primitives.shapes import Copy, Rev, Slice


class View(NamedTuple):
    """Elements of `base`, a buffer in row-major order: offset and strides count elements."""

    base: Var | Literal
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def whole(base: Var | Literal) -> View:
    """All of a variable as it lies."""
    shape = base.aval.shape
    return View(base, 0, shape, row_major(shape))


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides, in elements, of a row-major array without gaps."""
    out, step = [], 1
    for n in reversed(shape):
        out.append(step)
        step *= n
    return tuple(reversed(out))


def apply(op: Operation, x: View) -> View | None:
    """The view that `op` makes of `x`; None if it needs a copy."""
    match op:
        case Copy():
            return x
        case Transpose(perm):
            return View(x.base, x.offset, tuple(x.shape[p] for p in perm),
                        tuple(x.strides[p] for p in perm))
        case BroadcastInDim(shape, dims):
            spread = [0] * len(shape)
            for d, n, s in zip(dims, x.shape, x.strides, strict=True):
                spread[d] = s if n == shape[d] else 0
            return View(x.base, x.offset, shape, tuple(spread))
        case Slice():
            return _sliced(op, x)
        case Rev(axes):
            offset = x.offset + sum((x.shape[a] - 1) * x.strides[a] for a in axes)
            strides = tuple(-s if i in axes else s for i, s in enumerate(x.strides))
            return View(x.base, offset, x.shape, strides)
        case Reshape(shape):
            found = reshaped(x.shape, x.strides, shape)
            return None if found is None else View(x.base, x.offset, shape, found)
    return None


def _sliced(op: Slice, x: View) -> View:
    steps = op.strides or (1,) * len(x.shape)
    offset = x.offset + sum(b * s for b, s in zip(op.starts, x.strides, strict=True))
    shape = tuple(-(-(e - b) // t) for b, e, t in zip(op.starts, op.limits, steps, strict=True))
    strides = tuple(s * t for s, t in zip(x.strides, steps, strict=True))
    return View(x.base, offset, shape, strides)


def reshaped(
    shape: Sequence[int], strides: Sequence[int], new: Sequence[int]
) -> tuple[int, ...] | None:
    """Strides of the same elements under another shape; None where no strides give them."""
    if 0 in new:
        return row_major(new)
    # Runs of old axes that lie one inside the other, as one long axis each: (extent, stride).
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
