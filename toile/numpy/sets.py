"""Functions that treat arrays as sets: `unique` and its variants, unions, differences, membership.

With a static `size`, everything works under `jit`: the results are truncated, or padded with
`fill_value`. Without a `size`, the number of distinct elements must be known, so the values must be
concrete.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, overload

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.engine.source import here
from toile.numpy import _helpers as h
from toile.numpy import index_read
from toile.numpy._helpers import arr, as_array, canonical_axis, check, promote


class _UniqueAllResult(NamedTuple):
    """The result of `unique_all`."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class _UniqueCountsResult(NamedTuple):
    """The result of `unique_counts`."""

    values: Array
    counts: Array


class _UniqueInverseResult(NamedTuple):
    """The result of `unique_inverse`."""

    values: Array
    inverse_indices: Array


def _sorted_rows(rows, equal_nan):
    """Sort rows (n, m), and find which of them start a new group and where each came from."""
    n, m = rows.shape
    places = lax.iota(h.index_dtype(), n)
    if h.issubdtype(rows.dtype, np.complexfloating):
        # A number with a NaN in either part is NaN, which sorts behind all others.
        rows = lax.select(lax.ne(rows, rows), lax.full_like(rows, np.nan), rows)
    columns = [lax.squeeze(lax.slice_in_dim(rows, j, j + 1, axis=1), (1,)) for j in range(m)]
    if m == 0:
        return rows, lax.eq(places, lax.full_like(places, 0)), places
    order = lax.sort((*columns, places), num_keys=m)[-1]
    rows = index_read.get(rows, (order,))
    one_step = lambda x: (lax.slice_in_dim(x, 0, n - 1), lax.slice_in_dim(x, 1, n))
    before, after = one_step(rows)
    differ = lax.ne(before, after)
    if equal_nan and h.issubdtype(rows.dtype, np.inexact):
        both_nan = lax.bitwise_and(lax.ne(before, before), lax.ne(after, after))
        differ = lax.bitwise_and(differ, lax.bitwise_not(both_nan))
    fresh = lax.reduce_or(differ, (1,))
    return rows, lax.concatenate([lax.full((1,), True, np.bool_), fresh], 0), order


def _unique_rows(rows, size, fill_value, equal_nan):
    """Find the distinct rows, and their first indices, inverse indices and counts."""
    n, dtype = rows.shape[0], h.index_dtype()
    ordered, fresh, order = _sorted_rows(rows, equal_nan)
    if size is None:
        size = int(h.concrete(fresh, "the argument of jnp.unique (pass a static size to use it "
                                     "under jit)").sum())
    starts = jnp.nonzero(fresh, size=size, fill_value=n)[0]
    real = lax.lt(starts, lax.full_like(starts, n))
    found = lax.select(real, starts, lax.full_like(starts, 0))
    values = index_read.get(ordered, (found,))
    if fill_value is not None:
        fill = lax.convert_element_type(arr(fill_value), values.dtype)
        mask = lax.broadcast_in_dim(real, values.shape, (0,))
        values = lax.select(mask, values, h.broadcast_to(fill, values.shape))
    index = index_read.get(order, (found,))
    group = lax.sub(lax.cumsum(lax.convert_element_type(fresh, dtype), axis=0),
                    lax.full((n,), 1, dtype))
    inverse = lax.full((n,), 0, dtype).at[order].set(group)
    counts = lax.full((size,), 0, dtype).at[group].add(lax.full((n,), 1, dtype), mode="drop")
    return values, index, inverse, counts


@overload
def unique(ar: ArrayLike, return_index: Literal[False] = False,
           return_inverse: Literal[False] = False, return_counts: Literal[False] = False,
           axis: int | None = None, *, equal_nan: bool = True, size: int | None = None,
           fill_value: ArrayLike | None = None, sorted: bool = True) -> Array: ...
@overload
def unique(ar: ArrayLike, return_index: bool = False, return_inverse: bool = False,
           return_counts: bool = False, axis: int | None = None, *, equal_nan: bool = True,
           size: int | None = None, fill_value: ArrayLike | None = None,
           sorted: bool = True) -> Any: ...
def unique(ar: ArrayLike, return_index: bool = False, return_inverse: bool = False,
           return_counts: bool = False, axis: int | None = None, *, equal_nan: bool = True,
           size: int | None = None, fill_value: ArrayLike | None = None,
           sorted: bool = True) -> Array | tuple[Array, ...]:
    """Find the distinct elements of an array, in increasing order.

    The number of distinct elements depends on the values of the array, so `size` is required under
    `jit`: the first `size` elements are returned, padded with `fill_value` if there are fewer.

    Args:
        ar: array or number.
        return_index: whether to also return the index at which each element first occurs.
        return_inverse: whether to also return the indices that rebuild `ar` from the result.
        return_counts: whether to also return the number of times that each element occurs.
        axis: axis along which whole slices are compared; None to compare elements.
        equal_nan: whether NaN counts as equal to NaN.
        size: number of elements in the result; None to return all of them.
        fill_value: value used to pad the result to `size`; None for the smallest element.
        sorted: accepted for compatibility with JAX, and ignored; results are always sorted.

    Returns:
        The distinct elements (or slices), or a tuple of these and the requested indices, inverse
        indices and counts, in that order. The counts of padding elements are 0.

    >>> jnp.unique(jnp.array([3, 1, 3]), return_counts=True)
    (Array([1, 3], dtype=int32), Array([1, 2], dtype=int32))
    >>> jnp.unique(jnp.array([3, 1, 3]), size=3, fill_value=0)
    Array([1, 3, 0], dtype=int32)
    """
    ar = as_array("unique", ar)
    dtype = h.index_dtype()
    if axis is None:
        rows, lead = lax.reshape(ar, (ar.size, 1)), ar.shape[:0]
    else:
        axis = canonical_axis(axis, ar.ndim)
        moved = jnp.moveaxis(ar, axis, 0)
        rows, lead = jnp.reshape(moved, (moved.shape[0], -1) if moved.size else
                                          (moved.shape[0], 0)), moved.shape[1:]
    if rows.shape[0] == 0:
        if size and fill_value is None:
            raise ValueError("jnp.unique: for zero-sized input with nonzero size argument, "
                             "fill_value must be specified" + here())
        values = lax.full((size or 0, rows.shape[1]), 0 if fill_value is None else fill_value,
                          ar.dtype)
        index = counts = lax.full((size or 0,), 0, dtype)
        inverse = lax.full((0,), 0, dtype)
    else:
        values, index, inverse, counts = _unique_rows(rows, size, fill_value, equal_nan)
    if axis is None:
        values = lax.reshape(values, (values.shape[0],))
        inverse = lax.reshape(inverse, ar.shape)
    else:
        values = jnp.moveaxis(lax.reshape(values, (values.shape[0], *lead)), 0, axis)
    wanted = [x for flag, x in ((return_index, index), (return_inverse, inverse),
                                (return_counts, counts)) if flag]
    return (values, *wanted) if wanted else values


def unique_all(x: ArrayLike, /, *, size: int | None = None,
               fill_value: ArrayLike | None = None) -> _UniqueAllResult:
    """Find the distinct elements of an array, with their first indices, inverse indices and counts.

    Each NaN counts as a distinct element.

    Args:
        x: array or number.
        size: number of elements in the result; required under `jit`. If `size` is None, all
            elements that are found are returned.
        fill_value: value used to pad the result to `size`; None for the smallest element.

    Returns:
        A named tuple of `values` (in increasing order), `indices` (where each value first occurs),
        `inverse_indices` (which rebuild `x` from the values) and `counts`.
    """
    check("unique_all", x)
    return _UniqueAllResult(*unique(x, True, True, True, equal_nan=False, size=size,
                                   fill_value=fill_value))


def unique_counts(x: ArrayLike, /, *, size: int | None = None,
                  fill_value: ArrayLike | None = None) -> _UniqueCountsResult:
    """Find the distinct elements of an array and the number of times that each occurs.

    Each NaN counts as a distinct element.

    Args:
        x: array or number.
        size: number of elements in the result; required under `jit`. If `size` is None, all
            elements that are found are returned.
        fill_value: value used to pad the result to `size`; None for the smallest element.

    Returns:
        A named tuple of `values`, in increasing order, and `counts`.
    """
    check("unique_counts", x)
    return _UniqueCountsResult(*unique(x, return_counts=True, equal_nan=False, size=size,
                                      fill_value=fill_value))


def unique_inverse(x: ArrayLike, /, *, size: int | None = None,
                   fill_value: ArrayLike | None = None) -> _UniqueInverseResult:
    """Find the distinct elements of an array and the indices that rebuild the array from them.

    Each NaN counts as a distinct element.

    Args:
        x: array or number.
        size: number of elements in `values`; required under `jit`. If `size` is None, all
            elements that are found are returned.
        fill_value: value used to pad the result to `size`; None for the smallest element.

    Returns:
        A named tuple of `values`, in increasing order, and `inverse_indices`, with the shape of
        `x`.
    """
    check("unique_inverse", x)
    return _UniqueInverseResult(*unique(x, return_inverse=True, equal_nan=False, size=size,
                                       fill_value=fill_value))


def unique_values(x: ArrayLike, /, *, size: int | None = None,
                  fill_value: ArrayLike | None = None) -> Array:
    """Find the distinct elements of an array, in increasing order.

    Each NaN counts as a distinct element.

    Args:
        x: array or number.
        size: number of elements in the result; required under `jit`. If `size` is None, all
            elements that are found are returned.
        fill_value: value used to pad the result to `size`; None for the smallest element.

    Returns:
        A one-dimensional array.
    """
    check("unique_values", x)
    return unique(x, equal_nan=False, size=size, fill_value=fill_value)


def isin(element: ArrayLike, test_elements: ArrayLike, assume_unique: bool = False,
         invert: bool = False, *, method: str = "auto") -> Array:
    """Test for each element of an array whether another array contains it.

    NaN is never found, because it does not equal itself.

    Args:
        element: array of the elements to look for.
        test_elements: array to look in.
        assume_unique: accepted for compatibility with NumPy, and ignored.
        invert: whether to invert the result, so that it is True for elements that are not found.
        method: search algorithm, which affects only the running time. "compare_all" compares all
            pairs of elements. "auto", "binary_search" and "sort" also compare all pairs if there
            are few test elements; otherwise, they sort the test elements and use binary search.

    Returns:
        A boolean array with the shape of `element`.

    >>> jnp.isin(jnp.array([1, 2, 3]), jnp.array([3, 1]))
    Array([ True, False,  True], dtype=bool)
    """
    check("isin", element, test_elements)
    if method not in ("auto", "compare_all", "binary_search", "sort"):
        raise ValueError(f"isin: needed method auto, compare_all, binary_search or sort, got "
                         f"{method!r}{here()}")
    x, tests = promote(element, test_elements)
    tests = lax.reshape(tests, (tests.size,))
    if not x.size or not tests.size:
        return lax.full(x.shape, bool(invert), np.bool_)
    if tests.size <= 16 or method == "compare_all":
        full = (*x.shape, tests.size)
        same = lax.eq(lax.broadcast_in_dim(x, full, tuple(range(x.ndim))),
                      lax.broadcast_in_dim(tests, full, (x.ndim,)))
        found = lax.reduce_or(same, (x.ndim,))
    else:
        tests = lax.sort(tests, dimension=0)
        place = jnp.searchsorted(tests, x)
        found = lax.eq(index_read.get(tests, (place,)), x)     # past the end clamps to the last
    return lax.bitwise_not(found) if invert else found


def union1d(ar1: ArrayLike, ar2: ArrayLike, *, size: int | None = None,
            fill_value: ArrayLike | None = None) -> Array:
    """Find the distinct elements that occur in at least one of two arrays.

    Args:
        ar1, ar2: the arrays, which are flattened.
        size: number of elements in the result; required under `jit`. If `size` is None, all
            elements that are found are returned.
        fill_value: value used to pad the result to `size`; None for the smallest element.

    Returns:
        A one-dimensional array in increasing order.

    >>> jnp.union1d(jnp.array([3, 1]), jnp.array([2, 1]))
    Array([1, 2, 3], dtype=int32)
    """
    check("union1d", ar1, ar2)
    both = jnp.concatenate([jnp.ravel(ar1), jnp.ravel(ar2)])
    return unique(both, size=size, fill_value=fill_value)


def _distinct(x, assume_unique):
    """Find the distinct elements, and a mask that is False for padding."""
    x = jnp.ravel(x)
    if assume_unique:
        return x, lax.full(x.shape, True, np.bool_)
    if not x.size:
        return x, lax.full((0,), True, np.bool_)
    values, counts = unique(x, return_counts=True, size=x.size)
    return values, lax.gt(counts, lax.full_like(counts, 0))


def _picked(values, mask, size, fill_value, default):
    """Select the elements under the mask, and pad them to `size` with `fill_value`."""
    if size is None:
        keep = np.nonzero(h.concrete(mask, "a set operation (pass a static size to use it under "
                                           "jit)"))[0]
        return index_read.get(values, (keep.astype(np.int32),))
    n = values.shape[0]
    if not n:
        return lax.full((size,), 0 if fill_value is None else fill_value, values.dtype)
    rows = jnp.nonzero(mask, size=size, fill_value=n)[0]
    fill = default if fill_value is None else fill_value
    out = index_read.get(values, (rows,), mode="clip")  # padding is past the end
    if fill is None:
        # the least element found, or zero when there is none
        fill = jnp.where(jnp.any(mask), out[0], 0) if size else 0
    real = lax.lt(rows, lax.full_like(rows, n))
    return jnp.where(real, out, lax.convert_element_type(arr(fill), out.dtype))


def setdiff1d(ar1: ArrayLike, ar2: ArrayLike, assume_unique: bool = False, *,
              size: int | None = None, fill_value: ArrayLike | None = None) -> Array:
    """Find the distinct elements of one array that do not occur in another.

    Args:
        ar1: array whose elements are kept or left out; it is flattened.
        ar2: array of the elements to leave out.
        assume_unique: True to promise that no element of `ar1` occurs twice; the result is then in
            the order of `ar1`.
        size: number of elements in the result; required under `jit`. If `size` is None, all
            elements that are found are returned.
        fill_value: value used to pad the result to `size`; 0 by default.

    Returns:
        A one-dimensional array, in increasing order unless `assume_unique` is True.

    >>> jnp.setdiff1d(jnp.array([3, 1, 2]), jnp.array([1]))
    Array([2, 3], dtype=int32)
    """
    check("setdiff1d", ar1, ar2)
    values, real = _distinct(ar1, assume_unique)
    mask = lax.bitwise_and(real, isin(values, ar2, invert=True))
    return _picked(values, mask, size, fill_value, 0)


def _merged(ar1, ar2, assume_unique):
    """Merge and sort the distinct elements of two arrays, and find which neighbors are equal."""
    a, b = promote(jnp.ravel(ar1), jnp.ravel(ar2))
    (a, real_a), (b, real_b) = _distinct(a, assume_unique), _distinct(b, assume_unique)
    values = lax.concatenate([a, b], 0)
    real = lax.concatenate([real_a, real_b], 0)
    padding = lax.convert_element_type(lax.bitwise_not(real), np.int32)
    place = lax.iota(h.index_dtype(), values.shape[0])
    # padding sorts behind everything
    _, values, place = lax.sort((padding, values, place), num_keys=2)
    real = index_read.get(real, (place,))
    n = values.shape[0]
    same = lax.eq(lax.slice_in_dim(values, 0, n - 1), lax.slice_in_dim(values, 1, n))
    same = lax.bitwise_and(same, lax.slice_in_dim(real, 1, n))
    return values, same, real, place, a.shape[0]


def setxor1d(ar1: ArrayLike, ar2: ArrayLike, assume_unique: bool = False, *,
             size: int | None = None, fill_value: ArrayLike | None = None) -> Array:
    """Find the distinct elements that occur in exactly one of two arrays.

    Args:
        ar1, ar2: the arrays, which are flattened.
        assume_unique: True to promise that no element occurs twice in the same array.
        size: number of elements in the result; required under `jit`. If `size` is None, all
            elements that are found are returned.
        fill_value: value used to pad the result to `size`; None for the smallest element
            found, or 0 if there is none.

    Returns:
        A one-dimensional array in increasing order.

    >>> jnp.setxor1d(jnp.array([3, 1]), jnp.array([1, 2]))
    Array([2, 3], dtype=int32)
    """
    check("setxor1d", ar1, ar2)
    if not np.size(ar1) or not np.size(ar2):
        values, mask = _distinct(ar1 if np.size(ar1) else ar2, assume_unique)
        return _picked(values, mask, size, fill_value, None)
    values, same, real, _, _ = _merged(ar1, ar2, assume_unique)
    edge = lax.full((1,), False, np.bool_)
    paired = lax.bitwise_or(lax.concatenate([edge, same], 0), lax.concatenate([same, edge], 0))
    mask = lax.bitwise_and(real, lax.bitwise_not(paired))
    return _picked(values, mask, size, fill_value, None)


@overload
def intersect1d(ar1: ArrayLike, ar2: ArrayLike, assume_unique: bool = False,
                return_indices: Literal[False] = False, *, size: int | None = None,
                fill_value: ArrayLike | None = None) -> Array: ...
@overload
def intersect1d(ar1: ArrayLike, ar2: ArrayLike, assume_unique: bool = False,
                return_indices: bool = False, *, size: int | None = None,
                fill_value: ArrayLike | None = None) -> Any: ...
def intersect1d(ar1: ArrayLike, ar2: ArrayLike, assume_unique: bool = False,
                return_indices: bool = False, *, size: int | None = None,
                fill_value: ArrayLike | None = None) -> Array | tuple[Array, Array, Array]:
    """Find the distinct elements that occur in both of two arrays.

    Args:
        ar1, ar2: the arrays, which are flattened.
        assume_unique: True to promise that no element occurs twice in the same array.
        return_indices: whether to also return the indices at which the elements first occur in the
            two arrays.
        size: number of elements in the result; required under `jit`. If `size` is None, all
            elements that are found are returned.
        fill_value: value used to pad the result to `size`; None for the smallest element
            found, or 0 if there is none.

    Returns:
        A one-dimensional array in increasing order. If `return_indices` is True, a tuple of that
        array, the indices of its elements in the flattened `ar1`, and their indices in the
        flattened `ar2`. Indices are padded with the size of the array that they refer to; if `ar1`
        or `ar2` is empty, both arrays of indices are padded with 0.

    >>> jnp.intersect1d(jnp.array([3, 1, 2]), jnp.array([2, 3, 5]))
    Array([2, 3], dtype=int32)
    """
    check("intersect1d", ar1, ar2)
    if not np.size(ar1) or not np.size(ar2):
        dtype = h.result_type(ar1, ar2)
        out = lax.full((size or 0,), 0 if fill_value is None else fill_value, dtype)
        none = lax.full((size or 0,), 0, h.index_dtype())
        return (out, none, none) if return_indices else out
    values, same, _, place, split = _merged(ar1, ar2, assume_unique)
    values = lax.slice_in_dim(values, 0, values.shape[0] - 1)
    out = _picked(values, same, size, fill_value, None)
    if not return_indices:
        return out
    n = place.shape[0]
    first = _picked(lax.slice_in_dim(place, 0, n - 1), same, size, None, None)
    second = _picked(lax.slice_in_dim(place, 1, n), same, size, None, None)
    second = jnp.subtract(second, split)
    if not assume_unique:
        index_a = unique(ar1, return_index=True, size=np.size(ar1))[1]
        index_b = unique(ar2, return_index=True, size=np.size(ar2))[1]
        first, second = index_read.get(index_a, (first,)), index_read.get(index_b, (second,))
    if size is not None:
        real = lax.lt(lax.iota(np.int32, size), h.broadcast_to(lax.convert_element_type(
            jnp.sum(same), np.int32), (size,)))
        first = jnp.where(real, first, np.size(ar1))
        second = jnp.where(real, second, np.size(ar2))
    return out, first, second
