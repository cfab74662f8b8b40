"""Reductions: sums, products, extremes, means, variances and positions of extremes.

The common case (a strong array of a dtype that is summed in its own width) leaves each function
after a few tests. Everything else goes through `_reduce`, which converts, masks, reduces and
combines in that order. Half-precision numbers are accumulated in float32. May import the engine,
`lax`, `_promotion` and `ufuncs`.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, overload

import numpy as np

from toile import lax
from toile.engine import dtypes
from toile.engine.annotations import Array, ArrayLike, AxisLike, DTypeLike
from toile.engine.arrays import DeviceArray
from toile.engine.platform_registry import array_platforms
from toile.engine.source import here
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
    """What distinguishes one reduction from another."""

    name: str
    reduce: Any  # (array, axes) -> array
    combine: Any  # with an initial value
    identity: Any  # dtype -> number
    accumulates: bool  # adds or multiplies: promotes integers, and halves on the way
    of_booleans: Any  # the same reduction of booleans asked for by dtype=bool


def lowest(dtype: Any) -> Any:
    """The identity of max."""
    if dtype in INEXACT:
        has_inf = dtypes.supports_inf(real_part(dtype))
        return -math.inf if has_inf else float(dtypes.finfo(dtype).min)
    return False if dtype == BOOL else int(dtypes.iinfo(dtype).min)


def highest(dtype: Any) -> Any:
    """The identity of min."""
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
    """The dtype that halves are accumulated in: float32; others their own."""
    return _FLOAT32 if dtype in HALVES else dtype


def promoted_integer(dtype: Any) -> Any:
    """The dtype integers are summed in: at least the default width of their kind."""
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
    """The mask of a reduction, which must be boolean."""
    where = as_array(name, where)
    if where.dtype != BOOL:
        raise ValueError(f"jnp.{name}: where must be None or a boolean array; got "
                         f"where.dtype={where.dtype!r}.{here()}")
    return where


def _masked(kind: _Kind, a: Any, where: Any) -> Any:
    where = checked_where(kind.name, where)
    shape = broadcast_shapes(a.shape, where.shape)
    return select(broadcast_to(where, shape), broadcast_to(a, shape), kind.identity(a.dtype))


def _reduce(kind: _Kind, a: Any, axis: Any, dtype: Any, out: Any, keepdims: bool, initial: Any,
            where: Any, promote_integers: bool = True) -> Any:
    """Any reduction with any of its arguments."""
    if (
        a.__class__ in array_platforms and (axis is None or axis.__class__ is int) and not keepdims
        and dtype is None and out is None and initial is None and where is None
    ):
        platform = array_platforms[a.__class__]
        return platform.called(_plain, a, kind.name, axis, promote_integers)
    return _general(kind, a, axis, dtype, out, keepdims, initial, where, promote_integers)


def _plain(a: Any, name: str, axis: int | None, promote_integers: bool) -> Any:
    """A reduction of an array over one axis or all."""
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
    """Sum the elements over the given axes.

    The sum of no elements is 0. Floats narrower than float32 are summed in float32 and rounded
    once, at the end.

    Args:
        a: array or number.
        axis: axis or axes to reduce; None reduces all of them.
        dtype: dtype of the sums and of the result; None for the dtype of `a`, subject to
            `promote_integers`.
        out: not supported; must be None.
        keepdims: whether to keep the reduced axes, with size 1.
        initial: number that is added to the sum; None for 0.
        where: boolean array, broadcast to the shape of `a`, that selects the elements to include;
            None includes all.
        promote_integers: whether, without `dtype`, integers narrower than the default integer dtype
            (int32, or int64 with x64 enabled; unsigned ones accordingly) are summed in that dtype.

    Returns:
        An array with the remaining axes. Booleans are counted in the default integer dtype.

    Raises:
        ValueError: `initial` is not a scalar, or `where` is not boolean.

    Differences:
        NumPy sums integers in 64 bits. It has no `promote_integers`, which JAX has.

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
    """Multiply the elements over the given axes.

    The product of no elements is 1. Floats narrower than float32 are multiplied in float32 and
    rounded once, at the end.

    Args:
        a: array or number.
        axis: axis or axes to reduce; None reduces all of them.
        dtype: dtype of the products and of the result; None for the dtype of `a`, subject to
            `promote_integers`.
        out: not supported; must be None.
        keepdims: whether to keep the reduced axes, with size 1.
        initial: number by which the product is multiplied; None for 1.
        where: boolean array, broadcast to the shape of `a`, that selects the elements to include;
            None includes all.
        promote_integers: whether, without `dtype`, integers narrower than the default integer dtype
            (int32, or int64 with x64 enabled; unsigned ones accordingly) are multiplied in that
            dtype.

    Returns:
        An array with the remaining axes. Booleans give the default integer dtype.

    Raises:
        ValueError: `initial` is not a scalar, or `where` is not boolean.

    Differences:
        NumPy multiplies integers in 64 bits. It has no `promote_integers`, which JAX has.
    """
    return _reduce(_PROD, a, axis, dtype, out, keepdims, initial, where, promote_integers)


def max(a: ArrayLike, axis: AxisLike = None, out: None = None, keepdims: bool = False,
        initial: ArrayLike | None = None, where: ArrayLike | None = None) -> Array:
    """Find the largest element over the given axes, or NaN if one of them is NaN.

    Complex numbers are compared by their real parts, then by their imaginary parts. Elements that
    tie for the maximum share the gradient. `nanmax` ignores NaN.

    Args:
        a: array or number.
        axis: axis or axes to reduce; None reduces all of them.
        out: not supported; must be None.
        keepdims: whether to keep the reduced axes, with size 1.
        initial: additional element to include; required for empty axes and with `where`.
        where: boolean array, broadcast to the shape of `a`, that selects the elements to include;
            None includes all.

    Returns:
        An array with the remaining axes and the dtype of `a`.

    Raises:
        ValueError: `initial` is None although a reduced axis is empty or `where` is given.
    """
    if (
        type(a) is DeviceArray and not keepdims and initial is None and where is None
        and out is None and not a.weak_type and a.size
    ):
        return lax.reduce_max(a, canonicalize_axes(axis, a.ndim))
    return _reduce(_MAX, a, axis, None, out, keepdims, initial, where)


def min(a: ArrayLike, axis: AxisLike = None, out: None = None, keepdims: bool = False,
        initial: ArrayLike | None = None, where: ArrayLike | None = None) -> Array:
    """Find the smallest element over the given axes, or NaN if one of them is NaN.

    Complex numbers are compared by their real parts, then by their imaginary parts. Elements that
    tie for the minimum share the gradient. `nanmin` ignores NaN.

    Args:
        a: array or number.
        axis: axis or axes to reduce; None reduces all of them.
        out: not supported; must be None.
        keepdims: whether to keep the reduced axes, with size 1.
        initial: additional element to include; required for empty axes and with `where`.
        where: boolean array, broadcast to the shape of `a`, that selects the elements to include;
            None includes all.

    Returns:
        An array with the remaining axes and the dtype of `a`.

    Raises:
        ValueError: `initial` is None although a reduced axis is empty or `where` is given.
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
    """Find the smallest and the largest element over the given axes.

    Args:
        a: array or number.
        axis: axis or axes to reduce; None reduces all of them.
        out: not supported; must be None.
        keepdims: whether to keep the reduced axes, with size 1.
        initial: additional element to include, or a tuple of one for the minimum and one for the
            maximum; required for empty axes and with `where`.
        where: boolean array, broadcast to the shape of `a`, that selects the elements to include;
            None includes all.

    Returns:
        `min(a, ...)` and `max(a, ...)`.

    Raises:
        ValueError: `initial` is None although a reduced axis is empty or `where` is given.

    Differences:
        NumPy has no function of this name.

    >>> jnp.minmax(jnp.array([3, 1, 2]))
    (Array(1, dtype=int32), Array(3, dtype=int32))
    """
    low, high = initial if isinstance(initial, tuple) else (initial, initial)
    return min(a, axis, out, keepdims, low, where), max(a, axis, out, keepdims, high, where)


def all(a: ArrayLike, axis: AxisLike = None, out: None = None, keepdims: bool = False, *,
        where: ArrayLike | None = None) -> Array:
    """Test whether all elements over the given axes are nonzero.

    NaN counts as nonzero. The result for no elements is True.

    Args:
        a: array or number.
        axis: axis or axes to reduce; None reduces all of them.
        out: not supported; must be None.
        keepdims: whether to keep the reduced axes, with size 1.
        where: boolean array, broadcast to the shape of `a`, that selects the elements to include;
            None includes all.

    Returns:
        A boolean array with the remaining axes.
    """
    a = truth(as_array("all", a))
    if type(a) is DeviceArray and not keepdims and where is None and out is None:
        return lax.reduce_and(a, canonicalize_axes(axis, a.ndim))
    return _reduce(_ALL, a, axis, None, out, keepdims, None, where)


def any(a: ArrayLike, axis: AxisLike = None, out: None = None, keepdims: bool = False, *,
        where: ArrayLike | None = None) -> Array:
    """Test whether at least one element over the given axes is nonzero.

    NaN counts as nonzero. The result for no elements is False.

    Args:
        a: array or number.
        axis: axis or axes to reduce; None reduces all of them.
        out: not supported; must be None.
        keepdims: whether to keep the reduced axes, with size 1.
        where: boolean array, broadcast to the shape of `a`, that selects the elements to include;
            None includes all.

    Returns:
        A boolean array with the remaining axes.
    """
    a = truth(as_array("any", a))
    if type(a) is DeviceArray and not keepdims and where is None and out is None:
        return lax.reduce_or(a, canonicalize_axes(axis, a.ndim))
    return _reduce(_ANY, a, axis, None, out, keepdims, None, where)


amax, amin = max, min


def count_nonzero(a: ArrayLike, axis: AxisLike = None, keepdims: bool = False) -> Array:
    """Count the nonzero elements over the given axes; NaN counts as nonzero.

    Args:
        a: array or number.
        axis: axis or axes to reduce; None reduces all of them.
        keepdims: whether to keep the reduced axes, with size 1.

    Returns:
        An array with the remaining axes and the default integer dtype (int32, or int64 with x64
        enabled).
    """
    return sum(truth(as_array("count_nonzero", a)), axis, default_int(), keepdims=keepdims)


def ptp(a: ArrayLike, axis: AxisLike = None, out: None = None, keepdims: bool = False) -> Array:
    """Compute the range of the elements over the given axes: the largest minus the smallest.

    It is NaN if an element is NaN. Differences of signed integers may overflow and wrap around.

    Args:
        a: array or number.
        axis: axis or axes to reduce; None reduces all of them.
        out: not supported; must be None.
        keepdims: whether to keep the reduced axes, with size 1.

    Returns:
        An array with the remaining axes and the dtype of `a`.

    Raises:
        ValueError: a reduced axis is empty.
        TypeError: `a` is boolean.
    """
    no_out("ptp", out)
    return lax.sub(max(a, axis, None, keepdims), min(a, axis, None, keepdims))


# Means and variances.


def counted(a: Any, axis: Any, dtype: Any, keepdims: bool, where: Any) -> Any:
    """How many elements a reduction combines, as a number of the given dtype."""
    if where is None:
        return literal(size_along(a.shape, canonicalize_axes(axis, a.ndim)), dtype)
    where = broadcast_to(checked_where("mean", where), a.shape)
    return sum(where, axis, dtype, keepdims=keepdims)


def mean(a: ArrayLike, axis: AxisLike = None, dtype: DTypeLike | None = None, out: None = None,
         keepdims: bool = False, *, where: ArrayLike | None = None) -> Array:
    """Compute the arithmetic mean of the elements over the given axes.

    The mean of no elements is NaN, without a warning. Floats narrower than float32 are summed in
    float32.

    Args:
        a: array or number.
        axis: axis or axes to reduce; None reduces all of them.
        dtype: dtype of the computation and of the result; None keeps floating and complex dtypes
            and takes float32 for integers and booleans (float64 for 64-bit integers).
        out: not supported; must be None.
        keepdims: whether to keep the reduced axes, with size 1.
        where: boolean array, broadcast to the shape of `a`, that selects the elements to include;
            None includes all.

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
    """The dtypes a variance is computed and returned in."""
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
    """Compute the variance of the elements over the given axes.

    This is the sum of the squared distances from the mean, divided by the number of elements minus
    `ddof`. It is NaN where that divisor is not positive. Floats narrower than float32 are summed in
    float32.

    Args:
        a: array or number.
        axis: axis or axes to reduce; None reduces all of them.
        dtype: dtype of the computation and of the result; None keeps floating dtypes and takes
            float32 for integers and booleans (float64 for 64-bit integers). It must be complex for
            complex numbers.
        out: not supported; must be None.
        ddof: number to subtract from the number of elements in the divisor; 1 gives the unbiased
            estimate.
        keepdims: whether to keep the reduced axes, with size 1.
        where: boolean array, broadcast to the shape of `a`, that selects the elements to include;
            None includes all.
        mean: the mean, if it is already known, with the reduced axes kept as axes of size 1; None
            computes it.
        correction: another name for `ddof`; only one of the two may be given.

    Returns:
        An array with the remaining axes; for complex numbers it is real if `dtype` is None.

    Raises:
        ValueError: both `ddof` and `correction` are given, or `dtype` is real and `a` complex.

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
    """Number of elements less `ddof`, and whether that is positive (known at once or an array)."""
    if where is None and type(ddof) in (int, float):
        count = size_along(a.shape, canonicalize_axes(axis, a.ndim)) - ddof
        return literal(count, dtype), dtype not in FLOATING or count > 0
    count = counted(a, axis, dtype, keepdims, where)
    divisor = lax.sub(count, convert(as_array("var", ddof), dtype))
    return divisor, lax.gt(divisor, literal(0, dtype))


def std(a: ArrayLike, axis: AxisLike = None, dtype: DTypeLike | None = None, out: None = None,
        ddof: ArrayLike = 0, keepdims: bool = False, *, where: ArrayLike | None = None,
        mean: ArrayLike | None = None, correction: ArrayLike | None = None) -> Array:
    """Compute the standard deviation of the elements over the given axes: the square root of `var`.

    It is NaN where the number of elements minus `ddof` is not positive.

    Args:
        a: array or number.
        axis: axis or axes to reduce; None reduces all of them.
        dtype: dtype of the computation and of the result; None keeps floating dtypes and takes
            float32 for integers and booleans (float64 for 64-bit integers). It must be complex for
            complex numbers.
        out: not supported; must be None.
        ddof: number to subtract from the number of elements in the divisor; 1 gives the unbiased
            estimate of the variance.
        keepdims: whether to keep the reduced axes, with size 1.
        where: boolean array, broadcast to the shape of `a`, that selects the elements to include;
            None includes all.
        mean: the mean, if it is already known, with the reduced axes kept as axes of size 1; None
            computes it.
        correction: another name for `ddof`; only one of the two may be given.

    Returns:
        An array with the remaining axes; for complex numbers it is real if `dtype` is None.

    Raises:
        ValueError: both `ddof` and `correction` are given, `dtype` is an integer dtype, or `dtype`
            is real and `a` complex.
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
    """Compute the weighted mean of the elements over the given axes.

    It is NaN or infinite where the weights sum to 0.

    Args:
        a: array or number.
        axis: axis or axes to reduce; None reduces all of them.
        weights: weights of the shape of `a`, or of its reduced axes in the order of `axis`; None
            weights all elements equally.
        returned: whether to also return the sum of the weights.
        keepdims: whether to keep the reduced axes, with size 1.

    Returns:
        An array with the remaining axes; with `returned`, a tuple of it and the sums of the weights
        (the number of elements if `weights` is None), which have its shape.

    Raises:
        ValueError: the shape of `weights` does not match.

    Differences:
        NumPy raises ZeroDivisionError where the weights sum to 0.

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
    """Weights along some axes of `a`, grown to its shape."""
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
    """Find the index of the largest element along an axis; the first if several are equal.

    NaN counts as larger than all numbers.

    Args:
        a: array or number.
        axis: axis to search; None searches the flattened array, in row-major order.
        out: not supported; must be None.
        keepdims: whether to keep the searched axis (all axes if `axis` is None), with size 1.

    Returns:
        An array with the remaining axes and the default integer dtype (int32, or int64 with x64
        enabled).

    Raises:
        ValueError: there are no elements to search.
        TypeError: `a` is complex.
    """
    return _position("argmax", lax.argmax, a, axis, out, keepdims)


def argmin(a: ArrayLike, axis: int | None = None, out: None = None,
           keepdims: bool | None = None) -> Array:
    """Find the index of the smallest element along an axis; the first if several are equal.

    NaN counts as smaller than all numbers.

    Args:
        a: array or number.
        axis: axis to search; None searches the flattened array, in row-major order.
        out: not supported; must be None.
        keepdims: whether to keep the searched axis (all axes if `axis` is None), with size 1.

    Returns:
        An array with the remaining axes and the default integer dtype (int32, or int64 with x64
        enabled).

    Raises:
        ValueError: there are no elements to search.
        TypeError: `a` is complex.
    """
    return _position("argmin", lax.argmin, a, axis, out, keepdims)
