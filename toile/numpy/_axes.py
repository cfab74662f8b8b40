"""Conversion of user-supplied axes and shapes to tuples of Python ints.

This module may import the engine and `lax`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from toile.engine.source import here
from toile.lax._operands import axis_of as canonicalize_axis
from toile.lax._operands import one_or_more, sizes

_ALL_AXES = tuple(tuple(range(n)) for n in range(9))


def canonicalize_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """Convert None (all axes), a number or a sequence of numbers to sorted nonnegative axes."""
    if axis is None:
        return _ALL_AXES[ndim] if ndim < 9 else tuple(range(ndim))
    if type(axis) is int:
        return (canonicalize_axis(axis, ndim),)
    axes = tuple([canonicalize_axis(a, ndim) for a in one_or_more(axis)])
    if len(set(axes)) != len(axes):
        raise ValueError(f"duplicate value in 'axis': {tuple(axis)} (needed distinct axes of "
                         f"{ndim}){here()}")
    return tuple(sorted(axes))


def canonicalize_shape(shape: Any, name: str = "array") -> tuple[int, ...]:
    """Convert an int, a sequence or a concrete array to a shape: a tuple of Python ints."""
    if not isinstance(shape, (tuple, list)) and np.ndim(shape) == 0:
        shape = (shape,)
    return sizes(name, shape)


def size_along(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    """Count the elements that a reduction over `axes` combines."""
    return math.prod([shape[a] for a in axes])
