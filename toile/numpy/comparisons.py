"""Tests for closeness, equality and kinds of numbers, on whole arrays or on each element.

This module may import the engine, `lax` and other modules of `toile.numpy`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from toile import lax
from toile.engine import dtypes
from toile.engine.annotations import Array, ArrayLike
from toile.engine.source import here
from toile.numpy._dtypes import BOOL, COMPLEX, INEXACT, real_part, to_inexact
from toile.numpy._operands import as_array, convert, literal, unwrapped
from toile.numpy._promotion import broadcast_shapes, broadcast_to, promote_args, promote_shapes
from toile.numpy.creation import asarray
from toile.numpy.ufuncs import isfinite, isinf, isnan


def isclose(a: ArrayLike, b: ArrayLike, rtol: ArrayLike = 1e-05, atol: ArrayLike = 1e-08,
            equal_nan: bool = False) -> Array:
    """Test which elements of two arrays are equal within a tolerance.

    The condition is `abs(a - b) <= atol + rtol * abs(b)`. An infinity is close only to itself.
    Integers are compared as floats.

    Args:
        a, b: arrays or numbers, which are broadcast against each other.
        rtol: tolerance relative to `b`.
        atol: absolute tolerance.
        equal_nan: whether NaN counts as close to NaN.

    Returns:
        A boolean array. Its shape is the broadcast shape of `a`, `b` and any tolerances that are
        arrays.
    """
    a, b = promote_args("isclose", a, b)
    if dtypes.issubdtype(a.dtype, dtypes.extended):
        return lax.eq(a, b)
    dtype = to_inexact(a.dtype)
    a, b = (broadcast_to(convert(x, dtype), a.shape or b.shape) for x in (a, b))
    real = real_part(dtype)
    rtol, atol = (convert(as_array("isclose", t, i), real) for i, t in ((2, rtol), (3, atol)))
    bound = lax.mul(*promote_shapes("isclose", rtol, lax.abs(b)))
    bound = lax.add(*promote_shapes("isclose", atol, bound))
    distance, bound = promote_shapes("isclose", lax.abs(lax.sub(a, b)), bound)
    # An infinite b would allow anything; then only equality counts.
    out = lax.bitwise_and(lax.le(distance, bound), isfinite(broadcast_to(b, bound.shape)))
    out = lax.bitwise_or(out, broadcast_to(lax.eq(a, b), out.shape))
    if equal_nan:
        both = lax.bitwise_and(isnan(a), isnan(b))
        return lax.bitwise_or(out, broadcast_to(both, out.shape))
    return out


def _all(x: Any) -> Any:
    return lax.convert_element_type(lax.reduce_and(x, tuple(range(x.ndim))), BOOL)


def allclose(a: ArrayLike, b: ArrayLike, rtol: ArrayLike = 1e-05, atol: ArrayLike = 1e-08,
             equal_nan: bool = False) -> Array:
    """Test whether all elements of two arrays are equal within a tolerance; see `isclose`.

    Args:
        a, b: arrays or numbers, which are broadcast against each other.
        rtol: tolerance relative to `b`.
        atol: absolute tolerance.
        equal_nan: whether NaN counts as close to NaN.

    Returns:
        A boolean array of rank 0, which is True for empty arrays.
    """
    return _all(isclose(a, b, rtol, atol, equal_nan))


def array_equal(a1: ArrayLike, a2: ArrayLike, equal_nan: bool = False) -> Array:
    """Test whether two arrays have the same shape and equal elements.

    The dtypes may differ; both arrays are promoted to the same dtype first.

    Args:
        a1, a2: arrays, numbers or nested lists.
        equal_nan: whether NaN equals NaN.

    Returns:
        A boolean array of rank 0.
    """
    x, y = asarray(a1), asarray(a2)
    if x.shape != y.shape:
        return lax.full((), False, BOOL)
    x, y = promote_args("array_equal", x, y)
    same = lax.eq(x, y)
    if equal_nan and x.dtype in INEXACT:
        same = lax.bitwise_or(same, lax.bitwise_and(isnan(x), isnan(y)))
    return _all(same)


def array_equiv(a1: ArrayLike, a2: ArrayLike) -> Array:
    """Test whether two arrays are equal after being broadcast against each other.

    Args:
        a1, a2: arrays, numbers or nested lists.

    Returns:
        A boolean array of rank 0, which is False if the shapes cannot be broadcast.
    """
    x, y = asarray(a1), asarray(a2)
    try:
        broadcast_shapes(x.shape, y.shape)
    except ValueError:
        return lax.full((), False, BOOL)
    return _all(lax.eq(*promote_args("array_equiv", x, y)))


def _signed_infinity(x: Any, out: Any, value: float, name: str) -> Any:
    if out is not None:
        raise NotImplementedError("The 'out' argument to isneginf/isposinf is not "
                                  "supported." + here())
    x = as_array(name, x)
    if x.dtype in COMPLEX:
        raise ValueError("isposinf/isneginf are not well defined for complex types" + here())
    if x.dtype not in INEXACT:
        return isinf(x)
    return lax.eq(x, literal(value, x.dtype))


def isposinf(x: ArrayLike, /, out: None = None) -> Array:
    """Test which elements are positive infinity.

    Args:
        x: array or number.
        out: not supported; must be None.

    Returns:
        A boolean array with the shape of `x`.

    Raises:
        ValueError: `x` is complex.
    """
    return _signed_infinity(x, out, np.inf, "isposinf")


def isneginf(x: ArrayLike, /, out: None = None) -> Array:
    """Test which elements are negative infinity.

    Args:
        x: array or number.
        out: not supported; must be None.

    Returns:
        A boolean array with the shape of `x`.

    Raises:
        ValueError: `x` is complex.
    """
    return _signed_infinity(x, out, -np.inf, "isneginf")


def iscomplex(x: ArrayLike) -> Array:
    """Test which elements have an imaginary part other than 0.

    To test the dtype instead of the elements, use `iscomplexobj`.

    Args:
        x: array or number.

    Returns:
        A boolean array with the shape of `x`.
    """
    x = as_array("iscomplex", x)
    if x.dtype not in COMPLEX:
        return lax.full(x.shape, False, BOOL)
    im = lax.imag(x)
    return lax.ne(im, literal(0, im.dtype))


def isreal(x: ArrayLike) -> Array:
    """Test which elements have an imaginary part of 0.

    To test the dtype instead of the elements, use `isrealobj`.

    Args:
        x: array or number.

    Returns:
        A boolean array with the shape of `x`.
    """
    return lax.bitwise_not(iscomplex(x))


def iscomplexobj(x: ArrayLike) -> bool:
    """Test whether `x` has a complex dtype, regardless of the values of its elements.

    Args:
        x: array, number or list. For None, the result is False.

    Returns:
        A Python bool.
    """
    if x is None:
        return False
    if isinstance(x, (list, tuple)):
        return any(map(iscomplexobj, x))
    x = unwrapped(x)
    if not hasattr(x, "dtype"):
        return np.iscomplexobj(x)
    return dtypes.issubdtype(dtypes.dtype(x), np.complexfloating)


def isrealobj(x: ArrayLike) -> bool:
    """Test whether `x` has a dtype that is not complex, regardless of the values of its elements.

    Args:
        x: array, number or list. For None, the result is True.

    Returns:
        A Python bool.
    """
    return not iscomplexobj(x)


def isscalar(element: object) -> bool:
    """Test whether `element` is a scalar: a number, a string or an array of rank 0.

    Args:
        element: any object.

    Returns:
        A Python bool.

    Differences:
        NumPy returns False for arrays of rank 0.
    """
    convert = getattr(element, "__jax_array__", None)
    if convert is not None:
        element = convert()
    if isinstance(element, (Array, np.ndarray)):
        return element.ndim == 0
    return bool(np.isscalar(element))
