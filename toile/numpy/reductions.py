"""Reductions: sums, products, extremes, means, variances and positions of extremes.

Each function handles the common case first: an array that is not weakly typed and that is summed in
its own dtype. Everything else goes through `_reduce`, which converts, masks, reduces and combines,
in that order. Half-precision numbers are accumulated in float32. This module may import the engine,
`lax` and other modules of `toile.numpy`.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, overload

import numpy as np

from toile import lax
from toile.engine import dtypes
from toile.engine.annotations import Array, ArrayLike, AxisLike, DTypeLike
from toile.engine.arrays import DeviceArray
from toile.engine.broadcasts import note as note_broadcast
from toile.engine.platform_registry import array_platforms
from toile.engine.source import here
from toile.engine.trace import state
from toile.numpy._aliases import renamed
from toile.numpy._axes import canonicalize_axes, canonicalize_axis, size_along
from toile.numpy._dtypes import (
    BOOL,
    COMPLEX,
    FLOATING,
    HALVES,
    INEXACT,
    INTEGERS,
    UNSIGNED_INTEGERS,
    default_int,
    real_part,
    to_inexact,
    user_dtype,
)
from toile.numpy._operands import as_array, convert, literal, no_out
from toile.numpy._promotion import (
    broadcast_shapes,
    broadcast_to,
    pair,
    promote_dtypes_inexact,
    select,
)
from toile.numpy.ufuncs import truth

_FLOAT32 = np.dtype("float32")
# Summed as they are.
_WIDE = frozenset(map(np.dtype, ("float32", "float64", "complex64", "complex128")))


class _Kind(NamedTuple):
    """The properties that distinguish one reduction from another."""

    name: str
    reduce: Any  # (array, axes) -> array
    combine: Any  # with an initial value
    identity: Any  # dtype -> number
    accumulates: bool  # adds or multiplies: promotes integers, and halves on the way
    of_booleans: Any  # the same reduction of booleans asked for by dtype=bool


def lowest(dtype: Any) -> Any:
    """Return the identity of max: the lowest value of a dtype."""
    if dtype in INEXACT:
        has_inf = dtypes.supports_inf(real_part(dtype))
        return -math.inf if has_inf else float(dtypes.finfo(dtype).min)
    return False if dtype == BOOL else int(dtypes.iinfo(dtype).min)


def highest(dtype: Any) -> Any:
    """Return the identity of min: the highest value of a dtype."""
    if dtype in INEXACT:
        has_inf = dtypes.supports_inf(real_part(dtype))
        return math.inf if has_inf else float(dtypes.finfo(dtype).max)
    return True if dtype == BOOL else int(dtypes.iinfo(dtype).max)


_SUM = _Kind("sum", lax.reduce_sum, lax.add, lambda d: 0, True, lax.reduce_or)
_PROD = _Kind("prod", lax.reduce_prod, lax.mul, lambda d: 1, True, lax.reduce_and)
_MAX = _Kind("max", lax.reduce_max, lax.max, lowest, False, lax.reduce_max)
_MIN = _Kind("min", lax.reduce_min, lax.min, highest, False, lax.reduce_min)
_ALL = _Kind("all", lax.reduce_and, lax.bitwise_and, lambda d: True, False, lax.reduce_and)
_ANY = _Kind("any", lax.reduce_or, lax.bitwise_or, lambda d: False, False, lax.reduce_or)
_KINDS = {kind.name: kind for kind in (_SUM, _PROD, _MAX, _MIN, _ALL, _ANY)}


def widened(dtype: Any) -> Any:
    """The dtype to accumulate in: float32 for half precision, otherwise `dtype` itself."""
    return _FLOAT32 if dtype in HALVES else dtype


def promoted_integer(dtype: Any) -> Any:
    """The dtype in which to sum integers: at least as wide as the default dtype of their kind."""
    if dtype == BOOL:
        return default_int()
    if dtype in UNSIGNED_INTEGERS:
        wide = dtypes.default_uint_dtype()
    elif dtype in INTEGERS:
        wide = default_int()
    else:
        return dtype
    return wide if wide.itemsize > dtype.itemsize else dtype


def checked_where(name: str, where: Any) -> Any:
    """Check that the mask of a reduction is boolean, and return it."""
    where = as_array(name, where)
    if where.dtype != BOOL:
        raise ValueError(f"jnp.{name}: where must be None or a boolean array; got "
                         f"where.dtype={where.dtype!r}.{here()}")
    return where


def _masked(kind: _Kind, a: Any, where: Any) -> Any:
    where = checked_where(kind.name, where)
    shape = broadcast_shapes(a.shape, where.shape)
    if state.trace is not None:
        note_broadcast(kind.name, (a.shape, where.shape), shape)
    return select(broadcast_to(where, shape), broadcast_to(a, shape), kind.identity(a.dtype))


def _reduce(kind: _Kind, a: Any, axis: Any, dtype: Any, out: Any, keepdims: bool, initial: Any,
            where: Any, promote_integers: bool = True) -> Any:
    """Compute any reduction with any combination of arguments."""
    if (
        a.__class__ in array_platforms and (axis is None or axis.__class__ is int) and not keepdims
        and dtype is None and out is None and initial is None and where is None
    ):
        platform = array_platforms[a.__class__]
        return platform.called(_plain, a, kind.name, axis, promote_integers)
    return _general(kind, a, axis, dtype, out, keepdims, initial, where, promote_integers)


def _plain(a: Any, name: str, axis: int | None, promote_integers: bool) -> Any:
    """Reduce an array over one axis or over all axes."""
    return _general(_KINDS[name], a, axis, None, None, False, None, None, promote_integers)


def _general(kind: _Kind, a: Any, axis: Any, dtype: Any, out: Any, keepdims: bool, initial: Any,
             where: Any, promote_integers: bool) -> Any:
    name = kind.name
    a = as_array(name, a)
    no_out(name, out)
    axes = canonicalize_axes(axis, a.ndim)
    if kind.combine in (lax.max, lax.min) and initial is None:
        if where is not None:
            raise ValueError(f"reduction operation {name} does not have an identity, so to use a "
                             "where mask one has to specify 'initial'" + here())
        if size_along(a.shape, axes) == 0:
            raise ValueError(f"zero-size array to reduction operation {name} which has no identity "
                             f"(give `initial=`, or check x.size first){here()}")
    if dtype is not None:
        result_dtype = user_dtype(dtype, name)
    elif not kind.accumulates:
        result_dtype = a.dtype
    elif promote_integers:
        result_dtype = promoted_integer(a.dtype)
    else:
        result_dtype = dtypes.to_numeric_dtype(a.dtype)
    work = widened(result_dtype) if kind.accumulates else result_dtype
    a = convert(a, work)
    if where is not None:
        a = _masked(kind, a, where)
    result = (kind.reduce if work != BOOL else kind.of_booleans)(a, axes)
    if initial is not None:
        first = as_array(name, initial)
        if first.shape:
            raise ValueError("initial value must be a scalar. Got array of shape "
                             f"{first.shape}{here()}")
        result = kind.combine(convert(first, work), result)
    if keepdims:
        result = lax.expand_dims(result, axes)
    return convert(result, result_dtype)


def sum(a: ArrayLike, axis: AxisLike = None, dtype: DTypeLike | None = None, out: None = None,
        keepdims: bool = False, initial: ArrayLike | None = None, where: ArrayLike | None = None,
        promote_integers: bool = True) -> Array:
    """Sum the elements along the given axes.

    If there are no elements, the sum is 0. Floats narrower than float32 are summed in float32 and
    rounded once, at the end.

    Args:
        a: array or number.
        axis: axis or axes to reduce; None to reduce all axes.
        dtype: dtype of the result; None for the dtype of `a`, subject to `promote_integers`.
        out: not supported; must be None.
        keepdims: whether to keep the reduced axes with length 1.
        initial: number to add to the sum; 0 by default.
        where: boolean mask of the elements to include, which is broadcast to the shape of `a`; None
            to include all elements.
        promote_integers: if True and `dtype` is None, integers narrower than the default integer
            dtype (int32, or int64 with x64 enabled) are summed in that dtype if they are signed,
            and in the corresponding unsigned dtype if they are unsigned.

    Returns:
        An array with the remaining axes. Booleans are summed in the default integer dtype.

    Raises:
        ValueError: `initial` is not a scalar, or `where` is not boolean.

    Differences:
        NumPy sums integers in 64 bits and has no `promote_integers`.

    >>> x = jnp.array([[1, 2], [3, 4]], dtype="int8")
    >>> jnp.sum(x, axis=0)
    Array([4, 6], dtype=int32)
    >>> jnp.sum(x, axis=0, promote_integers=False)
    Array([4, 6], dtype=int8)
    """
    if (
        type(a) is DeviceArray and dtype is None and not keepdims and initial is None
        and where is None and out is None and a.dtype in _WIDE and not a.weak_type
    ):
        return lax.reduce_sum(a, canonicalize_axes(axis, a.ndim))
    return _reduce(_SUM, a, axis, dtype, out, keepdims, initial, where, promote_integers)


def prod(a: ArrayLike, axis: AxisLike = None, dtype: DTypeLike | None = None, out: None = None,
         keepdims: bool = False, initial: ArrayLike | None = None, where: ArrayLike | None = None,
         promote_integers: bool = True) -> Array:
    """Multiply the elements along the given axes.

    If there are no elements, the product is 1. Floats narrower than float32 are multiplied in
    float32 and rounded once, at the end.

    Args:
        a: array or number.
        axis: axis or axes to reduce; None to reduce all axes.
        dtype: dtype of the products and of the result; None for the dtype of `a`, subject to
            `promote_integers`.
        out: not supported; must be None.
        keepdims: whether to keep the reduced axes with length 1.
        initial: number to multiply the product by; 1 by default.
        where: boolean mask of the elements to include, which is broadcast to the shape of `a`; None
            to include all elements.
        promote_integers: if True and `dtype` is None, integers narrower than the default integer
            dtype (int32, or int64 with x64 enabled) are multiplied in that dtype if they are
            signed, and in the corresponding unsigned dtype if they are unsigned.

    Returns:
        An array with the remaining axes. Booleans are multiplied in the default integer dtype.

    Raises:
        ValueError: `initial` is not a scalar, or `where` is not boolean.

    Differences:
        NumPy multiplies integers in 64 bits and has no `promote_integers`.
    """
    return _reduce(_PROD, a, axis, dtype, out, keepdims, initial, where, promote_integers)


def max(a: ArrayLike, axis: AxisLike = None, out: None = None, keepdims: bool = False,
        initial: ArrayLike | None = None, where: ArrayLike | None = None) -> Array:
    """Find the largest element along the given axes; the result is NaN if an element is NaN.

    Complex numbers are compared by their real parts, then by their imaginary parts. Elements that
    tie for the maximum share the gradient. To ignore NaN, use `nanmax`.

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
    """
    if (
        type(a) is DeviceArray and not keepdims and initial is None and where is None
        and out is None and not a.weak_type and a.size
    ):
        return lax.reduce_max(a, canonicalize_axes(axis, a.ndim))
    return _reduce(_MAX, a, axis, None, out, keepdims, initial, where)


def min(a: ArrayLike, axis: AxisLike = None, out: None = None, keepdims: bool = False,
        initial: ArrayLike | None = None, where: ArrayLike | None = None) -> Array:
    """Find the smallest element along the given axes; the result is NaN if an element is NaN.

    Complex numbers are compared by their real parts, then by their imaginary parts. Elements that
    tie for the minimum share the gradient. To ignore NaN, use `nanmin`.

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
    """
    if (
        type(a) is DeviceArray and not keepdims and initial is None and where is None
        and out is None and not a.weak_type and a.size
    ):
        return lax.reduce_min(a, canonicalize_axes(axis, a.ndim))
    return _reduce(_MIN, a, axis, None, out, keepdims, initial, where)


def minmax(a: ArrayLike, axis: AxisLike = None, out: None = None, keepdims: bool = False,
           initial: ArrayLike | tuple[ArrayLike, ArrayLike] | None = None,
           where: ArrayLike | None = None) -> tuple[Array, Array]:
    """Find the smallest and the largest elements along the given axes.

    Args:
        a: array or number.
        axis: axis or axes to reduce; None to reduce all axes.
        out: not supported; must be None.
        keepdims: whether to keep the reduced axes with length 1.
        initial: additional element to include, or a pair of elements, one for the minimum and one
            for the maximum; required if a reduced axis is empty or `where` is given.
        where: boolean mask of the elements to include, which is broadcast to the shape of `a`; None
            to include all elements.

    Returns:
        A tuple of `min(a, ...)` and `max(a, ...)`.

    Raises:
        ValueError: `initial` is None, but a reduced axis is empty or `where` is given.

    Differences:
        NumPy has no function of this name.

    >>> jnp.minmax(jnp.array([3, 1, 2]))
    (Array(1, dtype=int32), Array(3, dtype=int32))
    """
    low, high = initial if isinstance(initial, tuple) else (initial, initial)
    return min(a, axis, out, keepdims, low, where), max(a, axis, out, keepdims, high, where)


def all(a: ArrayLike, axis: AxisLike = None, out: None = None, keepdims: bool = False, *,
        where: ArrayLike | None = None) -> Array:
    """Test whether all elements along the given axes are nonzero.

    NaN counts as nonzero. If there are no elements, the result is True.

    Args:
        a: array or number.
        axis: axis or axes to reduce; None to reduce all axes.
        out: not supported; must be None.
        keepdims: whether to keep the reduced axes with length 1.
        where: boolean mask of the elements to include, which is broadcast to the shape of `a`; None
            to include all elements.

    Returns:
        A boolean array with the remaining axes.
    """
    a = truth(as_array("all", a))
    if type(a) is DeviceArray and not keepdims and where is None and out is None:
        return lax.reduce_and(a, canonicalize_axes(axis, a.ndim))
    return _reduce(_ALL, a, axis, None, out, keepdims, None, where)


def any(a: ArrayLike, axis: AxisLike = None, out: None = None, keepdims: bool = False, *,
        where: ArrayLike | None = None) -> Array:
    """Test whether at least one element along the given axes is nonzero.

    NaN counts as nonzero. If there are no elements, the result is False.

    Args:
        a: array or number.
        axis: axis or axes to reduce; None to reduce all axes.
        out: not supported; must be None.
        keepdims: whether to keep the reduced axes with length 1.
        where: boolean mask of the elements to include, which is broadcast to the shape of `a`; None
            to include all elements.

    Returns:
        A boolean array with the remaining axes.
    """
    a = truth(as_array("any", a))
    if type(a) is DeviceArray and not keepdims and where is None and out is None:
        return lax.reduce_or(a, canonicalize_axes(axis, a.ndim))
    return _reduce(_ANY, a, axis, None, out, keepdims, None, where)


amax, amin = renamed("amax", max), renamed("amin", min)


def count_nonzero(a: ArrayLike, axis: AxisLike = None, keepdims: bool = False) -> Array:
    """Count the nonzero elements along the given axes; NaN counts as nonzero.

    Args:
        a: array or number.
        axis: axis or axes to reduce; None to reduce all axes.
        keepdims: whether to keep the reduced axes with length 1.

    Returns:
        An array with the remaining axes, in the default integer dtype (int32, or int64 with x64
        enabled).
    """
    return sum(truth(as_array("count_nonzero", a)), axis, default_int(), keepdims=keepdims)


def ptp(a: ArrayLike, axis: AxisLike = None, out: None = None, keepdims: bool = False) -> Array:
    """Compute the range of the elements along the given axes: the largest minus the smallest.

    The range is NaN if an element is NaN. Differences of signed integers may overflow and wrap
    around.

    Args:
        a: array or number.
        axis: axis or axes to reduce; None to reduce all axes.
        out: not supported; must be None.
        keepdims: whether to keep the reduced axes with length 1.

    Returns:
        An array with the remaining axes, in the dtype of `a`.

    Raises:
        ValueError: a reduced axis is empty.
        TypeError: `a` is boolean.
    """
    no_out("ptp", out)
    return lax.sub(max(a, axis, None, keepdims), min(a, axis, None, keepdims))


# Means and variances.


def counted(a: Any, axis: Any, dtype: Any, keepdims: bool, where: Any) -> Any:
    """Return the number of elements that a reduction combines, converted to the given dtype."""
    if where is None:
        return literal(size_along(a.shape, canonicalize_axes(axis, a.ndim)), dtype)
    where = broadcast_to(checked_where("mean", where), a.shape)
    return sum(where, axis, dtype, keepdims=keepdims)


def mean(a: ArrayLike, axis: AxisLike = None, dtype: DTypeLike | None = None, out: None = None,
         keepdims: bool = False, *, where: ArrayLike | None = None) -> Array:
    """Compute the arithmetic mean of the elements along the given axes.

    If there are no elements, the mean is NaN, and no warning is issued. Floats narrower than
    float32 are summed in float32.

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
    """
    if (
        type(a) is DeviceArray and dtype is None and not keepdims and where is None
        and out is None and a.dtype in _WIDE and not a.weak_type
    ):
        axes = canonicalize_axes(axis, a.ndim)
        return lax.div(lax.reduce_sum(a, axes), literal(size_along(a.shape, axes), a.dtype))
    a = as_array("mean", a)
    no_out("mean", out)
    dtype = to_inexact(a.dtype) if dtype is None else user_dtype(dtype, "mean")
    work = widened(dtype)
    count = counted(a, axis, work, keepdims, where)
    total = sum(a, axis, work, keepdims=keepdims, where=where)
    return convert(lax.div(total, count), dtype)


def _variance_dtypes(found: Any, dtype: Any, name: str) -> tuple[Any, Any]:
    """The dtypes in which to compute and to return a variance."""
    if dtype is not None:
        dtype = user_dtype(dtype, name)
        if found in COMPLEX and dtype not in COMPLEX:
            raise ValueError(f"jax.numpy.{name} does not yet support real dtype parameters when "
                             "computing the variance of an array of complex values (use "
                             "dtype=None, whose result is real)." + here())
        return widened(dtype), dtype
    work = to_inexact(found)
    return widened(work), real_part(work)


def var(a: ArrayLike, axis: AxisLike = None, dtype: DTypeLike | None = None, out: None = None,
        ddof: ArrayLike = 0, keepdims: bool = False, *, where: ArrayLike | None = None,
        mean: ArrayLike | None = None, correction: ArrayLike | None = None) -> Array:
    """Compute the variance of the elements along the given axes.

    The variance is the sum of the squared distances from the mean, divided by the number of
    elements minus `ddof`. If that divisor is not positive, the variance is NaN. Floats narrower
    than float32 are summed in float32.

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
        correction: another name for `ddof`; only one of the two may be given.

    Returns:
        An array with the remaining axes. If `dtype` is None, the array is real even if `a` is
        complex.

    Raises:
        ValueError: both `ddof` and `correction` are given, or `dtype` is real and `a` is complex.

    >>> jnp.var(jnp.array([1, 2, 3]), ddof=1)
    Array(1., dtype=float32)
    """
    return _variance("var", a, axis, dtype, out, ddof, keepdims, where, mean, correction)


_mean = mean


def _variance(name: str, a: Any, axis: Any, dtype: Any, out: Any, ddof: Any, keepdims: bool,
              where: Any, mean: Any, correction: Any) -> Any:
    a = as_array(name, a)
    no_out(name, out)
    if correction is not None:
        if not isinstance(ddof, int) or ddof != 0:
            raise ValueError("ddof and correction can't be provided simultaneously." + here())
        ddof = correction
    work, result_dtype = _variance_dtypes(a.dtype, dtype, name)
    a = convert(a, work)
    centre = (
        _mean(a, axis, work, keepdims=True, where=where) if mean is None
        else convert(as_array(name, mean), work)
    )
    centred = lax.sub(a, broadcast_to(centre, a.shape))
    if work in COMPLEX:
        work = real_part(work)
        squares = lax.real(lax.mul(centred, lax.conj(centred)))
    else:
        squares = lax.square(centred)
    divisor, positive = _divisor(a, axis, work, keepdims, where, ddof)
    result = lax.div(sum(squares, axis, work, keepdims=keepdims, where=where), divisor)
    result = convert(result, result_dtype)
    if positive is True:
        return result
    if result_dtype not in INEXACT:
        result, nan = pair(name, result, math.nan)
    else:
        nan = literal(math.nan, result_dtype)
    if positive is False:
        return lax.full_like(result, math.nan)
    return select(positive, result, broadcast_to(nan, result.shape))


def _divisor(a: Any, axis: Any, dtype: Any, keepdims: bool, where: Any,
             ddof: Any) -> tuple[Any, Any]:
    """The number of elements minus `ddof`, and whether it is positive (a bool or an array)."""
    if where is None and type(ddof) in (int, float):
        count = size_along(a.shape, canonicalize_axes(axis, a.ndim)) - ddof
        return literal(count, dtype), dtype not in FLOATING or count > 0
    count = counted(a, axis, dtype, keepdims, where)
    divisor = lax.sub(count, convert(as_array("var", ddof), dtype))
    return divisor, lax.gt(divisor, literal(0, dtype))


def std(a: ArrayLike, axis: AxisLike = None, dtype: DTypeLike | None = None, out: None = None,
        ddof: ArrayLike = 0, keepdims: bool = False, *, where: ArrayLike | None = None,
        mean: ArrayLike | None = None, correction: ArrayLike | None = None) -> Array:
    """Compute the standard deviation along the given axes: the square root of `var`.

    If the number of elements minus `ddof` is not positive, the result is NaN.

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
        correction: another name for `ddof`; only one of the two may be given.

    Returns:
        An array with the remaining axes. If `dtype` is None, the array is real even if `a` is
        complex.

    Raises:
        ValueError: both `ddof` and `correction` are given, `dtype` is an integer dtype, or `dtype`
            is real and `a` is complex.
    """
    if dtype is not None and user_dtype(dtype, "std") not in INEXACT:
        raise ValueError(f"dtype argument to jnp.std must be inexact; got {dtype}{here()}")
    variance = _variance("std", a, axis, dtype, out, ddof, keepdims, where, mean, correction)
    return lax.sqrt(variance)


@overload
def average(a: ArrayLike, axis: AxisLike = None, weights: ArrayLike | None = None,
            returned: Literal[False] = False, keepdims: bool = False) -> Array: ...
@overload
def average(a: ArrayLike, axis: AxisLike, weights: ArrayLike | None, returned: Literal[True],
            keepdims: bool = False) -> tuple[Array, Array]: ...
@overload
def average(a: ArrayLike, axis: AxisLike = None, weights: ArrayLike | None = None, *,
            returned: Literal[True], keepdims: bool = False) -> tuple[Array, Array]: ...
def average(a: ArrayLike, axis: AxisLike = None, weights: ArrayLike | None = None,
            returned: bool = False, keepdims: bool = False) -> Array | tuple[Array, Array]:
    """Compute the weighted mean of the elements along the given axes.

    If the weights sum to 0, the result is NaN or infinite.

    Args:
        a: array or number.
        axis: axis or axes to reduce; None to reduce all axes.
        weights: array of weights. It has the shape of `a`, or one axis for each reduced axis, in
            the order of `axis`. If None, all elements have the same weight.
        returned: whether to also return the sum of the weights.
        keepdims: whether to keep the reduced axes with length 1.

    Returns:
        An array with the remaining axes. If `returned` is True, a tuple of this array and an array
        of the same shape with the sums of the weights (the number of elements if `weights` is
        None).

    Raises:
        ValueError: the shape of `weights` matches neither the shape of `a` nor the shape of its
            reduced axes.

    Differences:
        NumPy raises ZeroDivisionError if the weights sum to 0.

    >>> jnp.average(jnp.array([1, 2, 3]), weights=jnp.array([3, 1, 0]), returned=True)
    (Array(1.25, dtype=float32), Array(4., dtype=float32))
    """
    a = as_array("average", a)
    if weights is None:
        result = mean(a, axis, keepdims=keepdims)
        total = literal(size_along(a.shape, canonicalize_axes(axis, a.ndim)), result.dtype)
    else:
        a, weights = promote_dtypes_inexact(a, as_array("average", weights, 1))
        weights = _weights_like(a, axis, weights)
        total = sum(weights, axis, keepdims=keepdims)
        result = lax.div(sum(lax.mul(a, weights), axis, keepdims=keepdims), total)
    return (result, broadcast_to(total, result.shape)) if returned else result


def _weights_like(a: Any, axis: Any, weights: Any) -> Any:
    """Broadcast weights along some axes of `a` to its shape."""
    if weights.shape == a.shape:
        return weights
    if axis is None:
        raise ValueError("Axis must be specified when shapes of a and weights differ." + here())
    axes = axis if isinstance(axis, tuple) else (axis,)
    axes = tuple(canonicalize_axis(x, a.ndim) for x in axes)
    if weights.shape != tuple(a.shape[x] for x in axes):
        raise ValueError("Shape of weights must be consistent with shape of a along specified "
                         "axis." + here())
    order = tuple(int(i) for i in np.argsort(axes))
    ordered = lax.transpose(weights, order) if order != tuple(range(len(order))) else weights
    return lax.broadcast_in_dim(ordered, a.shape, tuple(sorted(axes)))


# Positions.


def _position(name: str, search: Any, a: Any, axis: Any, out: Any, keepdims: Any) -> Any:
    a = as_array(name, a)
    no_out(name, out)
    if axis is None:
        shape, a, axis = (1,) * a.ndim, lax.reshape(a, (a.size,)), 0
    else:
        axis = canonicalize_axis(axis, a.ndim)
        shape = (*a.shape[:axis], 1, *a.shape[axis + 1 :])
    if a.shape[axis] == 0:
        kind = name.removeprefix("nan")
        raise ValueError(f"attempt to get {kind} of an empty sequence (check x.size first){here()}")
    result = search(a, axis, default_int())
    return lax.reshape(result, shape) if keepdims else result


def argmax(a: ArrayLike, axis: int | None = None, out: None = None,
           keepdims: bool | None = None) -> Array:
    """Find the index of the first occurrence of the largest element along an axis.

    NaN counts as larger than all numbers.

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
        TypeError: `a` is complex.
    """
    return _position("argmax", lax.argmax, a, axis, out, keepdims)


def argmin(a: ArrayLike, axis: int | None = None, out: None = None,
           keepdims: bool | None = None) -> Array:
    """Find the index of the first occurrence of the smallest element along an axis.

    NaN counts as smaller than all numbers.

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
        TypeError: `a` is complex.
    """
    return _position("argmin", lax.argmin, a, axis, out, keepdims)
