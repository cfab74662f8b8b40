"""Elementwise arithmetic, powers, rounding, choice and conversion.

Each class is one operation: its meaning in NumPy and its partial derivatives. Transcendental
functions are in `primitives.transcendental`, special functions in `primitives.special`.
May import the engine and primitives.families.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.avals import Aval, Zero
from toile.engine.errors import shape_error
from toile.engine.operation import Axis, Dim, Operation, instantiate
from toile.primitives.bits import and_, eq, ge, gt, lt
from toile.primitives.complexes import complex_, conj, imag, real
from toile.primitives.families import (
    ANY,
    FLOAT,
    FLOATING,
    NUMERIC,
    REAL,
    Elementwise,
    add,
    align_mapped,
    bdim_at,
    broadcast_in_dim,
    fill_shape,
    full_like,
    mul,
    neg,
    sub,
    unbroadcast,
)

_BOOL = np.dtype(bool)


class Div(Elementwise):
    """Quotient; of integers, rounded toward zero (a zero divisor gives -1)."""

    accepts = NUMERIC

    def eager(self, xp: Any, x: Any, y: Any) -> Any:
        if dtypes.kind(x.dtype) in "iu":
            return _divide_integers(xp, x, y)[0]
        return xp.true_divide(x, y)

    def lower(self, k: Any, x: Any, y: Any) -> Any:
        return k.div(x, y)

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
    """Remainder with the sign of the dividend (of a zero divisor: the dividend, or NaN)."""

    accepts = REAL

    def eager(self, xp: Any, x: Any, y: Any) -> Any:
        if dtypes.kind(x.dtype) in "iu":
            return _divide_integers(xp, x, y)[1]
        return xp.fmod(x, y)

    def lower(self, k: Any, x: Any, y: Any) -> Any:
        return k.rem(x, y)

    def partials(self, out: Any, x: Any, y: Any) -> Sequence[Any]:
        def dy() -> Any:
            quotient = div(x, y)
            return neg(mul(sign(quotient), floor(abs_(quotient))))

        return 1, dy


def _divide_integers(xp: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Quotient toward zero and remainder; x/0 = -1 and x%0 = x, as hardware-neutral rules."""
    zero = y == 0
    safe = xp.where(zero, xp.ones((), y.dtype), y)
    r = xp.fmod(x, safe)
    q = ((x - r) // safe).astype(x.dtype)
    q = xp.where(zero, xp.asarray(-1).astype(x.dtype), q)
    return q, xp.where(zero, x, r).astype(x.dtype)


class Pow(Elementwise):
    """x raised to y; y may be an integer array with a floating x."""

    accepts = NUMERIC

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

    def lower(self, k: Any, x: Any, y: Any) -> Any:
        return k.pow(x, y)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        (x, y), (dx, dy) = primals, tangents
        out = pow_(x, y)
        integer = dtypes.kind(y.dtype) in "iu"
        terms = []
        if dx.__class__ is not Zero:
            terms.append(mul(dx, _pow_partial_base(x, y, integer)))
        if dy.__class__ is not Zero and not integer:
            zero = eq(x, full_like(x, 0))
            log_x = log(select(zero, _like(x, 1), x))
            terms.append(mul(dy, mul(log_x, out)))
        if not terms:
            return out, Zero(out)
        total = terms[0] if len(terms) == 1 else add(terms[0], terms[1])
        return out, fill_shape(total, out.shape)


def _like(x: Any, value: Any) -> Any:
    """A constant with the shape and dtype of `x`."""
    return broadcast_in_dim(full_like(x, value), x.shape, ())


def _pow_partial_base(x: Any, y: Any, integer: bool) -> Any:
    """y * x**(y-1), and 0 where y == 0 (so that 0**0 has derivative 0)."""
    zero = eq(y, full_like(y, 0))
    less_one = select(zero, _like(y, 1), sub(y, full_like(y, 1)))
    factor = y if not integer else convert(y, x.dtype)
    slope = mul(factor, pow_(x, less_one))
    zero = zero if slope.shape == zero.shape else broadcast_in_dim(zero, slope.shape, ())
    return select(zero, _like(slope, 0), slope)


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
    """x raised to a fixed integer."""

    y: int
    accepts = NUMERIC

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
    """Absolute value; of a complex number, its modulus, which is real."""

    accepts = NUMERIC

    def result_aval(self, shape: tuple[int, ...], dtype: Any, weak: bool) -> Aval:
        return Aval(shape, dtypes.dtype_to_real(dtype), weak)

    def eager(self, xp: Any, x: Any) -> Any:
        return xp.abs(x)

    def lower(self, k: Any, x: Any) -> Any:
        return k.abs(x)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        (x,), (dx,) = primals, tangents
        out = abs_(x)
        if dx.__class__ is Zero:
            return out, Zero(out)
        if dtypes.kind(x.dtype) == "c":
            return out, real(mul(dx, conj(sign(x))))
        # At zero the slope is that of the right side: 1, and not sign's 0.
        return out, select(ge(x, full_like(x, 0)), dx, neg(dx))


class Sign(Elementwise):
    """-1, 0 or 1; of a complex number, x/|x|."""

    accepts = NUMERIC

    def eager(self, xp: Any, x: Any) -> Any:
        if dtypes.kind(x.dtype) == "c":
            size = xp.abs(x)
            return xp.where(size == 0, xp.zeros((), x.dtype), x / xp.where(size == 0, 1, size))
        return xp.sign(x)

    def lower(self, k: Any, x: Any) -> Any:
        return k.sign(x)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        (x,), (dx,) = primals, tangents
        out = sign(x)
        if dx.__class__ is Zero or dtypes.kind(x.dtype) != "c":
            return out, Zero(out)
        # d(x/|x|) = i * sign(x) * Im(dx * conj(sign x)) / |x|
        turn = div(imag(mul(dx, conj(out))), abs_(x))
        return out, mul(out, complex_(_like(turn, 0), turn))


class _Step(Elementwise):
    """Piecewise constant: its derivative is zero."""

    accepts = FLOAT

    def partials(self, y: Any, *xs: Any) -> Sequence[Any]:
        return (None,) * len(xs)


class Floor(_Step):
    """Largest integer not above x."""

    def eager(self, xp: Any, x: Any) -> Any:
        return xp.floor(x)

    def lower(self, k: Any, x: Any) -> Any:
        return k.floor(x)


class Ceil(_Step):
    """Smallest integer not below x."""

    def eager(self, xp: Any, x: Any) -> Any:
        return xp.ceil(x)

    def lower(self, k: Any, x: Any) -> Any:
        return k.ceil(x)


@dataclass(frozen=True)
class Round(_Step):
    """Nearest integer; halves go to even, or away from zero."""

    to_even: bool = False

    def eager(self, xp: Any, x: Any) -> Any:
        if self.to_even:
            return xp.rint(x)
        whole = xp.trunc(x)
        away = xp.abs(x - whole) >= 0.5
        return (whole + xp.where(away, xp.sign(x), xp.zeros((), x.dtype))).astype(x.dtype)

    def lower(self, k: Any, x: Any) -> Any:
        return k.round_even(x) if self.to_even else k.round_away(x)


class IsFinite(Elementwise):
    """Whether x is neither infinite nor NaN."""

    accepts = FLOATING
    result = _BOOL

    def eager(self, xp: Any, x: Any) -> Any:
        return xp.isfinite(x)

    def lower(self, k: Any, x: Any) -> Any:
        return k.is_finite(x)


class _Extremum(Elementwise):
    """Max and min share their derivative: ties give half to each operand."""

    def partials(self, out: Any, x: Any, y: Any) -> Sequence[Any]:
        return (lambda: _balanced(x, out, y)), (lambda: _balanced(y, out, x))


def _balanced(x: Any, out: Any, y: Any) -> Any:
    """1 where only x is the result, 1/2 where x and y both are, 0 elsewhere."""
    one, zero, half = full_like(out, 1), full_like(out, 0), full_like(out, 0.5)
    x, y = fill_shape(x, out.shape), fill_shape(y, out.shape)
    hit = select(eq(x, out), fill_shape(one, out.shape), fill_shape(zero, out.shape))
    return mul(hit, select(eq(y, out), fill_shape(half, out.shape), fill_shape(one, out.shape)))


class Max(_Extremum):
    """The larger operand; NaN if either is."""

    def eager(self, xp: Any, x: Any, y: Any) -> Any:
        return xp.maximum(x, y)

    def lower(self, k: Any, x: Any, y: Any) -> Any:
        return k.maximum(x, y)


class Min(_Extremum):
    """The smaller operand; NaN if either is."""

    def eager(self, xp: Any, x: Any, y: Any) -> Any:
        return xp.minimum(x, y)

    def lower(self, k: Any, x: Any, y: Any) -> Any:
        return k.minimum(x, y)


class Nextafter(_Step):
    """The next representable number after x in the direction of y."""

    def eager(self, xp: Any, x: Any, y: Any) -> Any:
        return xp.nextafter(x, y)

    def lower(self, k: Any, x: Any, y: Any) -> Any:
        return k.nextafter(x, y)


# -------------------------------------------------------------------------------- choice and type


class SelectN(Operation):
    """cases[which] elementwise; `which` is bool or int32, of the cases' shape or rank 0."""

    handles_zeros = True

    def infer(self, which: Aval, *cases: Aval) -> Aval:
        first = cases[0]
        ok = all(c.shape == first.shape and c.dtype == first.dtype for c in cases)
        if not ok or which.shape not in ((), first.shape):
            raise shape_error(
                "select", "a predicate of rank 0 or of the cases' shape and cases of equal shapes "
                "and dtypes", [which, *cases], "use toile.numpy.where, which broadcasts",
            )
        if which.dtype not in (np.bool_, np.int32) or (which.dtype == np.bool_ and len(cases) > 2):
            raise shape_error("select", "a bool predicate (or int32 for more than two cases)",
                              [which, *cases])
        return Aval(first.shape, first.dtype, all(c.weak_type for c in cases))

    def eager(self, xp: Any, which: Any, *cases: Any) -> Any:
        if len(cases) == 1:
            return cases[0]
        if which.dtype == np.bool_:
            return xp.where(which, cases[1], cases[0])
        index = xp.clip(which, 0, len(cases) - 1)
        out = cases[0]
        for i, case in enumerate(cases[1:], 1):
            out = xp.where(index == i, case, out)
        return out

    def lower(self, k: Any, which: Any, *cases: Any) -> Any:
        if len(cases) == 1:
            return cases[0]
        if which.dtype == np.bool_:
            return k.select(which, cases[1], cases[0])
        out = cases[0]
        for i, case in enumerate(cases[1:], 1):  # indices out of range take the nearest case
            out = k.select(k.ge(which, i), case, out)
        return out

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        out = self(*primals)
        if all(t.__class__ is Zero for t in tangents[1:]):
            return out, Zero(out)
        return out, self(primals[0], *(instantiate(t) for t in tangents[1:]))

    def transpose(self, ct: Any, which: Any, *cases: Any) -> Any:
        zero = _like(ct, 0)
        found: list[Any] = [None]
        for i, c in enumerate(cases):
            parts = [ct if j == i else zero for j in range(len(cases))]
            found.append(SelectN()(which, *parts) if type(c) is Aval else None)
        return tuple(found)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        which, *cases = xs
        size = axis[1]
        if dims[0] is None and which.ndim == 0:
            moved = [bdim_at(c, d, size) for c, d in zip(cases, dims[1:], strict=True)]
            return SelectN()(which, *moved), 0
        aligned, dim = align_mapped(size, xs, dims)
        full = next((a.shape for a in aligned if a.ndim), ())
        filled = [_spread(a, full, dim) for a in aligned]
        return SelectN()(*filled), dim

    def physical(self, *avals: Aval) -> Operation:
        return _SelectKeys()


def _spread(x: Any, shape: tuple[int, ...], dim: int) -> Any:
    return x if x.shape == shape else broadcast_in_dim(x, shape, ())


class _SelectKeys(Operation):
    """SelectN on the buffers of key arrays: the predicate lacks their last axis."""

    def eager(self, xp: Any, which: Any, *cases: Any) -> Any:
        return SelectN().eager(xp, which[..., None], *cases)


def select(pred: Any, on_true: Any, on_false: Any) -> Any:
    return select_n(pred, on_false, on_true)


class Clamp(Elementwise):
    """x kept within [low, high], bounds of rank 0 or of x's shape."""

    accepts = ANY

    def infer(self, low: Aval, x: Aval, high: Aval) -> Aval:
        out = super().infer(low, x, high)
        if out.shape != x.shape:
            raise shape_error(self.name, "bounds of rank 0 or of the operand's shape",
                              [low, x, high])
        return Aval(x.shape, x.dtype, x.weak_type and low.weak_type and high.weak_type)

    def eager(self, xp: Any, low: Any, x: Any, high: Any) -> Any:
        return xp.minimum(xp.maximum(x, low), high)

    def lower(self, k: Any, low: Any, x: Any, high: Any) -> Any:
        return k.minimum(k.maximum(x, low), high)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        # Tangents are selected, not multiplied by 0: one that is not finite may be out of bounds.
        low, x, high = (fill_shape(v, primals[1].shape) for v in primals)
        out = clamp(*primals)
        inside = (
            lambda: and_(gt(low, x), lt(low, high)),
            lambda: and_(gt(x, low), lt(x, high)),
            lambda: lt(high, x),
        )
        terms = [
            select(chosen(), fill_shape(t, out.shape), _like(out, 0))
            for t, chosen in zip(tangents, inside, strict=True)
            if t.__class__ is not Zero
        ]
        return out, functools.reduce(add, terms) if terms else Zero(out)


@dataclass(frozen=True)
class ConvertElementType(Operation):
    """The same values in another dtype; complex to real drops the imaginary part."""

    dtype: Any
    weak: bool = False
    handles_zeros = True
    makes_weak = True

    def infer(self, x: Aval) -> Aval:
        if dtypes.is_extended(x.dtype) or dtypes.is_extended(self.dtype):
            raise shape_error(self.name, f"a number to convert to {self.dtype}", [x])
        return Aval(x.shape, self.dtype, self.weak)

    def eager(self, xp: Any, x: Any) -> Any:
        return convert_raw(xp, x, self.dtype)

    def lower(self, k: Any, x: Any) -> Any:
        return k.convert(x, self.dtype)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        (x,), (dx,) = primals, tangents
        out = self(x)
        ok = dx.__class__ is not Zero and dtypes.is_inexact(self.dtype)
        return out, self(dx) if ok else Zero(out)

    def transpose(self, ct: Any, x: Any) -> Any:
        return ConvertElementType(x.dtype, x.weak_type)(ct)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        return self(xs[0]), dims[0]


def convert_raw(xp: Any, x: Any, dtype: Any) -> Any:
    """astype with the conversions NumPy leaves undefined made definite: floats saturate."""
    old, new = dtypes.kind(x.dtype), dtypes.kind(dtype)
    if old == "c" and new != "c":
        x = (x != 0) if new == "b" else x.real
        old = dtypes.kind(x.dtype)
    if old == "f" and new in "iu":
        return _saturated(xp, x, dtype)
    return x.astype(dtype)


def _saturated(xp: Any, x: Any, dtype: Any) -> Any:
    """Floats as integers: truncated, NaN as 0, what is out of range as the nearest bound."""
    wide = x if x.dtype.itemsize >= 4 else x.astype(np.float32)
    low, high, least, most = _bounds(dtype)
    if wide.size == 0 or (wide.min() >= low and wide.max() < high):  # NaN fails both
        return wide.astype(dtype)
    safe = xp.where(xp.isnan(wide), wide.dtype.type(0), wide)
    above, below = safe >= high, safe < low
    out = xp.where(above | below, wide.dtype.type(0), safe).astype(dtype)
    return xp.where(above, most, xp.where(below, least, out))


@functools.cache
def _bounds(dtype: Any) -> tuple[float, float, Any, Any]:
    """The least and the first too large float for an integer dtype, and its extreme values."""
    info = dtypes.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    return float(low), float(high + 1), np.asarray(low).astype(dtype), np.asarray(high, dtype)


def convert(x: Any, dtype: Any, weak: bool = False) -> Any:
    if x.dtype == dtype and x.weak_type == weak:
        return x
    return ConvertElementType(np.dtype(dtype), weak)(x)


div, rem, pow_, abs_, sign = Div(), Rem(), Pow(), Abs(), Sign()
floor, ceil, is_finite = Floor(), Ceil(), IsFinite()
max_, min_, nextafter, clamp = Max(), Min(), Nextafter(), Clamp()
select_n = SelectN()


class Log(Elementwise):
    """Natural logarithm."""

    accepts = FLOATING

    def eager(self, xp: Any, x: Any) -> Any:
        return xp.log(x)

    def lower(self, k: Any, x: Any) -> Any:
        return k.log(x)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        (x,), (dx,) = primals, tangents
        out = log(x)
        return out, Zero(out) if dx.__class__ is Zero else div(dx, x)


log = Log()
