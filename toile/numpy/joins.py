"""Joining and splitting arrays: concatenate, stack, split, block, tile, repeat, insert, delete.

Operands are promoted to one dtype, which is weak if all operands are weakly typed. Sizes and split
points are static.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from toile import lax
from toile.engine.annotations import ArrayLike, DTypeLike, ShapeLike
from toile.engine.source import here
from toile.lax._operands import integer
from toile.numpy import _helpers as h
from toile.numpy import index_read, manipulation
from toile.numpy._dtypes import user_dtype
from toile.numpy._helpers import Array, arr, as_array, canonical_axis, check, promote
from toile.numpy._operands import no_out


def _operands(name, arrays):
    """Convert a sequence of array-likes, or the rows of one array, to a list of arrays."""
    if isinstance(arrays, (Array, np.ndarray)):
        whole = arr(arrays)
        if whole.ndim == 0:
            raise ValueError(f"{name}: needed a sequence of arrays, got an array of rank 0{here()}")
        return [whole[i] for i in range(whole.shape[0])]
    if isinstance(arrays, (int, float, complex)):
        raise TypeError(f"{name}: needed a sequence of arrays, got {arrays!r}{here()}")
    xs = [h.unwrapped(x) for x in arrays]
    check(name, *xs)
    return xs


def _joined(xs, dtype):
    """Convert `xs` to arrays of one dtype."""
    if dtype is None:
        return promote(*xs)
    dtype = user_dtype(dtype, "concatenate")
    return [lax.convert_element_type(arr(x), dtype) for x in xs]


def _raw_join(join, arrays, axis):
    """Join concrete buffers of one dtype with NumPy's `join`, or return None if it cannot."""
    if type(arrays) not in (list, tuple) or not arrays or type(axis) is not int:
        return None
    parts: list[Any] = [h.raw_buffer(x) for x in arrays]
    if any(p is None or p.dtype is not parts[0].dtype for p in parts):
        return None
    try:
        out = join(parts, axis)
    except ValueError:
        return None                       # the general path reports the error
    return h.conversion.wrap(out, all(x.weak_type for x in arrays))


def concatenate(arrays: ArrayLike | Sequence[ArrayLike], axis: int | None = 0,
                dtype: DTypeLike | None = None) -> Array:
    """Join arrays along an existing axis.

    Args:
        arrays: sequence of arrays with equal shapes except along `axis`; a single array is treated
            as the sequence of its slices along the first axis.
        axis: axis to join along; None to join the flattened arrays.
        dtype: dtype of the result; None for the dtype that the arrays promote to.

    Returns:
        The joined array.

    Raises:
        TypeError: the arrays have different numbers of axes.

    >>> jnp.concatenate([jnp.arange(2), jnp.array([1.5])])
    Array([0. , 1. , 1.5], dtype=float32)
    """
    if dtype is None:
        out = _raw_join(np.concatenate, arrays, axis)
        if out is not None:
            return out
    xs = _operands("concatenate", arrays)
    if not xs:
        raise ValueError("Need at least one array to concatenate (the list is empty)." + here())
    if axis is None:
        xs = [manipulation.ravel(x) for x in xs]
        axis = 0
    rank = np.ndim(xs[0])
    if rank == 0:
        raise ValueError("Zero-dimensional arrays cannot be concatenated: needed arrays with an "
                         "axis (join numbers with stack, and pass several arrays as one list: "
                         f"concatenate([a, b])){here()}")
    if any(np.ndim(x) != rank for x in xs):
        raise TypeError("Cannot concatenate arrays with different numbers of dimensions: got "
                        f"{', '.join(str(np.shape(x)) for x in xs)} (add an axis "
                        f"with x[None], or use append).{here()}")
    axis = canonical_axis(axis, rank)
    xs = _joined(xs, dtype)
    return xs[0] if len(xs) == 1 else lax.concatenate(xs, axis)


def concat(arrays: ArrayLike | Sequence[ArrayLike], /, *, axis: int | None = 0) -> Array:
    """Join arrays along an existing axis, as `concatenate` does.

    Args:
        arrays: sequence of arrays with equal shapes except along `axis`; a single array is treated
            as the sequence of its slices along the first axis.
        axis: axis to join along; None to join the flattened arrays.

    Returns:
        The joined array, in the dtype that the arrays promote to.
    """
    return concatenate(arrays, axis)


def stack(arrays: ArrayLike | Sequence[ArrayLike], axis: int = 0, out: None = None,
          dtype: DTypeLike | None = None) -> Array:
    """Join arrays of the same shape along a new axis.

    Args:
        arrays: sequence of arrays of equal shape; a single array is treated as the sequence of its
            slices along the first axis.
        axis: position of the new axis in the result.
        out: not supported; must be None.
        dtype: dtype of the result; None for the dtype that the arrays promote to.

    Returns:
        An array with one more axis than the given arrays.

    >>> jnp.stack([jnp.arange(2), jnp.arange(2)], axis=1)
    Array([[0, 0],
           [1, 1]], dtype=int32)
    """
    no_out("stack", out)
    if dtype is None:
        joined = _raw_join(np.stack, arrays, axis)
        if joined is not None:
            return joined
    if isinstance(arrays, (Array, np.ndarray)):
        whole = as_array("stack", arrays)
        whole = whole if dtype is None else lax.convert_element_type(
            whole, user_dtype(dtype, "stack"))
        return manipulation.moveaxis(whole, 0, axis)
    xs = _operands("stack", arrays)
    if not xs:
        raise ValueError("Need at least one array to stack. (the list of arrays is empty)" + here())
    first = np.shape(xs[0])
    if any(np.shape(x) != first for x in xs):
        raise ValueError("All input arrays must have the same shape. Got "
                         f"{', '.join(str(np.shape(x)) for x in xs)} (pad or reshape them to equal "
                         f"shapes, or use concatenate to join along an axis).{here()}")
    axis = canonical_axis(axis, len(first) + 1)
    xs = [lax.expand_dims(x, (axis,)) for x in _joined(xs, dtype)]
    return xs[0] if len(xs) == 1 else lax.concatenate(xs, axis)


def _stack_along(make, axis, tup, dtype):
    xs = make(*_operands("stack", tup))
    xs = xs if isinstance(xs, list) else [xs]
    return concatenate(xs, axis=axis(xs), dtype=dtype)


def vstack(tup: ArrayLike | Sequence[ArrayLike], dtype: DTypeLike | None = None) -> Array:
    """Join arrays along the first axis; one-dimensional arrays become rows.

    Args:
        tup: sequence of arrays; a single array is treated as the sequence of its slices along the
            first axis.
        dtype: dtype of the result; None for the dtype that the arrays promote to.

    Returns:
        An array with at least two axes.
    """
    return _stack_along(manipulation.atleast_2d, lambda xs: 0, tup, dtype)


def hstack(tup: ArrayLike | Sequence[ArrayLike], dtype: DTypeLike | None = None) -> Array:
    """Join arrays along the second axis, or along the only axis if they are one-dimensional.

    Args:
        tup: sequence of arrays; a single array is treated as the sequence of its slices along the
            first axis.
        dtype: dtype of the result; None for the dtype that the arrays promote to.

    Returns:
        An array with at least one axis.
    """
    return _stack_along(manipulation.atleast_1d, lambda xs: 0 if xs[0].ndim == 1 else 1, tup,
                        dtype)


def dstack(tup: ArrayLike | Sequence[ArrayLike], dtype: DTypeLike | None = None) -> Array:
    """Join arrays along the third axis, after reshaping (n,) to (1, n, 1) and (m, n) to (m, n, 1).

    Args:
        tup: sequence of arrays; a single array is treated as the sequence of its slices along the
            first axis.
        dtype: dtype of the result; None for the dtype that the arrays promote to.

    Returns:
        An array with at least three axes.
    """
    return _stack_along(manipulation.atleast_3d, lambda xs: 2, tup, dtype)


def column_stack(tup: ArrayLike | Sequence[ArrayLike]) -> Array:
    """Join arrays along the second axis; one-dimensional arrays become columns.

    Args:
        tup: sequence of arrays; a single array is treated as the sequence of its slices along the
            first axis.

    Returns:
        An array with at least two axes.

    >>> jnp.column_stack([jnp.array([1, 2]), jnp.array([3, 4])])
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    xs = [arr(x) for x in _operands("column_stack", tup)]
    return concatenate([x if x.ndim > 1 else lax.reshape(x, (x.size, 1)) for x in xs], 1)


def _block(xs, depth, rank):
    """Join nested lists: the innermost along the last axis, the next along the axis before it."""
    if isinstance(xs, list):
        return concatenate([_block(x, depth - 1, rank) for x in xs], axis=-depth)
    x = as_array("block", xs)
    return lax.expand_dims(x, tuple(range(rank - x.ndim))) if x.ndim < rank else x


def _depth(xs):
    if isinstance(xs, tuple):
        raise ValueError(f"jax.numpy.block does not allow tuples, got {xs}{here()}")
    if not isinstance(xs, list):
        return 0
    if not xs:
        raise ValueError("jax.numpy.block does not allow empty list arguments" + here())
    depths = {_depth(x) for x in xs}
    if len(depths) > 1:
        raise ValueError("Mismatched list depths in jax.numpy.block" + here())
    return depths.pop() + 1


def _ranks(xs):
    return max(map(_ranks, xs)) if isinstance(xs, list) else np.ndim(xs)


def block(arrays: ArrayLike | list[Any]) -> Array:
    """Assemble an array from nested lists of blocks.

    The blocks in the innermost lists are joined along the last axis, the results are joined along
    the second-to-last axis, and so on. Blocks with fewer axes than others get new leading axes.

    Args:
        arrays: array, or lists of arrays that are all nested to the same depth.

    Returns:
        The assembled array.

    Raises:
        ValueError: `arrays` contains tuples or empty lists, or the lists are nested to different
            depths.

    >>> jnp.block([[jnp.eye(2), jnp.zeros((2, 1))]])
    Array([[1., 0., 0.],
           [0., 1., 0.]], dtype=float32)
    """
    depth = _depth(arrays)
    return arr(_block(arrays, depth, max(depth, _ranks(arrays))))


# Splitting.

def _split(name, ary, indices_or_sections, axis):
    ary = as_array(name, ary)
    axis = canonical_axis(axis, ary.ndim)
    n = ary.shape[axis]
    what = f"in jax.numpy.{name} argument 1"
    if isinstance(indices_or_sections, (list, tuple)) or np.ndim(indices_or_sections):
        points = indices_or_sections
        if not isinstance(points, (list, tuple)):
            points = h.concrete(points, what)
        points = [int(h.concrete(p, what)) for p in points]
        edges = [0, *(min(max(p + n if p < 0 else p, 0), n) for p in points), n]
    else:
        parts = int(h.concrete(indices_or_sections, what))
        if parts <= 0:
            raise ValueError("number sections must be larger than 0." + here())
        each, rest = divmod(n, parts)
        if rest and name != "array_split":
            raise ValueError(f"array split does not result in an equal division: rest is {rest} "
                             f"(use array_split for unequal parts){here()}")
        sizes = [each + 1] * rest + [each] * (parts - rest)
        edges = [0, *np.cumsum(sizes).tolist()]
    sizes = [max(b - a, 0) for a, b in zip(edges, edges[1:])]
    return [lax.slice_in_dim(ary, a, a + k, axis=axis) for a, k in zip(edges, sizes)]


def split(ary: ArrayLike, indices_or_sections: int | Sequence[int] | ArrayLike,
          axis: int = 0) -> list[Array]:
    """Split an array into parts along an axis.

    Args:
        ary: array to split.
        indices_or_sections: the number of equal parts, or the positions at which new parts begin;
            neither can be traced.
        axis: axis to split along.

    Returns:
        A list of the parts.

    Raises:
        ValueError: the length of the axis is not a multiple of the number of parts.

    >>> jnp.split(jnp.arange(5), [1, 3])
    [Array([0], dtype=int32), Array([1, 2], dtype=int32), Array([3, 4], dtype=int32)]
    """
    return _split("split", ary, indices_or_sections, axis)


def array_split(ary: ArrayLike, indices_or_sections: int | Sequence[int] | ArrayLike,
                axis: int = 0) -> list[Array]:
    """Split an array into parts along an axis; the parts need not have the same length.

    Args:
        ary: array to split.
        indices_or_sections: the number of parts, or the positions at which new parts begin; neither
            can be traced. If the array cannot be split equally, the first parts are longer than the
            others by one element.
        axis: axis to split along.

    Returns:
        A list of the parts.

    >>> jnp.array_split(jnp.arange(5), 2)
    [Array([0, 1, 2], dtype=int32), Array([3, 4], dtype=int32)]
    """
    return _split("array_split", ary, indices_or_sections, axis)


def vsplit(ary: ArrayLike, indices_or_sections: int | Sequence[int] | ArrayLike) -> list[Array]:
    """Split an array into parts along the first axis.

    Args:
        ary: array to split.
        indices_or_sections: the number of equal parts, or the positions at which new parts begin;
            neither can be traced.

    Returns:
        A list of the parts.
    """
    return _split("vsplit", ary, indices_or_sections, 0)


def hsplit(ary: ArrayLike, indices_or_sections: int | Sequence[int] | ArrayLike) -> list[Array]:
    """Split an array along its second axis, or along its only axis if it is one-dimensional.

    Args:
        ary: array to split.
        indices_or_sections: the number of equal parts, or the positions at which new parts begin;
            neither can be traced.

    Returns:
        A list of the parts.
    """
    ary = as_array("hsplit", ary)
    return _split("hsplit", ary, indices_or_sections, 0 if ary.ndim == 1 else 1)


def dsplit(ary: ArrayLike, indices_or_sections: int | Sequence[int] | ArrayLike) -> list[Array]:
    """Split an array into parts along the third axis.

    Args:
        ary: array to split.
        indices_or_sections: the number of equal parts, or the positions at which new parts begin;
            neither can be traced.

    Returns:
        A list of the parts.
    """
    return _split("dsplit", ary, indices_or_sections, 2)


def unstack(x: ArrayLike, /, *, axis: int = 0) -> tuple[Array, ...]:
    """Split an array into its slices along an axis: the inverse of `stack`.

    Args:
        x: array with at least one axis.
        axis: axis to split along; the slices do not have this axis.

    Returns:
        A tuple of slices, one for each position along the axis.

    >>> jnp.unstack(jnp.arange(4).reshape(2, 2))
    (Array([0, 1], dtype=int32), Array([2, 3], dtype=int32))
    """
    x = as_array("unstack", x)
    if x.ndim == 0:
        raise ValueError("Unstack requires arrays with rank > 0, however a scalar array was "
                         "passed." + here())
    axis = canonical_axis(axis, x.ndim)
    return lax.unstack(x, axis)


# Repeating.

def tile(A: ArrayLike, reps: ShapeLike) -> Array:
    """Repeat a whole array along its axes.

    Args:
        A: array or number.
        reps: number of repetitions along each axis. The last number applies to the last axis; if
            there are more numbers than axes, leading axes are added.

    Returns:
        The repeated array.

    >>> jnp.tile(jnp.array([1, 2]), (2, 2))
    Array([[1, 2, 1, 2],
           [1, 2, 1, 2]], dtype=int32)
    """
    x = as_array("tile", A)
    counts: tuple[Any, ...] = tuple(reps) if np.iterable(reps) else (reps,)
    counts = tuple(integer(r, "reps") for r in counts)
    counts = (1,) * (x.ndim - len(counts)) + counts
    dims = (1,) * (len(counts) - x.ndim) + x.shape
    if all(r == 1 for r in counts):
        return lax.reshape(x, dims)
    return lax.tile(lax.reshape(x, dims), counts)


def _repeat_equally(a, count, axis):
    """Repeat each element `count` times: broadcast a new axis after `axis`, then merge the two."""
    dims = (*a.shape[:axis + 1], count, *a.shape[axis + 1:])
    kept = (*range(axis + 1), *range(axis + 2, a.ndim + 1))
    out = (*a.shape[:axis], a.shape[axis] * count, *a.shape[axis + 1:])
    return lax.reshape(lax.broadcast_in_dim(a, dims, kept), out)


def repeat(a: ArrayLike, repeats: ArrayLike, axis: int | None = None, *,
           total_repeat_length: int | None = None, out_sharding: object = None) -> Array:
    """Repeat each element of an array.

    The length of the result depends on `repeats`. If `repeats` is traced, `total_repeat_length`
    must be given. Longer results are truncated to that length, and shorter results are padded with
    copies of the last element.

    Args:
        a: array or number.
        repeats: number of times to repeat each element, or an array of such numbers, one for each
            position along the axis.
        axis: axis to repeat along; None for the flattened array.
        total_repeat_length: length of the result along the axis; None to compute the length from
            `repeats`.
        out_sharding: accepted for compatibility with JAX, and ignored.

    Returns:
        The array with its elements repeated.

    >>> jnp.repeat(jnp.array([1, 2]), jnp.array([1, 2]))
    Array([1, 2, 2], dtype=int32)
    >>> jnp.repeat(jnp.array([1, 2]), jnp.array([1, 2]), total_repeat_length=5)
    Array([1, 2, 2, 2, 2], dtype=int32)
    """
    check("repeat", a, repeats)
    a, repeats = arr(a), h.unwrapped(repeats)
    if axis is None:
        a, axis = h.with_axis(a, None)
    else:
        grown: Array = a if a.ndim else lax.reshape(a, (1,))
        a, axis = grown, canonical_axis(axis, grown.ndim)
    n = a.shape[axis]
    if h.is_concrete(repeats):
        counts = h.concrete(repeats, "repeats")
        if counts.size == 1 and total_repeat_length is None:
            count = counts.reshape(())[()]
            if counts.dtype.kind not in "biu" or count < 0:
                raise TypeError(f"repeat: needed a count that is an integer of at least 0, got "
                                f"{count}{here()}")
            return _repeat_equally(a, int(count), axis)
        if counts.ndim > 1:
            raise ValueError("repeats must be a scalar or 1D array, got shape "
                             f"{counts.shape}{here()}")
        if counts.size != 1 and counts.size != n:
            raise ValueError(f"incompatible repeats: needed size 1 or {n}, got {counts.size} (one "
                             f"number, or one for each element){here()}")
        rows = np.repeat(np.arange(n), np.broadcast_to(counts.reshape(-1), (n,)))
        if total_repeat_length is not None:
            missing = max(total_repeat_length - len(rows), 0)
            rows = np.concatenate([rows, np.full(missing, n - 1)])[:total_repeat_length]
        return _rows(a, rows.astype(np.int32), axis)
    if total_repeat_length is None:
        what = "repeats in jnp.repeat (pass total_repeat_length to allow it)"
        total_repeat_length = int(h.concrete(repeats, what))  # raises: they are traced
    each = lax.convert_element_type(h.broadcast_to(arr(repeats), (n,)), np.int32)
    if total_repeat_length == 0:
        return lax.slice_in_dim(a, 0, 0, axis=axis)
    # element i starts at the sum of the counts before it: mark the starts and count them up
    ends = lax.cumsum(each, axis=0)
    starts = lax.concatenate([lax.full((1,), 0, np.int32), lax.slice(ends, (0,), (n - 1,))], 0)
    marks = lax.full((total_repeat_length,), 0, np.int32)
    ones = lax.full((n,), 1, np.int32)
    marks = marks.at[starts].add(ones, mode="drop")
    one = lax.full((total_repeat_length,), 1, np.int32)
    return _rows(a, lax.sub(lax.cumsum(marks, axis=0), one), axis)


def _rows(a, rows, axis):
    return index_read.get(a, (slice(None),) * axis + (rows,))


# Append, insert and delete.

def append(arr: ArrayLike, values: ArrayLike, axis: int | None = None) -> Array:
    """Append values to the end of an array.

    Args:
        arr: array or number.
        values: array to append. If `axis` is not None, the shapes of `values` and `arr` must be
            equal except along `axis`.
        axis: axis to join along; None to join the flattened arrays.

    Returns:
        The joined array, in the dtype that both arrays promote to.
    """
    check("append", arr, values)
    if axis is None:
        return concatenate([manipulation.ravel(arr), manipulation.ravel(values)], 0)
    return concatenate([h.arr(arr), h.arr(values)], axis)


def _delete_traced(a, obj, axis, unique):
    """Remove from `a` the positions in a traced integer array, whose values are unique."""
    n, count = a.shape[axis], obj.size
    obj = lax.reshape(obj, (count,))
    obj = h.from_end(obj, n)
    if not unique:
        h.concrete(obj, "the index of jnp.delete (pass assume_unique_indices=True to allow it)")
    obj = lax.sort(obj)
    # the i-th kept element skips every deleted position that is at most i + (deletions before it)
    obj = lax.sub(obj, lax.convert_element_type(lax.iota(np.int32, count), obj.dtype))
    i = lax.convert_element_type(lax.iota(np.int32, n - count), obj.dtype)
    skipped = lax.le(lax.broadcast_in_dim(obj, (n - count, count), (1,)),
                     lax.broadcast_in_dim(i, (n - count, count), (0,)))
    rows = lax.add(i, lax.reduce_sum(lax.convert_element_type(skipped, i.dtype), (1,)))
    return _rows(a, rows, axis)


def delete(arr: ArrayLike, obj: ArrayLike | slice, axis: int | None = None, *,
           assume_unique_indices: bool = False) -> Array:
    """Remove slices from an array.

    Args:
        arr: array or number.
        obj: positions to remove: an integer, a slice, an array of integers or a boolean mask.
            Negative positions count from the end. In an array of rank 1 or more, out-of-bounds
            positions are ignored; but if such an array is traced, all its positions must be in
            bounds, and `assume_unique_indices` is required. If `obj` is an array of rank 0 (traced
            or not) or a NumPy integer, an out-of-bounds position removes the first or last slice,
            whichever is nearer. A mask must not be traced.
        axis: axis to remove from; None for the flattened array.
        assume_unique_indices: True to promise that `obj` does not contain any position twice; used
            only if `obj` is a traced array of rank 1 or more.

    Returns:
        The array without the removed slices.

    Raises:
        ValueError: `obj` is a Python integer that is out of bounds, a mask whose length differs
            from the length of the axis, or an array that contains neither integers nor booleans.
        ConcretizationTypeError: `obj` is a traced mask, or it is a traced integer array of rank 1
            or more and `assume_unique_indices` is False.

    >>> jnp.delete(jnp.arange(4), jnp.array([0, 2]))
    Array([1, 3], dtype=int32)
    """
    a, axis = h.with_axis(as_array("delete", arr), axis)
    n = a.shape[axis]
    if type(obj) is int and not -n <= obj < n:
        raise ValueError(f"delete: index {obj} is out of bounds for axis {axis} with size {n} "
                         f"(needed {-n} ... {n - 1}){here()}")
    if isinstance(obj, Array) and not h.is_concrete(obj) and obj.dtype != np.bool_:
        known = obj.ndim == 0
        index: Array = lax.reshape(obj, (1,)) if known else obj
        return _delete_traced(a, index, axis, known or assume_unique_indices)
    keep = np.delete(np.arange(n, dtype=np.int32), _deleted_rows(obj, n))
    if len(keep) and keep[-1] - keep[0] + 1 == len(keep):
        return lax.slice_in_dim(a, int(keep[0]), int(keep[-1]) + 1, axis=axis)
    return _rows(a, keep, axis)


def _deleted_rows(obj, n):
    """Convert a known index for n rows to a mask, or to positions that are in bounds."""
    obj = h.unwrapped(obj)
    obj = np.arange(n)[obj] if isinstance(obj, slice) else h.concrete(obj, "delete index")
    if obj.dtype == np.bool_:
        if obj.shape != (n,):
            raise ValueError("np.delete(arr, obj): for boolean indices, obj must be "
                             "one-dimensional with length matching specified axis." + here())
        return obj
    if obj.size and not np.issubdtype(obj.dtype, np.integer):
        raise ValueError("np.delete(arr, obj): for array obj must be integer or boolean" + here())
    if obj.size and (obj.min() < -n or obj.max() >= n):
        # out of range deletes the nearest element when scalar, nothing when an array
        obj = np.clip(obj, -n, n - 1) if obj.ndim == 0 else obj[(obj >= -n) & (obj < n)]
    return obj.astype(np.int64)


def insert(arr: ArrayLike, obj: ArrayLike | slice, values: ArrayLike,
           axis: int | None = None) -> Array:
    """Insert values into an array.

    Args:
        arr: array or number.
        obj: positions in `arr` before which to insert the values: an integer, a slice or an array
            of integers. Values whose positions are out of bounds are inserted at the nearer end.
        values: values to insert, which are broadcast to the shape of the inserted slices and
            converted to the dtype of `arr`.
        axis: axis to insert along; None for the flattened array.

    Returns:
        The array with the values inserted.

    >>> jnp.insert(jnp.arange(4), jnp.array([1, 3]), jnp.array([8, 9]))
    Array([0, 8, 1, 2, 9, 3], dtype=int32)
    """
    check("insert", arr, 0 if isinstance(obj, slice) else obj, values)
    values = h.arr(values)
    a, axis = h.with_axis(h.arr(arr), axis)
    n = a.shape[axis]
    where = np.arange(n)[obj] if isinstance(obj, slice) else h.arr(obj)
    if where.ndim > 1:
        raise ValueError(f"insert: needed an index of rank 0 or 1, got shape {where.shape}{here()}")
    values = manipulation.atleast_1d(values)
    if values.ndim > a.ndim:
        raise ValueError(f"insert: needed values of rank <= {a.ndim}, got {values.ndim}{here()}")
    new: Array = lax.expand_dims(values, tuple(range(a.ndim - values.ndim)))
    scalar = where.ndim == 0
    if scalar:
        new = manipulation.moveaxis(new, 0, axis)
    count = new.shape[axis] if scalar or where.size == 1 else where.size
    full = (*a.shape[:axis], count, *a.shape[axis + 1:])
    new = lax.convert_element_type(h.broadcast_to(new, full), a.dtype)
    where = lax.convert_element_type(h.arr(where), np.int32)
    where = h.broadcast_to(lax.reshape(where, (where.size,)), (count,))
    where = h.from_end(where, n)
    where = lax.clamp(lax.full_like(where, 0), where, lax.full_like(where, n))
    order = lax.sort((where, lax.iota(np.int32, count)), num_keys=1, is_stable=True)[1]
    places = lax.add(index_read.get(where, order), lax.iota(np.int32, count))
    # positions of inserted rows are known; the old rows fill what is left, in order
    taken = lax.full((n + count,), 0, np.int32).at[places].set(1)
    source = lax.cumsum(lax.sub(lax.full_like(taken, 1), taken), axis=0)
    source = lax.max(lax.sub(source, lax.full_like(source, 1)), lax.full_like(source, 0))
    out = _rows(a, source, axis) if n else h.broadcast_to(
        lax.full((1,) * a.ndim, 0, a.dtype), (*a.shape[:axis], count, *a.shape[axis + 1:]))
    key = (slice(None),) * axis + (places,)
    return out.at[key].set(_rows(new, order, axis))
