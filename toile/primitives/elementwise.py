"""Elementwise arithmetic, powers, rounding and extrema.

Each class is one operation: its meaning in NumPy and its partial derivatives. Transcendental
functions are in `primitives.transcendental`, special functions in `primitives.special`; choice and
conversion are in `primitives.choices`, and importable from here too.
This module may import the engine and other modules of `primitives`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.avals import Aval, Zero
from toile.engine.records import dataclass
from toile.primitives import division, integer_ranges, simplification
from toile.primitives.bits import eq, ge
from toile.primitives.choices import Clamp as Clamp
from toile.primitives.choices import ConvertElementType as ConvertElementType
from toile.primitives.choices import SelectN as SelectN
from toile.primitives.choices import clamp as clamp
from toile.primitives.choices import convert, like, select
from toile.primitives.choices import convert_raw as convert_raw
from toile.primitives.choices import select_n as select_n
from toile.primitives.complexes import complex_, conj, imag, real
from toile.primitives.families import (
    FLOAT,
    FLOATING,
    NUMERIC,
    REAL,
    Elementwise,
    add,
    broadcast_in_dim,
    fill_shape,
    full_like,
    mul,
    neg,
    sub,
    unbroadcast,
)
from toile.primitives.rules import array_function, frame_rule, kernel_function

_BOOL = np.dtype(bool)


class Div(Elementwise):
    """The quotient.

    Integer quotients are rounded toward zero. An integer divided by zero is -1, or the largest
    value if the dtype is unsigned.
    """

    accepts = NUMERIC
    is_smooth = True
    divide = division.scaled_by_element
    taylor = sparse = frame_rule("quotient")
    can_make_nan = True
    checked = frame_rule("division")
    is_quotient = passes_errors = keeps_relative_errors = True
    at_zeros = simplification.zero_dividend

    def simplified(self, new: Any, e: Any) -> Any:
        """x / 1 = x, x / 2**n = x * 2**-n."""
        found = simplification.without_neutral(1.0)(self, new, e)
        factor = simplification.exact_reciprocal(new, e.ins[1])
        if found is None and factor is not None and e.ins[0].aval.shape == e.outs[0].aval.shape:
            return [new.add(mul, [e.ins[0], factor], e, e.outs[0].aval)]
        return found

    def eager(self, xp: Any, x: Any, y: Any) -> Any:
        if dtypes.kind(x.dtype) in "iu":
            return _divide_integers(xp, x, y)[0]
        return xp.true_divide(x, y)

    lower = kernel_function("div")

    def partials(self, out: Any, x: Any, y: Any) -> Sequence[Any]:
        return (lambda: div(full_like(y, 1), y)), (lambda: neg(div(out, y)))

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        (x, y), (dx, dy) = primals, tangents
        if dy.__class__ is Zero and dx.__class__ is not Zero:  # d(x/y) = dx/y, exactly
            out = div(x, y)
            return out, fill_shape(div(dx, y), out.shape)
        return super().jvp(primals, tangents)

    def transpose(self, ct: Any, x: Any, y: Any) -> Any:
        return unbroadcast(div(ct, y), x), None


class Rem(Elementwise):
    """The remainder, with the sign of the dividend. If the divisor is 0, the result is the dividend
    for integers and NaN for floats."""

    accepts = REAL
    can_make_nan = True

    def eager(self, xp: Any, x: Any, y: Any) -> Any:
        if dtypes.kind(x.dtype) in "iu":
            return _divide_integers(xp, x, y)[1]
        return xp.fmod(x, y)

    lower = kernel_function("rem")

    def partials(self, out: Any, x: Any, y: Any) -> Sequence[Any]:
        def dy() -> Any:
            quotient = div(x, y)
            return neg(mul(sign(quotient), floor(abs_(quotient))))

        return 1, dy


def _divide_integers(xp: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Quotient toward zero and remainder; x/0 = -1 and x%0 = x on all hardware."""
    zero = y == 0
    safe = xp.where(zero, xp.ones((), y.dtype), y)
    r = xp.fmod(x, safe)
    q = ((x - r) // safe).astype(x.dtype)
    q = xp.where(zero, xp.asarray(-1).astype(x.dtype), q)
    return q, xp.where(zero, x, r).astype(x.dtype)


class Pow(Elementwise):
    """x to the power y; if x is floating-point, y may be an integer array."""

    accepts = NUMERIC
    costly = True
    taylor = frame_rule("power")
    can_make_nan = True

    def infer(self, x: Aval, y: Aval) -> Aval:
        if dtypes.kind(y.dtype) in "iu" and dtypes.kind(x.dtype) in "fc":
            base = super().infer(x, Aval(y.shape, x.dtype, x.weak_type))
            return Aval(base.shape, x.dtype, x.weak_type)
        return super().infer(x, y)

    def eager(self, xp: Any, x: Any, y: Any) -> Any:
        if dtypes.kind(x.dtype) in "iu":
            return _integer_power(xp, x, y)
        if dtypes.kind(y.dtype) in "iu":
            y = y.astype(x.dtype)
        return xp.power(x, y)

    lower = kernel_function("pow")

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        (x, y), (dx, dy) = primals, tangents
        out = pow_(x, y)
        integer = dtypes.kind(y.dtype) in "iu"
        terms = []
        if dx.__class__ is not Zero:
            terms.append(mul(dx, _pow_partial_base(x, y, integer)))
        if dy.__class__ is not Zero and not integer:
            zero = eq(x, full_like(x, 0))
            log_x = log(select(zero, like(x, 1), x))
            terms.append(mul(dy, mul(log_x, out)))
        if not terms:
            return out, Zero(out)
        total = terms[0] if len(terms) == 1 else add(terms[0], terms[1])
        return out, fill_shape(total, out.shape)


def _pow_partial_base(x: Any, y: Any, integer: bool) -> Any:
    """y * x**(y-1); for an integer y of 0, the derivative is 0 even at x == 0."""
    if not integer:
        return mul(y, pow_(x, sub(y, full_like(y, 1))))
    zero = eq(y, full_like(y, 0))
    less_one = select(zero, like(y, 1), sub(y, full_like(y, 1)))
    slope = mul(convert(y, x.dtype), pow_(x, less_one))
    zero = zero if slope.shape == zero.shape else broadcast_in_dim(zero, slope.shape, ())
    return select(zero, like(slope, 0), slope)


def _integer_power(xp: Any, x: Any, y: Any) -> Any:
    """Integer power by squaring with wrap-around; negative exponents give 0 except for ±1."""
    x, y = xp.broadcast_arrays(x, y)
    result = xp.ones(x.shape, x.dtype)
    base, e = x.astype(x.dtype), xp.maximum(y, xp.zeros((), y.dtype))
    while e.any():
        result = xp.where(e & 1, result * base, result).astype(x.dtype)
        base = base * base
        e = e >> 1
    if dtypes.kind(y.dtype) == "u":
        return result
    odd = (y & 1) == 1
    unit = xp.where((x == 1) | ((x == -1) & ~odd), 1, xp.where((x == -1) & odd, -1, 0))
    return xp.where(y < 0, unit, result).astype(x.dtype)


@dataclass(frozen=True)
class IntegerPow(Elementwise):
    """x to the power of a constant integer."""

    y: int
    accepts = NUMERIC
    taylor = sparse = frame_rule("whole_power")
    can_make_nan = True
    is_smooth = True

    def eager(self, xp: Any, x: Any) -> Any:
        y = self.y
        if y == 2:
            return xp.multiply(x, x)
        if y < 0:
            return xp.true_divide(xp.ones((), x.dtype), _repeated(xp, x, -y)).astype(x.dtype)
        return _repeated(xp, x, y)

    def lower(self, k: Any, x: Any) -> Any:
        return k.integer_pow(x, self.y)

    def partials(self, out: Any, x: Any) -> Sequence[Any]:
        if self.y == 0:
            return (None,)
        if self.y == 2:
            return ((lambda: mul(full_like(x, 2), x)),)
        return ((lambda: mul(full_like(x, self.y), integer_pow(x, self.y - 1))),)


def _repeated(xp: Any, x: Any, n: int) -> Any:
    """x**n for n >= 0 by repeated squaring."""
    result = None
    while n:
        if n & 1:
            result = x if result is None else result * x
        n >>= 1
        if n:
            x = x * x
    return xp.ones(x.shape, x.dtype) if result is None else result


def integer_pow(x: Any, y: int) -> Any:
    return x if y == 1 else IntegerPow(y)(x)


class Abs(Elementwise):
    """The absolute value, which is real for complex numbers too."""

    accepts = NUMERIC

    def result_aval(self, shape: tuple[int, ...], dtype: Any, weak: bool) -> Aval:
        return Aval(shape, dtypes.dtype_to_real(dtype), weak)

    eager = array_function("abs")
    lower = kernel_function("abs")

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        (x,), (dx,) = primals, tangents
        out = abs_(x)
        if dx.__class__ is Zero:
            return out, Zero(out)
        if dtypes.kind(x.dtype) == "c":
            return out, real(mul(dx, conj(sign(x))))
        # At zero the slope is that of the right side: 1, not sign's 0.
        return out, select(ge(x, full_like(x, 0)), dx, neg(dx))


class Sign(Elementwise):
    """The sign: -1, 0 or 1; for a complex number, x/|x|."""

    accepts = NUMERIC

    def eager(self, xp: Any, x: Any) -> Any:
        if dtypes.kind(x.dtype) == "c":
            size = xp.abs(x)
            return xp.where(size == 0, xp.zeros((), x.dtype), x / xp.where(size == 0, 1, size))
        return xp.where(x == 0, x, xp.sign(x)) if dtypes.kind(x.dtype) == "f" else xp.sign(x)

    lower = kernel_function("sign")

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        (x,), (dx,) = primals, tangents
        out = sign(x)
        if dx.__class__ is Zero or dtypes.kind(x.dtype) != "c":
            return out, Zero(out)
        # d(x/|x|) = i * sign(x) * Im(dx * conj(sign x)) / |x|
        turn = div(imag(mul(dx, conj(out))), abs_(x))
        return out, mul(out, complex_(like(turn, 0), turn))


class _Step(Elementwise):
    """A piecewise constant function, whose derivative is zero."""

    accepts = FLOAT

    def partials(self, y: Any, *xs: Any) -> Sequence[Any]:
        return (None,) * len(xs)


class Floor(_Step):
    """The largest integer that is at most x."""

    eager = array_function("floor")
    lower = kernel_function("floor")


class Ceil(_Step):
    """The smallest integer that is at least x."""

    eager = array_function("ceil")
    lower = kernel_function("ceil")


@dataclass(frozen=True)
class Round(_Step):
    """The nearest integer; halves are rounded to the nearest even integer or away from zero."""

    to_even: bool = False

    def eager(self, xp: Any, x: Any) -> Any:
        if self.to_even:
            return xp.rint(x)
        whole = xp.trunc(x)
        away = (xp.abs(x - whole) >= 0.5).astype(x.dtype)
        return (whole + xp.copysign(away, x)).astype(x.dtype)

    def lower(self, k: Any, x: Any) -> Any:
        return k.round_even(x) if self.to_even else k.round_away(x)


class IsFinite(Elementwise):
    """True where x is neither infinite nor NaN."""

    accepts = FLOATING
    result = _BOOL
    eager = array_function("isfinite")
    lower = kernel_function("is_finite")


class _Extremum(Elementwise):
    """Max and min share their derivative: ties give half to each operand."""

    simplified = simplification.all_equal(0)

    def partials(self, out: Any, x: Any, y: Any) -> Sequence[Any]:
        return (lambda: _balanced(x, out, y)), (lambda: _balanced(y, out, x))


def _balanced(x: Any, out: Any, y: Any) -> Any:
    """1 where only x is the result, 1/2 where x and y both are, 0 elsewhere."""
    one, zero, half = full_like(out, 1), full_like(out, 0), full_like(out, 0.5)
    x, y = fill_shape(x, out.shape), fill_shape(y, out.shape)
    hit = select(eq(x, out), fill_shape(one, out.shape), fill_shape(zero, out.shape))
    return mul(hit, select(eq(y, out), fill_shape(half, out.shape), fill_shape(one, out.shape)))


class Max(_Extremum):
    """The larger operand; NaN if either operand is NaN."""

    value_range = integer_ranges.larger

    def eager(self, xp: Any, x: Any, y: Any) -> Any:
        return xp.maximum(x, y)

    lower = kernel_function("maximum")


class Min(_Extremum):
    """The smaller operand; NaN if either operand is NaN."""

    value_range = integer_ranges.smaller

    def eager(self, xp: Any, x: Any, y: Any) -> Any:
        return xp.minimum(x, y)

    lower = kernel_function("minimum")


class Nextafter(_Step):
    """The next representable number after x in the direction of y."""

    def eager(self, xp: Any, x: Any, y: Any) -> Any:
        return xp.nextafter(x, y)

    lower = kernel_function("nextafter")


div, rem, pow_, abs_, sign = Div(), Rem(), Pow(), Abs(), Sign()
floor, ceil, is_finite = Floor(), Ceil(), IsFinite()
max_, min_, nextafter = Max(), Min(), Nextafter()


class Log(Elementwise):
    """The natural logarithm."""

    accepts = FLOATING
    costly = True
    eager = array_function("log")
    lower = kernel_function("log")
    taylor = frame_rule("logarithm")
    can_make_nan = True

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        (x,), (dx,) = primals, tangents
        out = log(x)
        return out, Zero(out) if dx.__class__ is Zero else div(dx, x)


log = Log()
