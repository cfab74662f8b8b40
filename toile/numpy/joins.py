"""Joining and splitting arrays: concatenate, stack, split, block, tile, repeat, insert, delete.

Operands are promoted to one dtype (weakly typed if all are); sizes and split points are static.
"""

import operator

import numpy as np

from toile import lax
from toile.engine.source import here
from toile.numpy import _helpers as h
from toile.numpy import index_read, manipulation
from toile.numpy._dtypes import user_dtype
from toile.numpy._helpers import Array, arr, as_array, canonical_axis, check, promote
from toile.numpy._operands import no_out

__all__ = [
    "append", "array_split", "block", "column_stack", "concat", "concatenate", "delete", "dsplit",
    "dstack", "hsplit", "hstack", "insert", "repeat", "split", "stack", "tile", "unstack",
    "vsplit", "vstack",
]


def _operands(name, arrays):
    """The list of arrays meant by a sequence of array-likes or by the rows of one array."""
    if isinstance(arrays, (Array, np.ndarray)):
        whole = arr(arrays)
        if whole.ndim == 0:
            raise ValueError(f"{name}: needed a sequence of arrays, got an array of rank 0{here()}")
        return [whole[i] for i in range(whole.shape[0])]
    if isinstance(arrays, (int, float, complex)):
        raise TypeError(f"{name}: needed a sequence of arrays, got {arrays!r}{here()}")
    xs = list(arrays)
    check(name, *xs)
    return xs


def _joined(xs, dtype):
    """`xs` as arrays of one dtype."""
    if dtype is None:
        return promote(*xs)
    dtype = user_dtype(dtype, "concatenate")
    return [lax.convert_element_type(arr(x), dtype) for x in xs]


def _raw_join(join, arrays, axis):
    """`join` of concrete buffers of one dtype by NumPy, or None where NumPy cannot do it."""
    if type(arrays) not in (list, tuple) or not arrays or type(axis) is not int:
        return None
    parts = [h.raw_buffer(x) for x in arrays]
    if any(p is None or p.dtype is not parts[0].dtype for p in parts):
        return None
    try:
        out = join(parts, axis)
    except ValueError:
        return None                       # the general path reports the error
    return h.conversion.wrap(out, all(x.weak_type for x in arrays))


def concatenate(arrays, axis=0, dtype=None):
    """The arrays one after the other along `axis`; with axis None, their flattened elements."""
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
        raise ValueError("Zero-dimensional arrays cannot be concatenated." + here())
    if any(np.ndim(x) != rank for x in xs):
        raise TypeError("Cannot concatenate arrays with different numbers of dimensions: got "
                        f"{', '.join(str(np.shape(x)) for x in xs)}.{here()}")
    axis = canonical_axis(axis, rank)
    xs = _joined(xs, dtype)
    return xs[0] if len(xs) == 1 else lax.concatenate(xs, axis)


def concat(arrays, /, *, axis=0):
    """The arrays one after the other along `axis`."""
    return concatenate(arrays, axis)


def stack(arrays, axis=0, out=None, dtype=None):
    """The arrays, all of one shape, along a new axis."""
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


def vstack(tup, dtype=None):
    """The arrays, at least rank 2, along the first axis."""
    return _stack_along(manipulation.atleast_2d, lambda xs: 0, tup, dtype)


def hstack(tup, dtype=None):
    """The arrays along the second axis, or the first for rank 1."""
    return _stack_along(manipulation.atleast_1d, lambda xs: 0 if xs[0].ndim == 1 else 1, tup,
                        dtype)


def dstack(tup, dtype=None):
    """The arrays, at least rank 3, along the third axis."""
    return _stack_along(manipulation.atleast_3d, lambda xs: 2, tup, dtype)


def column_stack(tup):
    """Rank-1 arrays as the columns of a matrix; matrices are joined side by side."""
    xs = [arr(x) for x in _operands("column_stack", tup)]
    return concatenate([x if x.ndim > 1 else lax.reshape(x, (x.size, 1)) for x in xs], 1)


def _block(xs, depth, rank):
    """Join nested lists: the innermost list along the last axis, the next along the one before."""
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


def block(arrays):
    """An array assembled from nested lists of blocks."""
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


def split(ary, indices_or_sections, axis=0):
    """`ary` cut into equal parts, or at the given positions, along `axis`."""
    return _split("split", ary, indices_or_sections, axis)


def array_split(ary, indices_or_sections, axis=0):
    """Like split; the first parts are one longer when the length does not divide."""
    return _split("array_split", ary, indices_or_sections, axis)


def vsplit(ary, indices_or_sections):
    """Split along the first axis."""
    return _split("vsplit", ary, indices_or_sections, 0)


def hsplit(ary, indices_or_sections):
    """Split along the second axis, or the first for rank 1."""
    ary = as_array("hsplit", ary)
    return _split("hsplit", ary, indices_or_sections, 0 if ary.ndim == 1 else 1)


def dsplit(ary, indices_or_sections):
    """Split along the third axis."""
    return _split("dsplit", ary, indices_or_sections, 2)


def unstack(x, /, *, axis=0):
    """The slices of `x` along `axis`, as a tuple."""
    x = as_array("unstack", x)
    if x.ndim == 0:
        raise ValueError("Unstack requires arrays with rank > 0, however a scalar array was "
                         "passed." + here())
    axis = canonical_axis(axis, x.ndim)
    return lax.unstack(x, axis)


# Repeating.

def tile(A, reps):
    """`A` repeated as a whole `reps` times along each axis."""
    x = as_array("tile", A)
    counts = tuple(reps) if np.iterable(reps) else (reps,)
    counts = tuple(operator.index(r) for r in counts)
    counts = (1,) * (x.ndim - len(counts)) + counts
    dims = (1,) * (len(counts) - x.ndim) + x.shape
    if all(r == 1 for r in counts):
        return lax.reshape(x, dims)
    return lax.tile(lax.reshape(x, dims), counts)


def _repeat_equally(a, count, axis):
    """Each element `count` times: broadcast along a new axis after `axis`, then join the two."""
    dims = (*a.shape[:axis + 1], count, *a.shape[axis + 1:])
    kept = (*range(axis + 1), *range(axis + 2, a.ndim + 1))
    out = (*a.shape[:axis], a.shape[axis] * count, *a.shape[axis + 1:])
    return lax.reshape(lax.broadcast_in_dim(a, dims, kept), out)


def repeat(a, repeats, axis=None, *, total_repeat_length=None, out_sharding=None):
    """Each element of `a` repeated along `axis`.

    Traced `repeats` need `total_repeat_length`: longer results are cut, shorter ones end with
    copies of the last element.
    """
    check("repeat", a, repeats)
    a = arr(a)
    if axis is None:
        a, axis = lax.reshape(a, (a.size,)), 0
    else:
        a = a if a.ndim else lax.reshape(a, (1,))
        axis = canonical_axis(axis, a.ndim)
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
        h.concrete(repeats, "repeats in jnp.repeat (pass total_repeat_length to allow it)")
    counts = h.broadcast_to(arr(repeats), (n,))
    counts = lax.convert_element_type(counts, np.int32)
    if total_repeat_length == 0:
        return lax.slice_in_dim(a, 0, 0, axis=axis)
    # element i starts at the sum of the counts before it: mark the starts and count them up
    ends = lax.cumsum(counts, axis=0)
    starts = lax.concatenate([lax.full((1,), 0, np.int32), lax.slice(ends, (0,), (n - 1,))], 0)
    marks = lax.full((total_repeat_length,), 0, np.int32)
    ones = lax.full((n,), 1, np.int32)
    marks = marks.at[starts].add(ones, mode="drop")
    one = lax.full((total_repeat_length,), 1, np.int32)
    return _rows(a, lax.sub(lax.cumsum(marks, axis=0), one), axis)


def _rows(a, rows, axis):
    return index_read.get(a, (slice(None),) * axis + (rows,))


# Append, insert and delete.

def append(arr, values, axis=None):
    """`values` joined to the end of `arr`; both are flattened when axis is None."""
    check("append", arr, values)
    if axis is None:
        return concatenate([manipulation.ravel(arr), manipulation.ravel(values)], 0)
    return concatenate([h.arr(arr), h.arr(values)], axis)


def _delete_traced(a, obj, axis, unique):
    """`a` without the positions in a traced integer array, whose values are known to be unique."""
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


def delete(arr, obj, axis=None, *, assume_unique_indices=False):
    """`arr` without the rows `obj`: an integer, a slice, indices or a boolean mask."""
    a, axis = h.with_axis(as_array("delete", arr), axis)
    n = a.shape[axis]
    if type(obj) is int and not -n <= obj < n:
        raise ValueError(f"delete: index {obj} is out of bounds for axis {axis} with size {n} "
                         f"(needed {-n} ... {n - 1}){here()}")
    if not isinstance(obj, slice) and not h.is_concrete(obj) and obj.dtype != np.bool_:
        if obj.ndim == 0:
            obj, assume_unique_indices = lax.reshape(obj, (1,)), True
        return _delete_traced(a, obj, axis, assume_unique_indices)
    keep = np.delete(np.arange(n, dtype=np.int32), _deleted_rows(obj, n))
    if len(keep) and keep[-1] - keep[0] + 1 == len(keep):
        return lax.slice_in_dim(a, int(keep[0]), int(keep[-1]) + 1, axis=axis)
    return _rows(a, keep, axis)


def _deleted_rows(obj, n):
    """A known index of rows among n as a mask or as positions in range."""
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


def insert(arr, obj, values, axis=None):
    """`arr` with `values` inserted before the positions `obj`."""
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
    values = lax.expand_dims(values, tuple(range(a.ndim - values.ndim)))
    scalar = where.ndim == 0
    if scalar:
        values = manipulation.moveaxis(values, 0, axis)
    count = values.shape[axis] if scalar or where.size == 1 else where.size
    full = (*a.shape[:axis], count, *a.shape[axis + 1:])
    values = h.broadcast_to(values, full)
    values = lax.convert_element_type(values, a.dtype)
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
    return out.at[key].set(_rows(values, order, axis))
