"""Tests on whole arrays and on elements: closeness, equality, kinds of numbers.

May import the engine, `lax` and the ufuncs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from toile import lax
from toile.engine import dtypes
from toile.engine.arrays import Array
from toile.engine.source import here
from toile.numpy._dtypes import BOOL, COMPLEX, INEXACT, real_part, to_inexact
from toile.numpy._operands import as_array, convert, literal
from toile.numpy._promotion import broadcast_shapes, broadcast_to, promote_args, promote_shapes
from toile.numpy.creation import asarray
from toile.numpy.ufuncs import isfinite, isinf, isnan

__all__ = [
    "allclose", "array_equal", "array_equiv", "iscomplex", "iscomplexobj", "isclose", "isneginf",
    "isposinf", "isreal", "isrealobj", "isscalar",
]


def isclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    """Whether |a - b| <= atol + rtol |b|, or both are the same infinity."""
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
    return lax.reduce_and(x, tuple(range(x.ndim)))


def allclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    """Whether all elements are close (see `isclose`)."""
    return _all(isclose(a, b, rtol, atol, equal_nan))


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    """Whether two arrays have one shape and equal elements."""
    a1, a2 = asarray(a1), asarray(a2)
    if a1.shape != a2.shape:
        return lax.full((), False, BOOL)
    a1, a2 = promote_args("array_equal", a1, a2)
    same = lax.eq(a1, a2)
    if equal_nan and a1.dtype in INEXACT:
        same = lax.bitwise_or(same, lax.bitwise_and(isnan(a1), isnan(a2)))
    return _all(same)


def array_equiv(a1: Any, a2: Any) -> Any:
    """Whether two arrays are equal once broadcast against each other."""
    a1, a2 = asarray(a1), asarray(a2)
    try:
        broadcast_shapes(a1.shape, a2.shape)
    except ValueError:
        return lax.full((), False, BOOL)
    return _all(lax.eq(*promote_args("array_equiv", a1, a2)))


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


def isposinf(x: Any, /, out: None = None) -> Any:
    """Whether x is plus infinity."""
    return _signed_infinity(x, out, np.inf, "isposinf")


def isneginf(x: Any, /, out: None = None) -> Any:
    """Whether x is minus infinity."""
    return _signed_infinity(x, out, -np.inf, "isneginf")


def iscomplex(x: Any) -> Any:
    """Whether elements have an imaginary part other than zero."""
    x = as_array("iscomplex", x)
    if x.dtype not in COMPLEX:
        return lax.full(x.shape, False, BOOL)
    im = lax.imag(x)
    return lax.ne(im, literal(0, im.dtype))


def isreal(x: Any) -> Any:
    """Whether elements have no imaginary part other than zero."""
    return lax.bitwise_not(iscomplex(x))


def iscomplexobj(x: Any) -> bool:
    """Whether `x` holds complex numbers, as a type."""
    if x is None:
        return False
    if not hasattr(x, "dtype"):
        return np.iscomplexobj(x)
    return dtypes.issubdtype(dtypes.dtype(x), np.complexfloating)


def isrealobj(x: Any) -> bool:
    """Whether `x` holds real numbers, as a type."""
    return not iscomplexobj(x)


def isscalar(element: Any) -> bool:
    """Whether `element` is a number or an array of rank 0."""
    if hasattr(element, "__jax_array__"):
        element = element.__jax_array__()
    if isinstance(element, (Array, np.ndarray)):
        return element.ndim == 0
    return bool(np.isscalar(element))
