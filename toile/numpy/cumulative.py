"""Cumulative sums and products along an axis.

This module may import the engine, `lax` and other modules of `toile.numpy`.
"""

from __future__ import annotations

from typing import Any

from toile import lax
from toile.engine.annotations import Array, ArrayLike, DTypeLike
from toile.engine.source import here
from toile.numpy._axes import canonicalize_axis
from toile.numpy._dtypes import BOOL, INEXACT, default_int, user_dtype
from toile.numpy._operands import as_array, convert, no_out
from toile.numpy._promotion import select
from toile.numpy.reductions import promoted_integer
from toile.numpy.ufuncs import isnan


def _cumulative(name: str, run: Any, a: Any, axis: Any, dtype: Any, out: Any, nan_as: Any = None,
                promote: bool = False) -> Any:
    a = as_array(name, a)
    no_out(name, out)
    if dtype is not None:
        dtype = user_dtype(dtype, name)
    if axis is None or a.ndim == 0:
        if axis is not None:
            canonicalize_axis(axis, 1)
        a, axis = lax.reshape(a, (a.size,)), 0
    axis = canonicalize_axis(axis, a.ndim)
    if nan_as is not None and a.dtype in INEXACT:
        a = select(isnan(a), nan_as, a)
    if dtype is None:
        if promote:
            dtype = promoted_integer(a.dtype)
        else:
            dtype = default_int() if a.dtype == BOOL else a.dtype
    # A boolean result counts the elements that are not zero, because -1 and 1 would cancel.
    work = default_int() if dtype == BOOL else dtype
    if dtype == BOOL:
        a = convert(a, BOOL)
    return convert(run(convert(a, work), axis=axis), dtype)


def cumsum(a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None,
           out: None = None) -> Array:
    """Compute the cumulative sum of the elements along an axis.

    Integer sums wrap around on overflow. All sums from the first NaN onward are NaN.

    Args:
        a: array or number.
        axis: axis to sum along; if None, the array is flattened in row-major order.
        dtype: dtype of the sums and of the result; None for the dtype of `a`, or the default
            integer dtype for booleans.
        out: not supported; must be None.

    Returns:
        An array with the shape of `a`, or of rank 1 if `axis` is None.

    Differences:
        NumPy accumulates integers of fewer than 64 bits in 64 bits; toile keeps their dtype.
    """
    return _cumulative("cumsum", lax.cumsum, a, axis, dtype, out)


def cumprod(a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None,
            out: None = None) -> Array:
    """Compute the cumulative product of the elements along an axis.

    Integer products wrap around on overflow. All products from the first NaN onward are NaN.

    Args:
        a: array or number.
        axis: axis to multiply along; if None, the array is flattened in row-major order.
        dtype: dtype of the products and of the result; None for the dtype of `a`, or the default
            integer dtype for booleans.
        out: not supported; must be None.

    Returns:
        An array with the shape of `a`, or of rank 1 if `axis` is None.

    Differences:
        NumPy multiplies integers of fewer than 64 bits in 64 bits; toile keeps their dtype.
    """
    return _cumulative("cumprod", lax.cumprod, a, axis, dtype, out)


def nancumsum(a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None,
              out: None = None) -> Array:
    """Compute the cumulative sum of the elements along an axis, treating NaN as 0.

    Args:
        a: array or number.
        axis: axis to sum along; if None, the array is flattened in row-major order.
        dtype: dtype of the sums and of the result; None for the dtype of `a`, or the default
            integer dtype for booleans.
        out: not supported; must be None.

    Returns:
        An array with the shape of `a`, or of rank 1 if `axis` is None.

    >>> jnp.nancumsum(jnp.array([1.0, jnp.nan, 2.0]))
    Array([1., 1., 3.], dtype=float32)
    """
    return _cumulative("nancumsum", lax.cumsum, a, axis, dtype, out, nan_as=0)


def nancumprod(a: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None,
               out: None = None) -> Array:
    """Compute the cumulative product of the elements along an axis, treating NaN as 1.

    Args:
        a: array or number.
        axis: axis to multiply along; if None, the array is flattened in row-major order.
        dtype: dtype of the products and of the result; None for the dtype of `a`, or the default
            integer dtype for booleans.
        out: not supported; must be None.

    Returns:
        An array with the shape of `a`, or of rank 1 if `axis` is None.
    """
    return _cumulative("nancumprod", lax.cumprod, a, axis, dtype, out, nan_as=1)


def _from_initial(name: str, what: str, run: Any, x: Any, axis: Any, dtype: Any,
                  include_initial: bool, first: int, promote: bool) -> Any:
    x = as_array(name, x)
    if x.ndim == 0:
        raise ValueError(f"The input must be non-scalar to take a cumulative {what}, however a "
                         "scalar value or scalar array was given." + here())
    if axis is None:
        if x.ndim > 1:
            raise ValueError(f"The input array has rank {x.ndim}, however axis was not set to an "
                             "explicit value. The axis argument is only optional for "
                             "one-dimensional arrays." + here())
        axis = 0
    axis = canonicalize_axis(axis, x.ndim)
    out = _cumulative(name, run, x, axis, dtype, None, promote=promote)
    if not include_initial:
        return out
    shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    return lax.concatenate([lax.full(shape, first, out.dtype), out], axis)


def cumulative_sum(x: ArrayLike, /, *, axis: int | None = None, dtype: DTypeLike | None = None,
                   include_initial: bool = False) -> Array:
    """Compute the cumulative sum of the elements along an axis, optionally starting with 0.

    Unlike `cumsum`, but like `sum`, this function sums integers in a dtype that is at least as wide
    as the default integer dtype.

    Args:
        x: array of rank 1 or more.
        axis: axis to sum along; it may be None only for arrays of rank 1.
        dtype: dtype of the sums and of the result; None for the dtype that `sum` uses.
        include_initial: whether to put a 0 before the sums.

    Returns:
        An array with the shape of `x`. If `include_initial` is True, the result is longer by one
        element along `axis`.

    Raises:
        ValueError: `x` has rank 0, or it has rank 2 or more and `axis` is None.

    >>> jnp.cumulative_sum(jnp.array([1, 2, 3]), include_initial=True)
    Array([0, 1, 3, 6], dtype=int32)
    """
    return _from_initial("cumulative_sum", "sum", lax.cumsum, x, axis, dtype, include_initial, 0,
                         True)


def cumulative_prod(x: ArrayLike, /, *, axis: int | None = None, dtype: DTypeLike | None = None,
                    include_initial: bool = False) -> Array:
    """Compute the cumulative product of the elements along an axis, optionally starting with 1.

    Args:
        x: array of rank 1 or more.
        axis: axis to multiply along; it may be None only for arrays of rank 1.
        dtype: dtype of the products and of the result; None for the dtype of `x`, or the default
            integer dtype for booleans.
        include_initial: whether to put a 1 before the products.

    Returns:
        An array with the shape of `x`. If `include_initial` is True, the result is longer by one
        element along `axis`.

    Raises:
        ValueError: `x` has rank 0, or it has rank 2 or more and `axis` is None.

    Differences:
        NumPy multiplies integers of fewer than 64 bits in 64 bits; toile keeps their dtype.
    """
    return _from_initial("cumulative_prod", "product", lax.cumprod, x, axis, dtype, include_initial,
                         1, False)
