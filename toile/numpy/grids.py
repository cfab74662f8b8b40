"""Numbers spaced by powers, coordinate grids, the index tricks `mgrid`, `ogrid`, `r_` and `c_`.

May import the engine, `lax`, `api`, `creation` and the ufuncs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from toile import lax
from toile.api import vmap
from toile.engine.source import here
from toile.engine.trace import Tracer
from toile.numpy._axes import canonicalize_shape
from toile.numpy._dtypes import default_int, user_dtype
from toile.numpy._helpers import concrete
from toile.numpy._operands import as_array, convert, literal
from toile.numpy._promotion import broadcast_shapes, broadcast_to, promote_dtypes
from toile.numpy.creation import arange, array, asarray, first_axis_to, linspace, range_ends
from toile.numpy.ufuncs_numeric import power

__all__ = [
    "c_", "fromfunction", "geomspace", "index_exp", "indices", "logspace", "meshgrid", "mgrid",
    "ogrid", "r_", "s_", "vander",
]

index_exp = np.index_exp
s_ = np.s_


def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False,
             indexing: str = "xy") -> tuple[Any, ...]:
    """Coordinate arrays of the grid spanned by one-dimensional arrays."""
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


def indices(dimensions: Any, dtype: Any = None, sparse: bool = False) -> Any:
    """The index of each element along each axis of an array of the given shape."""
    shape = canonicalize_shape(dimensions, "indices")
    dtype = default_int() if dtype is None else user_dtype(dtype, "indices")
    grid = []
    for axis, n in enumerate(shape):
        full = tuple(n if i == axis else 1 for i in range(len(shape))) if sparse else shape
        grid.append(lax.broadcasted_iota(dtype, full, axis))
    return tuple(grid) if sparse else _stacked(grid, dtype)


def _stacked(grid: Any, dtype: Any) -> Any:
    """Arrays of one shape along a new first axis; nothing gives an empty array of `dtype`."""
    if not grid:
        return lax.full((0,), 0, dtype)
    return lax.concatenate([lax.expand_dims(g, (0,)) for g in grid], 0)


def fromfunction(function: Any, shape: Any, *, dtype: Any = float, **kwargs: Any) -> Any:
    """The array whose elements are `function` of their indices."""
    shape = canonicalize_shape(shape, "fromfunction")

    def applied(*coordinates: Any) -> Any:
        return function(*coordinates, **kwargs)

    for axis in range(len(shape)):  # the last axis innermost
        mapped: list[Any] = [None] * len(shape)
        mapped[-1 - axis] = 0
        applied = vmap(applied, in_axes=tuple(mapped))
    return applied(*[arange(n, dtype=dtype) for n in shape])


def vander(x: Any, N: Any = None, increasing: bool = False) -> Any:
    """The matrix of powers of `x`, by default with the highest power first."""
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


def logspace(start: Any, stop: Any, num: Any = 50, endpoint: bool = True, base: Any = 10.0,
             dtype: Any = None, axis: int = 0) -> Any:
    """Powers of `base` whose exponents are evenly spaced from `start` to `stop`."""
    start, stop, dtype, work = range_ends("logspace", start, stop, dtype)
    base = convert(as_array("logspace", base, 2), work)
    exponents = linspace(start, stop, num, endpoint, False, work, axis)
    if base.shape:
        shape = broadcast_shapes(base.shape, exponents.shape)
        base, exponents = broadcast_to(base, shape), broadcast_to(exponents, shape)
    return convert(lax.pow(base, exponents), dtype)


def geomspace(start: Any, stop: Any, num: Any = 50, endpoint: bool = True, dtype: Any = None,
              axis: int = 0) -> Any:
    """`num` numbers in geometric progression from `start` to `stop`."""
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
    """The numbers a slice stands for; an imaginary step is a number of points."""
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
    """Subscripted with slices, gives the coordinates of a grid."""

    def __init__(self, name: str, sparse: bool) -> None:
        self._name = name
        self._sparse = sparse

    def __repr__(self) -> str:
        return f"<toile.numpy.{self._name}>"

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return _range(key, self._name)
        axes = promote_dtypes(*[_range(k, self._name) for k in key]) if key else ()
        grid = meshgrid(*axes, indexing="ij", sparse=self._sparse)
        return grid if self._sparse else _stacked(grid, default_int())


mgrid = _Grid("mgrid", sparse=False)
ogrid = _Grid("ogrid", sparse=True)


class _Join:
    """Subscripted with arrays, numbers and slices, joins them along an axis."""

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
    """'axis', 'axis,ndmin' or 'axis,ndmin,place' as numbers."""
    try:
        numbers = [int(n) for n in directive.split(",")[:3]]
    except ValueError:
        raise ValueError(f"could not understand directive {directive!r}{here()}") from None
    return (*numbers, *defaults[len(numbers) :])


# The defaults are the axis to join along, the least rank, and where the original axes go.
r_ = _Join("r_", 0, 1, -1)
c_ = _Join("c_", -1, 2, 0)
