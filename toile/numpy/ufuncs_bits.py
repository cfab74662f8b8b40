"""Elementwise functions for the sign, mantissa and exponent of floating-point numbers.

Signs and exponents are read from the bits. This module may import the engine, `lax`, `api` and
other modules of `toile.numpy`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from toile import lax
from toile.api import custom_jvp
from toile.engine import dtypes
from toile.engine.annotations import Array, ArrayLike
from toile.engine.source import here
from toile.numpy._dtypes import BOOL, COMPLEX, INEXACT, INTEGERS, to_inexact
from toile.numpy._operands import as_array, convert, literal, no_out
from toile.numpy._promotion import full_pair, inexact, inexact_pair, pair, select
from toile.numpy.ufuncs import isinf, isnan

_INT32 = np.dtype("int32")


def _zero(x: Any) -> Any:
    return literal(0, x.dtype)


def _one(x: Any) -> Any:
    return literal(1, x.dtype)


def _bits_of(x: Any) -> Any:
    return lax.bitcast_convert_type(x, np.dtype(f"int{8 * x.dtype.itemsize}"))


def signbit(x: ArrayLike, /) -> Array:
    """Test whether each element's sign bit is set, as in negative numbers, -0.0 and some NaNs.

    Args:
        x: array or number.

    Returns:
        A boolean array with the shape of `x`.

    Raises:
        ValueError: `x` is complex.
    """
    x = as_array("signbit", x)
    dtype = x.dtype
    if dtype in COMPLEX:
        raise ValueError(f"jax.numpy.signbit is not well defined for {dtype}{here()}")
    if dtype in INEXACT:
        bits = _bits_of(x)
        return lax.lt(bits, _zero(bits))
    if dtype in INTEGERS:
        return lax.lt(x, _zero(x))
    return lax.full(x.shape, False, BOOL)


def copysign(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return the absolute value of `x1` with the sign of `x2`; -0.0 counts as negative.

    Args:
        x1, x2: arrays or numbers, which are broadcast against each other.

    Returns:
        An array of the broadcast shape, in the dtype that both operands promote to; integers and
        booleans become float32 (64-bit integers become float64).

    Raises:
        TypeError: one of the operands is complex.
    """
    x1, x2 = inexact_pair("copysign", x1, x2)
    if x1.dtype in COMPLEX:
        raise TypeError("copysign does not support complex-valued inputs" + here())
    magnitude = lax.abs(x1)
    if not magnitude.shape and x2.shape:
        magnitude = lax.broadcast(magnitude, x2.shape)
    return select(signbit(x2), lax.neg(magnitude), magnitude)


@custom_jvp
def _frexp(x: Any) -> tuple[Any, Any]:
    info = dtypes.finfo(x.dtype)
    # Subnormal numbers are first scaled up to normal ones.
    small = lax.lt(lax.abs(x), literal(float(info.tiny), x.dtype))
    scaled = select(small, lax.mul(x, literal(2.0**info.nmant, x.dtype)), x)
    bits = _bits_of(scaled)
    width = 8 * x.dtype.itemsize - 1 - info.nmant
    bias = 2 ** (width - 1) - 1
    mask = (2**width - 1) << info.nmant
    field = lax.shift_right_logical(lax.bitwise_and(bits, literal(mask, bits.dtype)),
                                    literal(info.nmant, bits.dtype))
    exponent = lax.sub(convert(field, _INT32), literal(bias - 1, _INT32))
    exponent = lax.add(exponent, select(small, *_int_constants(-info.nmant, 0, x)))
    # The mantissa keeps sign and fraction and gets the exponent of numbers in [0.5, 1).
    half = literal((bias - 1) << info.nmant, bits.dtype)
    fraction = lax.bitwise_or(lax.bitwise_and(bits, literal(~mask, bits.dtype)), half)
    mantissa = lax.bitcast_convert_type(fraction, x.dtype)
    whole = lax.bitwise_or(lax.bitwise_or(isinf(x), isnan(x)), lax.eq(x, _zero(x)))
    return select(whole, x, mantissa), select(whole, 0, exponent)


def _int_constants(a: int, b: int, x: Any) -> tuple[Any, Any]:
    return lax.full(x.shape, a, _INT32), lax.full(x.shape, b, _INT32)


@_frexp.defjvp
def _frexp_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    mantissa, exponent = _frexp(x)
    slope = lax.exp2(lax.neg(convert(exponent, x.dtype)))
    return (mantissa, exponent), (lax.mul(t, slope), np.zeros(x.shape, dtypes.float0))


def frexp(x: ArrayLike, /) -> tuple[Array, Array]:
    """Split each element into a mantissa and a power of 2: `x = mantissa * 2**exponent`.

    The absolute value of the mantissa is in [0.5, 1). For zeros, infinities and NaN, the mantissa
    is the element itself and the exponent is 0.

    Args:
        x: array or number.

    Returns:
        A tuple of the mantissas and the exponents, two arrays with the shape of `x`. The mantissas
        have the dtype of `x`, or float32 for integers and booleans (float64 for 64-bit integers);
        the exponents have dtype int32.

    Raises:
        TypeError: `x` is complex.

    >>> jnp.frexp(jnp.array([8.0, -3.0]))
    (Array([ 0.5 , -0.75], dtype=float32), Array([4, 2], dtype=int32))
    """
    x = inexact("frexp", x)
    if x.dtype in COMPLEX:
        raise TypeError("frexp does not support complex-valued inputs" + here())
    return _frexp(convert(x, x.dtype))


def ldexp(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Compute `x1 * 2**x2` for integer exponents `x2`: the inverse of `frexp`.

    Args:
        x1: array or number.
        x2: integer exponents; broadcast against `x1`.

    Returns:
        An array of the broadcast shape. A floating dtype of `x1` is kept; integers and booleans
        become float32 (64-bit integers become float64).

    Raises:
        ValueError: `x2` has a floating-point or complex dtype, or `x1` has a complex dtype.

    >>> jnp.ldexp(jnp.array([0.5, -0.75]), jnp.array([4, 2]))
    Array([ 8., -3.], dtype=float32)
    """
    x1, x2 = as_array("ldexp", x1), as_array("ldexp", x2, 1)
    if x2.dtype in INEXACT or x1.dtype in COMPLEX:
        raise ValueError(f"ldexp not supported for input types {(x1.dtype, x2.dtype)}{here()}")
    dtype = to_inexact(x1.dtype)
    x1, x2 = pair("ldexp", convert(x1, dtype), convert(x2, dtype))
    x1, x2 = full_pair("ldexp", x1, x2)
    mantissa, exponent = _frexp(x1)
    total = lax.add(convert(exponent, dtype), x2)
    # One factor 2 stays with the mantissa, so that 2**exponent is finite where the result is.
    above = lax.gt(total, _zero(total))
    mantissa = select(above, lax.mul(mantissa, literal(2, dtype)), mantissa)
    total = select(above, lax.sub(total, _one(total)), total)
    result = lax.mul(mantissa, lax.pow(literal(2, dtype), total))
    same = lax.bitwise_or(isinf(x1), lax.eq(x1, _zero(x1)))
    return select(same, x1, result)


def modf(x: ArrayLike, /, out: None = None) -> tuple[Array, Array]:
    """Split each element into its integer part, rounded toward zero, and its fractional part.

    Args:
        x: array or number.
        out: not supported; must be None.

    Returns:
        A tuple of the fractional parts and the integer parts, two arrays with the shape of `x`.
        Floating dtypes are kept; integers and booleans become float32 (64-bit integers become
        float64).

    Raises:
        TypeError: `x` is complex.

    Differences:
        The fractional part of an infinity is NaN; in NumPy, it is 0.

    >>> jnp.modf(jnp.array([-1.5, 2.25]))
    (Array([-0.5 ,  0.25], dtype=float32), Array([-1.,  2.], dtype=float32))
    """
    no_out("modf", out)
    x = inexact("modf", x)
    whole = select(lax.ge(x, _zero(x)), lax.floor(x), lax.ceil(x))
    return lax.sub(x, whole), whole


def spacing(x: ArrayLike, /) -> Array:
    """Return the distance from each element to the next floating-point number away from zero.

    The distance has the sign of the element. For float16, however, the result is the positive
    distance to the next larger number, as in NumPy. For infinities and NaN, the distance is NaN.

    Args:
        x: array or number.

    Returns:
        An array with the shape of `x`. Floating dtypes are kept; integers and booleans become
        float32 (64-bit integers become float64).

    Raises:
        ValueError: `x` is complex.

    Differences:
        The spacing at -0.0 is negative; in NumPy, it is positive.
    """
    x = inexact("spacing", x)
    if x.dtype in COMPLEX:
        raise ValueError("jnp.spacing is not defined for complex inputs." + here())
    away = convert(np.inf, x.dtype)
    if x.dtype == np.float16:
        return lax.sub(lax.nextafter(x, lax.full_like(x, away)), x)
    away = copysign(away, x)
    gap = lax.sub(lax.nextafter(x, away), x)
    tiny = literal(float(dtypes.finfo(x.dtype).smallest_subnormal), x.dtype)
    return select(lax.eq(gap, _zero(gap)), copysign(tiny, x), gap)
