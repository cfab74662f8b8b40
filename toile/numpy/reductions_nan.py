"""Reductions that ignore NaN: each first replaces NaN with the identity of the reduction.

This module may import the engine, `lax` and other modules of `toile.numpy`.
"""

from __future__ import annotations

import math
from typing import Any

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike, AxisLike, DTypeLike
from toile.engine.source import here
from toile.numpy._dtypes import COMPLEX, INEXACT, default_int, real_part, to_inexact, user_dtype
from toile.numpy._operands import as_array, convert, no_out
from toile.numpy._promotion import broadcast_to, select
from toile.numpy.reductions import _position, checked_where, highest, lowest, widened
from toile.numpy.ufuncs import isnan


def _without_nan(name: str, a: Any, value: Any) -> Any:
    """Replace NaN in `a` with a number."""
    a = as_array(name, a)
    return select(isnan(a), value, a) if a.dtype in INEXACT else a


def _nan_extreme(name: str, reduce: Any, identity: Any, a: Any, axis: Any, out: Any, keepdims: bool,
                 initial: Any, where: Any) -> Any:
    a = as_array(name, a)
    no_out(name, out)
    if where is not None:
        where = checked_where(name, where)
    if a.dtype not in INEXACT:
        return reduce(a, axis, None, keepdims, initial, where)
    filled = _without_nan(name, a, identity(a.dtype))
    result = reduce(filled, axis, None, keepdims, initial, where)
    if initial is not None:
        return result
    return select(jnp.all(isnan(a), axis, None, keepdims), math.nan, result)


def nanmax(a: ArrayLike, axis: AxisLike = None, out: None = None, keepdims: bool = False,
           initial: ArrayLike | None = None, where: ArrayLike | None = None) -> Array:
    """Find the largest element along the given axes, ignoring NaN.

    If all elements are NaN, the result is NaN.

    Args:
        a: array or number.
        axis: axis or axes to reduce; None to reduce all axes.
        out: not supported; must be None.
        keepdims: whether to keep the reduced axes with length 1.
        initial: additional element to include; required if a reduced axis is empty or `where` is
            given.
        where: boolean mask of the elements to include, which is broadcast to the shape of `a`; None
            to include all elements.

    Returns:
        An array with the remaining axes, in the dtype of `a`.

    Raises:
        ValueError: `initial` is None, but a reduced axis is empty or `where` is given.

    Differences:
        NumPy issues a warning if all elements are NaN.
    """
    return _nan_extreme("nanmax", jnp.max, lowest, a, axis, out, keepdims, initial, where)


def nanmin(a: ArrayLike, axis: AxisLike = None, out: None = None, keepdims: bool = False,
           initial: ArrayLike | None = None, where: ArrayLike | None = None) -> Array:
    """Find the smallest element along the given axes, ignoring NaN.

    If all elements are NaN, the result is NaN.

    Args:
        a: array or number.
        axis: axis or axes to reduce; None to reduce all axes.
        out: not supported; must be None.
        keepdims: whether to keep the reduced axes with length 1.
        initial: additional element to include; required if a reduced axis is empty or `where` is
            given.
        where: boolean mask of the elements to include, which is broadcast to the shape of `a`; None
            to include all elements.

    Returns:
        An array with the remaining axes, in the dtype of `a`.

    Raises:
        ValueError: `initial` is None, but a reduced axis is empty or `where` is given.

    Differences:
        NumPy issues a warning if all elements are NaN.
    """
    return _nan_extreme("nanmin", jnp.min, highest, a, axis, out, keepdims, initial, where)


def nansum(a: ArrayLike, axis: AxisLike = None, dtype: DTypeLike | None = None,
           out: None = None, keepdims: bool = False, initial: ArrayLike | None = None,
           where: ArrayLike | None = None) -> Array:
    """Sum the elements along the given axes, treating NaN as 0.

    A complex number counts as NaN if one of its parts is NaN.

    Args:
        a: array or number.
        axis: axis or axes to reduce; None to reduce all axes.
        dtype: dtype of the sums and of the result; None for the dtype that `sum` uses.
        out: not supported; must be None.
        keepdims: whether to keep the reduced axes with length 1.
        initial: number to add to the sum; 0 by default.
        where: boolean mask of the elements to include, which is broadcast to the shape of `a`; None
            to include all elements.

    Returns:
        An array with the remaining axes.

    >>> jnp.nansum(jnp.array([1.0, jnp.nan, 2.0]))
    Array(3., dtype=float32)
    """
    no_out("nansum", out)
    if where is not None:
        where = checked_where("nansum", where)
    return jnp.sum(_without_nan("nansum", a, 0), axis, dtype, None, keepdims, initial, where)


def nanprod(a: ArrayLike, axis: AxisLike = None, dtype: DTypeLike | None = None,
            out: None = None, keepdims: bool = False, initial: ArrayLike | None = None,
            where: ArrayLike | None = None) -> Array:
    """Multiply the elements along the given axes, treating NaN as 1.

    A complex number counts as NaN if one of its parts is NaN.

    Args:
        a: array or number.
        axis: axis or axes to reduce; None to reduce all axes.
        dtype: dtype of the products and of the result; None for the dtype that `prod` uses.
        out: not supported; must be None.
        keepdims: whether to keep the reduced axes with length 1.
        initial: number to multiply the product by; 1 by default.
        where: boolean mask of the elements to include, which is broadcast to the shape of `a`; None
            to include all elements.

    Returns:
        An array with the remaining axes.
    """
    no_out("nanprod", out)
    if where is not None:
        where = checked_where("nanprod", where)
    return jnp.prod(_without_nan("nanprod", a, 1), axis, dtype, None, keepdims, initial, where)


def _numbers(a: Any, where: Any) -> Any:
    """Find the elements that are selected and not NaN."""
    numbers = lax.bitwise_not(isnan(a))
    if where is None:
        return numbers
    return lax.bitwise_and(numbers, broadcast_to(where, a.shape))


def nanmean(a: ArrayLike, axis: AxisLike = None, dtype: DTypeLike | None = None,
            out: None = None, keepdims: bool = False, where: ArrayLike | None = None) -> Array:
    """Compute the arithmetic mean of the elements along the given axes, ignoring NaN.

    If all elements are NaN, the mean is NaN. The sum and the count are rounded to the dtype of the
    result before the division. A float16 number cannot exceed 65504, so to average more than 65504
    elements of a float16 array, pass a wider `dtype`.

    Args:
        a: array or number.
        axis: axis or axes to reduce; None to reduce all axes.
        dtype: dtype of the computation and of the result; if None, floating and complex dtypes are
            kept, and float32 is used for integers and booleans (float64 for 64-bit integers).
        out: not supported; must be None.
        keepdims: whether to keep the reduced axes with length 1.
        where: boolean mask of the elements to include, which is broadcast to the shape of `a`; None
            to include all elements.

    Returns:
        An array with the remaining axes.

    Differences:
        NumPy issues a warning if all elements are NaN.
    """
    a = as_array("nanmean", a)
    no_out("nanmean", out)
    if where is not None:
        where = checked_where("nanmean", where)
    if a.dtype not in INEXACT:
        return jnp.mean(a, axis, dtype, None, keepdims, where=where)
    dtype = a.dtype if dtype is None else user_dtype(dtype, "nanmean")
    count = jnp.sum(_numbers(a, where), axis, dtype, keepdims=keepdims)
    return lax.div(nansum(a, axis, dtype, None, keepdims, where=where), count)


def nanvar(a: ArrayLike, axis: AxisLike = None, dtype: DTypeLike | None = None,
           out: None = None, ddof: float = 0, keepdims: bool = False,
           where: ArrayLike | None = None, mean: ArrayLike | None = None) -> Array:
    """Compute the variance of the elements along the given axes, ignoring NaN.

    The divisor is the number of elements that are not NaN, minus `ddof`. If this divisor is not
    positive, the variance is NaN.

    Args:
        a: array or number.
        axis: axis or axes to reduce; None to reduce all axes.
        dtype: dtype of the computation and of the result; if None, floating dtypes are kept, and
            float32 is used for integers and booleans (float64 for 64-bit integers). If `a` is
            complex, `dtype` must be complex too.
        out: not supported; must be None.
        ddof: number to subtract from the number of elements to obtain the divisor; 1 makes the
            estimate unbiased.
        keepdims: whether to keep the reduced axes with length 1.
        where: boolean mask of the elements to include, which is broadcast to the shape of `a`; None
            to include all elements.
        mean: precomputed mean, in which the reduced axes have size 1; None to compute the mean.

    Returns:
        An array with the remaining axes. If `dtype` is None, the array is real even if `a` is
        complex.

    Raises:
        ValueError: `dtype` is real and `a` is complex.

    Differences:
        NumPy issues a warning if all elements are NaN.
    """
    return _nan_variance("nanvar", a, axis, dtype, out, ddof, keepdims, where, mean)


def _nan_variance(name: str, a: Any, axis: Any, dtype: Any, out: Any, ddof: Any, keepdims: bool,
                  where: Any, mean: Any) -> Array:
    a = as_array(name, a)
    no_out(name, out)
    if where is not None:
        where = checked_where(name, where)
    if a.dtype not in INEXACT:
        return jnp.var(a, axis, dtype, None, ddof, keepdims, where=where, mean=mean)
    if dtype is not None:
        dtype = user_dtype(dtype, name)
        if a.dtype in COMPLEX and dtype not in COMPLEX:
            raise ValueError(f"{name}: needed a complex dtype for complex values, got {dtype} "
                             f"(use dtype=None, whose result is real){here()}")
    result_dtype = real_part(to_inexact(a.dtype)) if dtype is None else dtype
    work = widened(a.dtype if dtype is None else dtype)
    a = convert(a, work)
    centre = (
        nanmean(a, axis, work, None, True, where) if mean is None
        else convert(as_array(name, mean), work)
    )
    valid = _numbers(a, where)
    centred = select(valid, lax.sub(a, broadcast_to(centre, a.shape)), 0)
    if work in COMPLEX:
        squares = lax.real(lax.mul(centred, lax.conj(centred)))
    else:
        squares = lax.square(centred)
    index = default_int()
    count = jnp.sum(valid, axis, index, keepdims=keepdims)
    divisor = jnp.subtract(count, ddof)  # a fraction makes it one
    none = jnp.less_equal(divisor, 0)
    total = select(none, math.nan, jnp.sum(squares, axis, keepdims=keepdims))
    divisor = convert(select(none, 1, divisor), total.dtype)
    return convert(lax.div(total, divisor), result_dtype)


def nanstd(a: ArrayLike, axis: AxisLike = None, dtype: DTypeLike | None = None,
           out: None = None, ddof: float = 0, keepdims: bool = False,
           where: ArrayLike | None = None, mean: ArrayLike | None = None) -> Array:
    """Compute the standard deviation of the elements along the given axes, ignoring NaN.

    The result is the square root of `nanvar`.

    Args:
        a: array or number.
        axis: axis or axes to reduce; None to reduce all axes.
        dtype: dtype of the computation and of the result; if None, floating dtypes are kept, and
            float32 is used for integers and booleans (float64 for 64-bit integers). If `a` is
            complex, `dtype` must be complex too.
        out: not supported; must be None.
        ddof: number to subtract from the number of elements to obtain the divisor; 1 makes the
            estimate of the variance unbiased.
        keepdims: whether to keep the reduced axes with length 1.
        where: boolean mask of the elements to include, which is broadcast to the shape of `a`; None
            to include all elements.
        mean: precomputed mean, in which the reduced axes have size 1; None to compute the mean.

    Returns:
        An array with the remaining axes. If `dtype` is None, the array is real even if `a` is
        complex.

    Raises:
        ValueError: `dtype` is real and `a` is complex.

    Differences:
        NumPy issues a warning if all elements are NaN.
    """
    return lax.sqrt(_nan_variance("nanstd", a, axis, dtype, out, ddof, keepdims, where, mean))


def _nan_position(name: str, search: Any, identity: Any, a: Any, axis: Any, out: Any,
                  keepdims: Any) -> Any:
    a = as_array(name, a)
    if a.dtype not in INEXACT:
        return _position(name, search, a, axis, out, keepdims)
    result = _position(name, search, _without_nan(name, a, identity(a.dtype)), axis, out, keepdims)
    return select(jnp.all(isnan(a), axis, None, bool(keepdims)), -1, result)


def nanargmax(a: ArrayLike, axis: int | None = None, out: None = None,
              keepdims: bool | None = None) -> Array:
    """Find the index of the largest element along an axis, ignoring NaN.

    If the largest element occurs several times, the index of its first occurrence is returned. If
    all elements are NaN, the index is -1. Otherwise, NaN is treated as -inf, so if all the other
    elements are -inf, the index of a NaN may be returned.

    Args:
        a: array or number.
        axis: axis to search; if None, the flattened array is searched, in row-major order.
        out: not supported; must be None.
        keepdims: whether to keep the searched axis (all axes if `axis` is None) with length 1.

    Returns:
        An array with the remaining axes, in the default integer dtype (int32, or int64 with x64
        enabled).

    Raises:
        ValueError: there are no elements to search.

    Differences:
        NumPy raises ValueError if all elements are NaN.

    >>> jnp.nanargmax(jnp.array([[1.0, jnp.nan, 3.0], [jnp.nan] * 3]), axis=1)
    Array([ 2, -1], dtype=int32)
    """
    return _nan_position("nanargmax", lax.argmax, lowest, a, axis, out, keepdims)


def nanargmin(a: ArrayLike, axis: int | None = None, out: None = None,
              keepdims: bool | None = None) -> Array:
    """Find the index of the smallest element along an axis, ignoring NaN.

    If the smallest element occurs several times, the index of its first occurrence is returned. If
    all elements are NaN, the index is -1. Otherwise, NaN is treated as inf, so if all the other
    elements are inf, the index of a NaN may be returned.

    Args:
        a: array or number.
        axis: axis to search; if None, the flattened array is searched, in row-major order.
        out: not supported; must be None.
        keepdims: whether to keep the searched axis (all axes if `axis` is None) with length 1.

    Returns:
        An array with the remaining axes, in the default integer dtype (int32, or int64 with x64
        enabled).

    Raises:
        ValueError: there are no elements to search.

    Differences:
        NumPy raises ValueError if all elements are NaN.
    """
    return _nan_position("nanargmin", lax.argmin, highest, a, axis, out, keepdims)
