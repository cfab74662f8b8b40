"""Elementwise arithmetic, functions of complex numbers, and choices between arrays.

Operands must have the same dtype and the same shape, except that operands of rank 0 and axes of
size 1 are broadcast. Python numbers adopt the dtype of the array operand. This module may import
the engine, primitives, `_operands`, `_elementwise` and the comparisons.
"""
# mypy: disable-error-code="empty-body"

from __future__ import annotations

import enum
import operator

import numpy as np

from toile.engine import dtypes
from toile.engine.annotations import Array, ArrayLike, DTypeLike
from toile.engine.arrays import DeviceArray
from toile.engine.errors import shape_error
from toile.engine.source import here
from toile.lax._elementwise import AccuracyMode, Tolerance, apply, binary, one, two, unary
from toile.lax._operands import checked, dtypes_of, operand, operands, stretched, user_dtype
from toile.lax.comparisons import bitwise_and, shift_right_arithmetic, shift_right_logical
from toile.primitives import complexes, families
from toile.primitives import elementwise as ops
from toile.primitives.families import FLOATING, NUMERIC

__all__ = [
    "AccuracyMode", "RoundingMethod", "Tolerance", "abs", "add", "ceil", "clamp", "complex",
    "conj", "div", "floor", "imag", "integer_pow", "is_finite", "max", "min", "mul", "mulhi",
    "neg", "nextafter", "pow", "real", "reciprocal", "rem", "round", "select", "select_n",
    "sign", "square", "sub",
]  # fmt: skip


class RoundingMethod(enum.IntEnum):
    """The direction in which numbers halfway between two integers are rounded."""

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


# ------------------------------------------------------------------------------------ arithmetic

@unary(families.neg)
def neg(x: ArrayLike) -> Array:
    """Change the sign of each element.

    Unsigned integers wrap around: the negative of 1 is the largest value of the dtype.

    Args:
        x: array or number of a numeric dtype (not bool).

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.neg(jnp.array([1.5, -2.0]))
    Array([-1.5,  2. ], dtype=float32)
    """


@unary(ops.sign)
def sign(x: ArrayLike) -> Array:
    """Compute the sign of each element: -1, 0 or 1.

    For a nonzero complex number `x`, the result is `x / |x|`. For NaN, it is NaN.

    Args:
        x: array or number of a numeric dtype (not bool).

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.sign(jnp.array([-2.5, 0.0, 3.0]))
    Array([-1.,  0.,  1.], dtype=float32)
    """


@unary(ops.abs_, "ifc")
def abs(x: ArrayLike) -> Array:
    """Compute the absolute value of each element.

    The lowest integer of a signed dtype has no positive counterpart and is unchanged.

    Args:
        x: array or number of a signed integer, float or complex dtype.

    Returns:
        An array with the shape of `x`. For complex numbers, it has the dtype of their real and
        imaginary parts; otherwise, it has the dtype of `x`.

    >>> lax.abs(jnp.array([-3, 4]))
    Array([3, 4], dtype=int32)
    """


@unary(ops.floor)
def floor(x: ArrayLike) -> Array:
    """Round each element down to an integer.

    The results are floats with integer values.

    Args:
        x: array or number of a float dtype.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.floor(jnp.array([-1.5, 1.5]))
    Array([-2.,  1.], dtype=float32)
    """


@unary(ops.ceil)
def ceil(x: ArrayLike) -> Array:
    """Round each element up to an integer.

    The results are floats with integer values.

    Args:
        x: array or number of a float dtype.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.ceil(jnp.array([-1.5, 1.5]))
    Array([-1.,  2.], dtype=float32)
    """


@unary(ops.is_finite, "f")
def is_finite(x: ArrayLike) -> Array:
    """Test whether each element is neither infinite nor NaN.

    Args:
        x: array or number of a float dtype.

    Returns:
        A bool array with the shape of `x`.

    >>> lax.is_finite(jnp.array([1.0, jnp.inf, jnp.nan]))
    Array([ True, False, False], dtype=bool)
    """


@binary(families.add, NUMERIC)
def add(x: ArrayLike, y: ArrayLike) -> Array:
    """Add two arrays, element by element.

    Args:
        x, y: arrays or numbers of the same numeric dtype (not bool). Their shapes must be equal,
            except that axes of size 1 and operands of rank 0 are broadcast.

    Returns:
        An array with the operands' dtype and common shape.

    >>> lax.add(jnp.array([1, 2]), jnp.array([10, 20]))
    Array([11, 22], dtype=int32)
    """


@binary(families.sub)
def sub(x: ArrayLike, y: ArrayLike) -> Array:
    """Subtract `y` from `x`, element by element.

    Args:
        x, y: arrays or numbers of the same numeric dtype (not bool). Their shapes must be equal,
            except that axes of size 1 and operands of rank 0 are broadcast.

    Returns:
        An array with the operands' dtype and common shape.

    >>> lax.sub(jnp.array([10, 20]), jnp.array([1, 2]))
    Array([ 9, 18], dtype=int32)
    """


@binary(ops.div)
def div(x: ArrayLike, y: ArrayLike) -> Array:
    """Divide `x` by `y`, element by element.

    Quotients of integers are rounded toward zero. An integer divided by zero is -1, or the largest
    value of the dtype if the dtype is unsigned. Floats follow IEEE 754: the result of a division by
    zero is an infinity or NaN.

    Args:
        x, y: arrays or numbers of the same numeric dtype (not bool). Their shapes must be equal,
            except that axes of size 1 and operands of rank 0 are broadcast.

    Returns:
        An array with the operands' dtype and common shape.

    >>> lax.div(jnp.array([7, -7, 1]), jnp.array([2, 2, 0]))
    Array([ 3, -3, -1], dtype=int32)
    """


@binary(ops.rem)
def rem(x: ArrayLike, y: ArrayLike) -> Array:
    """Compute the remainder of a division that rounds toward zero.

    The result has the sign of `x`, as in C, whereas the result of `jnp.remainder` has the sign of
    `y`. Where `y` is zero, the result is `x` for integers and NaN for floats.

    Args:
        x, y: arrays or numbers of the same integer or float dtype. Their shapes must be equal,
            except that axes of size 1 and operands of rank 0 are broadcast.

    Returns:
        An array with the operands' dtype and common shape.

    >>> lax.rem(jnp.array([7, -7]), jnp.array([3, 3]))
    Array([ 1, -1], dtype=int32)
    """


@binary(ops.max_)
def max(x: ArrayLike, y: ArrayLike) -> Array:
    """Compute the maximum of two arrays, element by element.

    The result is NaN where either element is NaN. Complex numbers are ordered by their real parts,
    then by their imaginary parts. Where the elements are equal, each receives half of the gradient.

    Args:
        x, y: arrays or numbers of the same dtype. Their shapes must be equal, except that axes of
            size 1 and operands of rank 0 are broadcast.

    Returns:
        An array with the operands' dtype and common shape.

    >>> lax.max(jnp.array([1.0, 5.0]), jnp.array([3.0, 2.0]))
    Array([3., 5.], dtype=float32)
    """


@binary(ops.min_)
def min(x: ArrayLike, y: ArrayLike) -> Array:
    """Compute the minimum of two arrays, element by element.

    The result is NaN where either element is NaN. Complex numbers are ordered by their real parts,
    then by their imaginary parts. Where the elements are equal, each receives half of the gradient.

    Args:
        x, y: arrays or numbers of the same dtype. Their shapes must be equal, except that axes of
            size 1 and operands of rank 0 are broadcast.

    Returns:
        An array with the operands' dtype and common shape.

    >>> lax.min(jnp.array([1.0, 5.0]), jnp.array([3.0, 2.0]))
    Array([1., 2.], dtype=float32)
    """


@unary(ops.IntegerPow(2))
def square(x: ArrayLike) -> Array:
    """Multiply each element by itself.

    Args:
        x: array or number of a numeric dtype (not bool).

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.square(jnp.array([3, -4]))
    Array([ 9, 16], dtype=int32)
    """


_reciprocal = one(ops.IntegerPow(-1), FLOATING)
_mul = two(families.mul, NUMERIC)
_nextafter = two(ops.nextafter)
_ROUND = (ops.Round(False), ops.Round(True))


def mul(x: ArrayLike, y: ArrayLike, *, out_dtype: DTypeLike | None = None) -> Array:
    """Multiply two arrays, element by element.

    Args:
        x, y: arrays or numbers of the same numeric dtype (not bool). Their shapes must be equal,
            except that axes of size 1 and operands of rank 0 are broadcast.
        out_dtype: dtype to which both operands are converted before they are multiplied; if None,
            they keep their dtype.

    Returns:
        An array with the operands' common shape. Its dtype is `out_dtype`, or the operands' dtype
        if `out_dtype` is None.

    >>> lax.mul(jnp.array([100], jnp.int8), jnp.array([2], jnp.int8), out_dtype=jnp.int32)
    Array([200], dtype=int32)
    """
    if out_dtype is None:
        return _mul(x, y)
    dtype = user_dtype(out_dtype, "mul")
    x, y = operands("mul", (x, y))
    return _mul(ops.convert(x, dtype), ops.convert(y, dtype))


def nextafter(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Return the representable number next to `x1` in the direction of `x2`, element by element.

    Args:
        x1: the numbers to start from, of a float dtype.
        x2: the numbers to step toward, of the same dtype as `x1`. The shapes must be equal, except
            that axes of size 1 and operands of rank 0 are broadcast.

    Returns:
        An array with the operands' dtype and common shape. Where the operands are equal, the result
        is `x2`.

    >>> lax.nextafter(1.0, jnp.array([0.0, 2.0]))
    Array([0.99999994, 1.0000001 ], dtype=float32)
    """
    return _nextafter(x1, x2)


def round(x: ArrayLike,
          rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO) -> Array:
    """Round each element to the nearest integer.

    The results are floats with integer values.

    Args:
        x: array or number of a float dtype.
        rounding_method: how to round numbers halfway between two integers; by default away from
            zero, as in C.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.round(jnp.array([0.5, 1.5, -2.5]))
    Array([ 1.,  2., -3.], dtype=float32)
    >>> lax.round(jnp.array([0.5, 1.5, -2.5]), lax.RoundingMethod.TO_NEAREST_EVEN)
    Array([ 0.,  2., -2.], dtype=float32)
    """
    op = _ROUND[RoundingMethod(rounding_method)]
    if x.__class__ is DeviceArray and dtypes.kind(x._data.dtype) == "f":
        return op(x)
    return apply(op, "f", (x,))


def reciprocal(x: ArrayLike) -> Array:
    """Compute `1 / x` for each element.

    Args:
        x: array or number of a float or complex dtype.

    Returns:
        An array with the shape and dtype of `x`. The result for a real 0 is an infinity.

    >>> lax.reciprocal(jnp.array([2.0, 0.0]))
    Array([0.5, inf], dtype=float32)
    """
    return _reciprocal(x)


def integer_pow(x: ArrayLike, y: int) -> Array:
    """Raise each element to a fixed integer power, by repeated multiplication.

    Args:
        x: array or number of a numeric dtype (not bool).
        y: the exponent, a Python integer.

    Returns:
        An array with the shape and dtype of `x`.

    Raises:
        TypeError: `y` is negative and `x` has an integer dtype.

    >>> lax.integer_pow(jnp.array([2, -3]), 3)
    Array([  8, -27], dtype=int32)
    """
    x, y = operand("integer_pow", x), operator.index(y)
    if y < 0 and dtypes.kind(x.dtype) in "iu":
        raise TypeError("integer_pow: needed a float or complex operand for a negative power, got "
                        f"integer_pow({x.aval.str_short()}, {y}){here()}")
    return x if y == 1 and dtypes.kind(x.dtype) in NUMERIC else apply(
        ops.IntegerPow(y), NUMERIC, (x,)
    )


_POWERS = dtypes_of(FLOATING)


def pow(x: ArrayLike, y: ArrayLike) -> Array:
    """Raise `x` to the power of `y`, element by element.

    The result is NaN where a negative real number is raised to a power that is not an integer.

    Args:
        x: bases, of a float or complex dtype.
        y: exponents, of the same dtype as `x` or of an integer dtype. The shapes must be equal,
            except that axes of size 1 and operands of rank 0 are broadcast.

    Returns:
        An array with the dtype of `x` and the operands' common shape.

    >>> lax.pow(jnp.array([2.0, 4.0]), jnp.array([3.0, 0.5])).round(4)
    Array([8., 2.], dtype=float32)
    """
    if x.__class__ is DeviceArray and y.__class__ is DeviceArray:
        a, b = x._data, y._data
        if a.dtype is b.dtype and a.dtype in _POWERS and a.shape == b.shape:
            return ops.pow_(x, y)
    y = operand("pow", y, 1) if type(y) is int else y
    x, y = operands("pow", (x, y))
    if dtypes.kind(x.dtype) not in FLOATING:
        raise shape_error("pow", "a float or complex first operand", [x.aval, y.aval])
    return checked(ops.pow_, stretched((x, y)))


def mulhi(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Compute the upper half of the bits of the product of two integers, element by element.

    The whole product has twice as many bits as the dtype; `lax.mul` returns the lower half.

    Args:
        x, y: arrays or numbers of the same integer dtype. Their shapes must be equal, except that
            axes of size 1 and operands of rank 0 are broadcast.

    Returns:
        An array with the operands' dtype and common shape.

    >>> lax.mulhi(jnp.array([2**30]), jnp.array([12]))
    Array([3], dtype=int32)
    """
    x, y = stretched(operands("mulhi", (x, y)))
    if dtypes.kind(x.dtype) not in "iu" or x.dtype != y.dtype:
        raise shape_error("mulhi", "int operands of equal dtypes", [x.aval, y.aval])
    half = dtypes.itemsize_bits(x.dtype) // 2
    down = shift_right_arithmetic if dtypes.kind(x.dtype) == "i" else shift_right_logical
    mask, shift = (DeviceArray(np.asarray(v, x.dtype), True) for v in ((1 << half) - 1, half))
    # Schoolbook product of halves: x = x1 B + x0, y = y1 B + y0 with 0 <= x0, y0 < B.
    x0, y0 = bitwise_and(x, mask), bitwise_and(y, mask)
    x1, y1 = down(x, shift), down(y, shift)
    t = add(mul(x1, y0), shift_right_logical(mul(x0, y0), shift))
    low = add(mul(x0, y1), bitwise_and(t, mask))
    return add(add(mul(x1, y1), down(t, shift)), down(low, shift))


# --------------------------------------------------------------------------------- complex numbers

@unary(complexes.real, "c")
def real(x: ArrayLike) -> Array:
    """Extract the real part of each element.

    Args:
        x: array or number of a complex dtype.

    Returns:
        An array with the shape of `x` and the dtype of its real and imaginary parts.

    >>> lax.real(jnp.array([1.0 + 2.0j]))
    Array([1.], dtype=float32)
    """


@unary(complexes.imag, "c")
def imag(x: ArrayLike) -> Array:
    """Extract the imaginary part of each element.

    Args:
        x: array or number of a complex dtype.

    Returns:
        An array with the shape of `x` and the dtype of its real and imaginary parts.

    >>> lax.imag(jnp.array([1.0 + 2.0j]))
    Array([2.], dtype=float32)
    """


@unary(complexes.conj, FLOATING)
def conj(x: ArrayLike) -> Array:
    """Change the sign of the imaginary part of each element.

    Real numbers become complex.

    Args:
        x: array or number of a float or complex dtype.

    Returns:
        A complex array with the shape of `x`.

    >>> lax.conj(jnp.array([1.0 + 2.0j]))
    Array([1.-2.j], dtype=complex64)
    """


def complex(x: ArrayLike, y: ArrayLike) -> Array:
    """Build complex numbers from their real and imaginary parts.

    Args:
        x: real parts, of dtype float32 or float64.
        y: imaginary parts, of the same dtype as `x`. The shapes must be equal, except that axes of
            size 1 and operands of rank 0 are broadcast.

    Returns:
        An array of dtype complex64 or complex128 with the operands' common shape.

    >>> lax.complex(jnp.array([1.0, 3.0]), jnp.array([2.0, -4.0]))
    Array([1.+2.j, 3.-4.j], dtype=complex64)
    """
    x, y = operands("complex", (x, y))
    return checked(complexes.complex_, stretched((x, y), scalars=True))


# --------------------------------------------------------------------------------------- choosing


def select(pred: ArrayLike, on_true: ArrayLike, on_false: ArrayLike) -> Array:
    """Choose each element from one of two arrays.

    Both arrays are computed before the choice is made; `lax.cond`, by contrast, runs only one of
    two functions. Unlike `jnp.where`, `select` neither broadcasts nor promotes its operands.

    Args:
        pred: bool array with the shape of the other operands, or of rank 0.
        on_true: array from which elements are chosen where `pred` is True.
        on_false: array from which elements are chosen where `pred` is False. It must have the shape
            and dtype of `on_true`.

    Returns:
        An array with the shape and dtype of `on_true`.

    >>> lax.select(jnp.array([True, False]), jnp.array([1, 2]), jnp.array([30, 40]))
    Array([ 1, 40], dtype=int32)
    """
    return select_n(pred, on_false, on_true)


def select_n(which: ArrayLike, *cases: ArrayLike) -> Array:
    """Choose each element from one of several arrays.

    Args:
        which: for each element, the index of the case from which it is chosen: an int32 array with
            the shape of the cases, or of rank 0. For at most two cases, `which` may be a bool
            array; False chooses the first case.
        cases: arrays of the same shape and dtype.

    Returns:
        An array with the shape and dtype of the cases.

    >>> zero, one, two = jnp.array([1, 2, 3]), jnp.array([10, 20, 30]), jnp.array([7, 8, 9])
    >>> lax.select_n(jnp.array([0, 2, 1]), zero, one, two)
    Array([ 1,  8, 30], dtype=int32)
    """
    if len(cases) == 2 and which.__class__ is DeviceArray:
        a, b = cases
        if a.__class__ is DeviceArray and b.__class__ is DeviceArray:
            p, a, b = which._data, a._data, b._data
            shape = a.shape
            if a.dtype is b.dtype and p.dtype.char == "?" and shape == b.shape and (
                p.shape == shape or not p.shape
            ):
                return ops.select_n(which, *cases)
    if not cases:
        raise ValueError("select_n() must have at least one case" + here())
    return checked(ops.select_n, [operand("select", which), *operands("select", cases)])


def clamp(min: ArrayLike, x: ArrayLike, max: ArrayLike) -> Array:
    """Limit the elements of an array to an interval.

    Where `min` is greater than `max`, the result is `max`. NaN stays NaN.

    Args:
        min: lower bound, with the dtype of `x` and either the shape of `x` or rank 0.
        x: array or number.
        max: upper bound; its dtype and shape must meet the same requirements as those of `min`.

    Returns:
        An array with the shape and dtype of `x`.

    >>> lax.clamp(0, jnp.array([-1, 5, 9]), 6)
    Array([0, 5, 6], dtype=int32)
    """
    return checked(ops.clamp, operands("clamp", (min, x, max)))
