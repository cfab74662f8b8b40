"""Functions that change shapes or build arrays: reshape, broadcast, transpose, slice, pad, full.

Axes must be nonnegative unless a docstring says otherwise, and every size is a Python integer. This
module may import the engine, primitives, `api.devices`, `_operands` and the conversions.
"""

from __future__ import annotations

import builtins
import functools
import itertools
import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from toile.api.devices import device_put
from toile.engine import dtypes
from toile.engine.annotations import ArrayLike, DTypeLike, ShapeLike
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

if TYPE_CHECKING:
    from toile.engine.shardings import Sharding
    from toile.engine.structs import ShapeDtypeStruct
    from toile.lax._operands import ShardingLike

__all__ = [
    "broadcast", "broadcast_in_dim", "broadcast_like", "broadcast_shapes", "broadcast_to_rank",
    "broadcasted_iota", "collapse", "concatenate", "empty", "expand_dims", "full", "full_like",
    "index_in_dim", "iota", "pad", "reshape", "rev", "shape_as_value", "slice", "slice_in_dim",
    "split", "squeeze", "stack", "tile", "transpose", "unstack", "zeros_like_array",
]  # fmt: skip

_operand = operand  # the public functions call their first parameter `operand`


# ------------------------------------------------------------------- the same elements elsewhere


def reshape(operand: ArrayLike, new_sizes: ShapeLike, dimensions: Sequence[int] | None = None, *,
            out_sharding: ShardingLike | None = None) -> Array:
    """Rearrange the elements of an array into another shape, in row-major order.

    Args:
        operand: array to reshape.
        new_sizes: the new shape, with the same number of elements. A size of -1 is not accepted.
        dimensions: a permutation of the axes, which is applied first; if None, the order of the
            axes stays the same.
        out_sharding: accepted for compatibility with JAX, and ignored.

    Returns:
        An array of shape `new_sizes` with the dtype of `operand`.

    >>> lax.reshape(jnp.array([[1, 2, 3], [4, 5, 6]]), (3, 2))
    Array([[1, 2],
           [3, 4],
           [5, 6]], dtype=int32)
    >>> lax.reshape(jnp.array([[1, 2, 3], [4, 5, 6]]), (6,), dimensions=(1, 0))
    Array([1, 4, 2, 5, 3, 6], dtype=int32)
    """
    x = operand if operand.__class__ is DeviceArray else _operand("reshape", operand)
    shape = sizes("reshape", new_sizes)
    if dimensions is not None:
        x = transpose(x, dimensions)
    have = x.shape
    return x if have == shape else prepared(Reshape, (shape,), have, x.dtype)(x)


def transpose(operand: ArrayLike, permutation: Sequence[int] | np.ndarray) -> Array:
    """Reorder the axes of an array.

    Args:
        operand: array to transpose.
        permutation: the new order of the axes: axis `i` of the result is axis `permutation[i]` of
            `operand`.

    Returns:
        An array with the dtype of `operand`.

    >>> lax.transpose(jnp.zeros((2, 3, 5)), (2, 0, 1)).shape
    (5, 2, 3)
    """
    x = operand if operand.__class__ is DeviceArray else _operand("transpose", operand)
    perm = ints(permutation)
    if perm == tuple(range(x.ndim)):
        return x
    return prepared(Transpose, (perm,), x.shape, x.dtype)(x)


def rev(operand: ArrayLike, dimensions: Sequence[int]) -> Array:
    """Reverse the order of the elements along some axes.

    Args:
        operand: array to reverse.
        dimensions: the axes to reverse, which must be distinct and nonnegative.

    Returns:
        An array with the shape and dtype of `operand`.

    >>> lax.rev(jnp.array([[1, 2], [3, 4]]), (1,))
    Array([[2, 1],
           [4, 3]], dtype=int32)
    """
    x = _operand("rev", operand)
    return prepared(Rev, (ints(dimensions),), x.shape, x.dtype)(x)


def expand_dims(array: ArrayLike, dimensions: Sequence[int]) -> Array:
    """Insert axes of size 1.

    Args:
        array: array to expand.
        dimensions: positions of the new axes in the result; negative values count from the end.

    Returns:
        An array with the same elements and dtype.

    >>> lax.expand_dims(jnp.zeros((2, 3)), (0, 3)).shape
    (1, 2, 3, 1)
    """
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


def squeeze(array: ArrayLike, dimensions: Sequence[int]) -> Array:
    """Remove axes of size 1.

    Args:
        array: array to squeeze.
        dimensions: the axes to remove; negative values count from the end.

    Returns:
        An array with the same elements and dtype.

    >>> lax.squeeze(jnp.zeros((1, 3, 1)), (0, 2)).shape
    (3,)
    """
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
                         f"can be removed: index, reduce or reshape others){here()}")
    kept = tuple(n for i, n in enumerate(shape) if i not in gone)
    return prepared(Reshape, (kept,), shape, x.dtype)(x)


def collapse(operand: ArrayLike, start_dimension: int, stop_dimension: int | None = None) -> Array:
    """Merge neighboring axes into one.

    Args:
        operand: array whose axes are merged.
        start_dimension: the first axis to merge; negative values count from the end.
        stop_dimension: the axis after the last axis to merge, as in a Python slice; if None, all
            axes from `start_dimension` on are merged.

    Returns:
        An array with the same elements and dtype.

    >>> lax.collapse(jnp.zeros((2, 3, 5)), 0, 2).shape
    (6, 5)
    """
    x = _operand("collapse", operand)
    lo, hi, _ = builtins.slice(start_dimension, stop_dimension).indices(x.ndim)
    if hi < lo:
        raise ValueError("Invalid dimension range passed to collapse: "
                         f"{x.shape}[{start_dimension}:{stop_dimension}]{here()}")
    shape = x.shape
    return reshape(x, (*shape[:lo], math.prod(shape[lo:hi]), *shape[hi:]))


# ---------------------------------------------------------------------------------- broadcasting


def broadcast_in_dim(operand: ArrayLike, shape: ShapeLike, broadcast_dimensions: Sequence[int], *,
                     out_sharding: ShardingLike | None = None) -> Array:
    """Broadcast an array to a shape, with an explicit position for each axis of the array.

    NumPy's broadcasting, by contrast, always aligns shapes at their last axes.

    Args:
        operand: array to repeat.
        shape: shape of the result.
        broadcast_dimensions: for each axis of `operand`, the corresponding axis of the result. The
            two sizes must be equal, or the size in `operand` must be 1.
        out_sharding: accepted for compatibility with JAX, and ignored.

    Returns:
        An array of shape `shape` with the dtype of `operand`.

    >>> lax.broadcast_in_dim(jnp.array([1, 2]), (2, 3), (0,))
    Array([[1, 1, 1],
           [2, 2, 2]], dtype=int32)
    """
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


def broadcast(operand: ArrayLike, sizes: Sequence[int], *,
              out_sharding: ShardingLike | None = None) -> Array:
    """Repeat an array along new leading axes.

    Args:
        operand: array to repeat.
        sizes: sizes of the new axes.
        out_sharding: accepted for compatibility with JAX, and ignored.

    Returns:
        An array of shape `(*sizes, *operand.shape)`.

    >>> lax.broadcast(jnp.array([1, 2]), (3,))
    Array([[1, 2],
           [1, 2],
           [1, 2]], dtype=int32)
    """
    x = _operand("broadcast", operand)
    if len(sizes) == 0:
        return x
    lead = len(sizes)
    return broadcast_in_dim(x, (*sizes, *x.shape), tuple(range(lead, lead + x.ndim)))


def broadcast_to_rank(x: ArrayLike, rank: int) -> Array:
    """Insert leading axes of size 1 until an array has a given number of axes.

    Args:
        x: array to reshape; if it already has `rank` axes or more, it is returned unchanged.
        rank: number of axes of the result.

    Returns:
        An array with the same elements and dtype.

    >>> lax.broadcast_to_rank(jnp.zeros((2, 3)), 4).shape
    (1, 1, 2, 3)
    """
    x = _operand("broadcast_to_rank", x)
    missing = rank - x.ndim
    return expand_dims(x, tuple(range(missing))) if missing > 0 else x


def broadcast_like(arr: ArrayLike, like_arr: ArrayLike) -> Array:
    """Broadcast an array to the shape of another array, by NumPy's rules.

    Args:
        arr: array to repeat.
        like_arr: array whose shape is the shape of the result.

    Returns:
        An array with the dtype of `arr`.

    >>> lax.broadcast_like(jnp.array([1, 2]), jnp.zeros((3, 2)))
    Array([[1, 2],
           [1, 2],
           [1, 2]], dtype=int32)
    """
    x, like = _operand("broadcast_like", arr), _operand("broadcast_like", like_arr, 1)
    shape = like.shape
    skip = len(shape) - x.ndim
    if skip < 0 or any(n not in (1, m) for n, m in zip(x.shape, shape[skip:], strict=True)):
        raise ValueError(f"Incompatible types for broadcasting: input type={x.aval.str_short()} "
                         f"and requested type={like.aval.str_short()} (only axes of size 1 "
                         f"can be stretched){here()}")
    return broadcast_in_dim(x, shape, tuple(range(skip, len(shape))))


@functools.lru_cache(maxsize=4096)
def _broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(s)) + s for s in shapes]
    result = []
    for ns in zip(*padded, strict=True):
        others = {n for n in ns if n != 1}
        if len(others) > 1:
            raise ValueError(f"Incompatible shapes for broadcasting: shapes={list(shapes)} "
                             "(sizes must be equal or 1, aligned from the last axis: insert an "
                             f"axis with x[:, None], or transpose){here()}")
        result.append(others.pop() if others else 1)
    return tuple(result)


def broadcast_shapes(*shapes: ShapeLike) -> tuple[int, ...]:
    """Compute the shape to which arrays broadcast by NumPy's rules.

    Args:
        shapes: shapes of the arrays, at least one.

    Returns:
        The common shape.

    >>> lax.broadcast_shapes((2, 1), (3,), ())
    (2, 3)
    """
    if not shapes:
        raise ValueError("broadcast_shapes: needed at least one shape, got none" + here())
    for s in shapes:
        if isinstance(s, (tuple, list)) and any(isinstance(n, int) and n < 0 for n in s):
            raise TypeError("Only non-negative indices are allowed when broadcasting static shapes,"
                            f" but got shape {s!r}.{here()}")
    return _broadcast_shapes(*(sizes("broadcast_shapes", s) for s in shapes))


def tile(operand: ArrayLike, reps: Sequence[int]) -> Array:
    """Repeat a whole array along its axes.

    Args:
        operand: array to repeat.
        reps: number of copies along each axis.

    Returns:
        An array whose shape is the shape of `operand` multiplied by `reps`, axis by axis.

    >>> lax.tile(jnp.array([[1, 2]]), (2, 2))
    Array([[1, 2, 1, 2],
           [1, 2, 1, 2]], dtype=int32)
    """
    x, reps = _operand("tile", operand), sizes("tile", reps)
    if len(reps) != x.ndim:
        raise TypeError(f"tile: needed one number of repetitions for each of {x.ndim} axes, got "
                        f"{reps} for {x.aval.str_short()}{here()}")
    spread = tuple(n for pair in zip(reps, x.shape, strict=True) for n in pair)
    whole = broadcast_in_dim(x, spread, tuple(range(1, 2 * x.ndim, 2)))
    return reshape(whole, tuple(r * n for r, n in zip(reps, x.shape, strict=True)))


# -------------------------------------------------------------------------------- parts of arrays


def slice(operand: ArrayLike, start_indices: Sequence[int], limit_indices: Sequence[int],
          strides: Sequence[int] | None = None) -> Array:
    """Read a block of an array at a fixed position.

    Along each axis, the result is `operand[start:limit:stride]`, but indices that are negative or
    out of range raise an error. If the position is a traced value, use `lax.dynamic_slice`.

    Args:
        operand: array to read.
        start_indices: first position along each axis.
        limit_indices: end of the block along each axis, excluded.
        strides: distance between elements along each axis; None means 1.

    Returns:
        An array with the dtype of `operand`.

    >>> lax.slice(jnp.arange(12).reshape(3, 4), (1, 0), (3, 4), (1, 2))
    Array([[ 4,  6],
           [ 8, 10]], dtype=int32)
    """
    x = operand if operand.__class__ is DeviceArray else _operand("slice", operand)
    starts, limits = ints(start_indices), ints(limit_indices)
    steps = (1,) * len(starts) if strides is None else ints(strides)
    if len(limits) != len(starts) or len(steps) != len(starts):
        raise TypeError("slice: needed as many limit_indices and strides as start_indices, got "
                        f"{starts}, {limits}, {steps}{here()}")
    return prepared(Slice, (starts, limits, steps), x.shape, x.dtype)(x)


def slice_in_dim(operand: ArrayLike, start_index: int | None, limit_index: int | None,
                 stride: int = 1, axis: int = 0) -> Array:
    """Read a part of an array along one axis.

    Args:
        operand: array to read.
        start_index: first position; negative values count from the end. If `start_index` is None,
            the slice begins at the start of the axis.
        limit_index: end position, excluded; negative values count from the end. If `limit_index` is
            None, the slice ends at the end of the axis.
        stride: distance between elements.
        axis: the axis to slice; negative axes count from the end.

    Returns:
        An array with the dtype of `operand`.

    >>> lax.slice_in_dim(jnp.arange(6), 1, -1, 2)
    Array([1, 3], dtype=int32)
    """
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


def index_in_dim(operand: ArrayLike, index: int, axis: int = 0, keepdims: bool = True) -> Array:
    """Read the slice at one position along an axis.

    Args:
        operand: array to read.
        index: the position; negative values count from the end.
        axis: the axis to index; negative axes count from the end.
        keepdims: whether to keep the axis, with size 1.

    Returns:
        An array with the dtype of `operand`. The axis has size 1, or is removed if `keepdims` is
        False.

    >>> lax.index_in_dim(jnp.array([[1, 2], [3, 4]]), -1, keepdims=False)
    Array([3, 4], dtype=int32)
    """
    x = _operand("index_in_dim", operand)
    index, axis = operator.index(index), axis_of(axis, x.ndim)
    n = x.shape[axis]
    if not -n <= index < n:
        raise IndexError(f"index {index} is out of bounds for axis {axis} with size {n}{here()}")
    index %= n
    part = slice_in_dim(x, index, index + 1, 1, axis)
    return part if keepdims else squeeze(part, (axis,))


def split(operand: ArrayLike, sizes: Sequence[int], axis: int = 0) -> list[Array]:
    """Split an array along an axis into parts of given sizes.

    Args:
        operand: array to split.
        sizes: sizes of the parts; their sum must be the size of the axis.
        axis: the axis to split; negative axes count from the end.

    Returns:
        A list of arrays, one for each size.

    >>> lax.split(jnp.arange(5), (2, 3))
    [Array([0, 1], dtype=int32), Array([2, 3, 4], dtype=int32)]
    """
    x = _operand("split", operand)
    axis, parts = axis_of(axis, x.ndim), ints(sizes)
    if min(parts, default=0) < 0:
        raise ValueError(f"Sizes passed to split must be nonnegative, got {parts}{here()}")
    if sum(parts) != x.shape[axis]:
        raise ValueError(f"split: Sum of sizes {sum(parts)} must be equal to the size "
                         f"{x.shape[axis]} of axis {axis}: needed sizes for {x.aval.str_short()}, "
                         f"got {parts}{here()}")
    found, start = [], 0
    for n in parts:
        found.append(slice_in_dim(x, start, start + n, 1, axis))
        start += n
    return found


def unstack(x: ArrayLike, axis: int = 0) -> tuple[Array, ...]:
    """Split an array into its slices along an axis.

    Args:
        x: array to split.
        axis: the axis to split, which is removed from the slices; negative axes count from the end.

    Returns:
        A tuple of arrays, one for each position along the axis.

    >>> lax.unstack(jnp.array([[1, 2], [3, 4]]))
    (Array([1, 2], dtype=int32), Array([3, 4], dtype=int32))
    """
    x = _operand("unstack", x)
    axis = axis_of(axis, x.ndim)
    return tuple(index_in_dim(x, i, axis, False) for i in range(x.shape[axis]))


# -------------------------------------------------------------------------------- joining, padding


def concatenate(operands: Sequence[ArrayLike] | Array | np.ndarray, dimension: int) -> Array:
    """Join arrays along an axis.

    Args:
        operands: the arrays, at least one. All must have the same dtype, and the same sizes along
            all axes except `dimension`.
        dimension: the axis to join along, which must be nonnegative.

    Returns:
        An array with the operands' dtype.

    >>> lax.concatenate([jnp.array([1, 2]), jnp.array([3])], 0)
    Array([1, 2, 3], dtype=int32)
    """
    if len(operands) == 0:
        raise ValueError("concatenate requires a non-empty sequence of arrays" + here())
    xs = [_operand("concatenate", x, i) for i, x in enumerate(operands)]
    if len(xs) == 1 and isinstance(operands[0], Array):
        return xs[0]
    types = [t for x in xs for t in (x.shape, x.dtype)]
    return prepared(Concatenate, (operator.index(dimension),), *types)(*xs)


def stack(operands: Sequence[ArrayLike], axis: int = 0) -> Array:
    """Join arrays along a new axis.

    Args:
        operands: the arrays, at least one. All must have the same shape and dtype.
        axis: position of the new axis in the result; negative axes count from the end.

    Returns:
        An array with the operands' dtype.

    >>> lax.stack([jnp.array([1, 2]), jnp.array([3, 4])], 1)
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    if len(operands) == 0:
        raise ValueError("stack requires a non-empty sequence of arrays" + here())
    xs = [_operand("stack", x, i) for i, x in enumerate(operands)]
    if any(x.shape != xs[0].shape or x.dtype != xs[0].dtype for x in xs):
        listed = ", ".join(x.aval.str_short() for x in xs)
        raise TypeError(f"stack: needed operands of equal shapes and dtypes, got {listed}{here()}")
    axis = axis_of(axis, xs[0].ndim + 1)
    return concatenate([expand_dims(x, (axis,)) for x in xs], axis)


def pad(operand: ArrayLike, padding_value: ArrayLike,
        padding_config: Sequence[tuple[int, int, int]]) -> Array:
    """Add elements before, after and between the elements of an array.

    Args:
        operand: array to pad.
        padding_value: the value of the new elements, a scalar of the dtype of `operand`.
        padding_config: for each axis, a triple `(before, after, between)`: the numbers of elements
            to add at its start, at its end, and between every two neighboring elements. If `before`
            or `after` is negative, elements are removed at that end instead.

    Returns:
        An array with the dtype of `operand`.

    >>> lax.pad(jnp.array([1, 2, 3]), 0, [(2, 1, 1)])
    Array([0, 0, 1, 0, 2, 0, 3, 0], dtype=int32)
    >>> lax.pad(jnp.array([1, 2, 3]), 0, [(-1, 1, 0)])
    Array([2, 3, 0], dtype=int32)
    """
    x, value = operands("pad", (operand, padding_value))
    config = tuple(ints(c) for c in padding_config)
    bad = [c for c in config if len(c) != 3 or c[2] < 0]
    if bad:
        raise ValueError("pad: interior padding in padding_config must be nonnegative: needed "
                         f"(low, high, interior) for each axis, got {config}{here()}")
    return prepared(Pad, (config,), x.shape, x.dtype, value.shape, value.dtype)(x, value)


# ----------------------------------------------------------------------------------- filled arrays


def _check_scalar(value: Any) -> None:
    shape = () if type(value) in (int, float, bool) else np.shape(value)
    if shape:
        raise TypeError(f"full: needed a scalar fill_value, got one of shape {shape}{here()}")


def full(shape: ShapeLike, fill_value: ArrayLike, dtype: DTypeLike | None = None, *,
         sharding: Sharding | None = None) -> Array:
    """Create an array filled with one value.

    Args:
        shape: shape of the array.
        fill_value: the value of all elements, a scalar.
        dtype: dtype of the array; None for the dtype of the value.
        sharding: sharding of the array; if None, the default device is used.

    Returns:
        A new array.

    >>> lax.full((2, 3), 7.0)
    Array([[7., 7., 7.],
           [7., 7., 7.]], dtype=float32, weak_type=True)
    """
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
    """An array of keys, all equal to one key or with all words equal to one number."""
    if not dtypes.is_extended(getattr(fill_value, "dtype", None)):
        words = full((*shape, *dtype.physical_shape), fill_value, np.uint32)
        return random_wrap(words, dtype.impl.name)
    if fill_value.dtype != dtype:
        raise ValueError(f"{name}: needed a fill value of {dtype}, got {fill_value.dtype}{here()}")
    return broadcast_in_dim(fill_value, shape, ())


def full_like(x: ArrayLike | ShapeDtypeStruct, fill_value: ArrayLike,
              dtype: DTypeLike | None = None, shape: ShapeLike | None = None,
              sharding: Sharding | None = None) -> Array:
    """Create an array with the shape and dtype of another array, filled with one value.

    Args:
        x: array, number, or any other object with a shape and a dtype.
        fill_value: the value of all elements, a scalar.
        dtype: dtype of the result; None for the dtype of `x`.
        shape: shape of the result; None for the shape of `x`.
        sharding: sharding of the result; None for the sharding of `x`.

    Returns:
        A new array.

    >>> lax.full_like(jnp.array([1, 2]), 7)
    Array([7, 7], dtype=int32)
    """
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        like: Any = x
    else:
        like = _operand("full_like", x)
    weak = dtype is None and dtypes.is_weakly_typed(like)
    if dtype is None:
        new = dtypes.canonicalize_dtype(like.dtype, allow_extended_dtype=True)
    else:
        new = user_dtype(dtype, "full_like")
    whole: Any = like.shape if shape is None else shape
    _check_scalar(fill_value)
    if dtypes.is_extended(new):
        return _keys("full_like", tuple(whole), fill_value, new)
    made = broadcast_in_dim(_convert_element_type(fill_value, new, weak), whole, ())
    if sharding is None and not weak:
        sharding = sharding_like(like, tuple(whole))
    return made if sharding is None else device_put(made, sharding)


def empty(shape: ShapeLike, dtype: DTypeLike, *, out_sharding: ShardingLike | None = None) -> Array:
    """Create an array without specifying its values.

    toile fills the array with zeros.

    Args:
        shape: shape of the array.
        dtype: dtype of the array.
        out_sharding: accepted for compatibility with JAX, and ignored.

    Returns:
        A new array.

    >>> lax.empty((2,), jnp.float32).shape
    (2,)
    """
    return full(shape, 0, dtype)


def broadcasted_iota(dtype: DTypeLike, shape: ShapeLike, dimension: int, *,
                     out_sharding: ShardingLike | None = None) -> Array:
    """Create an array with the values 0, 1, 2 and so on along one axis.

    Args:
        dtype: dtype of the array.
        shape: shape of the array.
        dimension: the axis along which the values increase, which must be nonnegative. Along the
            other axes, the values are constant.
        out_sharding: accepted for compatibility with JAX, and ignored.

    Returns:
        A new array.

    >>> lax.broadcasted_iota(jnp.int32, (2, 3), 1)
    Array([[0, 1, 2],
           [0, 1, 2]], dtype=int32)
    """
    fields = (
        user_dtype(dtype, "iota"), sizes("broadcasted_iota", shape), operator.index(dimension)
    )
    if not 0 <= fields[2] < len(fields[1]):
        raise ValueError(f"broadcasted_iota: needed an axis of shape {fields[1]}, got "
                         f"dimension={dimension}{here()}")
    return prepared(Iota, fields)()


def iota(dtype: DTypeLike, size: int) -> Array:
    """Create a vector of the numbers from 0 to `size - 1`.

    Args:
        dtype: dtype of the vector.
        size: length of the vector.

    Returns:
        A new array of shape `(size,)`.

    >>> lax.iota(jnp.int32, 4)
    Array([0, 1, 2, 3], dtype=int32)
    """
    return broadcasted_iota(dtype, (operator.index(size),), 0)


def shape_as_value(shape: Sequence[int]) -> Array:
    """Convert a shape to an array of integers.

    Args:
        shape: the shape, a sequence of sizes.

    Returns:
        A vector of integers of the default dtype.

    >>> lax.shape_as_value((2, 3))
    Array([2, 3], dtype=int32)
    """
    return from_numpy(np.array(shape, dtypes.default_int_dtype()), copy=False)


def zeros_like_array(x: ArrayLike) -> Array:
    """Create an array of zeros with the shape and dtype of another array.

    Args:
        x: array or number.

    Returns:
        A new array.

    >>> lax.zeros_like_array(jnp.array([1.5, 2.5]))
    Array([0., 0.], dtype=float32)
    """
    return full_like(x, 0)


