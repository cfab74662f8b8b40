"""Elementwise functions that promote their operands and then call one `lax` function.

Each is a plain function of a few lines: the fast path of `_promotion` and then the operation, so
that an eager call costs little more than the operation itself. Functions that combine several
operations are in `ufuncs_numeric`; methods such as `add.reduce` and `add.at` are attached in
`ufunc_api`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from toile import lax
from toile.engine.annotations import Array, ArrayLike
from toile.engine.source import here
from toile.numpy._aliases import renamed
from toile.numpy._dtypes import BOOL, COMPLEX, INEXACT, UNSIGNED_INTEGERS, default_float
from toile.numpy._operands import as_array, convert, literal
from toile.numpy._promotion import inexact, inexact_pair, numeric_pair, pair, select

# Arithmetic.


def add(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Add two arrays element by element.

    Integer sums wrap around on overflow. The sum of two booleans is their logical OR.

    Args:
        x, y: arrays or numbers, which are broadcast against each other.

    Returns:
        An array of the broadcast shape, in the dtype that both operands promote to.

    Differences:
        NumPy promotes int32 and float32 to float64, whereas toile promotes them to float32.
    """
    x, y = pair("add", x, y)
    return lax.bitwise_or(x, y) if x.dtype is BOOL else lax.add(x, y)


def subtract(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Subtract `y` from `x` element by element.

    Integer differences wrap around on overflow: for unsigned integers, 1 - 2 is the largest number
    of the dtype.

    Args:
        x, y: arrays or numbers, which are broadcast against each other.

    Returns:
        An array of the broadcast shape, in the dtype that both operands promote to.

    Raises:
        TypeError: both operands are boolean.
    """
    return lax.sub(*pair("subtract", x, y))


def multiply(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Multiply two arrays element by element.

    Integer products wrap around on overflow. The product of two booleans is their logical AND.

    Args:
        x, y: arrays or numbers, which are broadcast against each other.

    Returns:
        An array of the broadcast shape, in the dtype that both operands promote to.
    """
    x, y = pair("multiply", x, y)
    return lax.bitwise_and(x, y) if x.dtype is BOOL else lax.mul(x, y)


def true_divide(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Divide `x1` by `x2` as floating-point numbers; the same as `divide`.

    The result of division by zero is an infinity, or NaN for 0 / 0. No warning is issued.

    Args:
        x1, x2: arrays or numbers, which are broadcast against each other.

    Returns:
        An array of the broadcast shape, in the dtype that both operands promote to; integers and
        booleans become float32 (64-bit integers become float64).
    """
    return lax.div(*inexact_pair("true_divide", x1, x2))


def divide(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Divide `x1` by `x2` as floating-point numbers.

    The result of division by zero is an infinity, or NaN for 0 / 0. No warning is issued.

    Args:
        x1, x2: arrays or numbers, which are broadcast against each other.

    Returns:
        An array of the broadcast shape, in the dtype that both operands promote to; integers and
        booleans become float32 (64-bit integers become float64).

    >>> jnp.divide(jnp.array([1, 3]), 2)
    Array([0.5, 1.5], dtype=float32)
    """
    return lax.div(*inexact_pair("divide", x1, x2))


def maximum(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Compute the elementwise maximum of two arrays.

    Complex numbers are compared by their real parts, then by their imaginary parts. Where the
    elements are equal, each receives half of the gradient. Where either element is NaN, the result
    is NaN; to ignore NaN, use `fmax`.

    Args:
        x, y: arrays or numbers, which are broadcast against each other.

    Returns:
        An array of the broadcast shape, in the dtype that both operands promote to.
    """
    return lax.max(*pair("maximum", x, y))


def minimum(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Compute the elementwise minimum of two arrays.

    Complex numbers are compared by their real parts, then by their imaginary parts. Where the
    elements are equal, each receives half of the gradient. Where either element is NaN, the result
    is NaN; to ignore NaN, use `fmin`.

    Args:
        x, y: arrays or numbers, which are broadcast against each other.

    Returns:
        An array of the broadcast shape, in the dtype that both operands promote to.
    """
    return lax.min(*pair("minimum", x, y))


def negative(x: ArrayLike, /) -> Array:
    """Negate each element.

    Unsigned integers wrap around: the negative of 1 is the dtype's largest number.

    Args:
        x: array or number.

    Returns:
        An array with the shape and dtype of `x`.

    Raises:
        TypeError: `x` is boolean; use `logical_not`.
    """
    return lax.neg(as_array("negative", x))


def positive(x: ArrayLike, /) -> Array:
    """Return `x` as an array, unchanged.

    Args:
        x: array or number.

    Returns:
        An array with the shape and dtype of `x`.

    Differences:
        NumPy rejects booleans.
    """
    return as_array("positive", x)


def absolute(x: ArrayLike, /) -> Array:
    """Compute the absolute value (for complex numbers, the modulus) of each element.

    The lowest integer of a signed dtype has no positive counterpart and stays negative. The
    derivative at 0 is 1.

    Args:
        x: array or number.

    Returns:
        An array with the shape of `x`. The dtype is kept, except that complex dtypes become the
        corresponding floating dtypes.
    """
    x = as_array("absolute", x)
    dtype = x.dtype
    return x if dtype is BOOL or dtype in UNSIGNED_INTEGERS else lax.abs(x)


def abs(x: ArrayLike, /) -> Array:
    """Compute the absolute value (for complex numbers, the modulus) of each element.

    This function is the same as `absolute`.

    Args:
        x: array or number.

    Returns:
        An array with the shape of `x`. The dtype is kept, except that complex dtypes become the
        corresponding floating dtypes.
    """
    return absolute(x)


def fabs(x: ArrayLike, /) -> Array:
    """Compute the absolute value of each element as a floating-point number.

    Args:
        x: array or number.

    Returns:
        An array with the shape of `x`. Floating dtypes are kept; integers and booleans become
        float32 (64-bit integers become float64).

    Raises:
        TypeError: `x` is complex; use `absolute`.
    """
    x = inexact("fabs", x)
    if x.dtype in COMPLEX:
        raise TypeError("ufunc 'fabs' does not support complex dtypes" + here())
    return lax.abs(x)


def sign(x: ArrayLike, /) -> Array:
    """Return -1 for negative elements, 0 for zeros and 1 for positive elements.

    The sign of NaN is NaN. The sign of a nonzero complex number `x` is `x / abs(x)`. The
    derivative is 0.

    Args:
        x: array or number.

    Returns:
        An array with the shape and dtype of `x`.

    Raises:
        TypeError: `x` is boolean.
    """
    return lax.sign(as_array("sign", x))


def square(x: ArrayLike, /) -> Array:
    """Multiply each element by itself.

    Integer results wrap around on overflow.

    Args:
        x: array or number.

    Returns:
        An array with the shape and dtype of `x`; booleans become int32.
    """
    x = as_array("square", x)
    return lax.square(convert(x, np.dtype("int32")) if x.dtype is BOOL else x)


def reciprocal(x: ArrayLike, /) -> Array:
    """Compute `1 / x` for each element.

    The reciprocal of 0 is an infinity.

    Args:
        x: array or number.

    Returns:
        An array with the shape of `x`. Floating and complex dtypes are kept; integers and booleans
        become float32 (64-bit integers become float64).

    Differences:
        NumPy divides integers as integers, so `reciprocal(2)` is 0 in NumPy, but 0.5 in toile.
    """
    return lax.integer_pow(inexact("reciprocal", x), -1)


# Exponents, logarithms and roots.


def exp(x: ArrayLike, /) -> Array:
    """Raise e to the power of each element.

    Args:
        x: array or number.

    Returns:
        An array with the shape of `x`. Floating and complex dtypes are kept; integers and booleans
        become float32 (64-bit integers become float64).
    """
    return lax.exp(inexact("exp", x))


def exp2(x: ArrayLike, /) -> Array:
    """Raise 2 to the power of each element.

    Args:
        x: array or number.

    Returns:
        An array with the shape of `x`. Floating and complex dtypes are kept; integers and booleans
        become float32 (64-bit integers become float64).
    """
    return lax.exp2(inexact("exp2", x))


def expm1(x: ArrayLike, /) -> Array:
    """Compute `exp(x) - 1` for each element, without the rounding error of that formula near 0.

    Args:
        x: array or number.

    Returns:
        An array with the shape of `x`. Floating and complex dtypes are kept; integers and booleans
        become float32 (64-bit integers become float64).
    """
    return lax.expm1(inexact("expm1", x))


def log(x: ArrayLike, /) -> Array:
    """Compute the natural logarithm of each element.

    The logarithm of 0 is -inf, and the logarithm of a negative real number is NaN. No warning is
    issued. For complex numbers, the imaginary part of the result is between -pi and pi.

    Args:
        x: array or number.

    Returns:
        An array with the shape of `x`. Floating and complex dtypes are kept; integers and booleans
        become float32 (64-bit integers become float64).
    """
    return lax.log(inexact("log", x))


def log1p(x: ArrayLike, /) -> Array:
    """Compute `log(1 + x)` for each element, without the rounding error of that formula near 0.

    The result is -inf at -1 and NaN for real numbers below -1.

    Args:
        x: array or number.

    Returns:
        An array with the shape of `x`. Floating and complex dtypes are kept; integers and booleans
        become float32 (64-bit integers become float64).
    """
    return lax.log1p(inexact("log1p", x))


def log2(x: ArrayLike, /) -> Array:
    """Compute the base-2 logarithm of each element.

    The logarithm of 0 is -inf, and the logarithm of a negative real number is NaN.

    Args:
        x: array or number.

    Returns:
        An array with the shape of `x`. Floating and complex dtypes are kept; integers and booleans
        become float32 (64-bit integers become float64).
    """
    return lax.log2(inexact("log2", x))


_PER_DECADE = float(1 / np.log(10))


def log10(x: ArrayLike, /) -> Array:
    """Compute the base-10 logarithm of each element.

    The logarithm of 0 is -inf, and the logarithm of a negative real number is NaN.

    Args:
        x: array or number.

    Returns:
        An array with the shape of `x`. Floating and complex dtypes are kept; integers and booleans
        become float32 (64-bit integers become float64).
    """
    x = inexact("log10", x)
    y = lax.log(x)
    if x.dtype in COMPLEX:
        re, im = lax.real(y), lax.imag(y)
        scale = literal(_PER_DECADE, re.dtype)
        return lax.complex(lax.mul(re, scale), lax.mul(im, scale))
    return lax.mul(y, literal(_PER_DECADE, x.dtype))


def sqrt(x: ArrayLike, /) -> Array:
    """Compute the square root of each element.

    The result is NaN for negative real numbers; convert `x` to a complex dtype to get imaginary
    roots.

    Args:
        x: array or number.

    Returns:
        An array with the shape of `x`. Floating and complex dtypes are kept; integers and booleans
        become float32 (64-bit integers become float64).
    """
    return lax.sqrt(inexact("sqrt", x))


def cbrt(x: ArrayLike, /) -> Array:
    """Compute the real cube root of each element; negative numbers have negative roots.

    Args:
        x: array or number.

    Returns:
        An array with the shape of `x`. Floating dtypes are kept; integers and booleans become
        float32 (64-bit integers become float64).

    Raises:
        TypeError: `x` is complex.
    """
    return lax.cbrt(inexact("cbrt", x))


# Trigonometric and hyperbolic functions.


def sin(x: ArrayLike, /) -> Array:
    """Compute the sine of angles in radians.

    If an angle is infinite, the result is NaN.

    Args:
        x: array or number.

    Returns:
        An array with the shape of `x`. Floating and complex dtypes are kept; integers and booleans
        become float32 (64-bit integers become float64).
    """
    return lax.sin(inexact("sin", x))


def cos(x: ArrayLike, /) -> Array:
    """Compute the cosine of angles in radians.

    If an angle is infinite, the result is NaN.

    Args:
        x: array or number.

    Returns:
        An array with the shape of `x`. Floating and complex dtypes are kept; integers and booleans
        become float32 (64-bit integers become float64).
    """
    return lax.cos(inexact("cos", x))


def tan(x: ArrayLike, /) -> Array:
    """Compute the tangent of angles in radians.

    If an angle is infinite, the result is NaN.

    Args:
        x: array or number.

    Returns:
        An array with the shape of `x`. Floating and complex dtypes are kept; integers and booleans
        become float32 (64-bit integers become float64).
    """
    return lax.tan(inexact("tan", x))


def arcsin(x: ArrayLike, /) -> Array:
    """Compute the arcsine of each element, in radians.

    For real numbers in [-1, 1], the result is between -pi/2 and pi/2; for other real numbers, it
    is NaN.

    Args:
        x: array or number.

    Returns:
        An array with the shape of `x`. Floating and complex dtypes are kept; integers and booleans
        become float32 (64-bit integers become float64).
    """
    return lax.asin(inexact("arcsin", x))


def arccos(x: ArrayLike, /) -> Array:
    """Compute the arccosine of each element, in radians.

    For real numbers in [-1, 1], the result is between 0 and pi; for other real numbers, it is NaN.

    Args:
        x: array or number.

    Returns:
        An array with the shape of `x`. Floating and complex dtypes are kept; integers and booleans
        become float32 (64-bit integers become float64).
    """
    return lax.acos(inexact("arccos", x))


def arctan(x: ArrayLike, /) -> Array:
    """Compute the arctangent of each element, in radians.

    For real numbers, the result is between -pi/2 (for -inf) and pi/2 (for inf).

    Args:
        x: array or number.

    Returns:
        An array with the shape of `x`. Floating and complex dtypes are kept; integers and booleans
        become float32 (64-bit integers become float64).
    """
    return lax.atan(inexact("arctan", x))


def sinh(x: ArrayLike, /) -> Array:
    """Compute the hyperbolic sine of each element.

    Args:
        x: array or number.

    Returns:
        An array with the shape of `x`. Floating and complex dtypes are kept; integers and booleans
        become float32 (64-bit integers become float64).
    """
    return lax.sinh(inexact("sinh", x))


def cosh(x: ArrayLike, /) -> Array:
    """Compute the hyperbolic cosine of each element.

    Args:
        x: array or number.

    Returns:
        An array with the shape of `x`. Floating and complex dtypes are kept; integers and booleans
        become float32 (64-bit integers become float64).
    """
    return lax.cosh(inexact("cosh", x))


def tanh(x: ArrayLike, /) -> Array:
    """Compute the hyperbolic tangent of each element.

    For real numbers, the result is between -1 and 1.

    Args:
        x: array or number.

    Returns:
        An array with the shape of `x`. Floating and complex dtypes are kept; integers and booleans
        become float32 (64-bit integers become float64).

    >>> jnp.tanh(jnp.array([-20.0, 0.0, 20.0]))
    Array([-1.,  0.,  1.], dtype=float32)
    """
    return lax.tanh(inexact("tanh", x))


def arcsinh(x: ArrayLike, /) -> Array:
    """Compute the inverse hyperbolic sine of each element.

    Args:
        x: array or number.

    Returns:
        An array with the shape of `x`. Floating and complex dtypes are kept; integers and booleans
        become float32 (64-bit integers become float64).
    """
    return lax.asinh(inexact("arcsinh", x))


def arccosh(x: ArrayLike, /) -> Array:
    """Compute the inverse hyperbolic cosine of each element.

    For real numbers, the result is nonnegative, or NaN for numbers below 1. For complex numbers,
    the real part of the result is nonnegative.

    Args:
        x: array or number.

    Returns:
        An array with the shape of `x`. Floating and complex dtypes are kept; integers and booleans
        become float32 (64-bit integers become float64).
    """
    y = lax.acosh(inexact("arccosh", x))
    if y.dtype in COMPLEX:
        re = lax.real(y)
        return select(lax.lt(re, lax.full_like(re, 0)), lax.neg(y), y)
    return y


def arctanh(x: ArrayLike, /) -> Array:
    """Compute the inverse hyperbolic tangent of each element.

    The result is -inf at -1, inf at 1, and NaN for real numbers outside [-1, 1].

    Args:
        x: array or number.

    Returns:
        An array with the shape of `x`. Floating and complex dtypes are kept; integers and booleans
        become float32 (64-bit integers become float64).
    """
    return lax.atanh(inexact("arctanh", x))


def arctan2(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Compute the angle of the point with x coordinate `x2` and y coordinate `x1`, in radians.

    The angle is measured from the positive x axis and lies in [-pi, pi]. On the negative x axis,
    the angle is pi if `x1` is 0.0, and -pi if `x1` is -0.0. At the origin, the angle is 0 if `x2`
    is 0.0; if `x2` is -0.0, the origin counts as part of the negative x axis.

    Args:
        x1: y coordinate of the point.
        x2: x coordinate of the point; broadcast against `x1`.

    Returns:
        An array of the broadcast shape, in the dtype that both operands promote to; integers and
        booleans become float32 (64-bit integers become float64).

    >>> jnp.arctan2(jnp.array([0.0, 1.0]), jnp.array([-1.0, 0.0]))
    Array([3.1415927, 1.5707964], dtype=float32)
    """
    return lax.atan2(*inexact_pair("arctan2", x1, x2))


def deg2rad(x: ArrayLike, /) -> Array:
    """Convert angles from degrees to radians.

    Args:
        x: array or number.

    Returns:
        An array with the shape of `x`. Floating and complex dtypes are kept; integers and booleans
        become float32 (64-bit integers become float64).
    """
    x = inexact("deg2rad", x)
    return lax.mul(x, literal(np.pi / 180, x.dtype, x.weak_type))


def rad2deg(x: ArrayLike, /) -> Array:
    """Convert angles from radians to degrees.

    Args:
        x: array or number.

    Returns:
        An array with the shape of `x`. Floating and complex dtypes are kept; integers and booleans
        become float32 (64-bit integers become float64).
    """
    x = inexact("rad2deg", x)
    return lax.mul(x, literal(180 / np.pi, x.dtype, x.weak_type))


# Rounding. Integers and booleans are whole already.


def _whole(x: Any) -> bool:
    return x.dtype not in INEXACT


def floor(x: ArrayLike, /) -> Array:
    """Round each element down to a whole number.

    Args:
        x: array or number.

    Returns:
        An array with the shape and dtype of `x`; integers and booleans are returned unchanged.

    Raises:
        TypeError: `x` is complex.
    """
    x = as_array("floor", x)
    return x if _whole(x) else lax.floor(x)


def ceil(x: ArrayLike, /) -> Array:
    """Round each element up to a whole number.

    Args:
        x: array or number.

    Returns:
        An array with the shape and dtype of `x`; integers and booleans are returned unchanged.

    Raises:
        TypeError: `x` is complex.
    """
    x = as_array("ceil", x)
    return x if _whole(x) else lax.ceil(x)


def trunc(x: ArrayLike) -> Array:
    """Round each element toward zero to a whole number.

    Args:
        x: array or number.

    Returns:
        An array with the shape and dtype of `x`; integers and booleans are returned unchanged.

    Raises:
        TypeError: `x` is complex.
    """
    x = as_array("trunc", x)
    if _whole(x):
        return x
    return select(lax.lt(x, literal(0, x.dtype)), lax.ceil(x), lax.floor(x))


def rint(x: ArrayLike, /) -> Array:
    """Round each element to the nearest whole number; halves are rounded to the even neighbor.

    The real and imaginary parts of complex numbers are rounded separately.

    Args:
        x: array or number.

    Returns:
        An array with the shape of `x`. Floating and complex dtypes are kept; integers and booleans
        become the default float dtype (float32, or float64 with x64 enabled).
    """
    x = as_array("rint", x)
    if _whole(x):
        return convert(x, default_float())
    if x.dtype in COMPLEX:
        return lax.complex(rint(lax.real(x)), rint(lax.imag(x)))
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


# Complex numbers.


def conjugate(x: ArrayLike, /) -> Array:
    """Compute the complex conjugate of each element.

    Args:
        x: array or number.

    Returns:
        An array with the shape and dtype of `x`; real numbers are returned unchanged.
    """
    x = as_array("conjugate", x)
    return lax.conj(x) if x.dtype in COMPLEX else x


def conj(x: ArrayLike, /) -> Array:
    """Compute the complex conjugate of each element; the same as `conjugate`.

    Args:
        x: array or number.

    Returns:
        An array with the shape and dtype of `x`; real numbers are returned unchanged.
    """
    return conjugate(x)


def real(val: ArrayLike, /) -> Array:
    """Return the real part of each element.

    Args:
        val: array or number.

    Returns:
        An array with the shape of `val`. If `val` is complex, the result has the corresponding
        floating dtype; otherwise, the result is `val` itself.
    """
    val = as_array("real", val)
    return lax.real(val) if val.dtype in COMPLEX else val


def imag(val: ArrayLike, /) -> Array:
    """Return the imaginary part of each element.

    Args:
        val: array or number.

    Returns:
        An array with the shape of `val`. If `val` is complex, the result has the corresponding
        floating dtype; otherwise, it contains zeros in the dtype of `val`.
    """
    val = as_array("imag", val)
    return lax.imag(val) if val.dtype in COMPLEX else lax.full_like(val, 0)


# Comparison.


def equal(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Test whether `x == y`, element by element.

    NaN equals nothing, not even NaN.

    Args:
        x, y: arrays or numbers, which are broadcast against each other.

    Returns:
        A boolean array of the broadcast shape.
    """
    return lax.eq(*pair("equal", x, y))


def not_equal(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Test whether `x != y`, element by element.

    NaN differs from everything, including NaN.

    Args:
        x, y: arrays or numbers, which are broadcast against each other.

    Returns:
        A boolean array of the broadcast shape.
    """
    return lax.ne(*pair("not_equal", x, y))


def _ordered(name: str, op: Any, x: Any, y: Any) -> Any:
    """Compare two operands; complex numbers by their real parts, then by their imaginary parts."""
    x, y = pair(name, x, y)
    if x.dtype in COMPLEX:
        re = lax.real(x), lax.real(y)
        im = lax.imag(x), lax.imag(y)
        return select(lax.eq(*re), op(*im), op(*re))
    return op(x, y)


def less(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Test whether `x < y`, element by element.

    A comparison with NaN is false. Complex numbers are compared by their real parts, then by their
    imaginary parts.

    Args:
        x, y: arrays or numbers, which are broadcast against each other.

    Returns:
        A boolean array of the broadcast shape.
    """
    return _ordered("less", lax.lt, x, y)


def less_equal(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Test whether `x <= y`, element by element.

    A comparison with NaN is false. Complex numbers are compared by their real parts, then by their
    imaginary parts.

    Args:
        x, y: arrays or numbers, which are broadcast against each other.

    Returns:
        A boolean array of the broadcast shape.
    """
    return _ordered("less_equal", lax.le, x, y)


def greater(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Test whether `x > y`, element by element.

    A comparison with NaN is false. Complex numbers are compared by their real parts, then by their
    imaginary parts.

    Args:
        x, y: arrays or numbers, which are broadcast against each other.

    Returns:
        A boolean array of the broadcast shape.
    """
    return _ordered("greater", lax.gt, x, y)


def greater_equal(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Test whether `x >= y`, element by element.

    A comparison with NaN is false. Complex numbers are compared by their real parts, then by their
    imaginary parts.

    Args:
        x, y: arrays or numbers, which are broadcast against each other.

    Returns:
        A boolean array of the broadcast shape.
    """
    return _ordered("greater_equal", lax.ge, x, y)


def isnan(x: ArrayLike, /) -> Array:
    """Test which elements are NaN; a complex number is NaN if either part is NaN.

    Args:
        x: array or number.

    Returns:
        A boolean array with the shape of `x`.
    """
    x = as_array("isnan", x)
    return lax.ne(x, x)


def isinf(x: ArrayLike, /) -> Array:
    """Test which elements are infinite; a complex number is infinite if either part is infinite.

    Args:
        x: array or number.

    Returns:
        A boolean array with the shape of `x`.
    """
    x = as_array("isinf", x)
    if x.dtype in COMPLEX:
        return lax.bitwise_or(isinf(lax.real(x)), isinf(lax.imag(x)))
    if _whole(x):
        return lax.full(x.shape, False, BOOL)
    return lax.eq(lax.abs(x), literal(np.inf, x.dtype))


def isfinite(x: ArrayLike, /) -> Array:
    """Test which elements are finite; a complex number is finite if both parts are finite.

    Args:
        x: array or number.

    Returns:
        A boolean array with the shape of `x`.
    """
    x = as_array("isfinite", x)
    if x.dtype in COMPLEX:
        return lax.bitwise_and(lax.is_finite(lax.real(x)), lax.is_finite(lax.imag(x)))
    return lax.full(x.shape, True, BOOL) if _whole(x) else lax.is_finite(x)


# Logic and bits.


def truth(x: Any) -> Any:
    """Test which elements of an array differ from zero."""
    return x if x.dtype is BOOL else lax.ne(x, literal(0, x.dtype))


def logical_and(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Compute the logical AND of two arrays, treating nonzero elements as true.

    NaN counts as nonzero.

    Args:
        x, y: arrays or numbers, which are broadcast against each other.

    Returns:
        A boolean array of the broadcast shape.
    """
    x, y = pair("logical_and", x, y)
    return lax.bitwise_and(truth(x), truth(y))


def logical_or(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Compute the logical OR of two arrays, treating nonzero elements as true.

    NaN counts as nonzero.

    Args:
        x, y: arrays or numbers, which are broadcast against each other.

    Returns:
        A boolean array of the broadcast shape.
    """
    x, y = pair("logical_or", x, y)
    return lax.bitwise_or(truth(x), truth(y))


def logical_xor(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Compute the logical exclusive OR of two arrays, treating nonzero elements as true.

    NaN counts as nonzero.

    Args:
        x, y: arrays or numbers, which are broadcast against each other.

    Returns:
        A boolean array of the broadcast shape.
    """
    x, y = pair("logical_xor", x, y)
    return lax.bitwise_xor(truth(x), truth(y))


def logical_not(x: ArrayLike, /) -> Array:
    """Compute the logical NOT of each element: True where the element is zero, and False elsewhere.

    Args:
        x: array or number.

    Returns:
        A boolean array with the shape of `x`.
    """
    return lax.bitwise_not(truth(as_array("logical_not", x)))


def bitwise_and(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Compute the bitwise AND of integers, or the logical AND of booleans.

    Args:
        x, y: integers or booleans, which are broadcast against each other.

    Returns:
        An array of the broadcast shape, in the dtype that both operands promote to.

    Raises:
        TypeError: the promoted dtype is floating-point or complex.
    """
    return lax.bitwise_and(*pair("bitwise_and", x, y))


def bitwise_or(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Compute the bitwise OR of integers, or the logical OR of booleans.

    Args:
        x, y: integers or booleans, which are broadcast against each other.

    Returns:
        An array of the broadcast shape, in the dtype that both operands promote to.

    Raises:
        TypeError: the promoted dtype is floating-point or complex.
    """
    return lax.bitwise_or(*pair("bitwise_or", x, y))


def bitwise_xor(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Compute the bitwise exclusive OR of integers, or the logical exclusive OR of booleans.

    Args:
        x, y: integers or booleans, which are broadcast against each other.

    Returns:
        An array of the broadcast shape, in the dtype that both operands promote to.

    Raises:
        TypeError: the promoted dtype is floating-point or complex.
    """
    return lax.bitwise_xor(*pair("bitwise_xor", x, y))


def invert(x: ArrayLike, /) -> Array:
    """Flip every bit of each integer, or negate each boolean.

    For signed integers, the result is `-x - 1`.

    Args:
        x: integers or booleans.

    Returns:
        An array with the shape and dtype of `x`.

    Raises:
        TypeError: `x` has a floating-point or complex dtype.
    """
    return lax.bitwise_not(as_array("invert", x))


def bitwise_not(x: ArrayLike, /) -> Array:
    """Flip every bit of each integer, or negate each boolean; the same as `invert`.

    Args:
        x: integers or booleans.

    Returns:
        An array with the shape and dtype of `x`.

    Raises:
        TypeError: `x` has a floating-point or complex dtype.
    """
    return lax.bitwise_not(as_array("bitwise_not", x))


def bitwise_count(x: ArrayLike, /) -> Array:
    """Count the bits that are set in the absolute value of each integer.

    Args:
        x: integers or booleans.

    Returns:
        A uint8 array with the shape of `x`.

    Raises:
        TypeError: `x` has a floating-point or complex dtype.

    >>> jnp.bitwise_count(jnp.array([0, 7, -8]))
    Array([0, 3, 1], dtype=uint8)
    """
    x, _ = numeric_pair("bitwise_count", x, x)
    return convert(lax.population_count(absolute(x)), np.dtype("uint8"))


def left_shift(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Shift the bits of `x` to the left by `y` places, which multiplies `x` by `2**y`.

    Bits that are shifted beyond the width of the dtype are lost. If `y` is negative, or if it
    equals or exceeds the number of bits of the dtype, the result is 0.

    Args:
        x: integers or booleans.
        y: number of places; broadcast against `x`.

    Returns:
        An array of the broadcast shape, in the dtype that both operands promote to (int32 for two
        booleans).

    Raises:
        TypeError: the promoted dtype is floating-point or complex.
    """
    return lax.shift_left(*numeric_pair("left_shift", x, y))


def right_shift(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Shift the bits of `x1` to the right by `x2` places, which divides `x1` by `2**x2`.

    The division rounds down, and signed integers keep their sign. If `x2` is negative, or if it
    equals or exceeds the number of bits of the dtype, the result is 0, or -1 if `x1` is negative.

    Args:
        x1: integers or booleans.
        x2: number of places; broadcast against `x1`.

    Returns:
        An array of the broadcast shape, in the dtype that both operands promote to (int32 for two
        booleans).

    Raises:
        TypeError: the promoted dtype is floating-point or complex.
    """
    x1, x2 = numeric_pair("right_shift", x1, x2)
    logical = x1.dtype in UNSIGNED_INTEGERS
    return (lax.shift_right_logical if logical else lax.shift_right_arithmetic)(x1, x2)


def nextafter(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return the floating-point number next to `x` in the direction of `y`.

    Where either operand is NaN, the result is NaN; where both operands are equal, the result is
    `y`.

    Args:
        x, y: arrays or numbers, which are broadcast against each other.

    Returns:
        An array of the broadcast shape, in the floating dtype that both operands promote to;
        integers and booleans become float32 (64-bit integers become float64).

    Raises:
        TypeError: one of the operands is complex.
    """
    return lax.nextafter(*inexact_pair("nextafter", x, y))


asin, acos, atan = renamed("asin", arcsin), renamed("acos", arccos), renamed("atan", arctan)
asinh, acosh = renamed("asinh", arcsinh), renamed("acosh", arccosh)
atanh, atan2 = renamed("atanh", arctanh), renamed("atan2", arctan2)
degrees, radians = renamed("degrees", rad2deg), renamed("radians", deg2rad)
bitwise_invert = renamed("bitwise_invert", bitwise_not)
bitwise_left_shift = renamed("bitwise_left_shift", left_shift)
bitwise_right_shift = renamed("bitwise_right_shift", right_shift)
