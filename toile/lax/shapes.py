"""Functions of shape: reshape, broadcast, transpose, slice, pad, join, split, and filled arrays.

Axes are non-negative unless a function says otherwise, and every size is a Python integer. May
import the engine, primitives, `_operands` and the conversions.
"""

from __future__ import annotations

import builtins
import functools
import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from toile.api.devices import device_put
from toile.engine import dtypes
from toile.engine.arrays import Array, DeviceArray
from toile.engine.conversion import from_numpy
from toile.engine.sharded import sharding_like
from toile.engine.source import here
from toile.lax._operands import (
    axis_of,
    ints,
    operand,
    operands,
    prepared,
    sizes,
    user_dtype,
)
from toile.lax.conversion import _convert_element_type
from toile.primitives.families import BroadcastInDim, Reshape, Transpose
from toile.primitives.random import random_wrap
from toile.primitives.shapes import Concatenate, Iota, Pad, Rev, Slice

__all__ = [
    "broadcast", "broadcast_in_dim", "broadcast_like", "broadcast_shapes", "broadcast_to_rank",
    "broadcasted_iota", "collapse", "concatenate", "empty", "expand_dims", "full", "full_like",
    "index_in_dim", "iota", "pad", "reshape", "rev", "shape_as_value", "slice", "slice_in_dim",
    "split", "squeeze", "stack", "tile", "transpose", "unstack", "zeros_like_array",
]  # fmt: skip

_operand = operand  # the public functions call their first parameter `operand`


# ------------------------------------------------------------------- the same elements elsewhere


def reshape(operand: Any, new_sizes: Any, dimensions: Any = None, *,
            out_sharding: Any = None) -> Any:
    """The elements in row-major order (of the axes in `dimensions`) under another shape."""
    x = operand if operand.__class__ is DeviceArray else _operand("reshape", operand)
    shape = sizes("reshape", new_sizes)
    if dimensions is not None:
        x = transpose(x, dimensions)
    have = x.shape
    return x if have == shape else prepared(Reshape, (shape,), have, x.dtype)(x)


def transpose(operand: Any, permutation: Any) -> Any:
    """Axes in another order: axis i of the result is axis permutation[i] of the operand."""
    x = operand if operand.__class__ is DeviceArray else _operand("transpose", operand)
    perm = ints(permutation)
    if perm == tuple(range(x.ndim)):
        return x
    return prepared(Transpose, (perm,), x.shape, x.dtype)(x)


def rev(operand: Any, dimensions: Sequence[int]) -> Any:
    """Elements in reverse order along some axes."""
    x = _operand("rev", operand)
    return prepared(Rev, (ints(dimensions),), x.shape, x.dtype)(x)


def expand_dims(array: Any, dimensions: Sequence[int]) -> Any:
    """New axes of size 1 at the given places of the result (negative from its end)."""
    x = array if array.__class__ is DeviceArray else _operand("expand_dims", array)
    if len(set(dimensions)) != len(dimensions):
        raise ValueError(f"repeated axis in lax.expand_dims: {tuple(dimensions)}{here()}")
    rank = x.ndim + len(dimensions)
    new = {axis_of(d, rank) for d in dimensions}
    if not new:
        return x
    old = iter(x.shape)
    shape = tuple(1 if i in new else next(old) for i in range(rank))
    return prepared(Reshape, (shape,), x.shape, x.dtype)(x)


def squeeze(array: Any, dimensions: Sequence[int]) -> Any:
    """The array without the given axes, which have size 1."""
    x = array if array.__class__ is DeviceArray else _operand("squeeze", array)
    gone = {axis_of(d, x.ndim) for d in dimensions}
    if not gone:
        return x
    if len(gone) != len(dimensions):
        raise ValueError("dimensions are not unique: squeeze needed distinct axes, got "
                         f"{tuple(dimensions)}{here()}")
    shape = x.shape
    if any(shape[d] != 1 for d in gone):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one, "
                         f"got {shape=} and dimensions={tuple(dimensions)} (only axes of size 1 "
                         f"can go: index, reduce or reshape others){here()}")
    kept = tuple(n for i, n in enumerate(shape) if i not in gone)
    return prepared(Reshape, (kept,), shape, x.dtype)(x)


def collapse(operand: Any, start_dimension: int, stop_dimension: int | None = None) -> Any:
    """The axes from start up to stop as one axis."""
    x = _operand("collapse", operand)
    lo, hi, _ = builtins.slice(start_dimension, stop_dimension).indices(x.ndim)
    if hi < lo:
        raise ValueError("Invalid dimension range passed to collapse: "
                         f"{x.shape}[{start_dimension}:{stop_dimension}]{here()}")
    shape = x.shape
    return reshape(x, (*shape[:lo], math.prod(shape[lo:hi]), *shape[hi:]))


# ---------------------------------------------------------------------------------- broadcasting


def broadcast_in_dim(operand: Any, shape: Any, broadcast_dimensions: Sequence[int], *,
                     out_sharding: Any = None) -> Any:
    """Repeat along new axes; axis i of the operand becomes axis broadcast_dimensions[i]."""
    x = operand if operand.__class__ is DeviceArray else _operand("broadcast_in_dim", operand)
    shape = sizes("broadcast_in_dim", shape)
    dims = ints(broadcast_dimensions)
    have = x.shape
    if have == shape and dims == tuple(range(len(shape))):
        return x
    if len(dims) == len(have) > 1 and any(a > b for a, b in itertools.pairwise(dims)):
        order = sorted(range(len(dims)), key=dims.__getitem__)
        x = transpose(x, tuple(order))
        have, dims = x.shape, tuple(dims[i] for i in order)
    return prepared(BroadcastInDim, (shape, dims), have, x.dtype)(x)


def broadcast(operand: Any, sizes: Sequence[int], *, out_sharding: Any = None) -> Any:
    """New leading axes of the given sizes."""
    x = _operand("broadcast", operand)
    if len(sizes) == 0:
        return x
    lead = len(sizes)
    return broadcast_in_dim(x, (*sizes, *x.shape), tuple(range(lead, lead + x.ndim)))


def broadcast_to_rank(x: Any, rank: int) -> Any:
    """New leading axes of size 1 until the array has `rank` axes."""
    x = _operand("broadcast_to_rank", x)
    missing = rank - x.ndim
    return expand_dims(x, tuple(range(missing))) if missing > 0 else x


def broadcast_like(arr: Any, like_arr: Any) -> Any:
    """The array repeated, after the rules of NumPy, to the shape of another."""
    x, like = _operand("broadcast_like", arr), _operand("broadcast_like", like_arr, 1)
    shape = like.shape
    skip = len(shape) - x.ndim
    if skip < 0 or any(n not in (1, m) for n, m in zip(x.shape, shape[skip:], strict=True)):
        raise ValueError(f"Incompatible types for broadcasting: input type={x.aval.str_short()} "
                         f"and requested type={like.aval.str_short()} (only axes of size 1 "
                         f"stretch){here()}")
    return broadcast_in_dim(x, shape, tuple(range(skip, len(shape))))


@functools.lru_cache(maxsize=4096)
def _broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(s)) + s for s in shapes]
    result = []
    for ns in zip(*padded, strict=True):
        others = {n for n in ns if n != 1}
        if len(others) > 1:
            raise ValueError(f"Incompatible shapes for broadcasting: shapes={list(shapes)}{here()}")
        result.append(others.pop() if others else 1)
    return tuple(result)


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape that arrays of these shapes have together after the rules of NumPy."""
    if not shapes:
        raise ValueError("broadcast_shapes: needed at least one shape, got none" + here())
    return _broadcast_shapes(*(sizes("broadcast_shapes", s) for s in shapes))


def tile(operand: Any, reps: Sequence[int]) -> Any:
    """Copies of the array side by side, reps[i] of them along axis i."""
    x, reps = _operand("tile", operand), sizes("tile", reps)
    if len(reps) != x.ndim:
        raise TypeError(f"tile: needed one number of repetitions for each of {x.ndim} axes, got "
                        f"{reps} for {x.aval.str_short()}{here()}")
    spread = tuple(n for pair in zip(reps, x.shape, strict=True) for n in pair)
    whole = broadcast_in_dim(x, spread, tuple(range(1, 2 * x.ndim, 2)))
    return reshape(whole, tuple(r * n for r, n in zip(reps, x.shape, strict=True)))


# -------------------------------------------------------------------------------- parts of arrays


def slice(operand: Any, start_indices: Sequence[int], limit_indices: Sequence[int],
          strides: Sequence[int] | None = None) -> Any:
    """Elements start, start + stride ... below limit along every axis."""
    x = operand if operand.__class__ is DeviceArray else _operand("slice", operand)
    starts, limits = ints(start_indices), ints(limit_indices)
    steps = (1,) * len(starts) if strides is None else ints(strides)
    if len(limits) != len(starts) or len(steps) != len(starts):
        raise TypeError("slice: needed as many limit_indices and strides as start_indices, got "
                        f"{starts}, {limits}, {steps}{here()}")
    return prepared(Slice, (starts, limits, steps), x.shape, x.dtype)(x)


def slice_in_dim(operand: Any, start_index: int | None, limit_index: int | None, stride: int = 1,
                 axis: int = 0) -> Any:
    """Slice along one axis; negative indices count from its end, None is an end."""
    x = _operand("slice_in_dim", operand)
    axis = axis_of(axis, x.ndim)
    shape = x.shape
    n = shape[axis]
    start = 0 if start_index is None else operator.index(start_index)
    limit = n if limit_index is None else operator.index(limit_index)
    start, limit = start + n * (start < 0), limit + n * (limit < 0)
    zeros, ones = (0,) * x.ndim, (1,) * x.ndim
    fields = (
        (*zeros[:axis], start, *zeros[axis + 1 :]),
        (*shape[:axis], limit, *shape[axis + 1 :]),
        (*ones[:axis], operator.index(stride), *ones[axis + 1 :]),
    )
    return prepared(Slice, fields, shape, x.dtype)(x)


def index_in_dim(operand: Any, index: int, axis: int = 0, keepdims: bool = True) -> Any:
    """The slice of size 1 at an index, whose axis stays or goes."""
    x = _operand("index_in_dim", operand)
    index, axis = operator.index(index), axis_of(axis, x.ndim)
    n = x.shape[axis]
    if not -n <= index < n:
        raise IndexError(f"index {index} is out of bounds for axis {axis} with size {n}{here()}")
    index %= n
    part = slice_in_dim(x, index, index + 1, 1, axis)
    return part if keepdims else squeeze(part, (axis,))


def split(operand: Any, sizes: Sequence[int], axis: int = 0) -> list[Any]:
    """The array cut along an axis into parts of the given sizes."""
    x = _operand("split", operand)
    axis, parts = axis_of(axis, x.ndim), ints(sizes)
    if sum(parts) != x.shape[axis] or min(parts, default=0) < 0:
        raise ValueError(f"split: needed sizes that sum to {x.shape[axis]} (axis {axis} of "
                         f"{x.aval.str_short()}), got {parts}, which sum to {sum(parts)}{here()}")
    found, start = [], 0
    for n in parts:
        found.append(slice_in_dim(x, start, start + n, 1, axis))
        start += n
    return found


def unstack(x: Any, axis: int = 0) -> tuple[Any, ...]:
    """The slices along an axis, without it."""
    x = _operand("unstack", x)
    axis = axis_of(axis, x.ndim)
    return tuple(index_in_dim(x, i, axis, False) for i in range(x.shape[axis]))


# -------------------------------------------------------------------------------- joining, padding


def concatenate(operands: Any, dimension: int) -> Any:
    """Operands one after another along an axis."""
    if len(operands) == 0:
        raise ValueError("concatenate requires a non-empty sequences of arrays" + here())
    xs = [_operand("concatenate", x, i) for i, x in enumerate(operands)]
    if len(xs) == 1 and isinstance(operands[0], Array):
        return xs[0]
    types = [t for x in xs for t in (x.shape, x.dtype)]
    return prepared(Concatenate, (operator.index(dimension),), *types)(*xs)


def stack(operands: Sequence[Any], axis: int = 0) -> Any:
    """Operands of one shape along a new axis."""
    if len(operands) == 0:
        raise ValueError("stack requires a non-empty sequence of arrays" + here())
    xs = [_operand("stack", x, i) for i, x in enumerate(operands)]
    if any(x.shape != xs[0].shape or x.dtype != xs[0].dtype for x in xs):
        listed = ", ".join(x.aval.str_short() for x in xs)
        raise TypeError(f"stack: needed operands of equal shapes and dtypes, got {listed}{here()}")
    axis = axis_of(axis, xs[0].ndim + 1)
    return concatenate([expand_dims(x, (axis,)) for x in xs], axis)


def pad(operand: Any, padding_value: Any, padding_config: Any) -> Any:
    """Padding (low, high, interior) for each axis; negative low and high trim."""
    x, value = operands("pad", (operand, padding_value))
    config = tuple(ints(c) for c in padding_config)
    bad = [c for c in config if len(c) != 3 or c[2] < 0]
    if bad:
        raise ValueError("pad: needed (low, high, interior) with interior >= 0 for each axis, got "
                         f"{config}{here()}")
    return prepared(Pad, (config,), x.shape, x.dtype, value.shape, value.dtype)(x, value)


# ----------------------------------------------------------------------------------- filled arrays


def _check_scalar(value: Any) -> None:
    shape = () if type(value) in (int, float, bool) else np.shape(value)
    if shape:
        raise TypeError(f"full: needed a scalar fill_value, got one of shape {shape}{here()}")


def full(shape: Any, fill_value: Any, dtype: Any = None, *, sharding: Any = None) -> Any:
    """An array with one value everywhere; without a dtype it has the value's, weak bit and all."""
    shape = sizes("full", shape)
    _check_scalar(fill_value)
    if dtype is None:
        value = _operand("full", fill_value, 1)
    else:
        new = user_dtype(dtype, "full")
        if dtypes.is_extended(new):
            return _keys("full", shape, fill_value, new)
        value = _convert_element_type(fill_value, new)
    made = broadcast_in_dim(value, shape, ())
    return made if sharding is None else device_put(made, sharding)


def _keys(name: str, shape: tuple[int, ...], fill_value: Any, dtype: Any) -> Any:
    """Keys that are all one key, or whose words are all one number."""
    if not dtypes.is_extended(getattr(fill_value, "dtype", None)):
        words = full((*shape, *dtype.physical_shape), fill_value, np.uint32)
        return random_wrap(words, dtype.impl.name)
    if fill_value.dtype != dtype:
        raise ValueError(f"{name}: needed a fill value of {dtype}, got {fill_value.dtype}{here()}")
    return broadcast_in_dim(fill_value, shape, ())


def full_like(x: Any, fill_value: Any, dtype: Any = None, shape: Any = None,
              sharding: Any = None) -> Any:
    """An array like `x` in shape and dtype (weak bit too, if no dtype is given), of one value."""
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        like = x
    else:
        like = _operand("full_like", x)
    weak = dtype is None and dtypes.is_weakly_typed(like)
    if dtype is None:
        new = dtypes.canonicalize_dtype(like.dtype, allow_extended_dtype=True)
    else:
        new = user_dtype(dtype, "full_like")
    shape = like.shape if shape is None else shape
    _check_scalar(fill_value)
    if dtypes.is_extended(new):
        return _keys("full_like", tuple(shape), fill_value, new)
    made = broadcast_in_dim(_convert_element_type(fill_value, new, weak), shape, ())
    if sharding is None and not weak:
        sharding = sharding_like(like, tuple(shape))
    return made if sharding is None else device_put(made, sharding)


def empty(shape: Any, dtype: Any, *, out_sharding: Any = None) -> Any:
    """An array whose values do not matter (they are zeros)."""
    return full(shape, 0, dtype)


def broadcasted_iota(dtype: Any, shape: Any, dimension: int, *, out_sharding: Any = None) -> Any:
    """0, 1, 2 ... along one axis of `shape`."""
    fields = (
        user_dtype(dtype, "iota"), sizes("broadcasted_iota", shape), operator.index(dimension)
    )
    if not 0 <= fields[2] < len(fields[1]):
        raise ValueError(f"broadcasted_iota: needed an axis of shape {fields[1]}, got "
                         f"dimension={dimension}{here()}")
    return prepared(Iota, fields)()


def iota(dtype: Any, size: int) -> Any:
    """0, 1, 2 ... size - 1."""
    return broadcasted_iota(dtype, (operator.index(size),), 0)


def shape_as_value(shape: Any) -> Any:
    """A shape as an array of integers."""
    return from_numpy(np.array(shape, dtypes.default_int_dtype()), copy=False)


def zeros_like_array(x: Any) -> Any:
    """Zeros of the shape and dtype of `x`."""
    return full_like(x, 0)


