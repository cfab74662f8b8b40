"""Axes and sizes as users give them, turned into tuples of Python ints.

May import the engine.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from toile.engine.arrays import Array
from toile.engine.errors import axis_error, shape_value_error
from toile.engine.source import here


def canonicalize_axis(axis: Any, ndim: int, name: str = "axis") -> int:
    """A non-negative axis number of an array of rank `ndim`."""
    if type(axis) is not int:
        axis = axis_number(axis, name)
    if -ndim <= axis < ndim:
        return axis + ndim if axis < 0 else axis
    raise axis_error(axis, ndim, name)


def axis_number(axis: Any, name: str = "axis") -> int:
    """An axis as a Python int."""
    try:
        return operator.index(axis)
    except TypeError as error:
        if isinstance(axis, Array):
            raise
        raise TypeError(f"{name}: needed an integer, got {axis!r}: {error}{here()}") from None


_ALL_AXES = tuple(tuple(range(n)) for n in range(9))


def canonicalize_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """Sorted non-negative axes from None (all of them), a number or a sequence of numbers."""
    if axis is None:
        return _ALL_AXES[ndim] if ndim < 9 else tuple(range(ndim))
    if type(axis) is int or hasattr(axis, "__index__"):
        return (canonicalize_axis(axis, ndim),)
    axes = tuple(canonicalize_axis(a, ndim) for a in axis)
    if len(set(axes)) != len(axes):
        raise ValueError(f"duplicate value in 'axis': {tuple(axis)}{here()}")
    return tuple(sorted(axes))


def canonicalize_shape(shape: Any, name: str = "shape") -> tuple[int, ...]:
    """A shape as a tuple of Python ints, from an int, a sequence or a concrete array."""
    if type(shape) is int:
        shape = (shape,)
    if type(shape) is tuple:
        for n in shape:
            if type(n) is not int or n < 0:
                break
        else:
            return shape
    several = isinstance(shape, (tuple, list)) or np.iterable(shape) and np.ndim(shape) == 1
    items = shape if several else (shape,)
    try:
        sizes = tuple(operator.index(n) for n in items)
    except TypeError:
        raise shape_value_error(name, tuple(items)) from None
    if sizes and min(sizes) < 0:
        raise TypeError(f"{name}: needed a shape of non-negative sizes, got {sizes} (-1 is for "
                        f"reshape only).{here()}")
    return sizes


def size_along(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    """How many elements a reduction over `axes` combines."""
    return math.prod([shape[a] for a in axes])
