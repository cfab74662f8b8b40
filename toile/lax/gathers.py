"""Gather, scatter, and slices at positions known only at run time.

By default, negative starts of dynamic slices count from the end. A slice that is not entirely
inside the operand is shifted so that it is. This module may import the engine, primitives and other
modules of `lax`.
"""
# mypy: disable-error-code="empty-body"

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.annotations import ArrayLike, ShapeLike
from toile.engine.arrays import Array, DeviceArray
from toile.engine.avals import Aval
from toile.engine.errors import shape_error
from toile.engine.source import describe, here
from toile.engine.trace import state
from toile.engine.trees import structure
from toile.lax import comparisons, elementwise, reductions, shapes
from toile.lax._computations import apply_scalar
from toile.lax._operands import F, axis_of, checked, ints, named, operand, prepared, sizes
from toile.lax._traced_functions import stage
from toile.lax.loops import while_loop
from toile.primitives.bounds import bounded
from toile.primitives.dynamic_slices import DynamicSlice
from toile.primitives.dynamic_slices import dynamic_update_slice as _update_slice
from toile.primitives.elementwise import convert
from toile.primitives.gathers import (
    Gather,
    GatherDimensionNumbers,
    GatherScatterMode,
    Scatter,
    ScatterDimensionNumbers,
    fill_text,
)

__all__ = [
    "GatherDimensionNumbers", "GatherScatterMode", "ScatterDimensionNumbers",
    "dynamic_index_in_dim", "dynamic_slice", "dynamic_slice_in_dim", "dynamic_update_index_in_dim",
    "dynamic_update_slice", "dynamic_update_slice_in_dim", "gather", "index_take", "scatter",
    "scatter_add", "scatter_apply", "scatter_max", "scatter_min", "scatter_mul", "scatter_sub",
]  # fmt: skip

_operand = operand
_FILL = GatherScatterMode.FILL_OR_DROP


def gather(operand: ArrayLike, start_indices: ArrayLike, dimension_numbers: GatherDimensionNumbers,
           slice_sizes: ShapeLike, *, unique_indices: bool = False,
           indices_are_sorted: bool = False, mode: str | GatherScatterMode | None = None,
           fill_value: ArrayLike | None = None) -> Array:
    """Collect windows of an array, at positions given by index vectors.

    Each index vector is the position of the first element of a window in `operand`. All windows
    have the shape `slice_sizes`. For ordinary indexing, `x[i]`, `x.at[...].get(...)` and `jnp.take`
    are easier to use.

    Args:
        operand: the array to read.
        start_indices: integer array of index vectors, one for each window. The last axis contains
            the components of each vector.
        dimension_numbers: how the axes of `operand`, `start_indices` and the result correspond; see
            `GatherDimensionNumbers`.
        slice_sizes: size of a window along each axis of `operand`.
        unique_indices: whether it is guaranteed that no two windows overlap. True may make the
            operation faster, but if windows overlap nevertheless, the result is undefined.
        indices_are_sorted: whether the index vectors are guaranteed to be sorted. True may make the
            operation faster, but if they are not sorted, the result is undefined.
        mode: how to treat windows that are not entirely inside `operand`; see `GatherScatterMode`.
            If `mode` is None, the mode is `PROMISE_IN_BOUNDS`.
        fill_value: in mode "fill", the value of all elements of windows that are not entirely
            inside `operand`. The default is NaN for floats, the lowest value for signed integers,
            the highest value for unsigned integers, and True for bools.

    Returns:
        An array with the dtype of `operand`. Its axes are the axes of a window that are kept
        according to `dimension_numbers`, and all axes of `start_indices` except the last.

    Read rows 2 and 0 of a matrix. Each index vector has one component, the row number. Each window
    is one row, and its first axis, which has size 1, is removed:

    >>> numbers = lax.GatherDimensionNumbers(
    ...     offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
    >>> x = jnp.array([[1, 2], [3, 4], [5, 6]])
    >>> lax.gather(x, jnp.array([[2], [0]]), numbers, slice_sizes=(1, 2))
    Array([[5, 6],
           [1, 2]], dtype=int32)

    Read two windows of three elements each; the second window is not entirely inside the array:

    >>> numbers = lax.GatherDimensionNumbers(
    ...     offset_dims=(1,), collapsed_slice_dims=(), start_index_map=(0,))
    >>> lax.gather(jnp.arange(5), jnp.array([[1], [4]]), numbers, (3,), mode="clip")
    Array([[1, 2, 3],
           [2, 3, 4]], dtype=int32)
    >>> lax.gather(jnp.arange(5), jnp.array([[1], [4]]), numbers, (3,), mode="fill", fill_value=-1)
    Array([[ 1,  2,  3],
           [-1, -1, -1]], dtype=int32)
    """
    x, index = _operand("gather", operand), _operand("gather", start_indices, 1)
    if mode is None:
        index = _vectors_within(index, x, dimension_numbers[2], sizes("gather", slice_sizes),
                                "gather", "moved to the nearest position")
    promised = GatherScatterMode.PROMISE_IN_BOUNDS
    mode = promised if mode is None else GatherScatterMode.from_any(mode)
    fields = (
        GatherDimensionNumbers(*map(ints, dimension_numbers)), sizes("gather", slice_sizes),
        bool(indices_are_sorted), bool(unique_indices), mode,
        fill_text(fill_value) if mode is _FILL else None,
    )  # fmt: skip
    return prepared(Gather, fields, x.shape, x.dtype, index.shape, index.dtype)(x, index)


def _vectors_within(index: Any, x: Any, axes: Sequence[int], window: Sequence[int] | None,
                    name: str, what: str) -> Any:
    """Index vectors, with a check of each component; unchanged if `window`, the sizes of a window,
    does not fit the other operands, which is reported later."""
    fits = index.ndim and index.shape[-1] == len(axes) and dtypes.kind(index.dtype) in "iu" and (
        window is not None and len(window) == x.ndim and all(0 <= a < x.ndim for a in axes))
    if not fits:
        return index
    assert window is not None
    checked_parts = [
        _start_within(part, x, axis, window[axis], name, what)
        for axis, part in zip(axes, _components(index), strict=True)
    ]
    if len(checked_parts) == 1:
        return checked_parts[0]
    return shapes.concatenate(checked_parts, index.ndim - 1)


def _components(index: Any) -> list[Any]:
    """The components of index vectors, each with a last axis of size 1."""
    count = index.shape[-1]
    if count == 1:
        return [index]
    return [shapes.slice_in_dim(index, k, k + 1, axis=-1) for k in range(count)]


def _start_within(start: Any, x: Any, axis: int, size: int, name: str, what: str) -> Any:
    """Starts of blocks along an axis, with a check that the blocks are inside the array."""
    n, array = x.shape[axis], describe(x)
    return bounded(start, 0, n - size, name, lambda bad: (
        f"{name}: start {bad} of a block of size {size} is out of bounds for axis {axis} with size "
        f"{n}: the block of {array} was {what} (needed a start in 0 ... {n - size})"))


def _window_sizes(numbers: Any, x: Any, update: Any) -> list[int] | None:
    """The sizes of a window along the axes of the operand of a scatter; None if they do not fit."""
    dropped = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    windows = [update.shape[d] for d in numbers.update_window_dims if d < update.ndim]
    if len(windows) + len(dropped) != x.ndim or not dropped <= set(range(x.ndim)):
        return None
    rest = iter(windows)
    return [1 if d in dropped else next(rest) for d in range(x.ndim)]


def index_take(src: ArrayLike, idxs: Sequence[ArrayLike], axes: Sequence[int]) -> Array:
    """Collect slices of an array at positions along some of its axes.

    Args:
        src: the array to read.
        idxs: one vector of integer indices for each of `axes`, all of the same length. Indices wrap
            around: -1 refers to the last position, and an index equal to the size of the axis
            refers to the first.
        axes: the axes that the vectors index, which must be nonnegative and in increasing order.

    Returns:
        An array whose first axis has the length of the vectors, and whose remaining axes are the
        axes of `src` that are not in `axes`.

    >>> x = jnp.array([[1, 2], [3, 4], [5, 6]])
    >>> lax.index_take(x, [jnp.array([0, -1])], (0,))
    Array([[1, 2],
           [5, 6]], dtype=int32)
    >>> lax.index_take(x, [jnp.array([0, 2]), jnp.array([1, 0])], (0, 1))
    Array([2, 5], dtype=int32)
    """
    x = _operand("index_take", src)
    axes = ints(axes)
    columns = []
    for i, a in zip(idxs, axes, strict=True):
        i = _operand("index_take", i, 1)
        n = shapes.full_like(i, x.shape[a])
        i = elementwise.rem(elementwise.add(elementwise.rem(i, n), n), n)
        columns.append(shapes.expand_dims(i, (1,)))
    index = shapes.concatenate(columns, 1)
    window = [1 if d in axes else n for d, n in enumerate(x.shape)]
    numbers = GatherDimensionNumbers(tuple(range(1, x.ndim - len(axes) + 1)), axes, axes)
    return gather(x, index, numbers, window)


# ----------------------------------------------------------------------------------------- scatter


def _scatter(combine: str) -> Callable[[F], F]:
    """The body of a scatter function, which is declared without statements."""

    def with_body(declared: F) -> F:
        name = declared.__name__

        def fun(operand: Any, scatter_indices: Any, updates: Any,
                dimension_numbers: ScatterDimensionNumbers, *, indices_are_sorted: bool = False,
                unique_indices: bool = False, mode: str | GatherScatterMode | None = None) -> Any:
            x, index = _operand(name, operand), _operand(name, scatter_indices, 1)
            update = _operand(name, updates, 2)
            if mode is None:
                index = _vectors_within(index, x, dimension_numbers[2],
                                        _window_sizes(dimension_numbers, x, update), name,
                                        "skipped")
            fields = (
                combine, ScatterDimensionNumbers(*map(ints, dimension_numbers)),
                bool(indices_are_sorted), bool(unique_indices), GatherScatterMode.from_any(mode),
            )  # fmt: skip
            types = (x.shape, x.dtype, index.shape, index.dtype, update.shape, update.dtype)
            return prepared(Scatter, fields, *types)(x, index, update)

        return named(fun, declared)

    return with_body


@_scatter("set")
def scatter(operand: ArrayLike, scatter_indices: ArrayLike, updates: ArrayLike,
            dimension_numbers: ScatterDimensionNumbers, *, indices_are_sorted: bool = False,
            unique_indices: bool = False, mode: str | GatherScatterMode | None = None) -> Array:
    """Replace windows of an array, at positions given by index vectors.

    Each index vector is the position of the first element of a window in `operand`, and `updates`
    contains the new elements. Where windows overlap, it is undefined which update an element
    receives. For ordinary indexing, `x.at[...].set(...)` is easier to use.

    Args:
        operand: the array to update; the result is a new array.
        scatter_indices: integer array of index vectors, one for each window. The last axis contains
            the components of each vector.
        updates: the values for all windows, in an array with the dtype of `operand`. Its axes are
            the axes of a window and all axes of `scatter_indices` except the last.
            `dimension_numbers` specifies which axes belong to the window.
        dimension_numbers: how the axes of `operand`, `scatter_indices` and `updates` correspond;
            see `ScatterDimensionNumbers`.
        indices_are_sorted: whether the index vectors are guaranteed to be sorted. True may make the
            operation faster, but if they are not sorted, the result is undefined.
        unique_indices: whether it is guaranteed that no two windows overlap. True may make the
            operation faster, but if windows overlap nevertheless, the result is undefined.
        mode: how to treat windows that are not entirely inside `operand`; see `GatherScatterMode`.
            If `mode` is None, these windows are skipped.

    Returns:
        An array with the shape and dtype of `operand`.

    Write rows 2 and 0 of a matrix. Each index vector has one component, the row number. Each window
    is one row, and its first axis, which has size 1, is left out of `updates`:

    >>> numbers = lax.ScatterDimensionNumbers(
    ...     update_window_dims=(1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
    >>> rows = jnp.array([[1, 2], [3, 4]])
    >>> lax.scatter(jnp.zeros((3, 2), jnp.int32), jnp.array([[2], [0]]), rows, numbers)
    Array([[3, 4],
           [0, 0],
           [1, 2]], dtype=int32)
    """


@_scatter("add")
def scatter_add(operand: ArrayLike, scatter_indices: ArrayLike, updates: ArrayLike,
                dimension_numbers: ScatterDimensionNumbers, *, indices_are_sorted: bool = False,
                unique_indices: bool = False, mode: str | GatherScatterMode | None = None) -> Array:
    """Add updates to windows of an array, at positions given by index vectors.

    Where windows overlap, all updates to an element are added. See `scatter` for an explanation of
    index vectors and windows.

    Args:
        operand: the array to update; the result is a new array.
        scatter_indices: integer array of index vectors, one for each window. The last axis contains
            the components of each vector.
        updates: the values for all windows, in an array with the dtype of `operand`. Its axes are
            the axes of a window and all axes of `scatter_indices` except the last.
            `dimension_numbers` specifies which axes belong to the window.
        dimension_numbers: how the axes of `operand`, `scatter_indices` and `updates` correspond;
            see `ScatterDimensionNumbers`.
        indices_are_sorted: whether the index vectors are guaranteed to be sorted. True may make the
            operation faster, but if they are not sorted, the result is undefined.
        unique_indices: whether it is guaranteed that no two windows overlap. True may make the
            operation faster, but if windows overlap nevertheless, the result is undefined.
        mode: how to treat windows that are not entirely inside `operand`; see `GatherScatterMode`.
            If `mode` is None, these windows are skipped.

    Returns:
        An array with the shape and dtype of `operand`.

    >>> numbers = lax.ScatterDimensionNumbers(
    ...     update_window_dims=(), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
    >>> places, updates = jnp.array([[1], [3], [1]]), jnp.array([1.0, 2.0, 3.0])
    >>> lax.scatter_add(jnp.zeros(4), places, updates, numbers)
    Array([0., 4., 0., 2.], dtype=float32)
    """


@_scatter("sub")
def scatter_sub(operand: ArrayLike, scatter_indices: ArrayLike, updates: ArrayLike,
                dimension_numbers: ScatterDimensionNumbers, *, indices_are_sorted: bool = False,
                unique_indices: bool = False, mode: str | GatherScatterMode | None = None) -> Array:
    """Subtract updates from windows of an array, at positions given by index vectors.

    Where windows overlap, all updates to an element are subtracted. See `scatter` for an
    explanation of index vectors and windows.

    Args:
        operand: the array to update; the result is a new array.
        scatter_indices: integer array of index vectors, one for each window. The last axis contains
            the components of each vector.
        updates: the values for all windows, in an array with the dtype of `operand`. Its axes are
            the axes of a window and all axes of `scatter_indices` except the last.
            `dimension_numbers` specifies which axes belong to the window.
        dimension_numbers: how the axes of `operand`, `scatter_indices` and `updates` correspond;
            see `ScatterDimensionNumbers`.
        indices_are_sorted: whether the index vectors are guaranteed to be sorted. True may make the
            operation faster, but if they are not sorted, the result is undefined.
        unique_indices: whether it is guaranteed that no two windows overlap. True may make the
            operation faster, but if windows overlap nevertheless, the result is undefined.
        mode: how to treat windows that are not entirely inside `operand`; see `GatherScatterMode`.
            If `mode` is None, these windows are skipped.

    Returns:
        An array with the shape and dtype of `operand`.

    >>> numbers = lax.ScatterDimensionNumbers(
    ...     update_window_dims=(), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
    >>> places, updates = jnp.array([[1], [3], [1]]), jnp.array([1.0, 2.0, 3.0])
    >>> lax.scatter_sub(jnp.zeros(4), places, updates, numbers)
    Array([ 0., -4.,  0., -2.], dtype=float32)
    """


@_scatter("mul")
def scatter_mul(operand: ArrayLike, scatter_indices: ArrayLike, updates: ArrayLike,
                dimension_numbers: ScatterDimensionNumbers, *, indices_are_sorted: bool = False,
                unique_indices: bool = False, mode: str | GatherScatterMode | None = None) -> Array:
    """Multiply windows of an array by updates, at positions given by index vectors.

    Where windows overlap, each element is multiplied by all of its updates. See `scatter` for an
    explanation of index vectors and windows.

    Args:
        operand: the array to update; the result is a new array.
        scatter_indices: integer array of index vectors, one for each window. The last axis contains
            the components of each vector.
        updates: the values for all windows, in an array with the dtype of `operand`. Its axes are
            the axes of a window and all axes of `scatter_indices` except the last.
            `dimension_numbers` specifies which axes belong to the window.
        dimension_numbers: how the axes of `operand`, `scatter_indices` and `updates` correspond;
            see `ScatterDimensionNumbers`.
        indices_are_sorted: whether the index vectors are guaranteed to be sorted. True may make the
            operation faster, but if they are not sorted, the result is undefined.
        unique_indices: whether it is guaranteed that no two windows overlap. True may make the
            operation faster, but if windows overlap nevertheless, the result is undefined.
        mode: how to treat windows that are not entirely inside `operand`; see `GatherScatterMode`.
            If `mode` is None, these windows are skipped.

    Returns:
        An array with the shape and dtype of `operand`.

    >>> numbers = lax.ScatterDimensionNumbers(
    ...     update_window_dims=(), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
    >>> places, updates = jnp.array([[1], [3], [1]]), jnp.array([5.0, 2.0, 3.0])
    >>> lax.scatter_mul(jnp.ones(4), places, updates, numbers)
    Array([ 1., 15.,  1.,  2.], dtype=float32)
    """


@_scatter("min")
def scatter_min(operand: ArrayLike, scatter_indices: ArrayLike, updates: ArrayLike,
                dimension_numbers: ScatterDimensionNumbers, *, indices_are_sorted: bool = False,
                unique_indices: bool = False, mode: str | GatherScatterMode | None = None) -> Array:
    """Compute the minimum of updates and windows of an array, at positions given by index vectors.

    Each element becomes the minimum of itself and all of its updates. See `scatter` for an
    explanation of index vectors and windows.

    Args:
        operand: the array to update; the result is a new array.
        scatter_indices: integer array of index vectors, one for each window. The last axis contains
            the components of each vector.
        updates: the values for all windows, in an array with the dtype of `operand`. Its axes are
            the axes of a window and all axes of `scatter_indices` except the last.
            `dimension_numbers` specifies which axes belong to the window.
        dimension_numbers: how the axes of `operand`, `scatter_indices` and `updates` correspond;
            see `ScatterDimensionNumbers`.
        indices_are_sorted: whether the index vectors are guaranteed to be sorted. True may make the
            operation faster, but if they are not sorted, the result is undefined.
        unique_indices: whether it is guaranteed that no two windows overlap. True may make the
            operation faster, but if windows overlap nevertheless, the result is undefined.
        mode: how to treat windows that are not entirely inside `operand`; see `GatherScatterMode`.
            If `mode` is None, these windows are skipped.

    Returns:
        An array with the shape and dtype of `operand`.

    >>> numbers = lax.ScatterDimensionNumbers(
    ...     update_window_dims=(), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
    >>> places, updates = jnp.array([[1], [3], [1]]), jnp.array([-5.0, 2.0, 3.0])
    >>> lax.scatter_min(jnp.ones(4), places, updates, numbers)
    Array([ 1., -5.,  1.,  1.], dtype=float32)
    """


@_scatter("max")
def scatter_max(operand: ArrayLike, scatter_indices: ArrayLike, updates: ArrayLike,
                dimension_numbers: ScatterDimensionNumbers, *, indices_are_sorted: bool = False,
                unique_indices: bool = False, mode: str | GatherScatterMode | None = None) -> Array:
    """Compute the maximum of updates and windows of an array, at positions given by index vectors.

    Each element becomes the maximum of itself and all of its updates. See `scatter` for an
    explanation of index vectors and windows.

    Args:
        operand: the array to update; the result is a new array.
        scatter_indices: integer array of index vectors, one for each window. The last axis contains
            the components of each vector.
        updates: the values for all windows, in an array with the dtype of `operand`. Its axes are
            the axes of a window and all axes of `scatter_indices` except the last.
            `dimension_numbers` specifies which axes belong to the window.
        dimension_numbers: how the axes of `operand`, `scatter_indices` and `updates` correspond;
            see `ScatterDimensionNumbers`.
        indices_are_sorted: whether the index vectors are guaranteed to be sorted. True may make the
            operation faster, but if they are not sorted, the result is undefined.
        unique_indices: whether it is guaranteed that no two windows overlap. True may make the
            operation faster, but if windows overlap nevertheless, the result is undefined.
        mode: how to treat windows that are not entirely inside `operand`; see `GatherScatterMode`.
            If `mode` is None, these windows are skipped.

    Returns:
        An array with the shape and dtype of `operand`.

    >>> numbers = lax.ScatterDimensionNumbers(
    ...     update_window_dims=(), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
    >>> places, updates = jnp.array([[1], [3], [1]]), jnp.array([5.0, 2.0, 3.0])
    >>> lax.scatter_max(jnp.ones(4), places, updates, numbers)
    Array([1., 5., 1., 2.], dtype=float32)
    """


def scatter_apply(operand: ArrayLike, scatter_indices: ArrayLike, func: Callable[[Any], Any],
                  dimension_numbers: ScatterDimensionNumbers, *, update_shape: ShapeLike = (),
                  indices_are_sorted: bool = False, unique_indices: bool = False,
                  mode: str | GatherScatterMode | None = None) -> Array:
    """Apply a function to windows of an array, at positions given by index vectors.

    The function is applied to an element once for each window that contains the element.

    Args:
        operand: the array to update; the result is a new array.
        scatter_indices: integer array of index vectors, one for each window. The last axis contains
            the components of each vector.
        func: a function that is called with a scalar and returns a scalar of the same dtype.
        dimension_numbers: how the axes of `operand`, `scatter_indices` and the updates correspond;
            see `ScatterDimensionNumbers`.
        update_shape: the shape that `updates` would have in `scatter`.
        indices_are_sorted: whether the index vectors are guaranteed to be sorted. True may make the
            operation faster, but if they are not sorted, the result is undefined.
        unique_indices: whether it is guaranteed that no two windows overlap. True may make the
            operation faster, but if windows overlap nevertheless, the result is undefined.
        mode: how to treat windows that are not entirely inside `operand`; see `GatherScatterMode`.
            If `mode` is None, these windows are skipped.

    Returns:
        An array with the shape and dtype of `operand`.

    >>> numbers = lax.ScatterDimensionNumbers(
    ...     update_window_dims=(), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
    >>> x, places = jnp.array([1.0, 2.0, 3.0]), jnp.array([[2], [0], [2]])
    >>> lax.scatter_apply(x, places, lambda v: 10 * v, numbers, update_shape=(3,))
    Array([ 10.,   2., 300.], dtype=float32)
    """
    x = _operand("scatter_apply", operand)
    program, consts, _ = stage(func, structure((0,)), [Aval((), x.dtype)])
    (result,) = program.out_avals
    if result.shape or result.dtype != x.dtype:
        raise shape_error("scatter_apply", f"a function from {dtypes.name_of(x.dtype)} scalars to "
                          "scalars of the same dtype", [result])
    ones = shapes.full(update_shape, 1, np.int32)
    times = scatter_add(shapes.full(x.shape, 0, np.int32), scatter_indices, ones, dimension_numbers,
                        indices_are_sorted=indices_are_sorted, unique_indices=unique_indices,
                        mode=mode)

    def applied(done: Any, x: Any) -> Any:
        left = comparisons.gt(times, shapes.broadcast_in_dim(done, times.shape, ()))
        return elementwise.select(left, apply_scalar(program, consts, [x])[0], x)

    none = shapes.full((), 0, np.int32)
    if unique_indices or not x.ndim:
        return applied(none, x)
    most = reductions.reduce_max(times, tuple(range(x.ndim)))
    one = shapes.full((), 1, np.int32)
    return while_loop(
        lambda s: comparisons.lt(s[0], most),
        lambda s: (elementwise.add(s[0], one), applied(*s)),
        (none, x),
    )[1]


# ----------------------------------------------------------------------------------- dynamic slices


def _starts(name: str, x: Any, starts: Any, negative: Any) -> list[Any]:
    """The starts as integers of one dtype, with negative ones counted from the end if allowed."""
    if isinstance(starts, (DeviceArray, np.ndarray)) or hasattr(starts, "aval"):
        if starts.ndim != 1:
            raise ValueError(f"{name}: needed a 1D sequence of starts, got shape "
                             f"{starts.shape}{here()}")
        starts = [starts[i] for i in range(starts.shape[0])] if state.trace is None else (
            shapes.unstack(starts)
        )
    if len(starts) != x.ndim:
        raise ValueError(f"{name}: needed one start for each of {x.ndim} axes of "
                         f"{x.aval.str_short()}, got {len(starts)}{here()}")
    allowed = [negative] * x.ndim if isinstance(negative, (bool, np.bool_)) else negative
    dtype = _starts_dtype(name, starts)
    if max(x.shape, default=0) > int(dtypes.iinfo(dtype).max):  # a start from the end would wrap
        dtype = np.dtype(np.int32)
        starts = [s if type(s) is int else convert(_operand(name, s), dtype)
                  for s in starts]
    return [
        _start(name, s, n, dtype, a) for s, n, a in zip(starts, x.shape, allowed, strict=True)
    ]


def _starts_dtype(name: str, starts: Sequence[Any]) -> Any:
    """The common dtype of the starts; Python integers adopt the dtype of the others."""
    found = {
        s.dtype if isinstance(s, Array) else dtypes.canonicalize_dtype(dtypes.dtype(s))
        for s in starts if type(s) is not int
    }
    dtype = found.pop() if found else dtypes.default_int_dtype()
    if found or dtypes.kind(dtype) not in "iu":
        names = ", ".join(dtypes.name_of(d) for d in (dtype, *found))
        raise TypeError(f"index arguments to {name} must be integers of the same type, got "
                        f"{names}{here()}")
    return dtype


def _start(name: str, s: Any, n: int, dtype: Any, allowed: bool) -> Any:
    if state.trace is None and s.__class__ is DeviceArray and not s.shape:
        s = int(s._data)
    elif not isinstance(s, (int, np.integer)):
        s = _operand(name, s)
        if not allowed or dtypes.kind(s.dtype) != "i":
            return s
        zero, end = (DeviceArray(np.asarray(v, s.dtype)) for v in (0, n))
        return elementwise.select(comparisons.lt(s, zero), elementwise.add(s, end), s)
    elif s < 0 and not allowed:
        raise ValueError(f"{name}: needed a start >= 0 with allow_negative_indices=False, got "
                         f"{s}{here()}")
    top = dtypes.iinfo(dtype).max  # starts beyond it are clamped anyway
    value = s + n if s < 0 and allowed else s
    low = dtypes.iinfo(dtype).min
    return DeviceArray(np.asarray(min(max(int(value), int(low)), int(top)), dtype))


def dynamic_slice(operand: ArrayLike, start_indices: ArrayLike | Sequence[ArrayLike],
                  slice_sizes: ShapeLike, *,
                  allow_negative_indices: bool | Sequence[bool] = True) -> Array:
    """Read a block of an array, at a position that may be computed at run time.

    Under `toile.jit`, `x[i:i + n]` raises an error if `i` is traced, because the shape of the
    result must be known. With `dynamic_slice`, the size of the block is fixed, and only its
    position is computed. A block that is not entirely inside the array is shifted to the nearest
    position inside it.

    Args:
        operand: the array to read.
        start_indices: start of the block along each axis: a vector of integers, or a sequence of
            integers or integer arrays of rank 0, which must all have the same dtype.
        slice_sizes: size of the block along each axis, at most the size of that axis.
        allow_negative_indices: whether negative starts count from the end of the axis: one bool for
            all axes, or one for each axis.

    Returns:
        An array of shape `slice_sizes` with the dtype of `operand`.

    >>> x = jnp.arange(12).reshape(3, 4)
    >>> lax.dynamic_slice(x, (1, 2), (2, 2))
    Array([[ 6,  7],
           [10, 11]], dtype=int32)
    >>> lax.dynamic_slice(x, (1, 3), (2, 2))  # shifted to the left
    Array([[ 6,  7],
           [10, 11]], dtype=int32)
    """
    return block(operand, start_indices, slice_sizes,
                 allow_negative_indices=allow_negative_indices, checks=True)


def block(operand: ArrayLike, start_indices: ArrayLike | Sequence[ArrayLike],
          slice_sizes: ShapeLike, *, allow_negative_indices: bool | Sequence[bool] = True,
          checks: bool = False) -> Array:
    """`dynamic_slice`; `checks` reports a block that is not inside the array."""
    x = _operand("dynamic_slice", operand)
    starts = _starts("dynamic_slice", x, start_indices, allow_negative_indices)
    window = sizes("dynamic_slice", slice_sizes)
    if checks:
        starts = _starts_within(starts, x, window, "dynamic_slice")
    types = [t for s in starts for t in (s.shape, s.dtype)]
    return prepared(DynamicSlice, (window,), x.shape, x.dtype, *types)(x, *starts)


def dynamic_update_slice(operand: ArrayLike, update: ArrayLike,
                         start_indices: ArrayLike | Sequence[ArrayLike], *,
                         allow_negative_indices: bool | Sequence[bool] = True) -> Array:
    """Replace a block of an array, at a position that may be computed at run time.

    A block that is not entirely inside the array is shifted to the nearest position inside it, so
    no part of `update` is cut off.

    Args:
        operand: the array to update; the result is a new array.
        update: the new block: an array with the rank and dtype of `operand`, at most as large as
            `operand` along each axis.
        start_indices: start of the block along each axis: a vector of integers, or a sequence of
            integers or integer arrays of rank 0, which must all have the same dtype.
        allow_negative_indices: whether negative starts count from the end of the axis: one bool for
            all axes, or one for each axis.

    Returns:
        An array with the shape and dtype of `operand`.

    >>> lax.dynamic_update_slice(jnp.zeros(5), jnp.array([1.0, 2.0]), (2,))
    Array([0., 0., 1., 2., 0.], dtype=float32)
    >>> lax.dynamic_update_slice(jnp.zeros(5), jnp.array([1.0, 2.0]), (4,))  # shifted to the left
    Array([0., 0., 0., 1., 2.], dtype=float32)
    """
    x, u = _operand("dynamic_update_slice", operand), _operand("dynamic_update_slice", update, 1)
    starts = _starts("dynamic_update_slice", x, start_indices, allow_negative_indices)
    starts = _starts_within(starts, x, u.shape, "dynamic_update_slice")
    return checked(_update_slice, [x, u, *starts])


def _starts_within(starts: list[Any], x: Any, window: Sequence[int], name: str) -> list[Any]:
    """The starts of a block, with a check that the block is inside the array."""
    if len(window) != x.ndim:
        return starts
    return [s if size == n else _start_within(s, x, axis, size, name, "moved to fit")
            for axis, (s, size, n) in enumerate(zip(starts, window, x.shape, strict=True))]


def _one_axis(x: Any, axis: int, start: Any, negative: bool) -> tuple[list[Any], list[bool]]:
    starts, allowed = [0] * x.ndim, [False] * x.ndim
    starts[axis], allowed[axis] = start, negative
    return starts, allowed


def dynamic_slice_in_dim(operand: ArrayLike, start_index: ArrayLike, slice_size: int,
                         axis: int = 0, *, allow_negative_indices: bool = True) -> Array:
    """Read a block along one axis, at a position that may be computed at run time.

    Args:
        operand: the array to read.
        start_index: start of the block, an integer or an integer array of rank 0. A block that is
            not entirely inside the array is shifted to the nearest position inside it.
        slice_size: size of the block along `axis`. Along the other axes, the block has the sizes of
            the array.
        axis: the axis to slice; negative axes count from the end.
        allow_negative_indices: whether a negative start counts from the end of the axis.

    Returns:
        An array with the dtype of `operand` and size `slice_size` along the axis.

    >>> lax.dynamic_slice_in_dim(jnp.arange(6), 2, 3)
    Array([2, 3, 4], dtype=int32)
    """
    x = _operand("dynamic_slice_in_dim", operand)
    axis = axis_of(axis, x.ndim)
    starts, allowed = _one_axis(x, axis, start_index, allow_negative_indices)
    window = (*x.shape[:axis], operator.index(slice_size), *x.shape[axis + 1 :])
    return dynamic_slice(x, starts, window, allow_negative_indices=allowed)


def dynamic_index_in_dim(operand: ArrayLike, index: ArrayLike, axis: int = 0,
                         keepdims: bool = True, *, allow_negative_indices: bool = True) -> Array:
    """Read the slice at one position along an axis; the position may be computed at run time.

    Args:
        operand: the array to read.
        index: the position, an integer or an integer array of rank 0. A position that is out of
            range is replaced with the nearest valid position.
        axis: the axis to index; negative axes count from the end.
        keepdims: whether to keep the axis, with size 1.
        allow_negative_indices: whether a negative index counts from the end of the axis.

    Returns:
        An array with the dtype of `operand`. The axis has size 1, or is removed if `keepdims` is
        False.

    >>> x = jnp.array([[1, 2], [3, 4]])
    >>> lax.dynamic_index_in_dim(x, 1)
    Array([[3, 4]], dtype=int32)
    >>> lax.dynamic_index_in_dim(x, 1, keepdims=False)
    Array([3, 4], dtype=int32)
    """
    out = dynamic_slice_in_dim(operand, index, 1, axis,
                               allow_negative_indices=allow_negative_indices)
    return out if keepdims else shapes.squeeze(out, (axis,))


def dynamic_update_slice_in_dim(operand: ArrayLike, update: ArrayLike, start_index: ArrayLike,
                                axis: int, *, allow_negative_indices: bool = True) -> Array:
    """Replace a block along one axis, at a position that may be computed at run time.

    Args:
        operand: the array to update; the result is a new array.
        update: the new block, an array with the rank and dtype of `operand`.
        start_index: start of the block, an integer or an integer array of rank 0. A block that is
            not entirely inside the array is shifted to the nearest position inside it.
        axis: the axis to which `start_index` refers; negative axes count from the end. Along the
            other axes, the block starts at 0.
        allow_negative_indices: whether a negative start counts from the end of the axis.

    Returns:
        An array with the shape and dtype of `operand`.

    >>> lax.dynamic_update_slice_in_dim(jnp.zeros(5), jnp.array([1.0, 2.0]), 1, 0)
    Array([0., 1., 2., 0., 0.], dtype=float32)
    """
    x = _operand("dynamic_update_slice_in_dim", operand)
    starts, allowed = _one_axis(x, axis_of(axis, x.ndim), start_index, allow_negative_indices)
    return dynamic_update_slice(x, update, starts, allow_negative_indices=allowed)


def dynamic_update_index_in_dim(operand: ArrayLike, update: ArrayLike, index: ArrayLike,
                                axis: int, *, allow_negative_indices: bool = True) -> Array:
    """Replace the slice at one position along an axis; the position may be computed at run time.

    Args:
        operand: the array to update; the result is a new array.
        update: the new slice, with the dtype of `operand`. It either has size 1 along `axis` or
            lacks this axis.
        index: the position, an integer or an integer array of rank 0. A position that is out of
            range is replaced with the nearest valid position.
        axis: the axis to index; negative axes count from the end.
        allow_negative_indices: whether a negative index counts from the end of the axis.

    Returns:
        An array with the shape and dtype of `operand`.

    >>> lax.dynamic_update_index_in_dim(jnp.zeros((2, 3)), jnp.ones(3), 1, 0)
    Array([[0., 0., 0.],
           [1., 1., 1.]], dtype=float32)
    """
    x = _operand("dynamic_update_index_in_dim", operand)
    u = _operand("dynamic_update_index_in_dim", update, 1)
    axis = axis_of(axis, x.ndim)
    if u.ndim != x.ndim:
        if u.ndim + 1 != x.ndim:
            raise shape_error("dynamic_update_index_in_dim", "an update of the operand's rank, or "
                              "of one less", [x.aval, u.aval])
        u = shapes.expand_dims(u, (axis,))
    return dynamic_update_slice_in_dim(x, u, index, axis,
                                       allow_negative_indices=allow_negative_indices)
