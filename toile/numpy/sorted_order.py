"""Sorting (sort, argsort, lexsort, partition), and searching in sorted arrays.

Sorting uses `lax.sort`, which puts NaN last. For descending order, `argsort` reverses the array
before and after sorting, so that equal elements keep their order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from toile import lax
from toile.engine import dtypes
from toile.engine.annotations import Array, ArrayLike, DTypeLike
from toile.engine.source import here
from toile.numpy import _helpers as h
from toile.numpy import index_read, manipulation, selection, ufuncs
from toile.numpy._dtypes import user_dtype
from toile.numpy._helpers import arr, as_array, canonical_axis, check, promote, raw_buffer


def _refuse(name, kind, order):
    if kind is not None:
        raise TypeError(f"'kind' argument to {name} is not supported. Use stable=True or "
                         "stable=False to specify sort stability." + here())
    if order is not None:
        raise TypeError(f"'order' argument to {name} is not supported.{here()}")


def sort(a: ArrayLike, axis: int | None = -1, *, kind: None = None, order: None = None,
         stable: bool = True, descending: bool = False) -> Array:
    """Sort an array along an axis.

    NaN counts as larger than every number. Complex numbers are compared by their real parts, then
    by their imaginary parts.

    Args:
        a: array to sort.
        axis: axis to sort along; None to sort the flattened array.
        kind: must be None; in NumPy, this argument selects the algorithm.
        order: must be None; in NumPy, this argument names the fields to sort by.
        stable: whether equal elements must keep their order.
        descending: whether to sort from the largest element to the smallest.

    Returns:
        The sorted array.

    Raises:
        TypeError: `kind` or `order` is given.
    """
    _refuse("sort", kind, order)
    a, axis = h.with_axis(as_array("sort", a), axis)
    out = lax.sort(a, dimension=axis, is_stable=stable)
    return lax.rev(out, (axis,)) if descending else out


def argsort(a: ArrayLike, axis: int | None = -1, *, kind: None = None, order: None = None,
            stable: bool = True, descending: bool = False,
            dtype: DTypeLike | None = None) -> Array:
    """Find the indices that sort an array along an axis.

    NaN counts as larger than every number. Complex numbers are compared by their real parts, then
    by their imaginary parts.

    Args:
        a: array to sort.
        axis: axis to sort along; None to sort the flattened array.
        kind: must be None; in NumPy, this argument selects the algorithm.
        order: must be None; in NumPy, this argument names the fields to sort by.
        stable: whether equal elements must keep their order.
        descending: whether to sort from the largest element to the smallest.
        dtype: dtype of the indices; None for the default integer dtype.

    Returns:
        An array of indices along the axis; to sort `a`, pass these indices to `take_along_axis`.

    Raises:
        TypeError: `kind` or `order` is given.

    >>> jnp.argsort(jnp.array([3, 1, 2]))
    Array([1, 2, 0], dtype=int32)
    """
    _refuse("argsort", kind, order)
    a, axis = h.with_axis(as_array("argsort", a), axis)
    dtype = h.index_dtype() if dtype is None else user_dtype(dtype, "argsort")
    n = a.shape[axis]
    places = lax.broadcasted_iota(dtype, a.shape, axis)
    if not descending:
        return lax.sort((a, places), dimension=axis, is_stable=stable, num_keys=1)[1]
    # reversed in, reversed out: ties keep their order
    found = lax.sort((lax.rev(a, (axis,)), places), dimension=axis, is_stable=stable,
                     num_keys=1)[1]
    return lax.sub(lax.full_like(found, n - 1), lax.rev(found, (axis,)))


def lexsort(keys: Array | np.ndarray | Sequence[ArrayLike], axis: int = -1) -> Array:
    """Find the indices that sort elements by several keys; the last key is the primary one.

    Args:
        keys: arrays of the same shape; a single array is treated as the sequence of its slices
            along the first axis. Ties in the last key are broken by the key before it, and so on.
        axis: axis of each key to sort along.

    Returns:
        An array of indices with the shape of the keys.

    >>> first, last = jnp.array([1, 0, 1]), jnp.array([2, 2, 1])
    >>> jnp.lexsort((first, last))
    Array([2, 1, 0], dtype=int32)
    """
    arrays = [arr(k) for k in keys]
    check("lexsort", *arrays)
    if not arrays:
        raise TypeError("need sequence of keys with len > 0 in lexsort" + here())
    if len({k.shape for k in arrays}) > 1:
        raise ValueError("all keys need to be the same shape" + here())
    shape = arrays[0].shape
    if not shape:
        return lax.full((), 0, h.index_dtype())
    axis = canonical_axis(axis, len(shape))
    places = lax.broadcasted_iota(h.index_dtype(), shape, axis)
    return lax.sort((*arrays[::-1], places), dimension=axis, num_keys=len(arrays))[-1]


def _partitioned(name, order, a, kth, axis):
    """Apply the sorting function `order`, and reverse the elements after the kth one."""
    a = as_array(name, a)
    axis = canonical_axis(axis, a.ndim)
    n, k = a.shape[axis], h.static_int(kth, f"kth argument of jnp.{name}")
    k = canonical_axis(k, n)
    if h.issubdtype(a.dtype, np.complexfloating):
        raise NotImplementedError(f"jnp.{name} for complex dtype is not implemented.{here()}")
    whole = order(a, axis)
    return lax.concatenate([lax.slice_in_dim(whole, 0, k + 1, axis=axis),
                            lax.rev(lax.slice_in_dim(whole, k + 1, n, axis=axis), (axis,))], axis)


def partition(a: ArrayLike, kth: int, axis: int = -1) -> Array:
    """Put one element in its sorted position, with smaller ones before it and larger ones after it.

    Args:
        a: array of real numbers.
        kth: position of that element in sorted order; it cannot be traced.
        axis: axis to partition along.

    Returns:
        The partitioned array. The order on either side of the position may differ from NumPy's.

    Differences:
        NumPy also accepts several positions, and None for the axis.

    >>> jnp.partition(jnp.array([3, 1, 2, 0]), 1)
    Array([0, 1, 3, 2], dtype=int32)
    """
    return _partitioned("partition", sort, a, kth, axis)


def argpartition(a: ArrayLike, kth: int, axis: int = -1) -> Array:
    """Find the indices that partition an array around one element; see `partition`.

    Args:
        a: array of real numbers.
        kth: position of that element in sorted order; it cannot be traced.
        axis: axis to partition along.

    Returns:
        An array of indices along the axis, in int32 (even if `jax_enable_x64` is set).

    Differences:
        NumPy also accepts several positions, and None for the axis.
    """
    places = _partitioned("argpartition", argsort, a, kth, axis)
    return lax.convert_element_type(places, np.int32)


def sort_complex(a: ArrayLike) -> Array:
    """Convert an array to complex numbers and sort it along its last axis.

    Args:
        a: array with at least one axis. Numbers are compared by their real parts, then by their
            imaginary parts.

    Returns:
        A complex array with the shape of `a`.
    """
    a = as_array("sort_complex", a)
    dtype = h.dtypes.to_complex_dtype(a.dtype)
    return lax.sort(lax.convert_element_type(a, dtype), dimension=a.ndim - 1)


# Search in sorted arrays.

_FEW = 100  # elements with which comparing all queries is faster than bisection
_METHODS = ("default", "scan", "scan_unrolled", "sort", "compare_all")


def _before(x, y, side):
    """Whether element x of the sorted array comes before the query y (NaN sorts last)."""
    if not h.issubdtype(x.dtype, np.inexact):
        return lax.lt(x, y) if side == "left" else lax.le(x, y)
    if h.issubdtype(x.dtype, np.complexfloating):
        first = _before(lax.real(x), lax.real(y), "left")
        tied = lax.bitwise_not(_before(lax.real(y), lax.real(x), "left"))
        rest = _before(lax.imag(x), lax.imag(y), side)
        return lax.bitwise_or(first, lax.bitwise_and(tied, rest))
    x_nan, y_nan = lax.ne(x, x), lax.ne(y, y)
    if side == "left":
        less = lax.lt(x, y)
        return lax.bitwise_or(less, lax.bitwise_and(y_nan, lax.bitwise_not(x_nan)))
    return lax.bitwise_or(lax.le(x, y), y_nan)


def _bisect(a, v, side, dtype):
    """Search all queries at once by unrolled bisection, with ceil(log2(n + 1)) reads."""
    n = a.shape[0]
    low, high = lax.full(v.shape, 0, dtype), lax.full(v.shape, n, dtype)
    for _ in range(math.ceil(math.log2(n + 1))):
        middle = lax.div(lax.add(low, high), lax.full_like(low, 2))
        picked = index_read.get(a, (middle,), wrap_negative_indices=False)
        right = lax.bitwise_and(_before(picked, v, side), lax.lt(low, high))
        low = lax.select(right, lax.add(middle, lax.full_like(middle, 1)), low)
        high = lax.select(right, high, lax.min(middle, high))
    return low


def searchsorted(a: ArrayLike, v: ArrayLike, side: Literal["left", "right"] = "left",
                 sorter: ArrayLike | None = None, *, method: str = "scan") -> Array:
    """Find the positions at which to insert values into a sorted array to keep it sorted.

    NaN counts as larger than every number.

    Args:
        a: one-dimensional array. It must be in increasing order, unless `sorter` is given.
        v: values to insert.
        side: "left" to insert a value before the elements that equal it, "right" to insert it after
            these elements.
        sorter: indices that put `a` in increasing order, such as the result of `argsort`; None if
            `a` is already in this order.
        method: search algorithm, which affects only the running time: "scan", "scan_unrolled" or
            "default" for binary search, "sort" to sort both arrays together, "compare_all" to
            compare each value with each element.

    Returns:
        An integer array with the shape of `v`. Its elements are between 0 and the length of `a`.

    Raises:
        ValueError: `a` is not one-dimensional.

    >>> jnp.searchsorted(jnp.array([1, 2, 2, 3]), jnp.array([0, 2, 5]))
    Array([0, 1, 4], dtype=int32)
    """
    check("searchsorted", a, v)
    if side not in ("left", "right"):
        raise ValueError(f"{side!r} is an invalid value for keyword 'side'. Expected one of "
                         "['left', 'right']." + here())
    if method not in _METHODS:
        raise ValueError(f"{method!r} is an invalid value for keyword 'method'. Expected one of "
                         f"{list(_METHODS[1:])}.{here()}")
    a, v = h.unwrapped(a), h.unwrapped(v)
    if np.ndim(a) != 1:
        raise ValueError("a should be 1-dimensional (use toile.vmap for rows)" + here())
    if sorter is not None:
        a = index_read.get(arr(a), (arr(sorter),))
    a, v = promote(a, v)
    dtype = np.dtype(np.int32 if a.shape[0] < 2**31 else np.int64)
    x, y = raw_buffer(a), raw_buffer(v)
    if x is not None and y is not None and x.dtype.isbuiltin == 1 \
            and x.dtype.char in "fdilhbBHIL?":
        return h.conversion.wrap(np.asarray(np.searchsorted(x, y, side)).astype(dtype), False)
    n = a.shape[0]
    if n == 0:
        return lax.full(v.shape, 0, dtype)
    if method == "compare_all" or n <= _FEW:
        full = (*v.shape, n)
        before = _before(lax.broadcast_in_dim(a, full, (v.ndim,)),
                         lax.broadcast_in_dim(v, full, tuple(range(v.ndim))), side)
        return lax.reduce_sum(lax.convert_element_type(before, dtype), (v.ndim,))
    if method == "sort":
        return _by_sorting(a, v, side, dtype)
    return _bisect(a, v, side, dtype)


def _by_sorting(a, v, side, dtype):
    """Subtract the rank of each query among the queries from its rank among all values."""
    flat = lax.reshape(v, (v.size,))
    parts = (flat, a) if side == "left" else (a, flat)
    both = lax.concatenate(parts, 0)
    place = lax.iota(dtype, both.shape[0])
    order = lax.sort((both, place), num_keys=1)[1]
    rank = lax.full_like(place, 0).at[order].set(place)
    first = 0 if side == "left" else a.shape[0]
    ranks = lax.slice(rank, (first,), (first + v.size,))
    own = argsort(argsort(flat, dtype=dtype), dtype=dtype)
    return lax.reshape(lax.sub(ranks, own), v.shape)


def digitize(x: ArrayLike, bins: ArrayLike, right: bool = False, *,
             method: str | None = None) -> Array:
    """Find the bin that each element of an array falls into.

    Args:
        x: array whose elements are assigned to bins.
        bins: edges of the bins, as a one-dimensional array in increasing or decreasing order.
        right: whether each bin includes its upper edge instead of its lower edge.
        method: search algorithm, as in `searchsorted`; None for the default of `searchsorted`.

    Returns:
        An integer array with the shape of `x`. With increasing edges, bin `i` lies between edges
        `i - 1` and `i`. Elements before the first edge are in bin 0, and elements after the last
        edge are in bin `len(bins)`.

    >>> jnp.digitize(jnp.array([0, 1, 2, 5]), jnp.array([1, 2, 3]))
    Array([0, 1, 2, 3], dtype=int32)
    """
    check("digitize", x, bins)
    right = bool(h.concrete(right, "right argument of jnp.digitize"))
    bins = arr(bins)
    if bins.ndim != 1:
        raise ValueError(f"digitize: bins must be a 1-dimensional array; got {bins.shape}{here()}")
    n = bins.shape[0]
    if n == 0:
        return lax.full(manipulation.shape(x), 0, np.int32)
    side: Literal["left", "right"] = "left" if right else "right"
    options: Any = {} if method is None else {"method": method}
    up = searchsorted(bins, x, side, **options)
    down = ufuncs.subtract(n, searchsorted(manipulation.flip(bins), x, side, **options))
    return selection.where(ufuncs.greater_equal(bins[n - 1], bins[0]), up, down)


def top_k(a: ArrayLike, k: int, /, *, axis: int = -1,
          mode: Literal["largest", "smallest"] = "largest",
          sorted: bool = True) -> Sequence[Array]:
    """Find the largest or smallest elements along an axis.

    NaN counts as larger than every number, or, if its sign bit is set, as smaller than every
    number. Among equal elements, those with a lower index come first.

    Args:
        a: array of real numbers.
        k: number of elements to find, at most the length of the axis.
        axis: axis to search along.
        mode: "largest" or "smallest".
        sorted: accepted for compatibility with JAX, and ignored; results are always sorted.

    Returns:
        Two arrays: the elements, and their indices along the axis.

    Raises:
        ValueError: `a` is complex, or `k` exceeds the length of the axis.

    >>> values, indices = jnp.top_k(jnp.array([3, 1, 4]), 2)
    >>> values, indices
    (Array([4, 3], dtype=int32), Array([2, 0], dtype=int32))
    """
    a = as_array("top_k", a)
    if dtypes.kind(a.dtype) == "c":
        raise ValueError("top_k is not compatible with complex inputs." + here())
    if mode not in ("largest", "smallest"):
        raise ValueError(f"mode must be 'largest' or 'smallest', got {mode!r}{here()}")
    axis = canonical_axis(axis, a.ndim)
    if mode == "largest":
        return lax.top_k(a, k, axis=axis)
    # -x - 1, that is ~x, reverses the order of integers without overflow
    flip = lax.bitwise_not if dtypes.kind(a.dtype) in "biu" else lax.neg
    values, places = lax.top_k(flip(a), k, axis=axis)
    return flip(values), places
