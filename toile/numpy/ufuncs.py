"""Elementwise functions that are one `lax` function after promotion.

Each is a plain function of a few lines: the fast path of `_promotion` and then the operation, so
that an eager call costs little more than the operation itself. Functions with more mathematics in
them are in `ufuncs_numeric`; the methods `add.reduce`, `add.at` ... are attached in `ufunc_api`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from toile import lax
from toile.engine.source import here
from toile.numpy._dtypes import BOOL, COMPLEX, INEXACT, UNSIGNED_INTEGERS, default_float
from toile.numpy._operands import as_array, convert, literal
from toile.numpy._promotion import inexact, inexact_pair, numeric_pair, pair, select

__all__ = [
    "abs", "absolute", "acos", "acosh", "add", "arccos", "arccosh", "arcsin", "arcsinh", "arctan",
    "arctan2", "arctanh", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and",
    "bitwise_count", "bitwise_invert", "bitwise_left_shift", "bitwise_not", "bitwise_or",
    "bitwise_right_shift", "bitwise_xor", "cbrt", "ceil", "conj", "conjugate", "cos", "cosh",
    "deg2rad", "degrees", "divide", "equal", "exp", "exp2", "expm1", "fabs", "floor", "greater",
    "greater_equal", "imag", "invert", "isfinite", "isinf", "isnan", "left_shift", "less",
    "less_equal", "log", "log10", "log1p", "log2", "logical_and", "logical_not", "logical_or",
    "logical_xor", "maximum", "minimum", "multiply", "negative", "nextafter", "not_equal",
    "positive", "rad2deg", "radians", "real", "reciprocal", "right_shift", "rint", "sign", "sin",
    "sinh", "sqrt", "square", "subtract", "tan", "tanh", "true_divide", "trunc",
]


# Arithmetic.


def add(x: Any, y: Any, /) -> Any:
    """x + y; logical or for booleans."""
    x, y = pair("add", x, y)
    return lax.bitwise_or(x, y) if x.dtype is BOOL else lax.add(x, y)


def subtract(x: Any, y: Any, /) -> Any:
    """x - y."""
    return lax.sub(*pair("subtract", x, y))


def multiply(x: Any, y: Any, /) -> Any:
    """x * y; logical and for booleans."""
    x, y = pair("multiply", x, y)
    return lax.bitwise_and(x, y) if x.dtype is BOOL else lax.mul(x, y)


def true_divide(x1: Any, x2: Any, /) -> Any:
    """x1 / x2 as floating-point numbers."""
    return lax.div(*inexact_pair("true_divide", x1, x2))


def divide(x1: Any, x2: Any, /) -> Any:
    """x1 / x2 as floating-point numbers."""
    return lax.div(*inexact_pair("divide", x1, x2))


def maximum(x: Any, y: Any, /) -> Any:
    """The greater of x and y; NaN if either is."""
    return lax.max(*pair("maximum", x, y))


def minimum(x: Any, y: Any, /) -> Any:
    """The lesser of x and y; NaN if either is."""
    return lax.min(*pair("minimum", x, y))


def negative(x: Any, /) -> Any:
    """-x."""
    return lax.neg(as_array("negative", x))


def positive(x: Any, /) -> Any:
    """+x: x itself."""
    return as_array("positive", x)


def absolute(x: Any, /) -> Any:
    """The magnitude of x."""
    x = as_array("absolute", x)
    dtype = x.dtype
    return x if dtype is BOOL or dtype in UNSIGNED_INTEGERS else lax.abs(x)


def abs(x: Any, /) -> Any:
    """The magnitude of x."""
    return absolute(x)


def fabs(x: Any, /) -> Any:
    """The magnitude of a real x, as a float."""
    x = inexact("fabs", x)
    if x.dtype in COMPLEX:
        raise TypeError("ufunc 'fabs' does not support complex dtypes" + here())
    return lax.abs(x)


def sign(x: Any, /) -> Any:
    """-1, 0 or 1 with the sign of x; x/|x| for complex numbers."""
    return lax.sign(as_array("sign", x))


def square(x: Any, /) -> Any:
    """x * x."""
    x = as_array("square", x)
    return lax.square(convert(x, np.dtype("int32")) if x.dtype is BOOL else x)


def reciprocal(x: Any, /) -> Any:
    """1 / x."""
    return lax.integer_pow(inexact("reciprocal", x), -1)


# Exponents, logarithms and roots.


def exp(x: Any, /) -> Any:
    """e to the x."""
    return lax.exp(inexact("exp", x))


def exp2(x: Any, /) -> Any:
    """2 to the x."""
    return lax.exp2(inexact("exp2", x))


def expm1(x: Any, /) -> Any:
    """exp(x) - 1, accurate near 0."""
    return lax.expm1(inexact("expm1", x))


def log(x: Any, /) -> Any:
    """The natural logarithm."""
    return lax.log(inexact("log", x))


def log1p(x: Any, /) -> Any:
    """log(1 + x), accurate near 0."""
    return lax.log1p(inexact("log1p", x))


def log2(x: Any, /) -> Any:
    """The logarithm to base 2."""
    return lax.log2(inexact("log2", x))


_PER_DECADE = float(1 / np.log(10))


def log10(x: Any, /) -> Any:
    """The logarithm to base 10."""
    x = inexact("log10", x)
    y = lax.log(x)
    if x.dtype in COMPLEX:
        re, im = lax.real(y), lax.imag(y)
        scale = literal(_PER_DECADE, re.dtype)
        return lax.complex(lax.mul(re, scale), lax.mul(im, scale))
    return lax.mul(y, literal(_PER_DECADE, x.dtype))


def sqrt(x: Any, /) -> Any:
    """The square root."""
    return lax.sqrt(inexact("sqrt", x))


def cbrt(x: Any, /) -> Any:
    """The cube root."""
    return lax.cbrt(inexact("cbrt", x))


# Trigonometric and hyperbolic functions.


def sin(x: Any, /) -> Any:
    """The sine."""
    return lax.sin(inexact("sin", x))


def cos(x: Any, /) -> Any:
    """The cosine."""
    return lax.cos(inexact("cos", x))


def tan(x: Any, /) -> Any:
    """The tangent."""
    return lax.tan(inexact("tan", x))


def arcsin(x: Any, /) -> Any:
    """The inverse sine."""
    return lax.asin(inexact("arcsin", x))


def arccos(x: Any, /) -> Any:
    """The inverse cosine."""
    return lax.acos(inexact("arccos", x))


def arctan(x: Any, /) -> Any:
    """The inverse tangent."""
    return lax.atan(inexact("arctan", x))


def sinh(x: Any, /) -> Any:
    """The hyperbolic sine."""
    return lax.sinh(inexact("sinh", x))


def cosh(x: Any, /) -> Any:
    """The hyperbolic cosine."""
    return lax.cosh(inexact("cosh", x))


def tanh(x: Any, /) -> Any:
    """The hyperbolic tangent."""
    return lax.tanh(inexact("tanh", x))


def arcsinh(x: Any, /) -> Any:
    """The inverse hyperbolic sine."""
    return lax.asinh(inexact("arcsinh", x))


def arccosh(x: Any, /) -> Any:
    """The inverse hyperbolic cosine; of complex numbers the root with non-negative real part."""
    y = lax.acosh(inexact("arccosh", x))
    if y.dtype in COMPLEX:
        re = lax.real(y)
        return select(lax.lt(re, lax.full_like(re, 0)), lax.neg(y), y)
    return y


def arctanh(x: Any, /) -> Any:
    """The inverse hyperbolic tangent."""
    return lax.atanh(inexact("arctanh", x))


def arctan2(x1: Any, x2: Any, /) -> Any:
    """The angle of the point (x2, x1)."""
    return lax.atan2(*inexact_pair("arctan2", x1, x2))


def deg2rad(x: Any, /) -> Any:
    """Degrees to radians."""
    x = inexact("deg2rad", x)
    return lax.mul(x, literal(np.pi / 180, x.dtype, x.weak_type))


def rad2deg(x: Any, /) -> Any:
    """Radians to degrees."""
    x = inexact("rad2deg", x)
    return lax.mul(x, literal(180 / np.pi, x.dtype, x.weak_type))


# Rounding. Integers and booleans are whole already.


def _whole(x: Any) -> bool:
    return x.dtype not in INEXACT


def floor(x: Any, /) -> Any:
    """The greatest whole number not above x."""
    x = as_array("floor", x)
    return x if _whole(x) else lax.floor(x)


def ceil(x: Any, /) -> Any:
    """The least whole number not below x."""
    x = as_array("ceil", x)
    return x if _whole(x) else lax.ceil(x)


def trunc(x: Any) -> Any:
    """The whole number next to x towards zero."""
    x = as_array("trunc", x)
    if _whole(x):
        return x
    return select(lax.lt(x, literal(0, x.dtype)), lax.ceil(x), lax.floor(x))


def rint(x: Any, /) -> Any:
    """The nearest whole number; halves go to the even one."""
    x = as_array("rint", x)
    if _whole(x):
        return convert(x, default_float())
    if x.dtype in COMPLEX:
        return lax.complex(rint(lax.real(x)), rint(lax.imag(x)))
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


# Complex numbers.


def conjugate(x: Any, /) -> Any:
    """The complex conjugate."""
    x = as_array("conjugate", x)
    return lax.conj(x) if x.dtype in COMPLEX else x


def conj(x: Any, /) -> Any:
    """The complex conjugate."""
    return conjugate(x)


def real(val: Any, /) -> Any:
    """The real part."""
    val = as_array("real", val)
    return lax.real(val) if val.dtype in COMPLEX else val


def imag(val: Any, /) -> Any:
    """The imaginary part."""
    val = as_array("imag", val)
    return lax.imag(val) if val.dtype in COMPLEX else lax.full_like(val, 0)


# Comparison.


def equal(x: Any, y: Any, /) -> Any:
    """x == y."""
    return lax.eq(*pair("equal", x, y))


def not_equal(x: Any, y: Any, /) -> Any:
    """x != y."""
    return lax.ne(*pair("not_equal", x, y))


def _ordered(name: str, op: Any, x: Any, y: Any) -> Any:
    """Compare; complex numbers by their real parts, and by imaginary parts where those agree."""
    x, y = pair(name, x, y)
    if x.dtype in COMPLEX:
        re = lax.real(x), lax.real(y)
        im = lax.imag(x), lax.imag(y)
        return select(lax.eq(*re), op(*im), op(*re))
    return op(x, y)


def less(x: Any, y: Any, /) -> Any:
    """x < y."""
    return _ordered("less", lax.lt, x, y)


def less_equal(x: Any, y: Any, /) -> Any:
    """x <= y."""
    return _ordered("less_equal", lax.le, x, y)


def greater(x: Any, y: Any, /) -> Any:
    """x > y."""
    return _ordered("greater", lax.gt, x, y)


def greater_equal(x: Any, y: Any, /) -> Any:
    """x >= y."""
    return _ordered("greater_equal", lax.ge, x, y)


def isnan(x: Any, /) -> Any:
    """Whether x is NaN."""
    x = as_array("isnan", x)
    return lax.ne(x, x)


def isinf(x: Any, /) -> Any:
    """Whether x is infinite."""
    x = as_array("isinf", x)
    if x.dtype in COMPLEX:
        return lax.bitwise_or(isinf(lax.real(x)), isinf(lax.imag(x)))
    if _whole(x):
        return lax.full(x.shape, False, BOOL)
    return lax.eq(lax.abs(x), literal(np.inf, x.dtype))


def isfinite(x: Any, /) -> Any:
    """Whether x is neither infinite nor NaN."""
    x = as_array("isfinite", x)
    if x.dtype in COMPLEX:
        return lax.bitwise_and(lax.is_finite(lax.real(x)), lax.is_finite(lax.imag(x)))
    return lax.full(x.shape, True, BOOL) if _whole(x) else lax.is_finite(x)


# Logic and bits.


def truth(x: Any) -> Any:
    """Whether each element of an array differs from zero."""
    return x if x.dtype is BOOL else lax.ne(x, literal(0, x.dtype))


def logical_and(x: Any, y: Any, /) -> Any:
    """Whether x and y are both non-zero."""
    x, y = pair("logical_and", x, y)
    return lax.bitwise_and(truth(x), truth(y))


def logical_or(x: Any, y: Any, /) -> Any:
    """Whether x or y is non-zero."""
    x, y = pair("logical_or", x, y)
    return lax.bitwise_or(truth(x), truth(y))


def logical_xor(x: Any, y: Any, /) -> Any:
    """Whether exactly one of x and y is non-zero."""
    x, y = pair("logical_xor", x, y)
    return lax.bitwise_xor(truth(x), truth(y))


def logical_not(x: Any, /) -> Any:
    """Whether x is zero."""
    return lax.bitwise_not(truth(as_array("logical_not", x)))


def bitwise_and(x: Any, y: Any, /) -> Any:
    """The bits set in both x and y."""
    return lax.bitwise_and(*pair("bitwise_and", x, y))


def bitwise_or(x: Any, y: Any, /) -> Any:
    """The bits set in x or y."""
    return lax.bitwise_or(*pair("bitwise_or", x, y))


def bitwise_xor(x: Any, y: Any, /) -> Any:
    """The bits set in one of x and y."""
    return lax.bitwise_xor(*pair("bitwise_xor", x, y))


def invert(x: Any, /) -> Any:
    """x with every bit flipped."""
    return lax.bitwise_not(as_array("invert", x))


def bitwise_not(x: Any, /) -> Any:
    """x with every bit flipped."""
    return lax.bitwise_not(as_array("bitwise_not", x))


def bitwise_count(x: Any, /) -> Any:
    """How many bits of |x| are set."""
    x, _ = numeric_pair("bitwise_count", x, x)
    return convert(lax.population_count(absolute(x)), np.dtype("uint8"))


def left_shift(x: Any, y: Any, /) -> Any:
    """x with its bits moved up by y places."""
    return lax.shift_left(*numeric_pair("left_shift", x, y))


def right_shift(x1: Any, x2: Any, /) -> Any:
    """x1 with its bits moved down by x2 places; the sign is kept."""
    x1, x2 = numeric_pair("right_shift", x1, x2)
    logical = x1.dtype in UNSIGNED_INTEGERS
    return (lax.shift_right_logical if logical else lax.shift_right_arithmetic)(x1, x2)


def nextafter(x: Any, y: Any, /) -> Any:
    """The floating-point number next to x on the way to y."""
    return lax.nextafter(*inexact_pair("nextafter", x, y))


asin, acos, atan, atan2 = arcsin, arccos, arctan, arctan2
asinh, acosh, atanh = arcsinh, arccosh, arctanh
degrees, radians = rad2deg, deg2rad
bitwise_invert, bitwise_left_shift, bitwise_right_shift = bitwise_not, left_shift, right_shift
