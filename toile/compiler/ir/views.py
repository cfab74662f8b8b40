"""Views: arrays that hold another array's elements in another order and need no code.

A `View` says where the elements of a variable lie in the row-major buffer of another variable.
Transposes, broadcasts, slices, reversals and most reshapes are views: see `Operation.view`.
"""

from __future__ import annotations

from typing import NamedTuple

from toile.engine.program import Literal, Var
from toile.engine.strides import row_major


class View(NamedTuple):
    """Elements of `base`, a buffer in row-major order: offset and strides count elements."""

    base: Var | Literal
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def whole(base: Var | Literal) -> View:
    """All elements of a variable, in the order of its buffer."""
    shape = base.aval.shape
    return View(base, 0, shape, row_major(shape))


def is_interleaved(view: View) -> bool:
    """Whether a view has only some of the elements of each cache line."""
    steps = [abs(s) for s, n in zip(view.strides, view.shape, strict=True) if s and n > 1]
    return bool(steps) and 1 < min(steps) <= 64 // max(1, view.base.aval.dtype.itemsize)
