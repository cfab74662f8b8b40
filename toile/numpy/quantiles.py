"""Quantiles, percentiles and medians, and versions of them that ignore NaN.

The array is first reshaped to a matrix, whose columns are then sorted. The two elements nearest to
each quantile are read with one gather each. This module may import the engine, `lax` and other
modules of `numpy`.
"""

from __future__ import annotations

import math
from typing import Any, Literal, TypeAlias

import numpy as np

from toile import lax
from toile.engine.annotations import Array, ArrayLike, AxisLike
from toile.engine.source import here
from toile.numpy._axes import canonicalize_axes
from toile.numpy._dtypes import COMPLEX, HALVES
from toile.numpy._operands import as_array, as_operand, convert, literal, no_out, strengthen
from toile.numpy._promotion import broadcast_to, inexact, select
from toile.numpy.reductions import sum
from toile.numpy.ufuncs import isnan

QuantileMethod: TypeAlias = Literal[
    "linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf"
]
_METHODS = ("linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf")
_INT32 = np.dtype("int32")


def _columns(x: Any, axes: tuple[int, ...]) -> Any:
    """Reshape `x` to a matrix: the reduced axes become rows, and the remaining axes columns."""
    kept = tuple(i for i in range(x.ndim) if i not in axes)
    rows = math.prod(x.shape[a] for a in axes)
    order = (*axes, *kept)
    if order != tuple(range(x.ndim)):
        x = lax.transpose(x, order)
    return lax.reshape(x, (rows, math.prod(x.shape[len(axes) :])))


def _look_up(table: Any, index: Any) -> Any:
    """Look up rows `index` (k, m) or (k, 1) in each column of `table` (n, m); return (k, m)."""
    n, m = table.shape
    if index.shape[1] == 1:
        numbers = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,),
                                             start_index_map=(0,))
        return lax.gather(table, index, numbers, (1, m), mode="clip")
    # Position (row, column) is row * m + column in the flattened table.
    column = lax.broadcasted_iota(_INT32, index.shape, 1)
    flat = lax.add(lax.mul(index, literal(m, _INT32)), column)
    numbers = lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,),
                                         start_index_map=(0,))
    flat = lax.expand_dims(flat, (2,))
    return lax.gather(lax.reshape(table, (n * m,)), flat, numbers, (1,), mode="clip")


def _sorted_columns(x: Any, weights: Any, skip_nan: bool) -> tuple[Any, Any]:
    """Sort each column with NaN last; without `skip_nan`, a column with NaN becomes all NaN."""
    if not skip_nan:
        bad = lax.reduce_or(isnan(x), (0,))
        x = select(lax.broadcast_in_dim(bad, x.shape, (1,)), math.nan, x)
    if weights is None:
        return lax.sort(x, dimension=0), None
    return lax.sort((x, weights), dimension=0, num_keys=1)


def _interpolated(x: Any, q: Any, method: str, skip_nan: bool) -> Any:
    """Compute the quantiles `q` (k,) of sorted columns `x` (n, m), which may have another dtype."""
    dtype = q.dtype
    if skip_nan:
        count = sum(lax.bitwise_not(isnan(x)), 0, dtype, keepdims=True)
    else:
        count = lax.full((1, 1), x.shape[0], dtype)
    last = lax.sub(count, literal(1, dtype))  # (1, m) or (1, 1)
    shape = (q.shape[0], last.shape[1])
    last = broadcast_to(last, shape)
    place = lax.mul(lax.broadcast_in_dim(q, shape, (0,)), last)
    low, high = lax.floor(place), lax.ceil(place)
    high_weight = lax.sub(place, low)
    zero = literal(0, dtype)
    rows = [convert(lax.max(zero, lax.min(p, last)), _INT32) for p in (low, high)]
    below, above = _look_up(x, rows[0]), _look_up(x, rows[1])
    if method == "lower":
        return below
    if method == "higher":
        return above
    if method == "midpoint":
        return lax.mul(lax.add(below, above), literal(0.5, x.dtype))
    weight = broadcast_to(high_weight, below.shape)
    if method == "nearest":
        return select(lax.le(weight, literal(0.5, dtype)), below, above)
    wide = max(x.dtype, weight.dtype, key=lambda d: d.itemsize)
    below, above, weight = (convert(v, wide) for v in (below, above, weight))
    rest = lax.sub(literal(1, weight.dtype), weight)
    return lax.add(lax.mul(below, rest), lax.mul(above, weight))


def _inverted_cdf(x: Any, weights: Any, q: Any, skip_nan: bool) -> Any:
    """Find the smallest element for which the fraction of the weight up to it reaches `q`."""
    if weights is None:
        weights = lax.full(x.shape, 1, q.dtype)
    if skip_nan:
        weights = select(isnan(x), 0, weights)
    cdf = lax.cumsum(weights, axis=0)
    total = lax.slice_in_dim(cdf, x.shape[0] - 1, x.shape[0], axis=0)
    shape = (q.shape[0], *x.shape)
    target = lax.mul(lax.broadcast_in_dim(q, shape, (0,)),
                     lax.broadcast_in_dim(total, shape, (1, 2)))
    below = lax.lt(lax.broadcast_in_dim(cdf, shape, (1, 2)), target)
    row = sum(below, 1, _INT32)
    return _look_up(x, lax.min(row, literal(x.shape[0] - 1, _INT32)))


def _check_method(method: str, weights: Any) -> None:
    if method not in _METHODS:
        raise ValueError("method can only be 'linear', 'lower', 'higher', 'midpoint', 'nearest' or "
                         "'inverted_cdf'" + here())
    if weights is not None and method != "inverted_cdf":
        raise NotImplementedError(f"{method} doesn't support weights. Only method 'inverted_cdf' "
                                  f"supports weights.{here()}")


def _quantile(name: str, a: Any, q: Any, axis: Any, method: str, keepdims: bool, weights: Any,
              skip_nan: bool) -> Any:
    _check_method(method, weights)
    as_operand(name, q, 1)
    a, q = strengthen(inexact(name, a)), strengthen(inexact(name, q))
    if q.dtype in HALVES:
        q = convert(q, np.dtype("float32"))  # positions in long arrays need more digits
    if a.dtype in COMPLEX:
        raise ValueError(f"{name} does not support complex input, as the operation is poorly "
                         f"defined.{here()}")
    if q.ndim > 1:
        raise ValueError(f"q must be have rank <= 1, got shape {q.shape}{here()}")
    axes = canonicalize_axes(axis, a.ndim)
    kept = tuple(n for i, n in enumerate(a.shape) if i not in axes)
    if skip_nan and math.prod(a.shape[i] for i in axes) == 0:
        # The mean of no numbers, as in NumPy: `q` adds no axes to it.
        shape = [1 if i in axes else n for i, n in enumerate(a.shape)] if keepdims else kept
        return lax.full(shape, math.nan, a.dtype)
    if weights is not None:
        weights = _aligned(convert(as_array(name, weights), q.dtype), a.shape, axes)
    if 0 in kept:
        result = lax.full((*q.shape, *kept), math.nan, a.dtype)
    else:
        points = lax.reshape(q, (q.size,))
        result = _of_columns(_columns(a, axes), points, method, weights, skip_nan)
        result = convert(lax.reshape(result, (*q.shape, *kept)), a.dtype)
    return lax.expand_dims(result, tuple(q.ndim + a for a in axes)) if keepdims else result


def _of_columns(x: Any, q: Any, method: str, weights: Any, skip_nan: bool) -> Any:
    x, weights = _sorted_columns(x, weights, skip_nan)
    if method == "inverted_cdf":
        return _inverted_cdf(x, weights, q, skip_nan)
    return _interpolated(x, q, method, skip_nan)


def _aligned(weights: Any, shape: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    """Arrange weights for the whole array, or for its reduced axes, in columns like the array."""
    if weights.shape == shape:
        return _columns(weights, axes)
    if weights.shape != tuple(shape[i] for i in axes):
        raise ValueError(f"quantile: needed weights of shape {shape} or of the reduced axes, got "
                         f"{weights.shape}{here()}")
    return _columns(lax.broadcast_in_dim(weights, shape, axes), axes)


def quantile(a: ArrayLike, q: ArrayLike, axis: AxisLike = None, out: None = None,
             overwrite_input: bool = False, method: QuantileMethod = "linear",
             keepdims: bool = False, *, weights: ArrayLike | None = None) -> Array:
    """Compute quantiles of the elements along the given axes.

    The quantile `q` is the value below which a fraction `q` of the elements lies; the quantile 0.5
    is the median. Among n sorted elements, the quantile is at position `q * (n - 1)`, counted from
    0. If this position lies between two elements, `method` determines the result. If an element is
    NaN, the result is NaN.

    Args:
        a: array or number.
        q: fraction between 0 and 1, or a one-dimensional array of fractions. Fractions outside this
            interval are clipped to it.
        axis: axis or axes to reduce; None to reduce all axes.
        out: not supported; must be None.
        overwrite_input: not supported; must be False.
        method: "linear" interpolates between the two neighbors of the position. "lower" returns the
            lower neighbor, "higher" returns the higher neighbor, "midpoint" returns their mean, and
            "nearest" returns the nearer neighbor, or the lower one if both are equally near.
            "inverted_cdf" returns the smallest element e such that at least a fraction `q` of the
            elements is less than or equal to e.
        keepdims: whether to keep the reduced axes with length 1.
        weights: array of weights with the shape of `a` or the shape of its reduced axes, allowed
            only for "inverted_cdf"; if None, all elements have the same weight.

    Returns:
        An array with the remaining axes, preceded by an axis for `q` if `q` is an array. Floating
        dtypes are kept; integers and booleans become float32 (64-bit integers become float64).

    Raises:
        ValueError: `a` is complex, a reduced axis is empty, `q` has rank 2 or more, or `method` is
            unknown.
        NotImplementedError: `weights` is given and `method` is not "inverted_cdf".

    Differences:
        NumPy has more methods, raises ValueError for `q` outside [0, 1], and, for "nearest",
        prefers the even position if two positions are equally near.

    >>> jnp.quantile(jnp.array([1, 2, 3, 4]), jnp.array([0.25, 0.5]))
    Array([1.75, 2.5 ], dtype=float32)
    """
    _check_out("quantile", out, overwrite_input)
    return _quantile("quantile", a, q, axis, method, keepdims, weights, False)


def nanquantile(a: ArrayLike, q: ArrayLike, axis: AxisLike = None, out: None = None,
                overwrite_input: bool = False, method: QuantileMethod = "linear",
                keepdims: bool = False, *, weights: ArrayLike | None = None) -> Array:
    """Compute the quantiles of the elements along the given axes, ignoring NaN; see `quantile`.

    If all elements are NaN, the result is NaN. If a reduced axis is empty, the result is also NaN,
    but it has no axis for `q`.

    Args:
        a: array or number.
        q: fraction between 0 and 1, or a one-dimensional array of fractions.
        axis: axis or axes to reduce; None to reduce all axes.
        out: not supported; must be None.
        overwrite_input: not supported; must be False.
        method: "linear", "lower", "higher", "midpoint", "nearest" or "inverted_cdf", as in
            `quantile`.
        keepdims: whether to keep the reduced axes with length 1.
        weights: array of weights with the shape of `a` or the shape of its reduced axes, allowed
            only for "inverted_cdf"; if None, all elements have the same weight.

    Returns:
        An array with the remaining axes, preceded by an axis for `q` if `q` is an array. Floating
        dtypes are kept; integers and booleans become float32 (64-bit integers become float64).

    Raises:
        ValueError: `a` is complex, `q` has rank 2 or more, or `method` is unknown.
        NotImplementedError: `weights` is given and `method` is not "inverted_cdf".
    """
    _check_out("nanquantile", out, overwrite_input)
    return _quantile("nanquantile", a, q, axis, method, keepdims, weights, True)


def _check_out(name: str, out: Any, overwrite_input: bool) -> None:
    if out is not None or overwrite_input:
        raise ValueError(f"jax.numpy.{name} does not support overwrite_input=True or out != "
                         f"None{here()}")


def _fraction(name: str, q: Any) -> Any:
    q = inexact(name, q)
    return lax.div(q, literal(100, q.dtype, q.weak_type))


def percentile(a: ArrayLike, q: ArrayLike, axis: AxisLike = None, out: None = None,
               overwrite_input: bool = False, method: QuantileMethod = "linear",
               keepdims: bool = False, *, weights: ArrayLike | None = None,
               out_sharding: object = None) -> Array:
    """Compute percentiles of the elements along the given axes; see `quantile`.

    Args:
        a: array or number.
        q: percentage between 0 and 100, or a one-dimensional array of percentages.
        axis: axis or axes to reduce; None to reduce all axes.
        out: not supported; must be None.
        overwrite_input: not supported; must be False.
        method: "linear", "lower", "higher", "midpoint", "nearest" or "inverted_cdf", as in
            `quantile`.
        keepdims: whether to keep the reduced axes with length 1.
        weights: array of weights with the shape of `a` or the shape of its reduced axes, allowed
            only for "inverted_cdf"; if None, all elements have the same weight.
        out_sharding: accepted for compatibility with JAX, and ignored.

    Returns:
        An array with the remaining axes, preceded by an axis for `q` if `q` is an array. Floating
        dtypes are kept; integers and booleans become float32 (64-bit integers become float64).
    """
    a = as_array("percentile", a)
    q = _fraction("percentile", q)
    return quantile(a, q, axis, out, overwrite_input, method, keepdims, weights=weights)


def nanpercentile(a: ArrayLike, q: ArrayLike, axis: AxisLike = None, out: None = None,
                  overwrite_input: bool = False, method: QuantileMethod = "linear",
                  keepdims: bool = False, *, weights: ArrayLike | None = None) -> Array:
    """Compute percentiles of the elements along the given axes, ignoring NaN; see `nanquantile`.

    Args:
        a: array or number.
        q: percentage between 0 and 100, or a one-dimensional array of percentages.
        axis: axis or axes to reduce; None to reduce all axes.
        out: not supported; must be None.
        overwrite_input: not supported; must be False.
        method: "linear", "lower", "higher", "midpoint", "nearest" or "inverted_cdf", as in
            `quantile`.
        keepdims: whether to keep the reduced axes with length 1.
        weights: array of weights with the shape of `a` or the shape of its reduced axes, allowed
            only for "inverted_cdf"; if None, all elements have the same weight.

    Returns:
        An array with the remaining axes, preceded by an axis for `q` if `q` is an array. Floating
        dtypes are kept; integers and booleans become float32 (64-bit integers become float64).
    """
    a = as_array("nanpercentile", a)
    q = _fraction("nanpercentile", q)
    return nanquantile(a, q, axis, out, overwrite_input, method, keepdims, weights=weights)


def median(a: ArrayLike, axis: AxisLike = None, out: None = None, overwrite_input: bool = False,
           keepdims: bool = False) -> Array:
    """Compute the median along the given axes: the middle element, or the mean of the middle two.

    If an element is NaN, the result is NaN.

    Args:
        a: array or number.
        axis: axis or axes to reduce; None to reduce all axes.
        out: not supported; must be None.
        overwrite_input: not supported; must be False.
        keepdims: whether to keep the reduced axes with length 1.

    Returns:
        An array with the remaining axes. Floating dtypes are kept; integers and booleans become
        float32 (64-bit integers become float64).

    Raises:
        ValueError: `a` is complex, or a reduced axis is empty. If a reduced axis is empty, NumPy
            returns NaN instead.
    """
    no_out("median", out)
    return quantile(a, 0.5, axis, None, overwrite_input, "midpoint", keepdims)


def nanmedian(a: ArrayLike, axis: AxisLike = None, out: None = None, overwrite_input: bool = False,
              keepdims: bool = False) -> Array:
    """Compute the median of the elements along the given axes, ignoring NaN.

    If all elements are NaN, or if there are no elements, the result is NaN.

    Args:
        a: array or number.
        axis: axis or axes to reduce; None to reduce all axes.
        out: not supported; must be None.
        overwrite_input: not supported; must be False.
        keepdims: whether to keep the reduced axes with length 1.

    Returns:
        An array with the remaining axes. Floating dtypes are kept; integers and booleans become
        float32 (64-bit integers become float64).

    Raises:
        ValueError: `a` is complex.
    """
    no_out("nanmedian", out)
    return nanquantile(a, 0.5, axis, None, overwrite_input, "midpoint", keepdims)
