"""Roots, powers and remainders, and the functions of a float's bits.

`pow` of float32 is computed in float64, whose 29 more bits leave a single rounding; `pow` of
float64 carries the logarithm in two doubles.
"""

from __future__ import annotations

import numpy as np

from toile.compiler.scalar.builder import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    Arithmetic,
    Unsupported,
    Value,
    integers_like,
    kind,
)
from toile.compiler.scalar.mathematics.exponential import EXP2, FORMS, INFINITY, NAN, split


def rsqrt(k: Arithmetic, x: Value) -> Value:
    """1 / sqrt(x)."""
    return k.div(1.0, k.sqrt(x))


# Added to a third of the bits of x as an integer, this gives a first guess of the root.
_CBRT_GUESS = {FLOAT32: 0x2A5137A0, FLOAT64: 0x2A9F7893782DA1CE}


def cbrt(k: Arithmetic, x: Value) -> Value:
    """The real cube root: Halley's steps, then Newton's with a residual of twice the digits."""
    a = k.abs(x)
    below = k.lt(a, 1.0)  # keep cubes far from overflow and underflow
    scale, back = (k.select(below, k.constant(2.0**n, x.dtype), k.constant(2.0**-n, x.dtype))
                   for n in (54, -18))
    lifted = k.mul(a, scale)
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    third = k.binary("div", k.bitcast(lifted, unsigned), k.constant(3, unsigned))
    y = k.bitcast(k.add(third, _CBRT_GUESS[x.dtype]), x.dtype)
    for _ in range(1 if x.dtype == FLOAT32 else 2):
        cube = k.mul(k.mul(y, y), y)
        ratio = k.div(k.sub(lifted, cube), k.fma(cube, 2.0, lifted))
        y = k.fma(y, ratio, y)  # y (y³ + 2a) / (2y³ + a)
    square = k.mul(y, y)
    rest = k.fma(y, square, k.neg(lifted))
    rest = k.fma(y, k.fma(y, y, k.neg(square)), rest)
    y = k.sub(y, k.div(rest, k.mul(square, 3.0)))
    y = k.mul(y, back)
    plain = k.and_(k.gt(a, 0.0), k.lt(a, INFINITY))
    return k.select(plain, k.copysign(y, x), k.add(x, x))


# ----------------------------------------------------------------------------------------- powers

# log2((1 + s) / (1 - s)) / s in s², error 2**-37.
_LOG2 = (0.340800788144391, 0.41166906025951905, 0.5770836430766584, 0.9617966730526821,
         2.885390081790312)
# 2**f on |f| <= 1/2, error 2**-32.
_EXP2 = (1.3336820535761353e-05, 0.000154619038740124, 0.0013342100693820092,
         0.009618055576047058, 0.05550400127723811, 0.24022650927085706, 0.6931471839124642, 1.0)
# (atanh(s)/s - 1 - s²/3) / s⁴ in s².
_ATANH = (0.06600695880463289, 0.0662814462807533, 0.07693389614525996, 0.09090891955392012,
          0.11111111262449025, 0.14285714285036594, 0.20000000000001153)
_TWO_OVER_LOG2 = (2.8853900817779268, 4.0710547481862066e-17)  # in two parts
_THIRD = (1 / 3, 1.850371707708594e-17)


def pow_(k: Arithmetic, x: Value, y: Value) -> Value:
    """x to the power y, of floats or integers; y may be an integer with a floating x."""
    form = kind(x.dtype)
    if form in "iu":
        return _integer_power(k, x, y)
    if form != "f":
        raise Unsupported(f"pow of {x.dtype} in a kernel")
    dtype, x = x.dtype, k.wide(x)
    y = k.convert(y, dtype) if kind(y.dtype) in "iu" else y
    y = k.wide(y)
    size = (_power_single if x.dtype == FLOAT32 else power_double)(k, k.abs(x), y)
    return Value(_power_edges(k, x, y, size).name, dtype)


def _power_single(k: Arithmetic, x: Value, y: Value) -> Value:
    """x**y for positive float32 x, through float64."""
    return k.convert(power_short(k, k.convert(x, FLOAT64), k.convert(y, FLOAT64)), FLOAT32)


def power_short(k: Arithmetic, x: Value, y: Value) -> Value:
    """x**y for float64 numbers with the range of float32, x not negative; error 2**-32."""
    f, e = split(k, x)  # no float32 is subnormal as a float64
    s = k.div(f, k.add(f, 2.0))
    log2 = k.fma(s, k.pairwise(k.mul(s, s), _LOG2), e)
    log2 = k.select(k.eq(x, 0.0), -INFINITY, log2)
    log2 = k.select(k.eq(x, INFINITY), INFINITY, log2)
    w = k.within(k.mul(log2, y), -300.0, 300.0)
    magic = FORMS[FLOAT64].magic
    shifted = k.add(w, magic)
    p = k.pairwise(k.sub(w, k.sub(shifted, magic)), _EXP2)
    scale = k.shift_left(k.add(k.bitcast(shifted, INT64), 1023), 52)
    return k.mul(p, k.bitcast(scale, FLOAT64))


def power_double(k: Arithmetic, x: Value, y: Value) -> Value:
    """x**y for positive float64 x: 2 to the power y log2(x), which is a sum of two doubles."""
    high, low = _log2_pair(k, x)
    w = k.mul(high, y)
    rest = k.fma(low, y, k.fma(high, y, k.neg(w)))
    w = k.select(k.eq(x, 0.0), k.mul(y, -INFINITY), w)
    w = k.select(k.eq(x, INFINITY), k.mul(y, INFINITY), w)
    ordinary = k.lt(k.abs(w), 1100.0)
    rest = k.select(ordinary, rest, 0.0)
    w = k.within(w, -1100.0, 1100.0)
    magic = FORMS[FLOAT64].magic
    shifted = k.add(w, magic)
    f = k.add(k.sub(w, k.sub(shifted, magic)), rest)
    p = k.fma(k.pairwise(f, EXP2[FLOAT64]), f, 1.0)
    n = k.bitcast(shifted, INT64)
    n = k.sub(k.and_(n, 0xFFFF), k.shift_left(k.and_(n, 0x8000), 1))  # the low bits, signed
    half = k.shift_right_arithmetic(n, 1)
    for part in (half, k.sub(n, half)):
        p = k.mul(p, k.bitcast(k.shift_left(k.add(part, 1023), 52), FLOAT64))
    return p


def _log2_pair(k: Arithmetic, x: Value) -> tuple[Value, Value]:
    """log2(x) in two doubles: (2 / log 2) atanh(s), s = f / (2 + f), and the exponent."""
    f, e = split(k, x)
    d = k.add(f, 2.0)
    d_low = k.sub(f, k.sub(d, 2.0))
    s = k.div(f, d)
    s_low = k.div(k.fma(k.neg(s), d_low, k.fma(k.neg(s), d, f)), d)
    z = k.mul(s, s)
    z_low = k.fma(k.add(s, s), s_low, k.fma(s, s, k.neg(z)))
    # u = z / 3 + z² tail(z), in two parts
    u = k.mul(z, _THIRD[0])
    u_low = k.fma(z, _THIRD[1], k.fma(z, _THIRD[0], k.neg(u)))
    tail = k.mul(k.mul(z, z), k.pairwise(z, _ATANH))
    u_low = k.add(u_low, k.fma(z_low, _THIRD[0], tail))
    v = k.mul(s, u)
    v_low = k.fma(s, u_low, k.fma(s, u, k.neg(v)))
    a = k.add(s, v)
    a_low = k.add(k.add(k.sub(v, k.sub(a, s)), v_low), k.fma(s_low, u, s_low))
    g = k.mul(a, _TWO_OVER_LOG2[0])
    g_low = k.fma(a, _TWO_OVER_LOG2[0], k.neg(g))
    g_low = k.add(g_low, k.fma(a_low, _TWO_OVER_LOG2[0], k.mul(a, _TWO_OVER_LOG2[1])))
    high = k.add(e, g)
    other = k.sub(high, e)
    low = k.add(k.add(k.sub(e, k.sub(high, other)), k.sub(g, other)), g_low)
    total = k.add(high, low)
    return total, k.sub(low, k.sub(total, high))


def _power_edges(k: Arithmetic, x: Value, y: Value, size: Value) -> Value:
    """x**y from |x|**y: its sign, and the special cases that logarithms do not cover."""
    whole = k.eq(y, k.trunc(y))  # infinities count as even
    half = k.mul(y, 0.5)
    odd = k.and_(whole, k.ne(half, k.trunc(half)))
    size = k.select(k.and_(k.eq(k.abs(x), 1.0), k.eq(y, y)), 1.0, size)
    negative = k.lt(k.bitcast(x, integers_like(x.dtype)), 0)
    y_out = k.select(k.and_(negative, odd), k.neg(size), size)
    undefined = k.and_(k.lt(x, 0.0), k.and_(k.not_(whole), k.gt(x, -INFINITY)))
    y_out = k.select(undefined, NAN, y_out)
    y_out = k.select(k.is_nan(x), x, y_out)
    one = k.or_(k.eq(y, 0.0), k.eq(x, 1.0))
    return k.select(one, 1.0, y_out)


def _integer_power(k: Arithmetic, x: Value, y: Value) -> Value:
    """Integer powers by squaring, wrapping; negative exponents give 0 except for ±1."""
    width = 8 * y.dtype.itemsize - (kind(y.dtype) == "i")
    result, base = k.constant(1, x.dtype), x
    for i in range(width):
        bit = k.ne(k.and_(y, 1 << i), 0)
        result = k.select(bit, k.mul(result, base), result)
        base = k.mul(base, base)
    if kind(y.dtype) == "u":
        return result
    odd = k.ne(k.and_(y, 1), 0)
    unit = k.select(k.eq(x, 1), k.constant(1, x.dtype), k.constant(0, x.dtype))
    sign = k.select(odd, k.constant(-1, x.dtype), k.constant(1, x.dtype))
    unit = k.select(k.eq(x, -1), sign, unit)
    return k.select(k.lt(y, 0), unit, result)


def integer_pow(k: Arithmetic, x: Value, n: int) -> Value:
    """x to a constant power by repeated squaring."""
    if n < 0:
        if kind(x.dtype) in "iu":
            raise Unsupported("negative powers of integers in a kernel")
        return k.div(k.constant(1, x.dtype), integer_pow(k, x, -n))
    result = None
    while n:
        if n & 1:
            result = x if result is None else k.mul(result, x)
        n >>= 1
        if n:
            x = k.mul(x, x)
    return k.constant(1, x.dtype) if result is None else result


# -------------------------------------------------------------------------------------- remainder


def fmod(k: Arithmetic, x: Value, y: Value) -> Value:
    """Exact remainder with the sign of the dividend."""
    return (_fmod_single if x.dtype == FLOAT32 else _fmod_double)(k, x, y)


_DIGITS = 50  # bits of the quotient in one step


def _fmod_single(k: Arithmetic, x: Value, y: Value) -> Value:
    """The remainder in float64: 50 bits at a time, from the highest multiple b 2**(50 j) on.

    The quotient of a step is rounded to nearest, and at most 1/4 off: what is left is at most 3/4
    of the multiple, and has few enough bits to be exact."""
    a, b = (k.convert(k.abs(v), FLOAT64) for v in (x, y))
    left, inverse = a, k.div(1.0, b)
    for j in range((128 + 149) // _DIGITS, -1, -1):
        quotient = k.round_even(k.mul(left, k.mul(inverse, 2.0 ** (-_DIGITS * j))))
        left = k.fma(k.neg(quotient), k.mul(b, 2.0 ** (_DIGITS * j)), left)
    left = k.select(k.lt(left, 0.0), k.add(left, b), left)
    out = k.copysign(k.convert(left, FLOAT32), x)
    endless = k.and_(k.eq(b, INFINITY), k.lt(a, INFINITY))
    return k.select(endless, x, out)


def _fmod_double(k: Arithmetic, x: Value, y: Value) -> Value:
    """With x = a 2**i and y = b 2**j, the remainder of a 2**(i - j) by b, 50 bits at a time.

    The quotient of a step is rounded to nearest: the rest is less than b in absolute value and a
    multiple of the last bit of b, and therefore exact."""
    (a, i), (b, j) = _mantissa(k, k.abs(x)), _mantissa(k, k.abs(y))
    inverse = k.div(1.0, b)
    places = k.sub(i, j)
    d = k.maximum(places, 0)
    steps = k.shift_right_logical(k.mul(d, 1311), 16)  # d // 50
    first = k.bitcast(k.shift_left(k.add(k.sub(d, k.mul(steps, _DIGITS)), 1023), 52), FLOAT64)
    steps = k.convert(k.convert(steps, INT32), FLOAT64)
    a = k.mul(a, first)
    rest = k.fma(k.neg(k.round_even(k.mul(a, inverse))), b, a)
    inverse = k.mul(inverse, 2.0**_DIGITS)
    for n in range((1023 + 1074) // _DIGITS):
        quotient = k.neg(k.round_even(k.mul(rest, inverse)))
        lower = k.fma(quotient, b, k.mul(rest, 2.0**_DIGITS))
        rest = k.select(k.gt(steps, float(n)), lower, rest)
    rest = k.select(k.lt(rest, 0.0), k.add(rest, b), rest)
    half = k.shift_right_arithmetic(j, 1)
    for part in (half, k.sub(j, half)):
        rest = k.mul(rest, k.bitcast(k.shift_left(k.add(part, 1023), 52), FLOAT64))
    below = k.or_(k.lt(places, 0), k.or_(k.eq(k.abs(y), INFINITY), k.eq(x, 0.0)))
    out = k.select(below, x, k.copysign(rest, x))
    undefined = k.or_(k.not_(k.is_finite(x)), k.or_(k.is_nan(y), k.eq(y, 0.0)))
    return k.select(undefined, NAN, out)


def _mantissa(k: Arithmetic, x: Value) -> tuple[Value, Value]:
    """x = m 2**e for positive finite float64 x: m in [1, 2) and e, an integer."""
    tiny = k.lt(x, FORMS[FLOAT64].least_normal)
    bits = k.bitcast(k.select(tiny, k.mul(x, 2.0**54), x), INT64)
    bias = k.select(tiny, k.constant(1023 + 54, INT64), k.constant(1023, INT64))
    m = k.or_(k.and_(bits, (1 << 52) - 1), 1023 << 52)
    return k.bitcast(m, FLOAT64), k.sub(k.shift_right_logical(bits, 52), bias)


# ---------------------------------------------------------------------------------- bits of floats


def nextafter(k: Arithmetic, x: Value, y: Value) -> Value:
    """The next representable number toward y: the bits as an integer, plus or minus one."""
    integer = np.dtype(f"i{x.dtype.itemsize}")
    bits = k.bitcast(x, integer)
    away = k.eq(k.lt(x, y), k.ge(bits, 0))
    moved = k.select(away, k.add(bits, 1), k.sub(bits, 1))
    smallest = k.bitcast(k.constant(1, integer), x.dtype)
    from_zero = k.copysign(smallest, y)
    out = k.select(k.eq(x, 0.0), from_zero, k.bitcast(moved, x.dtype))
    out = k.select(k.eq(x, y), y, out)
    return k.select(k.or_(k.is_nan(x), k.is_nan(y)), k.add(x, y), out)


# The exponent and mantissa bits of dtypes.
_BITS = {BFLOAT16: (8, 7), FLOAT16: (5, 10), FLOAT32: (8, 23), FLOAT64: (11, 52)}


def reduce_precision(k: Arithmetic, x: Value, exponent_bits: int, mantissa_bits: int) -> Value:
    """Round half to even to fewer mantissa bits. With fewer exponent bits than the dtype has,
    overflow to infinity, underflow to zero."""
    exponent, mantissa = _BITS[x.dtype]
    x = y = k.convert(k.wide(x), x.dtype)  # rounds narrow floats
    if mantissa_bits < mantissa:
        drop, integer = mantissa - mantissa_bits, np.dtype(f"i{x.dtype.itemsize}")
        bits = k.bitcast(x, integer)
        odd = k.and_(k.shift_right_logical(bits, drop), 1)
        bits = k.add(k.add(bits, (1 << (drop - 1)) - 1), odd)
        y = k.bitcast(k.and_(bits, -(1 << drop)), x.dtype)
    if exponent_bits < exponent:
        bias = 2 ** (exponent_bits - 1) - 1
        w = k.wide(y)
        largest = (2.0 - 2.0**-mantissa_bits) * 2.0**bias
        w = k.select(k.gt(k.abs(w), largest), k.copysign(INFINITY, w), w)
        w = k.select(k.lt(k.abs(w), 2.0 ** (1 - bias)), k.copysign(0.0, w), w)
        y = k.convert(w, x.dtype)
    return x if y is x else k.select(k.is_finite(k.wide(x)), y, x)
