"""Logarithmic spacing, coordinate grids, and the index tricks `mgrid`, `ogrid`, `r_` and `c_`.

This module may import the engine, `lax`, `api` and other modules of `toile.numpy`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, SupportsIndex, overload

import numpy as np

from toile import lax
from toile.api import vmap
from toile.engine.annotations import Array, ArrayLike, DTypeLike, ShapeLike
from toile.engine.scoped_options import numpy_dtype_promotion
from toile.engine.source import here
from toile.engine.trace import Tracer
from toile.numpy._axes import canonicalize_shape
from toile.numpy._dtypes import default_int, user_dtype
from toile.numpy._helpers import concrete
from toile.numpy._operands import as_array, convert, literal
from toile.numpy._promotion import broadcast_shapes, broadcast_to, promote_dtypes
from toile.numpy.creation import arange, array, asarray, first_axis_to, linspace, range_ends
from toile.numpy.ufuncs_numeric import power

index_exp = np.index_exp
s_ = np.s_


def meshgrid(*xi: ArrayLike, copy: bool = True, sparse: bool = False,
             indexing: Literal["xy", "ij"] = "xy") -> tuple[Array, ...]:
    """Create arrays that contain the coordinates of all points of a grid.

    Args:
        *xi: coordinates along each axis of the grid, as one-dimensional arrays.
        copy: must be True; False is not supported.
        sparse: if True, each array in the result has length 1 along all axes except the one whose
            coordinates it contains.
        indexing: "ij" for results whose axes are in the order of the arguments; "xy" to swap the
            first two axes, as in images.

    Returns:
        A tuple of arrays, one for each argument.

    >>> x, y = jnp.meshgrid(jnp.arange(3), jnp.arange(2))
    >>> x
    Array([[0, 1, 2],
           [0, 1, 2]], dtype=int32)
    """
    if not copy:
        raise ValueError("jax.numpy.meshgrid only supports copy=True" + here())
    if indexing not in ("xy", "ij"):
        raise ValueError(f"Valid values for indexing are 'xy' and 'ij', got {indexing}{here()}")
    axes = [as_array("meshgrid", x, i) for i, x in enumerate(xi)]
    if any(x.ndim != 1 for x in axes):
        raise ValueError("Arguments to jax.numpy.meshgrid must be 1D, got: "
                         f"{[a.shape for a in axes]}{here()}")
    place = list(range(len(axes)))
    if indexing == "xy" and len(axes) >= 2:
        place[0], place[1] = 1, 0
    sizes = [1] * len(axes)
    for p, x in zip(place, axes):
        sizes[p] = x.shape[0]
    shapes = (
        tuple(n if i == p or not sparse else 1 for i, n in enumerate(sizes)) for p in place
    )
    return tuple(lax.broadcast_in_dim(x, s, (p,)) for x, s, p in zip(axes, shapes, place))


@overload
def indices(dimensions: Sequence[int], dtype: DTypeLike | None = None,
            sparse: Literal[False] = False) -> Array: ...
@overload
def indices(dimensions: Sequence[int], dtype: DTypeLike | None = None, *,
            sparse: Literal[True]) -> tuple[Array, ...]: ...
def indices(dimensions: Sequence[int], dtype: DTypeLike | None = None,
            sparse: bool = False) -> Array | tuple[Array, ...]:
    """Create, for each axis of a shape, an array of every element's index along that axis.

    Args:
        dimensions: shape of the array that the indices refer to.
        dtype: dtype of the result; None for the default integer dtype.
        sparse: if True, each array in the result has length 1 along all axes except the one whose
            indices it contains.

    Returns:
        One array: the indices for each axis, stacked along a new first axis. If `sparse` is True, a
        tuple of arrays, one for each axis.

    >>> jnp.indices((2, 2), sparse=True)
    (Array([[0],
           [1]], dtype=int32), Array([[0, 1]], dtype=int32))
    """
    shape = canonicalize_shape(dimensions, "indices")
    dtype = default_int() if dtype is None else user_dtype(dtype, "indices")
    grid = []
    for axis, n in enumerate(shape):
        full = tuple(n if i == axis else 1 for i in range(len(shape))) if sparse else shape
        grid.append(lax.broadcasted_iota(dtype, full, axis))
    return tuple(grid) if sparse else _stacked(grid, dtype)


def _stacked(grid: Any, dtype: Any) -> Any:
    """Stack arrays of one shape along a new first axis; without arrays, return an empty one."""
    if not grid:
        return lax.full((0,), 0, dtype)
    return lax.concatenate([lax.expand_dims(g, (0,)) for g in grid], 0)


def fromfunction(function: Callable[..., Array], shape: ShapeLike, *, dtype: DTypeLike = float,
                 **kwargs: object) -> Array:
    """Create an array by calling a function with the indices of each element.

    The function is called only once, with traced scalars that represent the indices of all elements
    (see `toile.vmap`).

    Args:
        function: function that accepts one scalar index for each axis.
        shape: shape of the array.
        dtype: dtype of the indices.
        **kwargs: additional keyword arguments for the function.

    Returns:
        An array with the axes of `shape`, followed by the axes of the function's result.

    Differences:
        NumPy calls the function with arrays of indices.

    >>> jnp.fromfunction(lambda i, j: i + 10 * j, (2, 2), dtype=int)
    Array([[ 0, 10],
           [ 1, 11]], dtype=int32)
    """
    shape = canonicalize_shape(shape, "fromfunction")

    def applied(*coordinates: Any) -> Any:
        return function(*coordinates, **kwargs)

    for axis in range(len(shape)):  # the last axis innermost
        mapped: list[Any] = [None] * len(shape)
        mapped[-1 - axis] = 0
        applied = vmap(applied, in_axes=tuple(mapped))
    return applied(*[arange(n, dtype=dtype) for n in shape])


def vander(x: ArrayLike, N: int | None = None, increasing: bool = False) -> Array:
    """Create a Vandermonde matrix, whose columns are powers of given numbers.

    Args:
        x: one-dimensional array with one number for each row.
        N: number of columns; None for the number of rows.
        increasing: True for exponents that increase from column to column, starting at 0; False for
            exponents that decrease and end at 0.

    Returns:
        A matrix with the dtype of `x`.

    >>> jnp.vander(jnp.array([1, 2, 3]))
    Array([[1, 1, 1],
           [4, 2, 1],
           [9, 3, 1]], dtype=int32)
    """
    x = as_array("vander", x)
    if x.ndim != 1:
        raise ValueError("x must be a one-dimensional array" + here())
    n = x.shape[0] if N is None else int(N)
    if n < 0:
        raise ValueError("N must be nonnegative" + here())
    exponents = lax.iota(default_int(), n)
    if not increasing:
        exponents = lax.sub(lax.full((n,), n - 1, default_int()), exponents)
    shape = (x.shape[0], n)
    bases = lax.broadcast_in_dim(x, shape, (0,))
    return power(bases, broadcast_to(convert(exponents, x.dtype), shape))


def logspace(start: ArrayLike, stop: ArrayLike, num: SupportsIndex = 50, endpoint: bool = True,
             base: ArrayLike = 10.0, dtype: DTypeLike | None = None, axis: int = 0) -> Array:
    """Create an array of powers whose exponents are evenly spaced.

    Args:
        start, stop: ends of the interval of exponents; arrays are broadcast against each other.
        num: number of elements.
        endpoint: whether `stop` is the last exponent; if False, the last exponent is one step
            before `stop`.
        base: base of the powers; an array is broadcast against the exponents.
        dtype: dtype of the result; None for the float (or complex) dtype that `start` and `stop`
            promote to.
        axis: position of the new axis in the result; the new axis has length `num`.

    Returns:
        The powers.

    >>> jnp.logspace(0, 3, 4, base=2)
    Array([1., 2., 4., 8.], dtype=float32)
    """
    start, stop, dtype, work = range_ends("logspace", start, stop, dtype)
    base = convert(as_array("logspace", base, 2), work)
    exponents = linspace(start, stop, num, endpoint, False, work, axis)
    if base.shape:
        shape = broadcast_shapes(base.shape, exponents.shape)
        base, exponents = broadcast_to(base, shape), broadcast_to(exponents, shape)
    return convert(lax.pow(base, exponents), dtype)


def geomspace(start: ArrayLike, stop: ArrayLike, num: SupportsIndex = 50, endpoint: bool = True,
              dtype: DTypeLike | None = None, axis: int = 0) -> Array:
    """Create an array of numbers with a constant ratio between neighbors.

    Args:
        start, stop: ends of the interval, both nonzero and of the same sign; arrays are broadcast
            against each other.
        num: number of elements.
        endpoint: whether `stop` is the last number; if False, the last number is `stop` divided by
            the constant ratio.
        dtype: dtype of the result; None for the float (or complex) dtype that `start` and `stop`
            promote to.
        axis: position of the new axis in the result; the new axis has length `num`.

    Returns:
        The numbers.

    >>> jnp.geomspace(1, 100, 3).round(3)
    Array([  1.,  10., 100.], dtype=float32)
    """
    start, stop, dtype, work = range_ends("geomspace", start, stop, dtype)
    # With the sign (the phase, for complex numbers) taken out, logarithms exist.
    sign = lax.sign(start)
    per_decade = literal(1 / math.log(10), work)
    low, high = (lax.mul(lax.log(lax.div(x, sign)), per_decade) for x in (start, stop))
    powers = logspace(low, high, num, endpoint, 10.0, work, 0)
    result = lax.mul(broadcast_to(sign, powers.shape), powers)
    return convert(first_axis_to(result, axis), dtype)


# Slices as ranges.


def _range(s: slice, name: str) -> Any:
    """The numbers that a slice represents; an imaginary step is a number of points."""
    for part in ("start", "stop", "step"):
        if isinstance(getattr(s, part), Tracer):
            concrete(getattr(s, part), f"slice {part} of jnp.{name}")
    start = 0 if s.start is None else s.start
    step = 1 if s.step is None else s.step
    if isinstance(step, complex):
        if s.stop is None:
            raise ValueError(f"{name}: needed slices with an end, got {s}{here()}")
        return linspace(start, s.stop, int(abs(step)))
    return arange(start, s.stop, step)


class _Grid:
    """Create the coordinates of a grid from slices in brackets.

    `jnp.mgrid` stacks full arrays along the first axis; `jnp.ogrid` returns a tuple of arrays that
    have axes of length 1 and broadcast against each other. `start:stop:step` is a range, as in
    `arange`; an imaginary step such as `5j` specifies the number of points, and the stop is then
    included.

    >>> jnp.ogrid[0:2, 0:1:3j]
    (Array([[0.],
           [1.]], dtype=float32), Array([[0. , 0.5, 1. ]], dtype=float32))
    """

    def __init__(self, name: str, sparse: bool) -> None:
        self._name = name
        self._sparse = sparse

    def __repr__(self) -> str:
        return f"<toile.numpy.{self._name}>"

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return _range(key, self._name)
        with numpy_dtype_promotion("standard"):
            axes = promote_dtypes(*[_range(k, self._name) for k in key]) if key else ()
        grid = meshgrid(*axes, indexing="ij", sparse=self._sparse)
        return grid if self._sparse else _stacked(grid, default_int())


mgrid = _Grid("mgrid", sparse=False)
ogrid = _Grid("ogrid", sparse=True)


class _Join:
    """Join the arrays, numbers and ranges in brackets.

    `jnp.r_` joins along the first axis, and `jnp.c_` along the last, treating one-dimensional
    arrays as columns. `start:stop:step` is a range, as in `arange`; an imaginary step such as `5j`
    specifies the number of points, and the stop is then included. A leading string
    "axis,ndmin,place" sets the axis to join along, the minimum number of axes, and, for arrays
    with fewer axes than that minimum, the position of their original axes.

    >>> jnp.r_[0:3, 7]
    Array([0, 1, 2, 7], dtype=int32)
    """

    def __init__(self, name: str, *defaults: int) -> None:
        self._name = name
        self._defaults = defaults

    def __repr__(self) -> str:
        return f"<toile.numpy.{self._name}>"

    def __getitem__(self, key: Any) -> Any:
        items = key if isinstance(key, tuple) else (key,)
        if items and isinstance(items[0], str):
            return self._joined(items[0], items[1:])
        return self._joined("", items)

    def _joined(self, directive: str, items: tuple[Any, ...]) -> Any:
        plain = directive in ("", "r", "c")
        axis, ndmin, place = self._defaults if plain else _parsed(directive, self._defaults)
        parts = [self._part(item, ndmin, place) for item in items]
        parts = promote_dtypes(*parts)
        if any(p.ndim == 0 for p in parts):
            parts = [lax.reshape(p, (1,)) if p.ndim == 0 else p for p in parts]
        joined = lax.concatenate(parts, axis + parts[0].ndim if axis < 0 else axis)
        if directive in ("r", "c") and joined.ndim == 1:  # a matrix of one row or one column
            return lax.expand_dims(joined, (0 if directive == "r" else 1,))
        return joined

    def _part(self, item: Any, ndmin: int, place: int) -> Any:
        x = _range(item, self._name) if isinstance(item, slice) else asarray(item)
        if x.ndim >= ndmin:
            return lax.reshape(x, (1,)) if x.ndim == 0 else x
        grown = array(x, ndmin=ndmin, copy=False)
        if x.ndim == 0 or place == -1:
            return grown
        # The original axes start at position `place` of the grown array.
        new, old = ndmin - x.ndim, x.ndim
        start = place if place >= 0 else place + ndmin - old + 1
        order = list(range(new))
        order[start:start] = range(new, ndmin)
        return lax.transpose(grown, tuple(order))


def _parsed(directive: str, defaults: tuple[int, ...]) -> tuple[int, ...]:
    """Parse 'axis', 'axis,ndmin' or 'axis,ndmin,place' into numbers."""
    try:
        numbers = [int(n) for n in directive.split(",")[:3]]
    except ValueError:
        raise ValueError(f"could not understand directive {directive!r}{here()}") from None
    return (*numbers, *defaults[len(numbers) :])


# The defaults are the axis to join along, the least rank, and where the original axes go.
r_ = _Join("r_", 0, 1, -1)
c_ = _Join("c_", -1, 2, 0)
