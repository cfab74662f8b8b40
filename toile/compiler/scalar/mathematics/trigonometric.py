"""Sine, cosine and tangent, and their inverses.

Arguments of any size are reduced without a branch. In float32, x times 2/π is the number of quarter
turns, and large x are multiplied by 2/π without its leading digits, which only count whole turns.
In float64, x = m 2**e with an integer m, and a table holds 2**e modulo 2π, so that m times its
entry has the same sine and few digits before the point.
"""

from __future__ import annotations

import functools
from decimal import Decimal, localcontext
from typing import Any

from toile.compiler.scalar.builder import (
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    Arithmetic,
    Dtype,
    Value,
    integers_like,
)
from toile.compiler.scalar.mathematics.exponential import FORMS, NAN

# sin r = r + r³ S(r²) and cos r = 1 - r²/2 + r⁴ C(r²) on |r| <= π/4.
_SIN = {
    FLOAT32: (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1),
    FLOAT64: (1.58969099521155010221e-10, -2.50507602534068634195e-08,
              2.75573137070700676789e-06, -1.98412698298579493134e-04,
              8.33333333332248946124e-03, -1.66666666666666324348e-01),
}
_COS = {
    FLOAT32: (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2),
    FLOAT64: (-1.13596475577881948265e-11, 2.08757232129817482790e-09,
              -2.75573143513906633035e-07, 2.48015872894767294178e-05,
              -1.38888888888741095749e-03, 4.16666666666666019037e-02),
}
_TWO_OVER_PI = 0.6366197723675814
_LARGE = (45, 66, 87, 107)  # float32 numbers of at least 2**e have factors of their own
_HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33)  # in three parts


@functools.cache
def _pi(digits: int) -> Decimal:
    """π by Machin's formula, 16 arctan(1/5) - 4 arctan(1/239)."""
    with localcontext() as context:
        context.prec = digits + 10

        def arctan(n: int) -> Decimal:
            term = total = Decimal(1) / n
            i = 1
            while abs(term) > Decimal(10) ** -(digits + 8):
                term /= -n * n
                i += 2
                total += term / i
            return total

        return 16 * arctan(5) - 4 * arctan(239)


@functools.cache
def _powers(first: int, count: int) -> tuple[float, ...]:
    """2**e modulo 2π, in [-π, π], for `count` exponents from `first`, as three doubles each."""
    with localcontext() as context:
        context.prec = 400 + 60
        two_pi = 2 * _pi(400)
        out: list[float] = []
        value = Decimal(2) ** first
        for _ in range(count):
            value %= two_pi
            rest = value if 2 * value < two_pi else value - two_pi
            for _ in range(3):
                out.append(float(rest))
                rest -= Decimal(out[-1])
            value *= 2
    return tuple(out)


def _quadrants(k: Arithmetic, p: Value) -> tuple[Value, Value]:
    """The number of quarter turns in p: as a float, and in the low bits of an integer."""
    magic = FORMS[FLOAT64].magic
    shifted = k.fma(p, _TWO_OVER_PI, magic)
    return k.sub(shifted, magic), k.convert(k.bitcast(shifted, INT64), INT32)


@functools.cache
def _turn_factors() -> tuple[tuple[float, float], ...]:
    """2/π as two doubles, for e = 0 and each e of _LARGE.

    A float32 of at least 2**e is a multiple of 2**(e - 23). Multiples of 2**(25 - e) can therefore
    be left out of 2/π: they change the product by multiples of 4 only, which are whole turns. At
    most 2**(24 - e) remains. Nothing is left out for e = 0."""
    with localcontext() as context:
        context.prec = 120
        pairs = []
        for e in (0, *_LARGE):
            value, step = 2 / _pi(120), Decimal(2) ** (25 - e)
            if e:
                value -= step * (value / step).to_integral_value()
            high = float(value)
            pairs.append((high, float(value - Decimal(high))))
    return tuple(pairs)


def _reduced_single(k: Arithmetic, x: Value) -> tuple[Value, Value]:
    """|x| modulo π/2 as a float32 in [-π/4, π/4], and the quarter turns removed.

    The quarter turns x 2/π stay below 2**46, because large x have factors of their own. Their
    nearest integer n is therefore off by at most 2**-9. The last fused operation computes
    x 2/π - n with an error of 2**-63, which is small enough: no float32 is closer than 2**-30 to a
    multiple of π/2."""
    x = k.abs(x)
    (high, low), *others = _turn_factors()
    first, second = k.constant(high, FLOAT64), k.constant(low, FLOAT64)
    for e, (high, low) in zip(_LARGE, others, strict=True):
        large = k.ge(x, 2.0**e)
        first, second = k.select(large, high, first), k.select(large, low, second)
    wide, magic = k.convert(x, FLOAT64), FORMS[FLOAT64].magic
    shifted = k.fma(wide, first, magic)
    n = k.sub(shifted, magic)
    turns = k.fma(wide, second, k.fma(wide, first, k.neg(n)))
    quadrant = k.convert(k.bitcast(shifted, INT64), INT32)
    return k.convert(k.mul(turns, _HALF_PI[0]), FLOAT32), quadrant


def _two_sum(k: Arithmetic, a: Value, b: Value) -> tuple[Value, Value]:
    """a + b and its rounding error."""
    s = k.add(a, b)
    t = k.sub(s, a)
    return s, k.add(k.sub(a, k.sub(s, t)), k.sub(b, t))


def _product(k: Arithmetic, a: Value, b: Any) -> tuple[Value, Value]:
    """a b and its rounding error."""
    p = k.mul(a, b)
    return p, k.fma(a, b, k.neg(p))


_FIRST = 1022 - 1075  # first exponent in the float64 table: below 1/2 nothing is reduced


def _reduced_double(k: Arithmetic, x: Value) -> tuple[Value, Value, Value]:
    """|x| modulo π/2 in two doubles, and the quarter turns; m is split in halves of 26 bits."""
    bits = k.and_(k.bitcast(x, INT64), 0x7FFFFFFFFFFFFFFF)
    exponent = k.convert(k.shift_right_logical(bits, 52), INT32)
    index = k.sub(k.minimum(k.maximum(exponent, 1022), 2046), 1022)
    table = _powers(_FIRST, 1025 + 26)
    base = k.mul(index, 3)
    small, large = (
        [k.lookup("turns64", table, k.add(base, 3 * shift + i)) for i in range(3)]
        for shift in (0, 26)
    )
    mantissa = k.or_(k.and_(bits, 0xFFFFFFFFFFFFF), 1 << 52)
    upper = k.convert(k.shift_right_logical(mantissa, 26), FLOAT64)
    lower = k.convert(k.and_(mantissa, 0x3FFFFFF), FLOAT64)
    (a, a_low), (b, b_low) = _product(k, upper, large[0]), _product(k, lower, small[0])
    p, p_low = _two_sum(k, a, b)
    n, quadrant = _quadrants(k, p)
    total, error = k.fma(n, -_HALF_PI[0], p), k.constant(0.0, FLOAT64)  # exact
    for term in (p_low, a_low, b_low):
        total, lost = _two_sum(k, total, term)
        error = k.add(error, lost)
    for factor, value in ((upper, large[1]), (lower, small[1]), (n, -_HALF_PI[1])):
        term, below = _product(k, factor, value)
        total, lost = _two_sum(k, total, term)
        error = k.add(error, k.add(lost, below))
    for factor, value in ((upper, large[2]), (lower, small[2]), (n, -_HALF_PI[2])):
        error = k.fma(factor, value, error)
    high = k.add(total, error)
    low = k.sub(error, k.sub(high, total))
    inside = k.lt(k.abs(x), 0.5)
    high = k.select(inside, k.abs(x), high)
    low = k.select(inside, 0.0, low)
    return (k.select(k.is_finite(x), high, NAN), low,
            k.select(inside, k.constant(0, INT32), quadrant))


def _sine_cosine(k: Arithmetic, x: Value) -> tuple[Value, Value, Value]:
    """Sine and cosine of the reduced |x|, and the quarter turns."""
    low = None
    if x.dtype == FLOAT32:
        r, quadrant = _reduced_single(k, x)
    else:
        r, low, quadrant = _reduced_double(k, x)
    z = k.mul(r, r)
    cube, polynomial = k.mul(z, r), k.pairwise(z, _SIN[x.dtype])
    square = k.mul(z, z)
    head = k.fma(z, -0.5, 1.0)
    even = k.fma(square, k.pairwise(z, _COS[x.dtype]), k.fma(z, -0.5, k.sub(1.0, head)))
    if low is None:
        return k.fma(cube, polynomial, r), k.add(head, even), quadrant
    # sin(r + l) = sin r + l cos r, cos(r + l) = cos r - l sin r
    odd = k.fma(cube, polynomial, k.fma(k.mul(z, -0.5), low, low))
    even = k.fma(k.neg(r), low, even)
    return k.add(r, odd), k.add(head, even), quadrant


def _turned(k: Arithmetic, y: Value, bits: Value) -> Value:
    """y with its sign changed if the highest bit of `bits` is set."""
    wide = integers_like(y.dtype)
    sign = k.and_(bits, -1 << (8 * wide.itemsize - 1))
    return k.bitcast(k.xor(k.bitcast(y, wide), sign), y.dtype)


def _half_turns(k: Arithmetic, quadrant: Value, dtype: Dtype) -> Value:
    """The second bit of the quarter turns, moved to the sign bit."""
    wide = integers_like(dtype)
    return k.shift_left(k.convert(quadrant, wide), 8 * wide.itemsize - 2)


def _is_odd(k: Arithmetic, quadrant: Value) -> Value:
    return k.ne(k.and_(quadrant, 1), 0)


def _sine(k: Arithmetic, x: Value, s: Value, c: Value, quadrant: Value) -> Value:
    bits = k.xor(_half_turns(k, quadrant, x.dtype), k.bitcast(x, integers_like(x.dtype)))
    return _turned(k, k.select(_is_odd(k, quadrant), c, s), bits)


def _cosine(k: Arithmetic, s: Value, c: Value, quadrant: Value) -> Value:
    bits = _half_turns(k, k.add(quadrant, 1), s.dtype)
    return _turned(k, k.select(_is_odd(k, quadrant), s, c), bits)


def sin(k: Arithmetic, x: Value) -> Value:
    """Sine."""
    return _sine(k, x, *_sine_cosine(k, x))


def cos(k: Arithmetic, x: Value) -> Value:
    """Cosine."""
    return _cosine(k, *_sine_cosine(k, x))


def sine_and_cosine(k: Arithmetic, x: Value) -> tuple[Value, Value]:
    """Sine and cosine of one angle, which is reduced once."""
    reduced = _sine_cosine(k, x)
    return _sine(k, x, *reduced), _cosine(k, *reduced)


def tan(k: Arithmetic, x: Value) -> Value:
    """Tangent."""
    s, c, quadrant = _sine_cosine(k, x)
    odd = _is_odd(k, quadrant)
    y = k.div(k.select(odd, k.neg(c), s), k.select(odd, s, c))
    return _turned(k, y, k.bitcast(x, integers_like(x.dtype)))


def sine_cosine_of_turns(k: Arithmetic, t: Value) -> tuple[Value, Value]:
    """sin πt and cos πt of float64 t in [-1/2, 1/2]; angles beyond 1/4 are reflected."""
    a = k.abs(t)
    steep = k.gt(a, 0.25)
    r = k.mul(k.select(steep, k.sub(0.5, a), a), 3.141592653589793)
    z = k.mul(r, r)
    s = k.fma(k.mul(z, r), k.pairwise(z, _SIN[FLOAT64]), r)
    c = k.fma(k.mul(z, z), k.pairwise(z, _COS[FLOAT64]), k.fma(z, -0.5, 1.0))
    return k.copysign(k.select(steep, c, s), t), k.select(steep, s, c)


# --------------------------------------------------------------------------------------- inverses

# (asin x - x) / x³ and (atan x - x) / x³ in x², on |x| <= 1/2 and |x| <= 1.
_ASIN = {
    FLOAT32: (0.037604970919613775, 0.014376012055960325, 0.03182415987545487,
              0.044514996057986755, 0.0750051438198395, 0.16666659818471316),
    FLOAT64: (0.032759660071528224, -0.021206572267303627, 0.021852629899047172,
              0.0036473472070144893, 0.010795723101483183, 0.011396182949069557,
              0.013981150119274685, 0.017351584882676203, 0.022372216475772387,
              0.030381942655858373, 0.04464285717567281, 0.07499999999969713,
              0.16666666666666766),
}
_ATAN = {
    FLOAT32: (-0.0017874933459059467, 0.010888805086944429, -0.031132854805065606,
              0.05791560051407475, -0.08401188377049688, 0.10951479974802811,
              -0.1426412067536086, 0.19998538328430357, -0.33333298811266093),
    FLOAT64: (1.3124289031695e-05, -0.0001511802229804192, 0.0008269129509969317,
              -0.002872768050039568, 0.0071735437495300085, -0.013869035014355366,
              0.021952330125133982, -0.029878147788048055, 0.03662616815270697,
              -0.042184292454835154, 0.04722044917670529, -0.05253439418709423,
              0.05880510602835528, -0.06666401257728276, 0.07692279507909888,
              -0.09090906975569876, 0.11111111005530942, -0.14285714282526166,
              0.19999999999950643, -0.33333333333333065),
}
_PI_PARTS = {FLOAT32: (1.57079637050628662109375, -4.37113900018624283e-8), FLOAT64: _HALF_PI[:2]}


def _asin_half(k: Arithmetic, x: Value) -> tuple[Value, Value]:
    """Whether |x| <= 1/2, and asin |x| there; elsewhere asin sqrt((1 - |x|) / 2)."""
    a = k.abs(x)
    small = k.le(a, 0.5)
    z = k.select(small, k.mul(a, a), k.mul(k.sub(1.0, a), 0.5))
    s = k.select(small, a, k.sqrt(z))
    return small, k.fma(k.mul(s, z), k.pairwise(z, _ASIN[x.dtype]), s)


def asin(k: Arithmetic, x: Value) -> Value:
    """Inverse sine: π/2 - 2 asin sqrt((1 - x) / 2) above 1/2."""
    high, low = _PI_PARTS[x.dtype]
    small, p = _asin_half(k, x)
    far = k.add(k.fma(p, -2.0, high), low)
    return k.copysign(k.select(small, p, far), x)


def acos(k: Arithmetic, x: Value) -> Value:
    """Inverse cosine."""
    high, low = _PI_PARTS[x.dtype]
    small, p = _asin_half(k, x)
    near = k.sub(high, k.sub(k.copysign(p, x), low))
    far = k.add(p, p)
    far = k.select(k.lt(x, 0.0), k.add(k.sub(2 * high, far), 2 * low), far)
    return k.select(small, near, far)


def _atan_unit(k: Arithmetic, t: Value) -> Value:
    """Inverse tangent on [0, 1]."""
    z = k.mul(t, t)
    return k.fma(k.mul(t, z), k.pairwise(z, _ATAN[t.dtype]), t)


def atan(k: Arithmetic, x: Value) -> Value:
    """Inverse tangent."""
    high, low = _PI_PARTS[x.dtype]
    a = k.abs(x)
    large = k.gt(a, 1.0)
    y = _atan_unit(k, k.select(large, k.div(1.0, a), a))
    y = k.select(large, k.add(k.sub(high, y), low), y)
    return k.copysign(y, x)


def atan2(k: Arithmetic, y: Value, x: Value) -> Value:
    """The angle of the point (x, y)."""
    high, low = _PI_PARTS[x.dtype]
    a, b = k.abs(x), k.abs(y)
    steep = k.gt(b, a)
    large, small = k.select(steep, b, a), k.select(steep, a, b)
    t = k.div(small, large)
    t = k.select(k.eq(small, large), 1.0, t)  # two infinities: a diagonal
    t = k.select(k.eq(large, 0.0), 0.0, t)
    angle = _atan_unit(k, t)
    angle = k.select(steep, k.add(k.sub(high, angle), low), angle)
    integer = INT32 if x.dtype == FLOAT32 else INT64
    left = k.lt(k.bitcast(x, integer), 0)  # true for -0 too
    angle = k.select(left, k.add(k.sub(2 * high, angle), 2 * low), angle)
    angle = k.copysign(angle, y)
    return k.select(k.or_(k.is_nan(x), k.is_nan(y)), k.add(x, y), angle)


