"""Elementwise functions that combine several operations: division, powers, rounding, bounds.

Each is a composition of `lax` functions. Where the derivative of the composition would be wrong, as
for `logaddexp` of equal infinities, a custom rule replaces it. This module may import the engine,
primitives.bits, `lax`, `api` and other modules of `toile.numpy`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from toile import lax
from toile.api import custom_jvp
from toile.engine import dtypes
from toile.engine.annotations import Array, ArrayLike
from toile.engine.arrays import ConcreteArray, DeviceArray
from toile.engine.source import here
from toile.engine.trace import state
from toile.lax._operands import integer
from toile.numpy._aliases import renamed
from toile.numpy._dtypes import (
    BOOL,
    COMPLEX,
    HALVES,
    INEXACT,
    INTEGERS,
    UNSIGNED_INTEGERS,
    default_float,
)
from toile.numpy._operands import (
    as_array,
    as_operand,
    convert,
    literal,
    no_out,
    pair_of,
    strengthen,
)
from toile.numpy._promotion import (
    broadcast_to,
    full_pair,
    inexact,
    inexact_pair,
    numeric_pair,
    pair,
    same_shape,
    select,
)
from toile.numpy.ufuncs import absolute, greater, isnan, less
from toile.primitives import bits

_INT32 = np.dtype("int32")
_HOLDERS = (ConcreteArray, np.ndarray)


def _zero(x: Any) -> Any:
    return literal(0, x.dtype, x.weak_type)


def _one(x: Any) -> Any:
    return literal(1, x.dtype, x.weak_type)


# Division with remainder.


def floor_divide(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Divide `x1` by `x2` and round the quotient down to a whole number.

    Args:
        x1, x2: arrays or numbers, which are broadcast against each other.

    Returns:
        An array of the broadcast shape, in the dtype that both operands promote to (int32 for two
        booleans).

    Raises:
        TypeError: one of the operands is complex.

    Differences:
        The result of integer division by 0 is meaningless; in NumPy, it is 0. Division of floats by
        0 returns an infinity or NaN, as in NumPy, but without a warning.
    """
    x1, x2 = numeric_pair("floor_divide", x1, x2)
    dtype = x1.dtype
    if dtype in UNSIGNED_INTEGERS:
        return lax.div(x1, x2)
    if dtype in COMPLEX:
        raise TypeError("floor_divide does not support complex-valued inputs" + here())
    if dtype in INTEGERS:
        quotient = lax.div(x1, x2)
        inexact_result = lax.ne(lax.rem(x1, x2), _zero(x1))
        lower = lax.bitwise_and(lax.ne(lax.sign(x1), lax.sign(x2)), inexact_result)
        return select(lower, lax.sub(quotient, _one(x1)), quotient)
    return _float_divmod(x1, x2)[0]


def _float_divmod(x1: Any, x2: Any) -> tuple[Any, Any]:
    """Compute the floored quotient and the remainder of floats."""
    rest = lax.rem(x1, x2)
    # Division by zero keeps x1 itself, so that the quotient is infinite and not NaN.
    exact = select(lax.eq(x2, _zero(x2)), *_shaped(x1, lax.sub(x1, rest)))
    quotient = lax.div(exact, x2)
    below = lax.bitwise_and(lax.ne(rest, _zero(rest)), lax.ne(lax.sign(x2), lax.sign(rest)))
    rest, quotient = (
        select(below, lax.add(rest, x2), rest),
        select(below, lax.sub(quotient, _one(quotient)), quotient),
    )
    return lax.round(quotient), rest


def _shaped(x: Any, y: Any) -> tuple[Any, Any]:
    """Broadcast `x` to the shape of `y` if it is a scalar."""
    return (x if x.shape or not y.shape else lax.broadcast(x, y.shape)), y


def remainder(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Compute the remainder after dividing `x1` by `x2` and rounding the quotient down.

    The result has the sign of `x2`. The remainder of division by 0 is 0 for integers and NaN for
    floats.

    Args:
        x1, x2: arrays or numbers, which are broadcast against each other.

    Returns:
        An array of the broadcast shape, in the dtype that both operands promote to (int32 for two
        booleans).

    Raises:
        TypeError: one of the operands is complex.

    >>> jnp.remainder(jnp.array([7, -7]), 3)
    Array([1, 2], dtype=int32)
    """
    x1, x2 = numeric_pair("remainder", x1, x2)
    if x1.dtype not in INEXACT:
        x2 = select(lax.eq(x2, _zero(x2)), lax.full_like(x2, 1), x2)
    rest = lax.rem(x1, x2)
    zero = _zero(rest)
    opposite = lax.ne(lax.lt(rest, zero), lax.lt(x2, zero))
    return select(lax.bitwise_and(opposite, lax.ne(rest, zero)), lax.add(rest, x2), rest)


def fmod(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Compute the remainder after dividing `x1` by `x2` and rounding the quotient toward zero.

    The result has the sign of `x1`. The remainder of division by 0 is 0 for integers and NaN for
    floats.

    Args:
        x1, x2: arrays or numbers, which are broadcast against each other.

    Returns:
        An array of the broadcast shape, in the dtype that both operands promote to (int32 for two
        booleans).

    Raises:
        TypeError: one of the operands is complex.

    >>> jnp.fmod(jnp.array([7, -7]), 3)
    Array([ 1, -1], dtype=int32)
    """
    x1, x2 = numeric_pair("fmod", x1, x2)
    if x1.dtype not in INEXACT:
        x2 = select(lax.eq(x2, _zero(x2)), lax.full_like(x2, 1), x2)
    return lax.rem(x1, x2)


def divmod(x1: ArrayLike, x2: ArrayLike, /) -> tuple[Array, Array]:
    """Divide `x1` by `x2`, and return the quotient, rounded down, and the remainder.

    Args:
        x1, x2: arrays or numbers, which are broadcast against each other.

    Returns:
        A tuple of `floor_divide(x1, x2)` and `remainder(x1, x2)`.

    Raises:
        TypeError: one of the operands is complex.
    """
    x1, x2 = numeric_pair("divmod", x1, x2)
    if x1.dtype in INTEGERS:
        return floor_divide(x1, x2), remainder(x1, x2)
    return _float_divmod(x1, x2)


def gcd(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Compute the greatest common divisor of integers.

    The result is never negative; `gcd(0, 0)` is 0.

    Args:
        x1, x2: integers, which are broadcast against each other.

    Returns:
        An array of the broadcast shape, in the dtype that both operands promote to.

    Raises:
        ValueError: the operands do not promote to an integer dtype.
    """
    x1, x2 = pair("gcd", x1, x2)
    if x1.dtype not in INTEGERS:
        raise ValueError("Arguments to jax.numpy.gcd must be integers." + here())
    a, b = lax.broadcast_shapes(x1.shape, x2.shape), absolute(x2)
    x1 = lax.broadcast(absolute(x1), a) if not x1.shape else absolute(x1)
    x2 = lax.broadcast(b, a) if not x2.shape else b
    if x1.dtype.itemsize <= 4:
        return _settled(bits.gcd(x1, x2))

    def unfinished(ab: Any) -> Any:
        b = ab[1]
        return lax.reduce_or(lax.ne(b, _zero(b)), tuple(range(b.ndim)))

    def step(ab: Any) -> Any:  # Euclid: (a, b) -> (b, a mod b), until b is 0
        a, b = ab
        more = lax.ne(b, _zero(b))
        rest = lax.rem(a, select(more, b, lax.full_like(b, 1)))
        return select(more, b, a), select(more, rest, lax.full_like(b, 0))

    return _settled(lax.while_loop(unfinished, step, (x1, x2))[0])


def lcm(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Compute the least common multiple of integers.

    The result is never negative. It is 0 if one of the integers is 0. Multiples that overflow wrap
    around.

    Args:
        x1, x2: integers, which are broadcast against each other.

    Returns:
        An array of the broadcast shape, in the dtype that both operands promote to.

    Raises:
        ValueError: the operands do not promote to an integer dtype.
    """
    x1, x2 = pair("lcm", x1, x2)
    if x1.dtype not in INTEGERS:
        raise ValueError("Arguments to jax.numpy.lcm must be integers." + here())
    x1, x2 = absolute(x1), absolute(x2)
    common = gcd(x1, x2)
    nothing = lax.eq(common, _zero(common))
    product = lax.mul(x1, lax.div(x2, select(nothing, 1, common)))
    return _settled(select(nothing, 0, product))


# Powers.


def power(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Raise `x1` to the power `x2`.

    Anything to the power 0 is 1. A negative float raised to a power that is not an integer is NaN.
    If `x2` is a Python integer or, outside `jit`, an integer array of rank 0, the exponent is
    considered known: the power is computed by multiplication, and `x2` does not affect the dtype of
    the result.

    Args:
        x1: base.
        x2: exponent; broadcast against `x1`.

    Returns:
        An array of the broadcast shape. If the exponent is known, the result has the dtype of `x1`
        (int32 for a boolean); otherwise, it has the dtype that both operands promote to (int32 for
        two booleans). If both operands are integers, so is the result; powers that overflow wrap
        around.

    Raises:
        TypeError: `x1` is an integer array and `x2` is a known negative exponent; use
            `float_power` instead.

    Differences:
        If an integer is raised to a negative element of an integer array, the result is
        meaningless, whereas NumPy raises ValueError.
    """
    if type(x2) is int or (
        not isinstance(x2, Array) and isinstance(x2, (int, np.integer, np.bool_))
    ):
        return _whole_power(x1, int(x2))
    if isinstance(x2, _HOLDERS) and not x2.shape and x2.dtype in INTEGERS:
        # Inside jit a new array counts as unknown.
        trace = state.trace
        if trace is None or not trace.staging or type(x2) is np.ndarray:
            return _whole_power(x1, int(x2))
    exponent = as_operand("power", x2, 1)
    strong = not pair_of(exponent)[1] and pair_of(exponent)[0] in INTEGERS
    x1, x2 = numeric_pair("power", x1, exponent)
    if x1.dtype in INTEGERS:
        return _integer_power(x1, x2)
    if pair_of(exponent)[0] in INTEGERS:  # whose derivative at x1 == 0 is not NaN
        x2 = broadcast_to(as_array("power", exponent, 1), x2.shape)
    return lax.pow(strengthen(x1) if strong else x1, x2)


def _whole_power(x: Any, n: int) -> Any:
    """Compute x ** n for a known n, which does not affect the dtype of the result."""
    x = as_array("power", x)
    if x.dtype is BOOL:
        x = convert(x, _INT32)
    if n < 0 and x.dtype in INTEGERS:
        raise TypeError(f"Integers cannot be raised to negative powers, got {x.aval.str_short()} "
                        f"to the power {n} (convert the base with .astype, or use "
                        f"jnp.float_power){here()}")
    return lax.integer_pow(x, n)


def _integer_power(x: Any, e: Any) -> Any:
    """Compute x ** e for integers, modulo the word size, by squaring once for each bit of e."""
    one = literal(1, x.dtype)
    shape = x.shape or e.shape
    bits = 8 * x.dtype.itemsize
    known = state.trace is None and type(e) is DeviceArray
    if known:
        top = int(np.max(e._data, initial=0)) if np.min(e._data, initial=0) >= 0 else -1
        bits = top.bit_length() if top >= 0 else bits

    def step(_: Any, carry: Any) -> Any:
        result, base, e = carry
        odd = lax.ne(lax.bitwise_and(e, one), literal(0, e.dtype))
        result = select(odd, lax.mul(result, base), result)
        return result, lax.mul(base, base), lax.shift_right_logical(e, one)

    base = lax.broadcast(x, shape) if not x.shape else x
    carry = lax.full(shape, 1, x.dtype), base, e
    if known:
        for i in range(bits):
            carry = step(i, carry)
        return carry[0]
    return lax.fori_loop(0, bits, step, carry)[0]


def pow(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Raise `x1` to the power `x2`; the same as `power`.

    Args:
        x1: base.
        x2: exponent; broadcast against `x1`.

    Returns:
        An array of the broadcast shape. Its dtype is the same as for `power`.
    """
    return power(x1, x2)


def float_power(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Raise `x` to the power `y` in floating-point arithmetic.

    Integers can be raised to negative powers. A negative number raised to a power that is not an
    integer is NaN.

    Args:
        x: base.
        y: exponent; broadcast against `x`.

    Returns:
        An array of the broadcast shape, in the dtype that both operands promote to; integers and
        booleans become float32 (64-bit integers become float64).

    Differences:
        NumPy computes in float64 or a wider dtype.

    >>> jnp.float_power(jnp.array([2, 4]), -1)
    Array([0.5 , 0.25], dtype=float32)
    """
    return lax.pow(*inexact_pair("float_power", x, y))


def hypot(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Compute `sqrt(x1**2 + x2**2)` without overflow in the squares.

    The result is inf where either operand is infinite, even if the other is NaN.

    Args:
        x1, x2: arrays or numbers, which are broadcast against each other.

    Returns:
        An array of the broadcast shape, in the dtype that both operands promote to; integers and
        booleans become float32 (64-bit integers become float64).

    Raises:
        ValueError: one of the operands is complex.
    """
    x1, x2 = inexact_pair("hypot", x1, x2)
    if x1.dtype in COMPLEX:
        raise ValueError("jnp.hypot is not well defined for complex-valued inputs. Please convert "
                         "to real values first, such as by using abs(x)" + here())
    infinity = literal(np.inf, x1.dtype)
    a, b = lax.abs(x1), lax.abs(x2)
    infinite = lax.bitwise_or(lax.eq(a, infinity), lax.eq(b, infinity))
    large, small = lax.max(a, b), lax.min(a, b)
    nothing = lax.eq(large, _zero(large))
    ratio = lax.div(small, select(nothing, 1, large))
    length = lax.mul(large, lax.sqrt(lax.add(_one(ratio), lax.square(ratio))))
    return select(infinite, np.inf, select(nothing, large, length))


def _settled(x: Any) -> Any:
    """Return `x`, without its weak bit unless it is a scalar."""
    return strengthen(x) if x.shape else x


# Sums of exponentials.


def _logaddexp(exp: Any, scale: float, x1: Any, x2: Any) -> Any:
    """Compute max + scale log1p(exp(-|x1 - x2|)); equal infinities, with difference NaN, add."""
    top, delta = lax.max(x1, x2), lax.sub(x1, x2)
    tail = lax.log1p(exp(lax.neg(lax.abs(delta))))
    if scale != 1:
        tail = lax.mul(literal(scale, tail.dtype, tail.weak_type), tail)
    return select(lax.ne(delta, delta), lax.add(x1, x2), lax.add(top, tail))


def _complex_logaddexp(exp: Any, scale: float, x1: Any, x2: Any) -> Any:
    top = lax.max(x1, x2)
    delta = lax.sub(lax.add(x1, x2), lax.mul(top, literal(2, top.dtype)))
    out = lax.log1p(exp(delta))
    if scale != 1:
        out = lax.mul(literal(scale, out.dtype), out)
    out = lax.add(top, out)
    re, im = lax.real(out), lax.imag(out)
    # The imaginary part is an angle: into (-pi, pi] (times the scale).
    half, turn = literal(np.pi * scale, im.dtype), literal(2 * np.pi * scale, im.dtype)
    return lax.complex(re, lax.sub(remainder(lax.add(im, half), turn), half))


def _no_infinity(x: Any) -> Any:
    return select(lax.eq(x, literal(np.inf, x.dtype)), 0, x)


def _share(exp: Any, x: Any, out: Any) -> Any:
    """Compute exp(x - out), the weight of x in the sum."""
    return exp(lax.sub(_no_infinity(x), _no_infinity(out)))


def _sum_of_powers(exp: Any, scale: float) -> tuple[Any, Any]:
    """Make two functions for log(exp(x1) + exp(x2)), the second with a custom derivative."""

    def plain(x1: Any, x2: Any) -> Any:
        form = _complex_logaddexp if x1.dtype in COMPLEX else _logaddexp
        return form(exp, scale, x1, x2)

    differentiable = custom_jvp(plain)

    @differentiable.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (x1, x2), (t1, t2) = primals, tangents
        out = differentiable(x1, x2)
        shares = (lax.mul(t, _share(exp, x, out)) for x, t in ((x1, t1), (x2, t2)))
        return out, lax.add(*shares)

    return plain, differentiable


_plain_logaddexp, _logaddexp_e = _sum_of_powers(lax.exp, 1)
_plain_logaddexp2, _logaddexp_2 = _sum_of_powers(lax.exp2, float(1 / np.log(2)))


def logaddexp(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Compute `log(exp(x1) + exp(x2))` without overflow in the exponentials.

    In effect, the function adds two probabilities that are given as logarithms; -inf represents
    probability 0.

    Args:
        x1, x2: arrays or numbers, which are broadcast against each other.

    Returns:
        An array of the broadcast shape, in the dtype that both operands promote to; integers and
        booleans become float32 (64-bit integers become float64).

    >>> jnp.logaddexp(jnp.array([1000.0, -jnp.inf]), 1000.0)
    Array([1000.6932, 1000.    ], dtype=float32)
    """
    function = _plain_logaddexp if state.trace is None else _logaddexp_e
    return function(*full_pair("logaddexp", x1, x2))


def logaddexp2(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Compute `log2(2**x1 + 2**x2)` without overflow in the powers.

    Args:
        x1, x2: arrays or numbers, which are broadcast against each other.

    Returns:
        An array of the broadcast shape, in the dtype that both operands promote to; integers and
        booleans become float32 (64-bit integers become float64).
    """
    function = _plain_logaddexp2 if state.trace is None else _logaddexp_2
    return _settled(function(*full_pair("logaddexp2", x1, x2)))


# Special functions.


def sinc(x: ArrayLike, /) -> Array:
    """Compute `sin(pi * x) / (pi * x)` for each element.

    The result is 1 at 0, and 0 at all other integers and at infinities.

    Args:
        x: array or number.

    Returns:
        An array with the shape of `x`. Floating and complex dtypes are kept; integers and booleans
        become float32 (64-bit integers become float64).
    """
    x = inexact("sinc", x)
    if x.dtype in COMPLEX:
        return _complex_sinc(x)
    if x.dtype in HALVES:
        return convert(_real_sinc(convert(x, np.dtype("float32"))), x.dtype, x.weak_type)
    return _real_sinc(x)


def _real_sinc(x: Any) -> Any:
    """Compute sinc from x = n + r, |r| <= 1/2: sin(pi x) = (-1)**n sin(pi r), and r is exact."""
    n = lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)
    r = select(lax.eq(lax.abs(x), literal(math.inf, x.dtype, x.weak_type)), 0, lax.sub(x, n))
    # sin(pi r) / (pi r) is a series in r²; its derivatives at 0 come out right at every order.
    lobe = lax.polynomial(lax.mul(r, r), _LOBE[: 13 if x.dtype.itemsize == 8 else 8])
    half = lax.mul(n, literal(0.5, x.dtype, x.weak_type))
    odd = lax.ne(lax.floor(half), half)
    first = lax.eq(n, _zero(n))
    below = select(odd, lax.neg(x), select(first, 1, x))
    # The sum makes a zero at an integer positive.
    rest = lax.add(lax.div(lax.mul(r, lobe), below), _zero(x))
    return select(first, lobe, rest)


def _complex_sinc(x: Any) -> Any:
    """Use a series where |pi x| < 1 and the quotient elsewhere; return 0 where Re x is infinite."""
    re, im = lax.real(x), lax.imag(x)
    far = lax.bitwise_and(lax.eq(lax.abs(re), literal(math.inf, re.dtype)), lax.is_finite(im))
    angle = select(far, 1, lax.mul(literal(math.pi, x.dtype, x.weak_type), x))
    near = lax.lt(lax.abs(angle), literal(1, re.dtype))
    small, large = select(near, angle, 0), select(near, 1, angle)
    series = lax.polynomial(lax.mul(small, small), _SERIES)
    return select(far, 0, select(near, series, lax.div(lax.sin(large), large)))


# sin(z)/z in powers of z², and with z = pi r in powers of r².
_SERIES = tuple((-1) ** k / math.factorial(2 * k + 1) for k in range(13))
_LOBE = tuple(c * math.pi ** (2 * k) for k, c in enumerate(_SERIES))


@custom_jvp
def _i0(x: Any) -> Any:
    return lax.mul(lax.exp(lax.abs(x)), lax.bessel_i0e(x))


@_i0.defjvp
def _i0_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    slope = lax.mul(lax.exp(lax.abs(x)), lax.bessel_i1e(x))  # I0' = I1
    return _i0(x), lax.mul(t, slope)


def i0(x: ArrayLike) -> Array:
    """Compute the modified Bessel function of the first kind and order 0.

    Args:
        x: array or number.

    Returns:
        An array with the shape of `x`. Floating dtypes are kept; integers and booleans become
        float32 (64-bit integers become float64).

    Raises:
        ValueError: `x` is complex.
    """
    x = inexact("i0", x)
    if x.dtype in COMPLEX:
        raise ValueError(f"Unsupported input type to jax.numpy.i0: {x.dtype}{here()}")
    return _i0(x)


# Steps and bounds.


def fmax(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Compute the elementwise maximum of two arrays; where one element is NaN, return the other.

    Args:
        x1, x2: arrays or numbers, which are broadcast against each other.

    Returns:
        An array of the broadcast shape, in the dtype that both operands promote to.
    """
    x1, x2 = same_shape(*pair("fmax", x1, x2))
    return select(lax.bitwise_or(greater(x1, x2), isnan(x2)), x1, x2)


def fmin(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Compute the elementwise minimum of two arrays; where one element is NaN, return the other.

    Args:
        x1, x2: arrays or numbers, which are broadcast against each other.

    Returns:
        An array of the broadcast shape, in the dtype that both operands promote to.
    """
    x1, x2 = same_shape(*pair("fmin", x1, x2))
    return select(lax.bitwise_or(less(x1, x2), isnan(x2)), x1, x2)


def heaviside(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return 0 where `x1` is negative, 1 where it is positive and `x2` where it is 0.

    Where `x1` is NaN, the result is NaN.

    Args:
        x1: array or number.
        x2: result where `x1` is 0; broadcast against `x1`.

    Returns:
        An array of the broadcast shape, in the dtype that both operands promote to; integers and
        booleans become float32 (64-bit integers become float64).

    Raises:
        TypeError: one of the operands is complex.

    >>> jnp.heaviside(jnp.array([-2.0, 0.0, 3.0]), 0.5)
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    weak = pair_of(as_operand("heaviside", x1))[1]
    x1, x2 = full_pair("heaviside", x1, x2)
    weak = (weak or not x1.shape) and x1.weak_type and x2.weak_type
    result = select(lax.gt(x1, _zero(x1)), 1, x2)
    result = select(lax.lt(x1, _zero(x1)), 0, result)
    return convert(select(isnan(x1), np.nan, result), result.dtype, weak)


def clip(arr: ArrayLike | None = None, /, min: ArrayLike | None = None,
         max: ArrayLike | None = None) -> Array:
    """Limit the elements of an array to an interval.

    The bounds are broadcast against `arr`. Where `min` is greater than `max`, the result is `max`.
    Where the element or one of its bounds is NaN, the result is NaN.

    Args:
        arr: array or number.
        min: lower bound; None for no lower bound.
        max: upper bound; None for no upper bound.

    Returns:
        An array of the broadcast shape, in the dtype that the three arguments promote to.

    Raises:
        ValueError: one of the three arguments is complex, or `arr` is missing.

    Differences:
        NumPy has a parameter `out`, which toile lacks because its arrays are immutable.

    >>> jnp.clip(jnp.array([-2, 0, 5]), -1, 1)
    Array([-1,  0,  1], dtype=int32)
    """
    if arr is None:
        raise ValueError("No input was provided to the clip function." + here())
    x = as_array("clip", arr)
    for given in (x, min, max):
        if given is not None:
            _refuse_complex(as_array("clip", given))
    if min is not None:
        x, low = pair("clip", x, min)
        x = lax.max(low, x)
    if max is not None:
        x, high = pair("clip", x, max)
        x = lax.min(high, x)
    return x


def _refuse_complex(x: Any) -> None:
    if x.dtype in COMPLEX:
        raise ValueError("Clip received a complex value either through the input or the min/max "
                         "keywords. Complex values have no ordering and cannot be clipped (take "
                         "the real or imaginary part first)." + here())


def round(a: ArrayLike, decimals: int = 0, out: None = None) -> Array:
    """Round each element to a given number of decimals; halves are rounded to the even digit.

    The real and imaginary parts of complex numbers are rounded separately.

    Args:
        a: array or number.
        decimals: number of digits after the decimal point; a negative number rounds to tens,
            hundreds and so on.
        out: not supported; must be None.

    Returns:
        An array with the shape and dtype of `a`; integers and booleans are returned unchanged.

    Raises:
        NotImplementedError: `a` is integer or boolean and `decimals` is negative. NumPy supports
            this case.

    >>> jnp.round(jnp.array([0.5, 1.5, 2.375]), 2)
    Array([0.5 , 1.5 , 2.38], dtype=float32)
    """
    x = as_array("round", a)
    decimals = integer(decimals, "decimals")
    no_out("round", out)
    dtype = x.dtype
    if dtype not in INEXACT:
        if decimals < 0:
            raise NotImplementedError("integer np.round not implemented for decimals < 0" + here())
        return x
    if dtype in COMPLEX:
        return lax.complex(_round(lax.real(x), decimals), _round(lax.imag(x), decimals))
    return _round(x, decimals)


def _round(x: Any, decimals: int) -> Any:
    even = lax.RoundingMethod.TO_NEAREST_EVEN
    if decimals == 0:
        return lax.round(x, even)
    dtype, weak = x.dtype, x.weak_type
    # float16 ends at 65504, too soon to hold x times a power of ten.
    work = np.dtype("float32") if dtype == np.float16 else dtype
    if decimals > math.log10(float(dtypes.finfo(work).max)):
        return x  # no digit is left to round
    x, factor = convert(x, work, weak), literal(10.0**decimals, work, weak)
    return convert(lax.div(lax.round(lax.mul(x, factor), even), factor), dtype, weak)


def nan_to_num(x: ArrayLike, copy: bool = True, nan: ArrayLike = 0.0,
               posinf: ArrayLike | None = None, neginf: ArrayLike | None = None) -> Array:
    """Replace NaN and infinities with finite numbers.

    The real and imaginary parts of complex numbers are replaced separately.

    Args:
        x: array or number.
        copy: ignored; `x` is never changed.
        nan: replacement for NaN.
        posinf: replacement for inf; None for the largest finite number of the dtype.
        neginf: replacement for -inf; None for the lowest finite number of the dtype.

    Returns:
        An array with the shape and dtype of `x`; integers and booleans are returned unchanged.

    >>> jnp.nan_to_num(jnp.array([jnp.nan, jnp.inf, 1.0]), nan=-1.0, posinf=9.0)
    Array([-1.,  9.,  1.], dtype=float32)
    """
    x = as_array("nan_to_num", x)
    dtype = x.dtype
    if dtype not in INEXACT:
        return x
    if dtype in COMPLEX:
        parts = (nan_to_num(p, copy, nan, posinf, neginf) for p in (lax.real(x), lax.imag(x)))
        return lax.complex(*parts)
    info = dtypes.finfo(dtype)
    posinf = float(info.max) if posinf is None else posinf
    neginf = float(info.min) if neginf is None else neginf
    result = convert(x, dtype)
    for is_replaced, value in (  # one after the other, as in JAX: nan=inf becomes posinf
        (isnan, nan),
        (lambda y: lax.eq(y, literal(np.inf, dtype)), posinf),
        (lambda y: lax.eq(y, literal(-np.inf, dtype)), neginf),
    ):
        other = convert(as_operand("nan_to_num", value), dtype)
        result = select(is_replaced(result), other, result)
    return result


def angle(z: ArrayLike, deg: bool = False) -> Array:
    """Compute the angle of each complex number.

    The angle is between -pi and pi. The angle of a positive real number is 0, and the angle of a
    negative real number is pi. A complex number with a negative real part and an imaginary part of
    -0.0 has the angle -pi.

    Args:
        z: array or number.
        deg: True for an angle in degrees, False for radians.

    Returns:
        An array with the shape of `z`. Complex dtypes become the dtype of their real part, floating
        dtypes are kept, and integers and booleans become the default float dtype.
    """
    z = as_array("angle", z)
    if z.dtype not in INEXACT:
        z = convert(z, default_float(), z.weak_type)
    complex_valued = z.dtype in COMPLEX
    re, im = (lax.real(z), lax.imag(z)) if complex_valued else (z, lax.full(z.shape, 0, z.dtype))
    result = lax.atan2(im, re)
    return lax.mul(result, literal(180 / np.pi, re.dtype, re.weak_type)) if deg else result


around, mod = renamed("around", round), renamed("mod", remainder)
