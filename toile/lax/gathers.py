"""Gather, scatter, and slices at positions known only at run time.

Negative starts of dynamic slices count from the end unless told otherwise; the slice is then moved
so that it lies inside the operand. May import the engine, primitives, `_operands`, this package's
shapes, elementwise functions and loops.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.arrays import Array, DeviceArray
from toile.engine.avals import Aval
from toile.engine.errors import shape_error
from toile.engine.source import here
from toile.engine.trace import state
from toile.engine.trees import structure
from toile.lax import elementwise, reductions, shapes
from toile.lax._computations import apply_scalar
from toile.lax._operands import axis_of, checked, ints, named, operand, prepared, sizes
from toile.lax._traced_functions import stage
from toile.lax.loops import while_loop
from toile.primitives.elementwise import convert
from toile.primitives.gathers import (
    DynamicSlice,
    Gather,
    GatherDimensionNumbers,
    GatherScatterMode,
    Scatter,
    ScatterDimensionNumbers,
    fill_text,
)
from toile.primitives.gathers import dynamic_update_slice as _update_slice

__all__ = [
    "GatherDimensionNumbers", "GatherScatterMode", "ScatterDimensionNumbers",
    "dynamic_index_in_dim", "dynamic_slice", "dynamic_slice_in_dim", "dynamic_update_index_in_dim",
    "dynamic_update_slice", "dynamic_update_slice_in_dim", "gather", "index_take", "scatter",
    "scatter_add", "scatter_apply", "scatter_max", "scatter_min", "scatter_mul", "scatter_sub",
]  # fmt: skip

_operand = operand
_FILL = GatherScatterMode.FILL_OR_DROP


def gather(operand: Any, start_indices: Any, dimension_numbers: GatherDimensionNumbers,
           slice_sizes: Any, *, unique_indices: bool = False, indices_are_sorted: bool = False,
           mode: str | GatherScatterMode | None = None, fill_value: Any = None) -> Any:
    """Windows of the operand at index vectors, which lie along the last axis of the indices."""
    x, index = _operand("gather", operand), _operand("gather", start_indices, 1)
    promised = GatherScatterMode.PROMISE_IN_BOUNDS
    mode = promised if mode is None else GatherScatterMode.from_any(mode)
    fields = (
        GatherDimensionNumbers(*map(ints, dimension_numbers)), sizes("gather", slice_sizes),
        bool(indices_are_sorted), bool(unique_indices), mode,
        fill_text(fill_value) if mode is _FILL else None,
    )  # fmt: skip
    return prepared(Gather, fields, x.shape, x.dtype, index.shape, index.dtype)(x, index)


def index_take(src: Any, idxs: Any, axes: Sequence[int]) -> Any:
    """Slices of `src` at vectors of indices, one for each of `axes`, which wrap around."""
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


def _scatter(name: str, combine: str, text: str) -> Callable[..., Any]:
    def fun(operand: Any, scatter_indices: Any, updates: Any,
            dimension_numbers: ScatterDimensionNumbers, *, indices_are_sorted: bool = False,
            unique_indices: bool = False, mode: str | GatherScatterMode | None = None) -> Any:
        x, index = _operand(name, operand), _operand(name, scatter_indices, 1)
        update = _operand(name, updates, 2)
        fields = (
            combine, ScatterDimensionNumbers(*map(ints, dimension_numbers)),
            bool(indices_are_sorted), bool(unique_indices), GatherScatterMode.from_any(mode),
        )  # fmt: skip
        types = (x.shape, x.dtype, index.shape, index.dtype, update.shape, update.dtype)
        return prepared(Scatter, fields, *types)(x, index, update)

    return named(fun, name, text)


_WINDOWS = "windows of updates at index vectors"
scatter = _scatter("scatter", "set", f"The operand with {_WINDOWS} put in.")
scatter_add = _scatter("scatter_add", "add", f"The operand with {_WINDOWS} added.")
scatter_sub = _scatter("scatter_sub", "sub", f"The operand with {_WINDOWS} subtracted.")
scatter_mul = _scatter("scatter_mul", "mul", f"The operand with {_WINDOWS} multiplied in.")
scatter_min = _scatter("scatter_min", "min", f"The least of the operand and {_WINDOWS}.")
scatter_max = _scatter("scatter_max", "max", f"The largest of the operand and {_WINDOWS}.")


def scatter_apply(operand: Any, scatter_indices: Any, func: Callable[[Any], Any],
                  dimension_numbers: ScatterDimensionNumbers, *, update_shape: Any = (),
                  indices_are_sorted: bool = False, unique_indices: bool = False,
                  mode: str | GatherScatterMode | None = None) -> Any:
    """The operand with a scalar function applied to its elements once for each index to them."""
    x = _operand("scatter_apply", operand)
    program, consts, _ = stage(func, structure((0,)), [Aval((), x.dtype)])
    (result,) = program.out_avals
    if result.shape or result.dtype != x.dtype:
        raise shape_error("scatter_apply", f"a function from {dtypes.name_of(x.dtype)} scalars to "
                          "such scalars, its result being", [result])
    ones = shapes.full(update_shape, 1, np.int32)
    times = scatter_add(shapes.full(x.shape, 0, np.int32), scatter_indices, ones, dimension_numbers,
                        indices_are_sorted=indices_are_sorted, unique_indices=unique_indices,
                        mode=mode)

    def applied(done: Any, x: Any) -> Any:
        left = elementwise.gt(times, shapes.broadcast_in_dim(done, times.shape, ()))
        return elementwise.select(left, apply_scalar(program, consts, [x])[0], x)

    none = shapes.full((), 0, np.int32)
    if unique_indices or not x.ndim:
        return applied(none, x)
    most = reductions.reduce_max(times, tuple(range(x.ndim)))
    one = shapes.full((), 1, np.int32)
    return while_loop(
        lambda s: elementwise.lt(s[0], most),
        lambda s: (elementwise.add(s[0], one), applied(*s)),
        (none, x),
    )[1]


# ----------------------------------------------------------------------------------- dynamic slices


def _starts(name: str, x: Any, starts: Any, negative: Any) -> list[Any]:
    """Starts as integers of one dtype, those below zero counted from the end where allowed."""
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
    """The dtype that all starts have; Python integers take that of the others."""
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
        return elementwise.select(elementwise.lt(s, zero), elementwise.add(s, end), s)
    elif s < 0 and not allowed:
        raise ValueError(f"{name}: needed a start >= 0 with allow_negative_indices=False, got "
                         f"{s}{here()}")
    top = dtypes.iinfo(dtype).max  # further out is clamped anyway
    value = s + n if s < 0 and allowed else s
    low = dtypes.iinfo(dtype).min
    return DeviceArray(np.asarray(min(max(int(value), int(low)), int(top)), dtype))


def dynamic_slice(operand: Any, start_indices: Any, slice_sizes: Any, *,
                  allow_negative_indices: Any = True) -> Any:
    """The block of `slice_sizes` at given starts, moved so that it lies inside the operand."""
    x = _operand("dynamic_slice", operand)
    starts = _starts("dynamic_slice", x, start_indices, allow_negative_indices)
    window = sizes("dynamic_slice", slice_sizes)
    types = [t for s in starts for t in (s.shape, s.dtype)]
    return prepared(DynamicSlice, (window,), x.shape, x.dtype, *types)(x, *starts)


def dynamic_update_slice(operand: Any, update: Any, start_indices: Any, *,
                         allow_negative_indices: Any = True) -> Any:
    """The operand with the block at given starts replaced; it is moved to lie inside."""
    x, u = _operand("dynamic_update_slice", operand), _operand("dynamic_update_slice", update, 1)
    starts = _starts("dynamic_update_slice", x, start_indices, allow_negative_indices)
    return checked(_update_slice, [x, u, *starts])


def _one_axis(x: Any, axis: int, start: Any, negative: bool) -> tuple[list[Any], list[bool]]:
    starts, allowed = [0] * x.ndim, [False] * x.ndim
    starts[axis], allowed[axis] = start, negative
    return starts, allowed


def dynamic_slice_in_dim(operand: Any, start_index: Any, slice_size: int, axis: int = 0, *,
                         allow_negative_indices: bool = True) -> Any:
    """A dynamic slice along one axis."""
    x = _operand("dynamic_slice_in_dim", operand)
    axis = axis_of(axis, x.ndim)
    starts, allowed = _one_axis(x, axis, start_index, allow_negative_indices)
    window = (*x.shape[:axis], operator.index(slice_size), *x.shape[axis + 1 :])
    return dynamic_slice(x, starts, window, allow_negative_indices=allowed)


def dynamic_index_in_dim(operand: Any, index: Any, axis: int = 0, keepdims: bool = True, *,
                         allow_negative_indices: bool = True) -> Any:
    """The slice of size 1 at an index, whose axis stays or goes."""
    out = dynamic_slice_in_dim(operand, index, 1, axis,
                               allow_negative_indices=allow_negative_indices)
    return out if keepdims else shapes.squeeze(out, (axis,))


def dynamic_update_slice_in_dim(operand: Any, update: Any, start_index: Any, axis: int, *,
                                allow_negative_indices: bool = True) -> Any:
    """A dynamic update along one axis."""
    x = _operand("dynamic_update_slice_in_dim", operand)
    starts, allowed = _one_axis(x, axis_of(axis, x.ndim), start_index, allow_negative_indices)
    return dynamic_update_slice(x, update, starts, allow_negative_indices=allowed)


def dynamic_update_index_in_dim(operand: Any, update: Any, index: Any, axis: int, *,
                                allow_negative_indices: bool = True) -> Any:
    """The operand with the slice at an index replaced; the update may lack its axis."""
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
