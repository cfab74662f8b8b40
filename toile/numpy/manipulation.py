"""Functions that change shapes or the order of axes and elements: reshape, transpose, roll, etc.

Each function checks its arguments and then applies one or two `lax` operations; arrays that already
have the requested form are returned unchanged. Joining and splitting are in joins.py.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Sequence
from typing import Any, SupportsIndex, overload

import numpy as np

from toile import lax
from toile.engine import extra_warnings
from toile.engine.annotations import ArrayLike, AxisLike, ShapeLike
from toile.engine.errors import ShapeError
from toile.engine.promotion import user_stack_level
from toile.engine.source import here
from toile.numpy import _helpers as h
from toile.numpy._helpers import Array, arr, as_array, canonical_axes, canonical_axis, check
from toile.numpy._operands import is_arraylike


def _warn_of_lists(name, a):
    if not is_arraylike(a):
        warnings.warn(f"{name} requires ndarray or scalar arguments, got {type(a)}: this will be "
                      "an error (convert it with jnp.array)", DeprecationWarning,
                      stacklevel=user_stack_level())


def shape(a: ArrayLike | Sequence[Any]) -> tuple[int, ...]:
    """Return the shape of an array or number.

    Args:
        a: array or number. Nested sequences also work, but cause a warning.

    Returns:
        A tuple of integers; () for a number.
    """
    if hasattr(a, "shape"):
        return a.shape
    _warn_of_lists("shape", a)
    return np.shape(h.unwrapped(a))


def ndim(a: ArrayLike | Sequence[Any]) -> int:
    """Return the number of axes of an array or number.

    Args:
        a: array or number. Nested sequences also work, but cause a warning.

    Returns:
        A Python integer; 0 for a number.
    """
    if hasattr(a, "ndim"):
        return a.ndim
    _warn_of_lists("ndim", a)
    return np.ndim(h.unwrapped(a))


def size(a: ArrayLike | Sequence[Any], axis: AxisLike = None) -> int:
    """Count the elements of an array, or multiply the lengths of some of its axes.

    Args:
        a: array or number. Nested sequences also work, but cause a warning.
        axis: axis or axes whose lengths are multiplied; None for all axes.

    Returns:
        A Python integer.
    """
    if not hasattr(a, "shape"):
        _warn_of_lists("size", a)
    dims = np.shape(h.unwrapped(a))
    if axis is None:
        return math.prod(dims)
    axes = canonical_axes(axis, len(dims))
    if len(set(axes)) < len(axes):
        raise ValueError(f"repeated axis: {axes}{here()}")
    return math.prod(dims[i] for i in axes)


def _given_sizes(wanted):
    """Convert a new shape to a tuple of integers."""
    if isinstance(wanted, (Array, np.ndarray)) and wanted.ndim:
        return tuple(int(d) for d in h.concrete(wanted, "reshape shape"))
    return tuple([d if type(d) is int else h.static_int(d, "reshape shape")
                  for d in h.one_or_more(wanted)])


def _new_shape(have, count, wanted):
    """Convert the requested shape `wanted` to a tuple, with -1 replaced by a size."""
    dims = _given_sizes(wanted)
    unknown = dims.count(-1)
    if unknown > 1:
        raise TypeError("can only specify one unknown axis size with a `-1` value, got "
                        f"{wanted}{here()}")
    if any(d < -1 for d in dims):
        raise TypeError(f"reshape: needed sizes >= -1, got {dims}{here()}")
    known = math.prod(d for d in dims if d != -1)
    if unknown:
        if known == 0 or count % known:
            raise ShapeError(f"cannot reshape array of shape {have} (size {count}) into shape "
                            f"{dims}: {known} does not evenly divide {count} (sizes other than -1 "
                            f"must divide the number of elements){here()}")
        return tuple(count // known if d == -1 else d for d in dims)
    if known != count:
        raise ShapeError(f"cannot reshape array of shape {have} (size {count}) into shape {dims} "
                        f"(size {known}) (the sizes must multiply to {count}; one may be "
                        f"-1){here()}")
    return dims


def _reshaped(a, dims):
    """Reshape `a` to `dims`, as a view of the buffer if `a` is concrete."""
    data = h.raw_buffer(a)
    if data is not None:
        return h.wrap_raw(data.reshape(dims), a)
    return lax.reshape(a, dims)


def _permuted(a, perm):
    """Put the axes of `a` in the order `perm`, as a view of the buffer if `a` is concrete."""
    data = h.raw_buffer(a)
    if data is not None:
        return h.wrap_raw(data.transpose(perm), a)
    return lax.transpose(a, perm)


def reshape(a: ArrayLike, shape: ShapeLike, order: str = "C", *,
            copy: bool | None = None, out_sharding: object = None) -> Array:
    """Return the elements of an array in another shape.

    Args:
        a: array or number.
        shape: the new shape, which must have the same number of elements as `a`; one size may be
            -1, in which case it is computed from the other sizes.
        order: "C" to read and write row by row, "F" to do so column by column.
        copy: None or True, which have the same effect: arrays are immutable, so the result may
            share memory with `a`, and may be `a` itself if the shape does not change. False is not
            supported.
        out_sharding: accepted for compatibility with JAX, and ignored.

    Returns:
        An array of the new shape.

    Raises:
        TypeError: more than one size is -1, or a size is less than -1.
        ShapeError: the new shape has a different number of elements. The error is both a TypeError
            and a ValueError.
        ValueError: `copy` is False, or `order` is unknown.
        NotImplementedError: `order` is "A".

    Differences:
        NumPy also has order "A".

    >>> jnp.reshape(jnp.arange(6), (2, -1))
    Array([[0, 1, 2],
           [3, 4, 5]], dtype=int32)
    """
    if isinstance(a, np.ndarray) and out_sharding is None and extra_warnings.mode.keeps_numpy:
        known: Any = a
        return known.reshape(shape, order=order)
    a = as_array("reshape", a)
    if copy is False:
        raise ValueError("reshape: needed copy None or True, got False (results are new "
                         "arrays)" + here())
    dims = _new_shape(a.shape, a.size, shape)
    if order == "C":
        return a if dims == a.shape else _reshaped(a, dims)
    if order == "F":
        flipped = lax.reshape(transpose(a), dims[::-1])
        return transpose(flipped)
    if order == "A":
        raise NotImplementedError("np.reshape order=A is not implemented." + here())
    raise ValueError(f"Unexpected value for 'order' argument: {order}.{here()}")


def ravel(a: ArrayLike, order: str = "C", *, out_sharding: object = None) -> Array:
    """Flatten an array to one dimension.

    Args:
        a: array or number.
        order: "C" to read the elements row by row, "F" to read them column by column.
        out_sharding: accepted for compatibility with JAX, and ignored.

    Returns:
        A one-dimensional array.

    Differences:
        NumPy also has orders "A" and "K".
    """
    a = as_array("ravel", a)
    if order == "K":
        raise NotImplementedError("Ravel not implemented for order='K'." + here())
    return reshape(a, (a.size,), order)


def transpose(a: ArrayLike,
              axes: Sequence[SupportsIndex] | np.ndarray | None = None) -> Array:
    """Reorder the axes of an array.

    Args:
        a: array or number.
        axes: for each axis of the result, the corresponding axis of `a`; if None, the order of the
            axes is reversed.

    Returns:
        The array with its axes reordered.

    >>> jnp.transpose(jnp.zeros((2, 3, 4)), (1, 0, 2)).shape
    (3, 2, 4)
    """
    a = as_array("transpose", a)
    n = a.ndim
    if axes is None:
        axes = range(n)[::-1]
    perm = tuple(operator.index(i) for i in axes)
    full = tuple(i + n if i < 0 else i for i in perm)
    if sorted(full) != list(range(n)):
        kind = TypeError if all(-n <= i < n for i in perm) else ValueError
        raise kind("transpose permutation isn't a permutation of operand dimensions, got "
                   f"permutation {perm} for operand shape {a.shape} (each of 0 ... {n - 1} once, "
                   f"or no axes to reverse them){here()}")
    return a if full == tuple(range(n)) else _permuted(a, full)


def permute_dims(a: ArrayLike, /, axes: Sequence[SupportsIndex]) -> Array:
    """Reorder the axes of an array, as `transpose` does.

    Args:
        a: array or number.
        axes: for each axis of the result, the corresponding axis of `a`.

    Returns:
        The array with its axes reordered.
    """
    return transpose(a, axes)


def matrix_transpose(x: ArrayLike, /) -> Array:
    """Swap the last two axes of an array.

    Args:
        x: array with at least two axes; the matrices are in the last two axes.

    Returns:
        The transposed matrices.
    """
    x = as_array("matrix_transpose", x)
    if x.ndim < 2:
        raise ValueError("x must be at least two-dimensional for matrix_transpose; "
                         f"got ndim={x.ndim}{here()}")
    return _permuted(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def swapaxes(a: ArrayLike, axis1: int, axis2: int) -> Array:
    """Swap two axes of an array.

    Args:
        a: array whose axes are swapped.
        axis1, axis2: the two axes.

    Returns:
        The array with the two axes swapped.
    """
    a = as_array("swapaxes", a)
    i, j = canonical_axis(axis1, a.ndim), canonical_axis(axis2, a.ndim)
    if i == j:
        return a
    perm = list(range(a.ndim))
    perm[i], perm[j] = j, i
    return _permuted(a, perm)


def moveaxis(a: ArrayLike, source: int | Sequence[int],
             destination: int | Sequence[int]) -> Array:
    """Move axes of an array to new positions; the remaining axes keep their order.

    Args:
        a: array whose axes are moved.
        source: axis or axes to move.
        destination: position or positions of these axes in the result.

    Returns:
        The array with its axes moved.

    >>> jnp.moveaxis(jnp.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    a = as_array("moveaxis", a)
    src, dst = canonical_axes(source, a.ndim), canonical_axes(destination, a.ndim)
    if len(src) != len(dst):
        raise ValueError(f"Inconsistent number of elements: {len(src)} vs {len(dst)}{here()}")
    if len(set(src)) != len(src) or len(set(dst)) != len(dst):
        raise ValueError(f"moveaxis: needed different axes, got {source} and {destination}{here()}")
    perm = [i for i in range(a.ndim) if i not in src]
    for d, s in sorted(zip(dst, src)):
        perm.insert(d, s)
    return a if perm == list(range(a.ndim)) else _permuted(a, perm)


def rollaxis(a: ArrayLike, axis: int, start: int = 0) -> Array:
    """Move one axis of an array in front of another; prefer `moveaxis`, which is easier to read.

    Args:
        a: array whose axis is moved.
        axis: axis to move.
        start: axis of `a` before which to place the moved axis; `a.ndim` places it at the end.

    Returns:
        The array with the axis moved.

    >>> jnp.rollaxis(jnp.zeros((2, 3, 4)), 2).shape
    (4, 2, 3)
    """
    a = as_array("rollaxis", a)
    axis = canonical_axis(axis, a.ndim)
    start = operator.index(start)
    if not -a.ndim <= start <= a.ndim:
        raise ValueError(f"start={start!r} must satisfy {-a.ndim}<=start<={a.ndim}{here()}")
    start += a.ndim if start < 0 else 0
    return moveaxis(a, axis, start - 1 if start > axis else start)


def squeeze(a: ArrayLike, axis: AxisLike = None) -> Array:
    """Remove axes of length 1.

    Args:
        a: array or number.
        axis: axis or axes to remove; None for all axes of length 1.

    Returns:
        The array without the removed axes.

    Raises:
        ValueError: the length of a given axis is not 1.
    """
    a = as_array("squeeze", a)
    if axis is None:
        axes = tuple(i for i, n in enumerate(a.shape) if n == 1)
    else:
        axes = canonical_axes(axis, a.ndim)
        if len(set(axes)) != len(axes):
            raise ValueError(f"dimensions are not unique: {axes}{here()}")
        if any(a.shape[i] != 1 for i in axes):
            raise ValueError("cannot select an axis to squeeze out which has size not equal to "
                             f"one, got shape={a.shape} and dimensions={axes} (only axes of size 1 "
                             f"can be removed: index, reduce or reshape others){here()}")
    if not axes:
        return a
    data = h.raw_buffer(a)
    return lax.squeeze(a, axes) if data is None else h.wrap_raw(data.squeeze(axes), a)


def expand_dims(a: ArrayLike, axis: int | Sequence[int]) -> Array:
    """Insert axes of length 1.

    Args:
        a: array or number.
        axis: position or positions of the new axes in the result.

    Returns:
        The array with the new axes.

    >>> jnp.expand_dims(jnp.arange(3), (0, 2)).shape
    (1, 3, 1)
    """
    a = as_array("expand_dims", a)
    axes = h.one_or_more(axis)
    axes = canonical_axes(axes, a.ndim + len(axes))
    if len(set(axes)) != len(axes):
        raise ValueError(f"repeated axis in expand_dims: {axis}{here()}")
    data = h.raw_buffer(a)
    return lax.expand_dims(a, axes) if data is None else h.wrap_raw(np.expand_dims(data, axes), a)


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """Compute the shape to which several shapes broadcast.

    Args:
        *shapes: the shapes. They are aligned at their last axes; aligned sizes other than 1 must
            be equal.

    Returns:
        The common shape, as a tuple of integers.

    >>> jnp.broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    return h.broadcast_shapes(*shapes)


def broadcast_to(array: ArrayLike, shape: ShapeLike, *, out_sharding: object = None) -> Array:
    """Broadcast an array to a shape, repeating it along new axes and axes of length 1.

    Args:
        array: array or number.
        shape: shape of the result. It is aligned with the shape of `array` at the last axes;
            aligned sizes must be equal, unless the size in `array` is 1.
        out_sharding: accepted for compatibility with JAX, and ignored.

    Returns:
        An array of the given shape.

    Raises:
        ValueError: `array` does not broadcast to `shape`.
    """
    array = as_array("broadcast_to", array)
    if not isinstance(shape, tuple):
        shape = tuple(shape) if np.iterable(shape) else (shape,)
    dims = tuple(d if type(d) is int else h.static_int(d, "broadcast shape") for d in shape)
    return h.broadcast_to(array, dims)


def broadcast_arrays(*args: ArrayLike) -> tuple[Array, ...]:
    """Broadcast arrays against each other.

    Args:
        *args: arrays and numbers.

    Returns:
        A tuple of the arrays, all with the common shape; each keeps its dtype.
    """
    xs = h.as_arrays("broadcast_arrays", *args)
    common = broadcast_shapes(*(x.shape for x in xs))
    return tuple(h.broadcast_to(x, common) for x in xs)


def _atleast(name, make, arys):
    if len(arys) == 1 and isinstance(arys[0], (list, tuple)):
        check(name, *arys[0])
        return make(arr(arys[0]))
    out = [make(as_array(name, x)) for x in arys]
    return out[0] if len(out) == 1 else out


@overload
def atleast_1d(x: ArrayLike | Sequence[ArrayLike], /) -> Array: ...
@overload
def atleast_1d(*arys: ArrayLike) -> list[Array]: ...
def atleast_1d(*arys: ArrayLike | Sequence[ArrayLike]) -> Array | list[Array]:
    """Convert numbers to arrays of length 1; arrays with at least one axis are returned unchanged.

    Args:
        *arys: arrays and numbers; a single list or tuple of these becomes one array.

    Returns:
        An array if there is one argument, and otherwise a list of arrays.
    """
    return _atleast("atleast_1d", lambda x: x if x.ndim else lax.reshape(x, (1,)), arys)


@overload
def atleast_2d(x: ArrayLike | Sequence[ArrayLike], /) -> Array: ...
@overload
def atleast_2d(*arys: ArrayLike) -> list[Array]: ...
def atleast_2d(*arys: ArrayLike | Sequence[ArrayLike]) -> Array | list[Array]:
    """Give arrays at least two axes, by adding leading axes of length 1.

    Args:
        *arys: arrays and numbers; a single list or tuple of these becomes one array.

    Returns:
        An array if there is one argument, and otherwise a list of arrays.

    >>> jnp.atleast_2d(jnp.arange(3)).shape
    (1, 3)
    """
    return _atleast("atleast_2d", lambda x: x if x.ndim > 1 else lax.expand_dims(
        x, tuple(range(2 - x.ndim))), arys)


@overload
def atleast_3d(x: ArrayLike | Sequence[ArrayLike], /) -> Array: ...
@overload
def atleast_3d(*arys: ArrayLike) -> list[Array]: ...
def atleast_3d(*arys: ArrayLike | Sequence[ArrayLike]) -> Array | list[Array]:
    """Give arrays at least three axes: (n,) becomes (1, n, 1), and (m, n) becomes (m, n, 1).

    Args:
        *arys: arrays and numbers; a single list or tuple of these becomes one array.

    Returns:
        An array if there is one argument, and otherwise a list of arrays.
    """
    def make(x):
        new = {0: (0, 1, 2), 1: (0, 2), 2: (2,)}.get(x.ndim, ())
        return lax.expand_dims(x, new) if new else x
    return _atleast("atleast_3d", make, arys)


def flip(m: ArrayLike, axis: AxisLike = None) -> Array:
    """Reverse the order of elements along the given axes.

    Args:
        m: array whose elements are reversed.
        axis: axis or axes to reverse; None for all axes.

    Returns:
        An array with the shape and dtype of `m`.
    """
    m = as_array("flip", m)
    axes = tuple(range(m.ndim)) if axis is None else canonical_axes(axis, m.ndim)
    return lax.rev(m, axes) if axes else m


def flipud(m: ArrayLike) -> Array:
    """Reverse the order of elements along the first axis.

    Args:
        m: array with at least one axis.

    Returns:
        An array with the shape and dtype of `m`.
    """
    return flip(m, 0)


def fliplr(m: ArrayLike) -> Array:
    """Reverse the order of elements along the second axis.

    Args:
        m: array with at least two axes.

    Returns:
        An array with the shape and dtype of `m`.
    """
    return flip(m, 1)


def rot90(m: ArrayLike, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Array:
    """Rotate an array by multiples of 90 degrees in the plane of two axes.

    Args:
        m: array with at least two axes.
        k: number of quarter turns; a negative number rotates in the opposite direction.
        axes: the two axes; the rotation is from the first toward the second, which is
            counterclockwise for the rows and columns of a matrix.

    Returns:
        The rotated array.

    >>> jnp.rot90(jnp.array([[1, 2], [3, 4]]))
    Array([[2, 4],
           [1, 3]], dtype=int32)
    """
    m = as_array("rot90", m)
    if m.ndim < 2:
        raise ValueError("rot90 requires its first argument to have ndim at least two, but got "
                         f"first argument of shape {m.shape}{here()}")
    i, j = (canonical_axis(a, m.ndim) for a in axes)
    if i == j:
        raise ValueError("Axes must be different" + here())
    k %= 4
    if k == 0:
        return m
    if k == 2:
        return lax.rev(m, (i, j))
    perm = list(range(m.ndim))
    perm[i], perm[j] = j, i
    if k == 1:
        return lax.transpose(lax.rev(m, (j,)), perm)
    return lax.rev(lax.transpose(m, perm), (j,))


def _roll_one(a: Array, shift: Any, axis: int) -> Array:
    """Roll one axis: two static slices for a known shift, one dynamic slice for a traced one."""
    n = a.shape[axis]
    if n == 0:
        return a
    if isinstance(shift, int):
        k = shift % n
        if k == 0:
            return a
        return lax.concatenate([lax.slice_in_dim(a, n - k, n, axis=axis),
                                lax.slice_in_dim(a, 0, n - k, axis=axis)], axis)
    # rolled[i] = a[(i - shift) mod n]: read n elements of a twice over, from -shift mod n
    shift = lax.convert_element_type(shift, np.int32)
    start = lax.rem(lax.neg(shift), lax.full_like(shift, n))
    start = h.from_end(start, n)
    return lax.dynamic_slice_in_dim(lax.concatenate([a, a], axis), start, n, axis)


def _shifts(shift):
    """Convert a number, a sequence or an array to a list of shifts: integers or traced scalars."""
    if isinstance(shift, (tuple, list)):
        return [s if isinstance(s, Array) else operator.index(s) for s in shift]
    shift = h.unwrapped(shift)
    if h.is_concrete(shift):
        value = h.concrete(shift, "roll shift")
        if value.dtype.kind not in "iu":
            raise TypeError(f"roll: needed an integer shift, got {value.dtype}{here()}")
        return [int(s) for s in value.reshape(-1)]
    return [shift[i] for i in range(shift.shape[0])] if shift.ndim else [shift]


def roll(a: ArrayLike, shift: ArrayLike | Sequence[int], axis: AxisLike = None) -> Array:
    """Shift elements along the given axes; elements shifted past the end reappear at the start.

    Args:
        a: array whose elements are shifted.
        shift: number of positions to shift by, either one number for all axes or one number for
            each axis. The numbers may be traced.
        axis: axis or axes to shift along; None to shift the flattened array.

    Returns:
        An array with the shape and dtype of `a`.

    >>> jnp.roll(jnp.arange(5), 2)
    Array([3, 4, 0, 1, 2], dtype=int32)
    """
    a = as_array("roll", a)
    if axis is None:
        return lax.reshape(roll(lax.reshape(a, (a.size,)), shift, 0), a.shape)
    axes, shifts = canonical_axes(axis, a.ndim), _shifts(shift)
    if len(shifts) == 1:
        shifts = shifts * len(axes)
    elif len(axes) == 1:
        axes = axes * len(shifts)
    if len(shifts) != len(axes):
        raise ValueError(f"roll: needed as many shifts as axes, got {len(shifts)} and "
                         f"{len(axes)}{here()}")
    for s, i in zip(shifts, axes):
        if isinstance(s, Array) and h.is_concrete(s):
            s = int(h.concrete(s, "roll shift"))
        a = _roll_one(a, s, i)
    return a


def resize(a: ArrayLike, new_shape: ShapeLike) -> Array:
    """Repeat or truncate the elements of an array to fill a new shape.

    Elements are read and written row by row. If the array is empty, the result is filled with
    zeros.

    Args:
        a: array or number.
        new_shape: shape of the result; an integer for one axis.

    Returns:
        An array with the new shape and the dtype of `a`.

    >>> jnp.resize(jnp.arange(3), (2, 4))
    Array([[0, 1, 2, 0],
           [1, 2, 0, 1]], dtype=int32)
    """
    a = as_array("resize", a)
    dims: tuple[Any, ...] = (
        tuple(new_shape) if np.iterable(new_shape) else (operator.index(new_shape),))
    if any(d < 0 for d in dims):
        raise ValueError("all elements of `new_shape` must be non-negative" + here())
    count = math.prod(dims)
    if count == 0 or a.size == 0:
        return lax.full(dims, 0, a.dtype)
    flat = lax.reshape(a, (a.size,))
    repeats = -(-count // a.size)
    if repeats > 1:
        flat = lax.concatenate([flat] * repeats, 0)
    return lax.reshape(lax.slice(flat, (0,), (count,)), dims)


def trim_zeros(filt: ArrayLike, trim: str = "fb", axis: AxisLike = None) -> Array:
    """Remove zeros at the ends of an array.

    The shape of the result depends on the values of the array, so this function does not work under
    `jit`.

    Args:
        filt: array to trim. If it has several axes, slices that contain only zeros are removed from
            the ends of each axis.
        trim: "f" to remove zeros from the front, "b" to remove them from the back, "fb" to do both.
        axis: axis or axes to trim; None for all axes.

    Returns:
        The trimmed array, which is empty if all elements of `filt` are zero.

    >>> jnp.trim_zeros(jnp.array([0, 1, 0, 2, 0]))
    Array([1, 0, 2], dtype=int32)
    """
    filt = as_array("trim_zeros", filt)
    if filt.ndim == 0:
        return filt
    values = h.concrete(filt, "trim_zeros")
    axes = range(filt.ndim) if axis is None else canonical_axes(axis, filt.ndim)
    where, index = np.nonzero(values), [slice(None)] * filt.ndim
    for i in axes:
        n = filt.shape[i]
        low, high = (where[i].min(), where[i].max() + 1) if where[i].size else (n, n)
        front, back = "f" in trim.lower(), "b" in trim.lower()
        index[i] = slice(int(low) if front else 0, int(high) if back else n)
        if not where[i].size:
            index[i] = slice(0, 0)
    return filt[tuple(index)]
