"""Interpolation on rectangular grids, as in `jax.scipy.interpolate`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Literal

import numpy as np

from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.engine.source import here
from toile.nn._promote import array, inexact
from toile.tree_util import register_pytree_node

__all__ = ["RegularGridInterpolator"]


def _points(xi: ArrayLike | tuple[ArrayLike, ...], ndim: int) -> Array:
    """Return the sample points as one array whose last axis contains their coordinates.

    The caller checks the size of this axis."""
    if isinstance(xi, tuple) and len(xi) == 1:
        xi = xi[0]
    if isinstance(xi, tuple):
        return jnp.stack([p.astype(float) for p in jnp.broadcast_arrays(*xi)], axis=-1)
    points = array("RegularGridInterpolator", xi)
    if points.ndim == 1 and ndim and points.size % ndim == 0:
        return points.reshape(-1, ndim)
    return points


class RegularGridInterpolator:
    """A function that interpolates values on a rectangular grid.

    The coordinates along each axis of the grid need not be evenly spaced. Call the interpolator
    with points to get the interpolated values. The interpolator is a pytree whose leaves are its
    arrays.

    Args:
        points: for each axis of the grid, a vector of coordinates in ascending order.
        values: values at the grid points: an array whose first axes are the axes of the grid. Other
            axes are kept in the results.
        method: `"linear"` for linear interpolation, or `"nearest"` for the value at the nearest
            grid point.
        bounds_error: must be False; other values are not supported.
        fill_value: result for points outside the grid. If None, `"linear"` extrapolates and
            `"nearest"` uses the nearest grid point.

    Raises:
        NotImplementedError: `bounds_error` is True.
        ValueError: `method` is invalid, `points` contains more vectors than `values` has axes, or
            `fill_value` is complex and `values` is not.

    Differences:
        In SciPy, `bounds_error` is True by default, and descending coordinates and spline methods
        are supported.

    >>> from toile.scipy.interpolate import RegularGridInterpolator
    >>> grid = jnp.array([0.0, 1.0, 3.0])
    >>> f = RegularGridInterpolator((grid,), jnp.array([0.0, 10.0, 20.0]))
    >>> f(jnp.array([0.5, 2.0, 4.0]))
    Array([ 5., 15., nan], dtype=float32)
    """

    def __init__(self, points: Sequence[ArrayLike], values: ArrayLike,
                 method: Literal["linear", "nearest"] = "linear", bounds_error: bool = False,
                 fill_value: ArrayLike | None = np.nan):
        _check_method(method)
        if bounds_error:
            raise NotImplementedError("`bounds_error` takes no effect under JIT" + here())
        self.method, self.bounds_error = method, bounds_error
        (values,) = inexact("RegularGridInterpolator", values)
        if len(points) > values.ndim:
            raise ValueError(f"there are {len(points)} point arrays, but values has {values.ndim} "
                             f"dimensions{here()}")
        if fill_value is not None:
            fill_value = array("RegularGridInterpolator", fill_value)
            if fill_value.dtype.kind == "c" and values.dtype.kind != "c":
                raise ValueError("fill_value must be either 'None' or of a type compatible with "
                                 "values" + here())
        self.fill_value = fill_value
        self.grid = tuple(array("RegularGridInterpolator", p) for p in points)
        self.values = values

    def __call__(self, xi: ArrayLike | tuple[ArrayLike, ...],
                 method: Literal["linear", "nearest"] | None = None) -> Array:
        """Interpolate at the given points.

        Args:
            xi: the points: an array whose last axis contains one coordinate for each axis of the
                grid, or a tuple with one array of coordinates for each axis of the grid. The arrays
                of a tuple are broadcast against each other, and then stacked along a new last axis.
                A tuple of one array is treated like the array itself. If the grid has `n` axes, a
                vector is first reshaped to `(-1, n)`, so it may contain several points.
            method: `"linear"` or `"nearest"`; None for the method of the interpolator.

        Returns:
            An array with the axes of `xi` except the last, followed by the axes of the values that
            are not axes of the grid. If `xi` is a vector or a tuple, its axes after the reshaping
            or stacking described above are used.

        Raises:
            ValueError: `method` is invalid, the points have the wrong number of coordinates, or
                `xi` is a scalar.
        """
        method = self.method if method is None else method
        _check_method(method)
        ndim = len(self.grid)
        xi = _points(xi, ndim)
        if xi.shape[-1:] != (ndim,):
            found = xi.shape[-1] if xi.ndim else 0
            raise ValueError(f"the requested sample points xi have dimension {found}, but this "
                             f"RegularGridInterpolator has dimension {ndim} (xi has shape "
                             f"{xi.shape}){here()}")
        shape = xi.shape[:-1] + self.values.shape[ndim:]
        cells, fractions, outside = self._locate(xi.reshape(-1, ndim).T)
        value = (
            self._linear(cells, fractions)
            if method == "linear"
            else self._nearest(cells, fractions)
        )
        if self.fill_value is not None:
            outside = outside.reshape(outside.shape + (1,) * (value.ndim - 1))
            value = jnp.where(outside, self.fill_value, value)
        return value.reshape(shape)

    def _locate(self, xi):
        """Find the cell of each point along each axis, and whether the point is outside the grid.

        The position in each cell is returned too: 0 is the lower end of the cell, and 1 is the
        upper end."""
        cells, fractions, outside = [], [], jnp.zeros((xi.shape[1],), dtype=bool)
        for x, grid in zip(xi, self.grid):
            i = jnp.clip(jnp.searchsorted(grid, x) - 1, 0, grid.size - 2)
            cells.append(i)
            fractions.append((x - grid[i]) / (grid[i + 1] - grid[i]))
            outside = outside | (x < grid[0]) | (x > grid[-1])
        return cells, fractions, outside

    def _linear(self, cells, fractions):
        trailing = (slice(None),) + (None,) * (self.values.ndim - len(cells))
        total = jnp.asarray(0.0)
        for corner in itertools.product((0, 1), repeat=len(cells)):
            weight = jnp.asarray(1.0)
            for up, y in zip(corner, fractions):
                weight = weight * (y if up else 1 - y)
            index = tuple(i + up for i, up in zip(cells, corner))
            total = total + self.values[index] * weight[trailing]
        return total

    def _nearest(self, cells, fractions):
        return self.values[tuple(jnp.where(y <= 0.5, i, i + 1) for i, y in zip(cells, fractions))]


def _check_method(method):
    if method not in ("linear", "nearest"):
        raise ValueError(f"method {method!r} is not defined{here()}")


def _flatten(x):
    return (x.grid, x.values, x.fill_value), (x.method, x.bounds_error)


def _unflatten(static, children):
    out = object.__new__(RegularGridInterpolator)
    out.grid, out.values, out.fill_value = children
    out.method, out.bounds_error = static
    return out


register_pytree_node(RegularGridInterpolator, _flatten, _unflatten)
