"""Elementwise functions: arithmetic, comparison, bits, roots, trigonometry, special functions.

Operands agree in dtype and have equal shapes, rank 0, or axes of size 1 that are repeated; Python
numbers take the dtype of the array next to them. Two concrete arrays that agree go straight to the
operation. May import the engine, primitives and `_operands`.
"""
# mypy: disable-error-code="empty-body"

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.annotations import Array, ArrayLike, DTypeLike
from toile.engine.arrays import DeviceArray
from toile.engine.errors import shape_error
from toile.engine.platform_registry import array_platforms
from toile.engine.promotion import NARROW_INTEGERS
from toile.engine.records import dataclass
from toile.engine.source import here
from toile.lax._operands import (
    F,
    checked,
    dtypes_of,
    named,
    operand,
    operands,
    stretched,
    user_dtype,
)
from toile.primitives import bits, complexes, families, special
from toile.primitives import elementwise as ops
from toile.primitives import transcendental as curves
from toile.primitives.families import FLOATING, NUMERIC, accepts_text

__all__ = [
    "AccuracyMode", "RoundingMethod", "Tolerance", "abs", "acos", "acosh", "add", "asin", "asinh",
    "atan", "atan2", "atanh", "bessel_i0e", "bessel_i1e", "betainc", "bitwise_and", "bitwise_not",
    "bitwise_or", "bitwise_xor", "cbrt", "ceil", "clamp", "clz", "complex", "conj", "cos", "cosh",
    "digamma", "div", "eq", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "ge", "gt",
    "igamma", "igamma_grad_a", "igammac", "imag", "integer_pow", "is_finite", "le", "lgamma", "log",
    "log1p", "log2", "logistic", "lt", "max", "min", "mul", "mulhi", "ne", "neg", "nextafter",
    "one_minus_square", "polygamma", "population_count", "pow", "random_gamma_grad", "real",
    "reciprocal", "rem", "round", "rsqrt", "select", "select_n", "shift_left",
    "shift_right_arithmetic", "shift_right_logical", "sign", "sin", "sinh", "sqrt", "square", "sub",
    "tan", "tanh", "zeta",
]  # fmt: skip

# What lax accepts where an operation itself accepts more.
_ORDERED = "biuf"


class RoundingMethod(enum.IntEnum):
    """Where numbers halfway between two integers are rounded to."""

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


@dataclass(frozen=True)
class Tolerance:
    """How far a result may be from the exact one.

    The functions of `toile.lax` that take `accuracy` have one implementation each, so a tolerance
    changes no result.

    Args:
        atol: largest absolute error.
        rtol: largest relative error.
        ulps: largest error in units in the last place.

    Raises:
        ValueError: a number is negative, or all three are 0.

    >>> lax.exp(0.0, accuracy=lax.Tolerance(rtol=1e-5)).round(4)
    Array(1., dtype=float32, weak_type=True)
    """

    atol: float = 0.0
    rtol: float = 0.0
    ulps: int = 0

    def __post_init__(self) -> None:
        if self.rtol < 0.0 or self.atol < 0.0 or self.ulps < 0:
            raise ValueError("Tolerances must be non-negative." + here())
        if self.rtol == 0.0 and self.atol == 0.0 and self.ulps == 0:
            raise ValueError("At least one of atol, rtol, or ulps must be set." + here())


class AccuracyMode(enum.Enum):
    """The most accurate implementation of a function, or the usual one."""

    HIGHEST = 1
    DEFAULT = 2


def _apply(op: Any, accepts: str, xs: Sequence[Any]) -> Any:
    """The general way: convert, check, repeat axes of size 1, and call."""
    args = operands(op.name, xs)
    for x in args:
        if dtypes.kind(x.dtype) not in accepts:
            _refuse(op, accepts, args)
    if len(args) > 1 and any(a.shape != args[0].shape for a in args):
        args = stretched(args)
    if args[0].dtype in NARROW_INTEGERS:
        return _narrow(op, accepts, args)
    return checked(op, args)


def _narrow(op: Any, accepts: str, args: Sequence[Any]) -> Any:
    """On integers of fewer than 8 bits, which NumPy may widen: the result is converted back."""
    if op is ops.abs_:
        _refuse(op, accepts, args)
    out = checked(op, args)
    dtype = op.infer(*[a.aval for a in args]).dtype
    return out if out.dtype == dtype else ops.convert(out, dtype)


def _refuse(op: Any, accepts: str, args: Sequence[Any]) -> None:
    if any(a.dtype == dtypes.float0 for a in args):
        raise TypeError(f"Called {op.name} with a float0 array. float0s do not support any "
                        f"operations by design: needed numbers{here()}")
    if any(a.dtype != args[0].dtype for a in args):
        op.infer(*[a.aval for a in args])  # unequal dtypes are the likelier mistake
    raise shape_error(op.name, f"{accepts_text(accepts)} operands", [a.aval for a in args],
                      "convert them with .astype",
                      f"{op.name} does not accept dtype {dtypes.name_of(args[0].dtype)}")


# The decorators below give a declared function its body: what is declared has no statements.


def _one(op: Any, accepts: str | None = None) -> Any:
    """A function of one operand."""
    kinds = accepts or op.accepts
    allowed = dtypes_of(kinds)

    def fun(x: Any) -> Any:
        kind = x.__class__
        if kind is DeviceArray and x._data.dtype in allowed:
            return op(x)
        if kind in array_platforms and x._signature.dtype in allowed:
            return array_platforms[kind].unary(op, x)
        return _apply(op, kinds, (x,))

    return fun


def _unary(op: Any, accepts: str | None = None) -> Callable[[F], F]:
    """The body of a function of one operand."""
    return lambda declared: named(_one(op, accepts), declared)


def _accurate(op: Any) -> Callable[[F], F]:
    """The body of a function of one operand that takes `accuracy`; each has one implementation."""
    kinds = op.accepts
    allowed = dtypes_of(kinds)

    def fun(x: Any, *, accuracy: Any = None) -> Any:
        if accuracy is not None and not isinstance(accuracy, (Tolerance, AccuracyMode)):
            raise NotImplementedError(f"{fun.__name__}: needed a Tolerance or AccuracyMode as "
                                      f"accuracy, got {accuracy!r}{here()}")
        kind = x.__class__
        if kind is DeviceArray and x._data.dtype in allowed:
            return op(x)
        if kind in array_platforms and x._signature.dtype in allowed:
            return array_platforms[kind].unary(op, x)
        return _apply(op, kinds, (x,))

    return lambda declared: named(fun, declared)


def _two(op: Any, accepts: str | None = None) -> Any:
    """A function of two operands."""
    kinds = accepts or op.accepts
    allowed = dtypes_of(kinds)

    def fun(x: Any, y: Any) -> Any:
        if x.__class__ is DeviceArray and y.__class__ is DeviceArray:
            a, b = x._data, y._data
            dtype, shape = a.dtype, a.shape
            if dtype is b.dtype and dtype in allowed:
                other = b.shape
                if shape == other or not shape or not other:
                    return op(x, y)
        return _apply(op, kinds, (x, y))

    return fun


def _binary(op: Any, accepts: str | None = None) -> Callable[[F], F]:
    """The body of a function of two operands."""
    return lambda declared: named(_two(op, accepts), declared)


# ------------------------------------------------------------------------------------ arithmetic

@_unary(families.neg)
def neg(x: ArrayLike) -> Array:
    """Change the sign of each element.

    Unsigned integers wrap around: -1 is the largest number of the dtype.

    Args:
        x: array or number of a numeric dtype (not bool).

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.neg(jnp.array([1.5, -2.0]))
    Array([-1.5,  2. ], dtype=float32)
    """


@_unary(ops.sign)
def sign(x: ArrayLike) -> Array:
    """Compute -1, 0 or 1 for each element, by its sign.

    A complex number `x` gives `x / |x|`, NaN gives NaN.

    Args:
        x: array or number of a numeric dtype (not bool).

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.sign(jnp.array([-2.5, 0.0, 3.0]))
    Array([-1.,  0.,  1.], dtype=float32)
    """


@_unary(ops.abs_, "ifc")
def abs(x: ArrayLike) -> Array:
    """Compute the absolute value of each element.

    The least signed integer has none and stays as it is.

    Args:
        x: array or number of a signed integer, float or complex dtype.

    Returns:
        An array of the shape of `x`. Of complex numbers it has the moduli, in the dtype of their
        parts; otherwise it has the dtype of `x`.

    >>> lax.abs(jnp.array([-3, 4]))
    Array([3, 4], dtype=int32)
    """


@_unary(ops.floor)
def floor(x: ArrayLike) -> Array:
    """Round each element down to an integer.

    The integers are float numbers.

    Args:
        x: array or number of a float dtype.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.floor(jnp.array([-1.5, 1.5]))
    Array([-2.,  1.], dtype=float32)
    """


@_unary(ops.ceil)
def ceil(x: ArrayLike) -> Array:
    """Round each element up to an integer.

    The integers are float numbers.

    Args:
        x: array or number of a float dtype.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.ceil(jnp.array([-1.5, 1.5]))
    Array([-1.,  2.], dtype=float32)
    """


@_unary(ops.is_finite, "f")
def is_finite(x: ArrayLike) -> Array:
    """Test whether each element is neither infinite nor NaN.

    Args:
        x: array or number of a float dtype.

    Returns:
        A bool array of the shape of `x`.

    >>> lax.is_finite(jnp.array([1.0, jnp.inf, jnp.nan]))
    Array([ True, False, False], dtype=bool)
    """


@_binary(families.add, NUMERIC)
def add(x: ArrayLike, y: ArrayLike) -> Array:
    """Add two arrays, element by element.

    Args:
        x, y: arrays or numbers of one numeric dtype (not bool). Their shapes are equal, except that
            axes of size 1 and operands of rank 0 are repeated.

    Returns:
        An array of the operands' dtype and common shape.

    >>> lax.add(jnp.array([1, 2]), jnp.array([10, 20]))
    Array([11, 22], dtype=int32)
    """


@_binary(families.sub)
def sub(x: ArrayLike, y: ArrayLike) -> Array:
    """Subtract one array from another, element by element.

    Args:
        x, y: arrays or numbers of one numeric dtype (not bool). Their shapes are equal, except that
            axes of size 1 and operands of rank 0 are repeated.

    Returns:
        An array of the operands' dtype and common shape.

    >>> lax.sub(jnp.array([10, 20]), jnp.array([1, 2]))
    Array([ 9, 18], dtype=int32)
    """


@_binary(ops.div)
def div(x: ArrayLike, y: ArrayLike) -> Array:
    """Divide one array by another, element by element.

    Quotients of integers are rounded toward zero; division of an integer by zero gives -1, with all
    bits set. Floats follow IEEE 754: division by zero gives an infinity or NaN.

    Args:
        x, y: arrays or numbers of one numeric dtype (not bool). Their shapes are equal, except that
            axes of size 1 and operands of rank 0 are repeated.

    Returns:
        An array of the operands' dtype and common shape.

    >>> lax.div(jnp.array([7, -7, 1]), jnp.array([2, 2, 0]))
    Array([ 3, -3, -1], dtype=int32)
    """


@_binary(ops.rem)
def rem(x: ArrayLike, y: ArrayLike) -> Array:
    """Compute the remainder of a division that rounds toward zero.

    The result has the sign of `x`, as in C; `jnp.remainder` has the sign of `y`. For a `y` of zero
    the result is `x` for integers and NaN for floats.

    Args:
        x, y: arrays or numbers of one integer or float dtype. Their shapes are equal, except that
            axes of size 1 and operands of rank 0 are repeated.

    Returns:
        An array of the operands' dtype and common shape.

    >>> lax.rem(jnp.array([7, -7]), jnp.array([3, 3]))
    Array([ 1, -1], dtype=int32)
    """


@_binary(ops.max_)
def max(x: ArrayLike, y: ArrayLike) -> Array:
    """Choose the larger of two elements.

    The result is NaN where one of them is. Complex numbers are ordered by their real parts, then by
    their imaginary parts. Where the elements are equal, each gets half of the gradient.

    Args:
        x, y: arrays or numbers of one dtype. Their shapes are equal, except that axes of size 1 and
            operands of rank 0 are repeated.

    Returns:
        An array of the operands' dtype and common shape.

    >>> lax.max(jnp.array([1.0, 5.0]), jnp.array([3.0, 2.0]))
    Array([3., 5.], dtype=float32)
    """


@_binary(ops.min_)
def min(x: ArrayLike, y: ArrayLike) -> Array:
    """Choose the smaller of two elements.

    The result is NaN where one of them is. Complex numbers are ordered by their real parts, then by
    their imaginary parts. Where the elements are equal, each gets half of the gradient.

    Args:
        x, y: arrays or numbers of one dtype. Their shapes are equal, except that axes of size 1 and
            operands of rank 0 are repeated.

    Returns:
        An array of the operands' dtype and common shape.

    >>> lax.min(jnp.array([1.0, 5.0]), jnp.array([3.0, 2.0]))
    Array([1., 2.], dtype=float32)
    """


@_unary(ops.IntegerPow(2))
def square(x: ArrayLike) -> Array:
    """Multiply each element by itself.

    Args:
        x: array or number of a numeric dtype (not bool).

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.square(jnp.array([3, -4]))
    Array([ 9, 16], dtype=int32)
    """


_reciprocal = _one(ops.IntegerPow(-1), FLOATING)
_mul = _two(families.mul, NUMERIC)
_nextafter = _two(ops.nextafter)
_ROUND = (ops.Round(False), ops.Round(True))


def mul(x: ArrayLike, y: ArrayLike, *, out_dtype: DTypeLike | None = None) -> Array:
    """Multiply two arrays, element by element.

    Args:
        x, y: arrays or numbers of one numeric dtype (not bool). Their shapes are equal, except
            that axes of size 1 and operands of rank 0 are repeated.
        out_dtype: dtype that both are converted to before they are multiplied; None for their own.

    Returns:
        An array of the operands' common shape, in `out_dtype` or else in the operands' dtype.

    >>> lax.mul(jnp.array([100], jnp.int8), jnp.array([2], jnp.int8), out_dtype=jnp.int32)
    Array([200], dtype=int32)
    """
    if out_dtype is None:
        return _mul(x, y)
    dtype = user_dtype(out_dtype, "mul")
    x, y = operands("mul", (x, y))
    return _mul(ops.convert(x, dtype), ops.convert(y, dtype))


def nextafter(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Step from each element to the next representable number toward another.

    Args:
        x1: array or number of a float dtype: where to start.
        x2: the numbers to step toward, of the same dtype, and of the same shape except that axes
            of size 1 and operands of rank 0 are repeated.

    Returns:
        An array of the operands' dtype and common shape; it is `x2` where both are equal.

    >>> lax.nextafter(1.0, jnp.array([0.0, 2.0]))
    Array([0.99999994, 1.0000001 ], dtype=float32)
    """
    return _nextafter(x1, x2)


def round(x: ArrayLike,
          rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO) -> Array:
    """Round each element to the nearest integer.

    The integers are float numbers.

    Args:
        x: array or number of a float dtype.
        rounding_method: where numbers halfway between two integers go; by default to the one that
            is further from zero, as in C.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.round(jnp.array([0.5, 1.5, -2.5]))
    Array([ 1.,  2., -3.], dtype=float32)
    >>> lax.round(jnp.array([0.5, 1.5, -2.5]), lax.RoundingMethod.TO_NEAREST_EVEN)
    Array([ 0.,  2., -2.], dtype=float32)
    """
    op = _ROUND[RoundingMethod(rounding_method)]
    if x.__class__ is DeviceArray and dtypes.kind(x._data.dtype) == "f":
        return op(x)
    return _apply(op, "f", (x,))


def reciprocal(x: ArrayLike) -> Array:
    """Compute `1 / x` for each element.

    Args:
        x: array or number of a float or complex dtype.

    Returns:
        An array of the shape and dtype of `x`; 0 gives an infinity.

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
        An array of the shape and dtype of `x`.

    Raises:
        TypeError: `y` is negative and `x` has integers.

    >>> lax.integer_pow(jnp.array([2, -3]), 3)
    Array([  8, -27], dtype=int32)
    """
    x, y = operand("integer_pow", x), operator.index(y)
    if y < 0 and dtypes.kind(x.dtype) in "iu":
        raise TypeError("integer_pow: needed a float or complex operand for a negative power, got "
                        f"integer_pow({x.aval.str_short()}, {y}){here()}")
    return x if y == 1 and dtypes.kind(x.dtype) in NUMERIC else _apply(
        ops.IntegerPow(y), NUMERIC, (x,)
    )


_POWERS = dtypes_of(FLOATING)


def pow(x: ArrayLike, y: ArrayLike) -> Array:
    """Raise the elements of one array to the powers of another.

    A negative real number to a power that is no integer gives NaN.

    Args:
        x: array or number of a float or complex dtype.
        y: exponents, of the dtype of `x` or of an integer dtype. The shapes are equal, except that
            axes of size 1 and operands of rank 0 are repeated.

    Returns:
        An array of the dtype of `x` and the operands' common shape.

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
    """Compute the upper half of the bits of a product of integers.

    The whole product has twice as many bits as the dtype; `lax.mul` gives the lower half.

    Args:
        x, y: arrays or numbers of one integer dtype. Their shapes are equal, except that axes of
            size 1 and operands of rank 0 are repeated.

    Returns:
        An array of the operands' dtype and common shape.

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

@_unary(complexes.real, "c")
def real(x: ArrayLike) -> Array:
    """Extract the real part of each element.

    Args:
        x: array or number of a complex dtype.

    Returns:
        An array of the shape of `x`, in the dtype of its parts.

    >>> lax.real(jnp.array([1.0 + 2.0j]))
    Array([1.], dtype=float32)
    """


@_unary(complexes.imag, "c")
def imag(x: ArrayLike) -> Array:
    """Extract the imaginary part of each element.

    Args:
        x: array or number of a complex dtype.

    Returns:
        An array of the shape of `x`, in the dtype of its parts.

    >>> lax.imag(jnp.array([1.0 + 2.0j]))
    Array([2.], dtype=float32)
    """


@_unary(complexes.conj, FLOATING)
def conj(x: ArrayLike) -> Array:
    """Change the sign of the imaginary part of each element.

    Real numbers become complex ones.

    Args:
        x: array or number of a float or complex dtype.

    Returns:
        A complex array of the shape of `x`.

    >>> lax.conj(jnp.array([1.0 + 2.0j]))
    Array([1.-2.j], dtype=complex64)
    """


def complex(x: ArrayLike, y: ArrayLike) -> Array:
    """Build complex numbers from their real and imaginary parts.

    Args:
        x: real parts, of dtype float32 or float64.
        y: imaginary parts, of the same dtype, and of the same shape except that axes of size 1 and
            operands of rank 0 are repeated.

    Returns:
        An array of complex64 or complex128 and of the operands' common shape.

    >>> lax.complex(jnp.array([1.0, 3.0]), jnp.array([2.0, -4.0]))
    Array([1.+2.j, 3.-4.j], dtype=complex64)
    """
    x, y = operands("complex", (x, y))
    return checked(complexes.complex_, stretched((x, y), scalars=True))


# ---------------------------------------------------------------------------- comparison and bits


def _equality(op: Any) -> Callable[[F], F]:
    """The body of == and !=, which random keys have too."""
    compare = _two(op)

    def fun(x: Any, y: Any) -> Any:
        if x.__class__ is not DeviceArray and dtypes.is_extended(getattr(x, "dtype", None)):
            return _compare_keys(fun.__name__, x, y)
        return compare(x, y)

    return lambda declared: named(fun, declared)


@_equality(bits.eq)
def eq(x: ArrayLike, y: ArrayLike) -> Array:
    """Test whether two elements are equal.

    NaN is equal to nothing, not even to itself. Arrays of random keys are compared key by key.

    Args:
        x, y: arrays or numbers of one dtype. Their shapes are equal, except that axes of size 1 and
            operands of rank 0 are repeated.

    Returns:
        A bool array of the operands' common shape.

    >>> lax.eq(jnp.array([1, 2]), jnp.array([1, 3]))
    Array([ True, False], dtype=bool)
    """


@_equality(bits.ne)
def ne(x: ArrayLike, y: ArrayLike) -> Array:
    """Test whether two elements differ.

    NaN differs from everything, also from itself. Arrays of random keys are compared key by key.

    Args:
        x, y: arrays or numbers of one dtype. Their shapes are equal, except that axes of size 1 and
            operands of rank 0 are repeated.

    Returns:
        A bool array of the operands' common shape.

    >>> lax.ne(jnp.array([1, 2]), jnp.array([1, 3]))
    Array([False,  True], dtype=bool)
    """


@_binary(bits.lt, _ORDERED)
def lt(x: ArrayLike, y: ArrayLike) -> Array:
    """Test whether elements of `x` are less than those of `y`.

    The result is False where one of them is NaN.

    Args:
        x, y: arrays or numbers of one bool, integer or float dtype. Their shapes are equal, except
            that axes of size 1 and operands of rank 0 are repeated.

    Returns:
        A bool array of the operands' common shape.

    >>> lax.lt(jnp.array([1, 2, 3]), 2)
    Array([ True, False, False], dtype=bool)
    """


@_binary(bits.le, _ORDERED)
def le(x: ArrayLike, y: ArrayLike) -> Array:
    """Test whether elements of `x` are less than or equal to those of `y`.

    The result is False where one of them is NaN.

    Args:
        x, y: arrays or numbers of one bool, integer or float dtype. Their shapes are equal, except
            that axes of size 1 and operands of rank 0 are repeated.

    Returns:
        A bool array of the operands' common shape.

    >>> lax.le(jnp.array([1, 2, 3]), 2)
    Array([ True,  True, False], dtype=bool)
    """


@_binary(bits.gt, _ORDERED)
def gt(x: ArrayLike, y: ArrayLike) -> Array:
    """Test whether elements of `x` are greater than those of `y`.

    The result is False where one of them is NaN.

    Args:
        x, y: arrays or numbers of one bool, integer or float dtype. Their shapes are equal, except
            that axes of size 1 and operands of rank 0 are repeated.

    Returns:
        A bool array of the operands' common shape.

    >>> lax.gt(jnp.array([1, 2, 3]), 2)
    Array([False, False,  True], dtype=bool)
    """


@_binary(bits.ge, _ORDERED)
def ge(x: ArrayLike, y: ArrayLike) -> Array:
    """Test whether elements of `x` are greater than or equal to those of `y`.

    The result is False where one of them is NaN.

    Args:
        x, y: arrays or numbers of one bool, integer or float dtype. Their shapes are equal, except
            that axes of size 1 and operands of rank 0 are repeated.

    Returns:
        A bool array of the operands' common shape.

    >>> lax.ge(jnp.array([1, 2, 3]), 2)
    Array([False,  True,  True], dtype=bool)
    """


@_unary(bits.not_)
def bitwise_not(x: ArrayLike) -> Array:
    """Invert all bits of each element.

    For bool arrays this is the logical not.

    Args:
        x: array or number of an integer or bool dtype.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.bitwise_not(jnp.array([0, 5]))
    Array([-1, -6], dtype=int32)
    """


@_binary(bits.and_)
def bitwise_and(x: ArrayLike, y: ArrayLike) -> Array:
    """Combine the bits of two elements by and.

    For bool arrays this is the logical and.

    Args:
        x, y: arrays or numbers of one integer or bool dtype. Their shapes are equal, except that
            axes of size 1 and operands of rank 0 are repeated.

    Returns:
        An array of the operands' dtype and common shape.

    >>> lax.bitwise_and(jnp.array([0b1100]), jnp.array([0b1010]))
    Array([8], dtype=int32)
    """


@_binary(bits.or_)
def bitwise_or(x: ArrayLike, y: ArrayLike) -> Array:
    """Combine the bits of two elements by or.

    For bool arrays this is the logical or.

    Args:
        x, y: arrays or numbers of one integer or bool dtype. Their shapes are equal, except that
            axes of size 1 and operands of rank 0 are repeated.

    Returns:
        An array of the operands' dtype and common shape.

    >>> lax.bitwise_or(jnp.array([0b1100]), jnp.array([0b1010]))
    Array([14], dtype=int32)
    """


@_binary(bits.xor)
def bitwise_xor(x: ArrayLike, y: ArrayLike) -> Array:
    """Combine the bits of two elements by exclusive or.

    For bool arrays, the result is True where the elements differ.

    Args:
        x, y: arrays or numbers of one integer or bool dtype. Their shapes are equal, except that
            axes of size 1 and operands of rank 0 are repeated.

    Returns:
        An array of the operands' dtype and common shape.

    >>> lax.bitwise_xor(jnp.array([0b1100]), jnp.array([0b1010]))
    Array([6], dtype=int32)
    """


@_binary(bits.shift_left)
def shift_left(x: ArrayLike, y: ArrayLike) -> Array:
    """Shift the bits of each element to the left.

    A shift by a negative number or by the width of the dtype or more gives 0.

    Args:
        x: integer array or number whose bits are shifted.
        y: how many bits to shift by: an array or number of the same dtype, and of the same shape
            except that axes of size 1 and operands of rank 0 are repeated.

    Returns:
        An array of the operands' dtype and common shape.

    >>> lax.shift_left(jnp.array([1, 3]), jnp.array([4, 1]))
    Array([16,  6], dtype=int32)
    """


@_binary(bits.shift_right_logical)
def shift_right_logical(x: ArrayLike, y: ArrayLike) -> Array:
    """Shift the bits of each element to the right, filling with zeros.

    A shift by a negative number or by the width of the dtype or more gives 0.

    Args:
        x: integer array or number whose bits are shifted.
        y: how many bits to shift by: an array or number of the same dtype, and of the same shape
            except that axes of size 1 and operands of rank 0 are repeated.

    Returns:
        An array of the operands' dtype and common shape.

    >>> lax.shift_right_logical(jnp.array([16, -1]), jnp.array([2, 28]))
    Array([ 4, 15], dtype=int32)
    """


@_binary(bits.shift_right_arithmetic)
def shift_right_arithmetic(x: ArrayLike, y: ArrayLike) -> Array:
    """Shift the bits of each element to the right, filling with copies of the highest bit.

    The highest bit is the sign of signed integers; it is copied for unsigned integers too. A shift
    by a negative number or by the width of the dtype or more leaves copies of that bit alone.

    Args:
        x: integer array or number whose bits are shifted.
        y: how many bits to shift by: an array or number of the same dtype, and of the same shape
            except that axes of size 1 and operands of rank 0 are repeated.

    Returns:
        An array of the operands' dtype and common shape.

    >>> lax.shift_right_arithmetic(jnp.array([16, -16]), jnp.array([2, 2]))
    Array([ 4, -4], dtype=int32)
    """


@_unary(bits.population_count)
def population_count(x: ArrayLike) -> Array:
    """Count the bits of each element that are 1.

    Args:
        x: array or number of an integer dtype.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.population_count(jnp.array([7, 8, -1]))
    Array([ 3,  1, 32], dtype=int32)
    """


@_unary(bits.clz)
def clz(x: ArrayLike) -> Array:
    """Count the zero bits of each element before its first 1.

    For 0 that is the width of the dtype.

    Args:
        x: array or number of an integer dtype.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.clz(jnp.array([1, 0, -1]))
    Array([31, 32,  0], dtype=int32)
    """


def _compare_keys(name: str, x: Any, y: Any) -> Any:
    """Keys are equal when all their words are."""
    op = _KEY_COMPARISONS[name]
    if getattr(y, "dtype", None) != x.dtype:
        y = operand(name, y, 1)
        raise shape_error(name, "operands of equal dtypes", [x.aval, y.aval])
    x, y = stretched((x, y), scalars=True)
    return op(x, y)


_KEY_COMPARISONS = {"eq": bits.key_eq, "ne": bits.key_ne}

# --------------------------------------------------------------------------------- transcendental

@_accurate(curves.exp)
def exp(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
    """Raise e to the power of each element.

    Args:
        x: array or number of a float or complex dtype.
        accuracy: an `AccuracyMode` or a `Tolerance`; the result is the same for all of them.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.exp(jnp.array([0.0, 1.0])).round(4)
    Array([1.    , 2.7183], dtype=float32)
    """


@_accurate(curves.exp2)
def exp2(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
    """Raise 2 to the power of each element.

    Args:
        x: array or number of a float or complex dtype.
        accuracy: an `AccuracyMode` or a `Tolerance`; the result is the same for all of them.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.exp2(jnp.array([0.0, 3.0])).round(4)
    Array([1., 8.], dtype=float32)
    """


@_accurate(curves.expm1)
def expm1(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
    """Compute `exp(x) - 1`, accurately also where `x` is close to 0.

    Args:
        x: array or number of a float or complex dtype.
        accuracy: an `AccuracyMode` or a `Tolerance`; the result is the same for all of them.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.expm1(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 1.7183], dtype=float32)
    """


@_accurate(ops.log)
def log(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
    """Compute the natural logarithm of each element.

    For real numbers, 0 gives -inf and a negative number gives NaN.

    Args:
        x: array or number of a float or complex dtype.
        accuracy: an `AccuracyMode` or a `Tolerance`; the result is the same for all of them.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.log(jnp.array([1.0, 10.0])).round(4)
    Array([0.    , 2.3026], dtype=float32)
    """


@_accurate(curves.log1p)
def log1p(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
    """Compute `log(1 + x)`, accurately also where `x` is close to 0.

    For real numbers, -1 gives -inf and a lesser number gives NaN.

    Args:
        x: array or number of a float or complex dtype.
        accuracy: an `AccuracyMode` or a `Tolerance`; the result is the same for all of them.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.log1p(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 0.6931], dtype=float32)
    """


@_accurate(curves.log2)
def log2(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
    """Compute the logarithm to base 2 of each element.

    For real numbers, 0 gives -inf and a negative number gives NaN.

    Args:
        x: array or number of a float or complex dtype.
        accuracy: an `AccuracyMode` or a `Tolerance`; the result is the same for all of them.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.log2(jnp.array([1.0, 8.0])).round(4)
    Array([0., 3.], dtype=float32)
    """


@_accurate(curves.logistic)
def logistic(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
    """Compute the logistic sigmoid `1 / (1 + exp(-x))` of each element.

    Args:
        x: array or number of a float or complex dtype.
        accuracy: an `AccuracyMode` or a `Tolerance`; the result is the same for all of them.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.logistic(jnp.array([0.0, 2.0])).round(4)
    Array([0.5   , 0.8808], dtype=float32)
    """


@_accurate(curves.sqrt)
def sqrt(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
    """Compute the square root of each element.

    A negative real number gives NaN; of complex numbers it is the principal root.

    Args:
        x: array or number of a float or complex dtype.
        accuracy: an `AccuracyMode` or a `Tolerance`; the result is the same for all of them.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.sqrt(jnp.array([4.0, 2.0])).round(4)
    Array([2.    , 1.4142], dtype=float32)
    """


@_accurate(curves.rsqrt)
def rsqrt(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
    """Compute `1 / sqrt(x)` for each element.

    For real numbers, 0 gives inf and a negative number gives NaN.

    Args:
        x: array or number of a float or complex dtype.
        accuracy: an `AccuracyMode` or a `Tolerance`; the result is the same for all of them.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.rsqrt(jnp.array([4.0, 0.0])).round(4)
    Array([0.5, inf], dtype=float32)
    """


@_accurate(curves.cbrt)
def cbrt(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
    """Compute the real cube root of each element.

    Args:
        x: array or number of a float dtype.
        accuracy: an `AccuracyMode` or a `Tolerance`; the result is the same for all of them.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.cbrt(jnp.array([-8.0, 27.0])).round(4)
    Array([-2.,  3.], dtype=float32)
    """


@_accurate(curves.sin)
def sin(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
    """Compute the sine of each element, an angle in radians.

    Args:
        x: array or number of a float or complex dtype.
        accuracy: an `AccuracyMode` or a `Tolerance`; the result is the same for all of them.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.sin(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 0.8415], dtype=float32)
    """


@_accurate(curves.cos)
def cos(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
    """Compute the cosine of each element, an angle in radians.

    Args:
        x: array or number of a float or complex dtype.
        accuracy: an `AccuracyMode` or a `Tolerance`; the result is the same for all of them.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.cos(jnp.array([0.0, 1.0])).round(4)
    Array([1.    , 0.5403], dtype=float32)
    """


@_accurate(curves.tan)
def tan(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
    """Compute the tangent of each element, an angle in radians.

    Args:
        x: array or number of a float or complex dtype.
        accuracy: an `AccuracyMode` or a `Tolerance`; the result is the same for all of them.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.tan(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 1.5574], dtype=float32)
    """


@_accurate(curves.tanh)
def tanh(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
    """Compute the hyperbolic tangent of each element.

    Args:
        x: array or number of a float or complex dtype.
        accuracy: an `AccuracyMode` or a `Tolerance`; the result is the same for all of them.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.tanh(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 0.7616], dtype=float32)
    """


@_unary(curves.asin)
def asin(x: ArrayLike) -> Array:
    """Compute the inverse sine of each element.

    For real numbers it is an angle in [-pi/2, pi/2], and NaN outside of [-1, 1].

    Args:
        x: array or number of a float or complex dtype.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.asin(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 1.5708], dtype=float32)
    """


@_unary(curves.acos)
def acos(x: ArrayLike) -> Array:
    """Compute the inverse cosine of each element.

    For real numbers it is an angle in [0, pi], and NaN outside of [-1, 1].

    Args:
        x: array or number of a float or complex dtype.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.acos(jnp.array([0.0, 1.0])).round(4)
    Array([1.5708, 0.    ], dtype=float32)
    """


@_unary(curves.atan)
def atan(x: ArrayLike) -> Array:
    """Compute the inverse tangent of each element.

    For real numbers it is an angle in [-pi/2, pi/2].

    Args:
        x: array or number of a float or complex dtype.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.atan(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 0.7854], dtype=float32)
    """


@_unary(curves.sinh)
def sinh(x: ArrayLike) -> Array:
    """Compute the hyperbolic sine of each element.

    Args:
        x: array or number of a float or complex dtype.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.sinh(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 1.1752], dtype=float32)
    """


@_unary(curves.cosh)
def cosh(x: ArrayLike) -> Array:
    """Compute the hyperbolic cosine of each element.

    Args:
        x: array or number of a float or complex dtype.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.cosh(jnp.array([0.0, 1.0])).round(4)
    Array([1.    , 1.5431], dtype=float32)
    """


@_unary(curves.asinh)
def asinh(x: ArrayLike) -> Array:
    """Compute the inverse hyperbolic sine of each element.

    Args:
        x: array or number of a float or complex dtype.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.asinh(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 0.8814], dtype=float32)
    """


@_unary(curves.acosh)
def acosh(x: ArrayLike) -> Array:
    """Compute the inverse hyperbolic cosine of each element.

    A real number below 1 gives NaN.

    Args:
        x: array or number of a float or complex dtype.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.acosh(jnp.array([1.0, 2.0])).round(4)
    Array([0.   , 1.317], dtype=float32)
    """


@_unary(curves.atanh)
def atanh(x: ArrayLike) -> Array:
    """Compute the inverse hyperbolic tangent of each element.

    For real numbers, ±1 gives ±inf, and what is outside of [-1, 1] gives NaN.

    Args:
        x: array or number of a float or complex dtype.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.atanh(jnp.array([0.0, 0.5])).round(4)
    Array([0.    , 0.5493], dtype=float32)
    """


@_binary(curves.atan2)
def atan2(x: ArrayLike, y: ArrayLike) -> Array:
    """Compute the angle of the point with ordinate `x` and abscissa `y`.

    The angle is in [-pi, pi], counted from the positive abscissas. Note the order of the arguments:
    the quotient whose inverse tangent is meant is `x / y`.

    Args:
        x: ordinates of the points.
        y: abscissas, of the same float or complex dtype, and of the same shape except that axes of
            size 1 and operands of rank 0 are repeated.

    Returns:
        An array of the operands' dtype and common shape.

    >>> lax.atan2(1.0, jnp.array([1.0, -1.0])).round(4)
    Array([0.7854, 2.3562], dtype=float32)
    """


@_unary(curves.one_minus_square)
def one_minus_square(x: ArrayLike) -> Array:
    """Compute `1 - x**2`, accurately also where `x` is close to 1 or -1.

    Args:
        x: array or number of a numeric dtype (not bool).

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.one_minus_square(jnp.array([0.5, 2.0]))
    Array([ 0.75, -3.  ], dtype=float32)
    """


# ------------------------------------------------------------------------------ special functions

@_unary(special.erf)
def erf(x: ArrayLike) -> Array:
    """Compute the error function of each element.

    It is the integral of `2 / sqrt(pi) * exp(-t**2)` from 0 to `x`.

    Args:
        x: array or number of a float dtype.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.erf(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 0.8427], dtype=float32)
    """


@_accurate(special.erfc)
def erfc(x: ArrayLike, *, accuracy: Tolerance | AccuracyMode | None = None) -> Array:
    """Compute `1 - erf(x)`, accurately also where `x` is large.

    Args:
        x: array or number of a float dtype.
        accuracy: an `AccuracyMode` or a `Tolerance`; the result is the same for all of them.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.erfc(jnp.array([0.0, 1.0])).round(4)
    Array([1.    , 0.1573], dtype=float32)
    """


@_unary(special.erf_inv)
def erf_inv(x: ArrayLike) -> Array:
    """Compute the inverse of the error function of each element.

    ±1 gives ±inf, and what is outside of [-1, 1] gives NaN.

    Args:
        x: array or number of a float dtype.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.erf_inv(jnp.array([0.0, 0.5, 1.0])).round(4)
    Array([0.    , 0.4769,    inf], dtype=float32)
    """


@_unary(special.lgamma)
def lgamma(x: ArrayLike) -> Array:
    """Compute the logarithm of the absolute value of the gamma function.

    Args:
        x: array or number of a float dtype.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.lgamma(jnp.array([1.0, 5.0])).round(4)
    Array([0.    , 3.1781], dtype=float32)
    """


@_unary(special.digamma)
def digamma(x: ArrayLike) -> Array:
    """Compute the derivative of the logarithm of the gamma function.

    Args:
        x: array or number of a float dtype.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.digamma(jnp.array([1.0, 5.0])).round(4)
    Array([-0.5772,  1.5061], dtype=float32)
    """


@_unary(special.bessel_i0e)
def bessel_i0e(x: ArrayLike) -> Array:
    """Compute the modified Bessel function of order 0 times `exp(-|x|)`.

    Args:
        x: array or number of a float dtype.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.bessel_i0e(jnp.array([0.0, 1.0])).round(4)
    Array([1.    , 0.4658], dtype=float32)
    """


@_unary(special.bessel_i1e)
def bessel_i1e(x: ArrayLike) -> Array:
    """Compute the modified Bessel function of order 1 times `exp(-|x|)`.

    Args:
        x: array or number of a float dtype.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.bessel_i1e(jnp.array([0.0, 1.0])).round(4)
    Array([0.    , 0.2079], dtype=float32)
    """


def polygamma(m: ArrayLike, x: ArrayLike) -> Array:
    """Compute a derivative of the digamma function.

    Args:
        m: order of the derivative, as float numbers; 0 is digamma itself.
        x: where to evaluate it, of the same float dtype. The shapes are equal, except that axes of
            size 1 and operands of rank 0 are repeated.

    Returns:
        An array of the operands' dtype and common shape.

    >>> lax.polygamma(1.0, jnp.array([1.0, 2.0])).round(4)
    Array([1.6449, 0.6449], dtype=float32)
    """
    return _apply(special.polygamma, "f", (m, x))


def zeta(x: ArrayLike, q: ArrayLike) -> Array:
    """Compute the Hurwitz zeta function, the sum of `(q + n)**-x` over all integers n >= 0.

    Args:
        x: exponents, of a float dtype.
        q: shifts, of the same dtype; with 1 it is the Riemann zeta function. The shapes are equal,
            except that axes of size 1 and operands of rank 0 are repeated.

    Returns:
        An array of the operands' dtype and common shape.

    >>> lax.zeta(jnp.array([2.0, 4.0]), 1.0).round(4)
    Array([1.6449, 1.0823], dtype=float32)
    """
    return _apply(special.zeta, "f", (x, q))


def igamma(a: ArrayLike, x: ArrayLike) -> Array:
    """Compute the regularized lower incomplete gamma function.

    It is the integral of `t**(a - 1) * exp(-t)` from 0 to `x`, divided by the gamma function of
    `a`: the probability that a Gamma(a) variable is less than `x`.

    Args:
        a: shape parameters, positive numbers of a float dtype.
        x: upper ends of the integrals, of the same dtype. The shapes are equal, except that axes of
            size 1 and operands of rank 0 are repeated.

    Returns:
        An array of the operands' dtype and common shape.

    >>> lax.igamma(1.0, jnp.array([0.5, 2.0])).round(4)
    Array([0.3935, 0.8647], dtype=float32)
    """
    return _apply(special.igamma, "f", (a, x))


def igammac(a: ArrayLike, x: ArrayLike) -> Array:
    """Compute the regularized upper incomplete gamma function, `1 - igamma(a, x)`.

    It is accurate also where it is close to 0.

    Args:
        a: shape parameters, positive numbers of a float dtype.
        x: lower ends of the integrals, of the same dtype. The shapes are equal, except that axes of
            size 1 and operands of rank 0 are repeated.

    Returns:
        An array of the operands' dtype and common shape.

    >>> lax.igammac(1.0, jnp.array([0.5, 2.0])).round(4)
    Array([0.6065, 0.1353], dtype=float32)
    """
    return _apply(special.igammac, "f", (a, x))


def igamma_grad_a(a: ArrayLike, x: ArrayLike) -> Array:
    """Compute the derivative of `igamma(a, x)` with respect to `a`.

    Args:
        a: shape parameters, positive numbers of a float dtype.
        x: upper ends of the integrals, of the same dtype. The shapes are equal, except that axes of
            size 1 and operands of rank 0 are repeated.

    Returns:
        An array of the operands' dtype and common shape.

    >>> lax.igamma_grad_a(1.0, jnp.array([0.5, 2.0])).round(4)
    Array([-0.4895, -0.2208], dtype=float32)
    """
    return _apply(special.igamma_grad_a, "f", (a, x))


def random_gamma_grad(*args: ArrayLike) -> Array:
    """Compute the derivative of samples from a gamma distribution with respect to its shape.

    A sample `x` from Gamma(a) is seen as a function of `a` at a fixed quantile.

    Args:
        args: two operands: the shape parameters `a` and the samples `x`, of one float dtype. Their
            shapes are equal, except that axes of size 1 and operands of rank 0 are repeated.

    Returns:
        An array of the operands' dtype and common shape.

    >>> lax.random_gamma_grad(1.0, jnp.array([0.5, 2.0])).round(4)
    Array([0.807 , 1.6317], dtype=float32)
    """
    return _apply(special.random_gamma_grad, "f", args)


def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """Compute the regularized incomplete beta function.

    It is the probability that a Beta(a, b) variable is less than `x`.

    Args:
        a, b: shape parameters, positive numbers of one float dtype.
        x: numbers in [0, 1], of the same dtype. The three shapes are equal, except that axes of
            size 1 and operands of rank 0 are repeated.

    Returns:
        An array of the operands' dtype and common shape.

    >>> lax.betainc(1.0, 2.0, jnp.array([0.25, 0.5])).round(4)
    Array([0.4375, 0.75  ], dtype=float32)
    """
    return _apply(special.regularized_incomplete_beta, "f", (a, b, x))


# --------------------------------------------------------------------------------------- choosing


def select(pred: ArrayLike, on_true: ArrayLike, on_false: ArrayLike) -> Array:
    """Choose each element from one of two arrays.

    Both arrays are computed before the choice is made; `lax.cond` runs one of two functions.
    Unlike `jnp.where`, it neither broadcasts nor promotes.

    Args:
        pred: bool array, either of the shape of the others or of rank 0.
        on_true: elements where `pred` is True.
        on_false: elements where `pred` is False, in an array of the shape and dtype of `on_true`.

    Returns:
        An array of the shape and dtype of `on_true`.

    >>> lax.select(jnp.array([True, False]), jnp.array([1, 2]), jnp.array([30, 40]))
    Array([ 1, 40], dtype=int32)
    """
    return select_n(pred, on_false, on_true)


def select_n(which: ArrayLike, *cases: ArrayLike) -> Array:
    """Choose each element from one of several arrays.

    Args:
        which: number of the case to take each element from, an array of int32, either of the shape
            of the cases or of rank 0. For at most two cases it may be bool: False is the first.
        cases: arrays of one shape and dtype.

    Returns:
        An array of the shape and dtype of the cases.

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

    Where `min` is greater than `max`, the result is `max`; NaN stays NaN.

    Args:
        min: lower bound, of the dtype of `x`, and of its shape or of rank 0.
        x: array or number.
        max: upper bound, like `min`.

    Returns:
        An array of the shape and dtype of `x`.

    >>> lax.clamp(0, jnp.array([-1, 5, 9]), 6)
    Array([0, 5, 6], dtype=int32)
    """
    return checked(ops.clamp, operands("clamp", (min, x, max)))
