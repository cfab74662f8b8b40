"""Exponentials and logarithms, and the functions that follow from them by one formula.

exp and log reduce their argument to one octave and evaluate a minimax polynomial there. float32 and
float64 share the code where only coefficients differ. `log1p` in float32 repeats the steps of the
eager operation: random numbers are computed with it and must be the same with and without jit.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from toile.compiler.scalar.builder import (
    FLOAT32,
    FLOAT64,
    INT32,
    Arithmetic,
    Dtype,
    Value,
    integers_like,
)
from toile.primitives.arrays.coefficients import (
    LOG1P_LEAST,
    LOG1P_MOST,
    LOG1P_P,
    LOG1P_Q,
    LOG2_HIGH,
    LOG2_LOW,
    LOG_P,
)

INFINITY = float("inf")
NAN = float("nan")
LOG2_E = 1.4426950408889634


class Layout(NamedTuple):
    """The bit layout of a float dtype, and constants that depend on it."""

    mantissa: int  # bits stored
    bias: int
    magic: float  # adding it leaves the nearest integer in the low bits
    log2_high: float  # log 2 in two parts; products of the first with small integers are exact
    log2_low: float
    least_normal: float


FORMS = {
    FLOAT32: Layout(23, 127, 12582912.0, 0.693145752, 1.42860677e-6, 2.0**-126),
    FLOAT64: Layout(52, 1023, 6755399441055744.0, 6.93147180369123816490e-01,
                    1.90821492927058770002e-10, 2.0**-1022),
}

# (exp r - 1 - r) / r² on |r| <= log 2 / 2, leading coefficient first, for relative errors of exp
# of 2**-28 and 2**-58.
_EXP = {
    FLOAT32: (0.0013817317612969332, 0.008368909935876377, 0.04166836615038949, 0.16666519038210112,
              0.49999993445177116),
    FLOAT64: (2.5123478429168787e-08, 2.7631632159026335e-07, 2.755719993779944e-06,
              2.480148903190696e-05, 0.00019841269934145107, 0.0013888888947810264,
              0.008333333333300186, 0.041666666666512774, 0.1666666666666671, 0.5000000000000013),
}
# The same polynomial of -r: every second coefficient changes its sign.
_EXP_MINUS = {dtype: tuple((-1) ** (len(c) - 1 - i) * v for i, v in enumerate(c))
              for dtype, c in _EXP.items()}
# (2**f - 1) / f on |f| <= 1/2.
EXP2 = {
    FLOAT32: (0.0001559542978620975, 0.0013406949944925774, 0.009617689494236263,
              0.05550309708586424, 0.2402265280784224, 0.6931472154025597),
    FLOAT64: (4.0710223954477523e-10, 7.0727347196951444e-09, 1.0180711187753835e-07,
              1.3215441851349066e-06, 1.5252727188845023e-05, 0.00015403530442927664,
              0.001333355815369544, 0.009618129107606194, 0.055504108664789074,
              0.240226506959101, 0.6931471805599457),
}
# (exp r - 1 - r) / r², weighted for the relative error of expm1.
_EXPM1 = {
    FLOAT32: (0.00019962791098553488, 0.0013943429063192371, 0.00833321912107995,
              0.041666324282289745, 0.1666666690487915, 0.5000000053684724),
    FLOAT64: (1.7553406295923974e-09, 2.510588633079907e-08, 2.7568429773371806e-07,
              2.755725379259897e-06, 2.4801573863508757e-05, 0.00019841269876085904,
              0.0013888888895988898, 0.008333333333325775, 0.04166666666665137,
              0.1666666666666667, 0.5000000000000001),
}
# Outside this range exp is zero (below) or infinite (above).
_EXP_RANGE = {FLOAT32: (-104.0, 88.72283935546875), FLOAT64: (-745.2, 709.782712893384)}
_EXP2_RANGE = {FLOAT32: (-151.0, 127.99999237060547), FLOAT64: (-1076.0, 1023.9999999999999)}


def _octaves(k: Arithmetic, x: Value, scale: float) -> tuple[Value, Value]:
    """The integer nearest to x·scale, as a float and in the low bits of an integer."""
    magic = FORMS[x.dtype].magic
    shifted = k.fma(x, scale, magic)
    return k.sub(shifted, magic), k.bitcast(shifted, integers_like(x.dtype))


def _reduced(k: Arithmetic, x: Value) -> tuple[Value, Value]:
    """x = n log 2 + r: r, and n in the low bits of an integer."""
    form = FORMS[x.dtype]
    n, bits = _octaves(k, x, LOG2_E)
    r = k.fma(n, -form.log2_high, x)
    return k.fma(n, -form.log2_low, r), bits


def _exp_reduced(k: Arithmetic, r: Value) -> Value:
    """e**r as 1 + (r + r² q): only the last sum has a rounding error in the last place."""
    return k.add(k.fma(k.mul(r, r), k.pairwise(r, _EXP[r.dtype]), r), 1.0)


def _power_of_two(k: Arithmetic, bits: Value, dtype: Dtype, offset: int) -> Value:
    """2**(n + offset), with n in the low bits of an integer, if the result is a normal number."""
    form = FORMS[dtype]
    base = k.constant((form.bias + offset) << form.mantissa, bits.dtype)
    return k.bitcast(k.add(k.shift_left(bits, form.mantissa), base), dtype)


def _scaled(k: Arithmetic, p: Value, bits: Value, negative: Value) -> Value:
    """p 2**n in two factors, since 2**n may not be a normal number where the product is one.

    For negative n the first factor is too large by 2**half: only the last product rounds."""
    form = FORMS[p.dtype]
    half = (form.bias + 1) // 2
    base = k.select(negative, k.constant((form.bias + half) << form.mantissa, bits.dtype),
                    k.constant((form.bias - 1) << form.mantissa, bits.dtype))
    first = k.bitcast(k.add(k.shift_left(bits, form.mantissa), base), p.dtype)
    last = k.select(negative, k.constant(2.0**-half, p.dtype), k.constant(2.0, p.dtype))
    return k.mul(k.mul(p, first), last)


def exp(k: Arithmetic, x: Value) -> Value:
    """e**x over the whole range, subnormal results included."""
    low, high = _EXP_RANGE[x.dtype]
    inside = k.within(x, low, high)
    r, bits = _reduced(k, inside)
    y = _scaled(k, _exp_reduced(k, r), bits, k.lt(x, 0.0))
    return k.select(k.gt(x, high), INFINITY, y)


def exp_negative(k: Arithmetic, x: Value) -> Value:
    """e**x for x <= 0 that is not below the range, subnormal results included."""
    half = (FORMS[x.dtype].bias + 1) // 2
    r, bits = _reduced(k, x)
    scale = _power_of_two(k, bits, x.dtype, half)
    return k.mul(k.mul(_exp_reduced(k, r), scale), 2.0**-half)


def exp_of_square(k: Arithmetic, x: Value, square: Value, lift: int) -> Value:
    """e**(-x²) 2**lift of float32 x, given its rounded square, if the result is a normal number.

    n log 2 - x² is rounded once, so that the rounding error of `square` does not matter; n is
    subtracted from the exponent as an integer."""
    form = FORMS[FLOAT32]
    magic = form.magic - lift
    shifted = k.fma(square, LOG2_E, magic)
    n = k.sub(shifted, magic)
    r = k.fma(k.neg(x), x, k.mul(n, form.log2_high))
    p = k.bitcast(_exp_reduced(k, k.fma(n, form.log2_low, r)), INT32)
    return k.bitcast(k.sub(p, k.shift_left(k.bitcast(shifted, INT32), form.mantissa)), FLOAT32)


def exp_near_zero(k: Arithmetic, x: Value) -> Value:
    """e**x for arguments whose result is known to be a normal number."""
    r, bits = _reduced(k, x)
    scale = _power_of_two(k, bits, x.dtype, 0)
    return k.mul(_exp_reduced(k, r), scale)


def exp2(k: Arithmetic, x: Value) -> Value:
    """2**x."""
    low, high = _EXP2_RANGE[x.dtype]
    inside = k.within(x, low, high)
    n, bits = _octaves(k, inside, 1.0)
    f = k.sub(inside, n)
    p = k.fma(k.pairwise(f, EXP2[x.dtype]), f, 1.0)
    y = _scaled(k, p, bits, k.lt(x, 0.0))
    return k.select(k.gt(x, high), INFINITY, y)


def expm1(k: Arithmetic, x: Value) -> Value:
    """e**x - 1: 2**n (e**r - 1) + (2**n - 1), halved until the last step to keep 2**n finite."""
    form = FORMS[x.dtype]
    low, high = _EXP_RANGE[x.dtype]
    inside = k.within(x, -0.75 * (form.mantissa + 3), high)  # below, the result is -1
    r, bits = _reduced(k, inside)
    p = k.fma(k.mul(r, r), k.pairwise(r, _EXPM1[x.dtype]), r)
    half = _power_of_two(k, bits, x.dtype, -1)
    y = k.mul(k.fma(half, p, k.sub(half, 0.5)), 2.0)
    y = k.select(k.gt(x, high), INFINITY, y)
    return k.copysign(y, x)  # preserve -0


def _quarter_scale(k: Arithmetic, x: Value) -> tuple[Value, Value]:
    """The reduced x >= 0, and a quarter of 2**n; finite wherever sinh and cosh are."""
    r, bits = _reduced(k, k.within(x, None, _EXP_RANGE[x.dtype][1] + 1.0))
    return r, _power_of_two(k, bits, x.dtype, -2)


def exp_quarter(k: Arithmetic, x: Value) -> Value:
    """e**x / 4 for x >= 0; may be finite a little beyond where e**x overflows."""
    r, scale = _quarter_scale(k, x)
    return k.mul(_exp_reduced(k, r), scale)


def expm1_quarter(k: Arithmetic, x: Value) -> Value:
    """(e**x - 1) / 4 for x >= 0."""
    r, scale = _quarter_scale(k, x)
    p = k.fma(k.mul(r, r), k.pairwise(r, _EXPM1[x.dtype]), r)
    return k.fma(scale, p, k.sub(scale, 0.25))


def logistic(k: Arithmetic, x: Value) -> Value:
    """1 / (1 + e**-x), computed without overflow.

    With -x = n log 2 - r the sum is 2**n + (1 - 2**n u) for u = 1 - e**-r: adding the larger term
    last leaves two roundings, and an error below two units in the last place."""
    form = FORMS[x.dtype]
    inside = k.within(x, _EXP_RANGE[x.dtype][0] - 0.4, 0.75 * (form.mantissa + 3))  # 0 to 1
    n, bits = _octaves(k, inside, -LOG2_E)
    r = k.fma(n, form.log2_low, k.fma(n, form.log2_high, inside))
    u = k.fma(k.neg(k.mul(r, r)), k.pairwise(r, _EXP_MINUS[x.dtype]), r)
    down = form.mantissa + 2
    scale = _power_of_two(k, bits, x.dtype, -down)
    rest = k.fma(k.neg(scale), u, 2.0**-down)
    return k.div(2.0**-down, k.add(scale, rest))


# ------------------------------------------------------------------------------------- logarithms

# (log(1 + f) - f) / f² on [-1/3, 1/3] in float32.
_LOG = (-0.130310059, 0.140869141, -0.121483512, 0.139814854, -0.166846126, 0.200120345,
        -0.249996200, 0.333331972, -0.5)
# log((1 + s) / (1 - s)) = 2 s + s R(s²) in float64.
LOG_DOUBLE = (1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01,
               2.222219843214978396e-01, 2.857142874366239149e-01, 3.999999999940941908e-01,
               6.666666666666735130e-01)
_TWO_THIRDS = {FLOAT32: 0x3F2AAAAB, FLOAT64: 0x3FE6A09E00000000}  # where octaves begin


def split(k: Arithmetic, x: Value) -> tuple[Value, Value]:
    """x = m 2**e for positive finite x: m - 1 with m near 1, and e as a float."""
    form = FORMS[x.dtype]
    tiny = k.lt(x, form.least_normal)
    lifted = k.select(tiny, k.mul(x, 2.0**form.mantissa), x)
    less = k.select(tiny, k.constant(-float(form.mantissa), x.dtype), k.constant(0.0, x.dtype))
    bits = k.bitcast(lifted, integers_like(x.dtype))
    top = k.and_(k.sub(bits, _TWO_THIRDS[x.dtype]), -1 << form.mantissa)
    m = k.bitcast(k.sub(bits, top), x.dtype)
    e = k.fma(k.convert(top, x.dtype), 2.0**-form.mantissa, less)
    return k.sub(m, 1.0), e


def log(k: Arithmetic, x: Value) -> Value:
    """Natural logarithm."""
    f, e = split(k, x)
    return _log_edges(k, x, _log_single(k, f, e) if x.dtype == FLOAT32 else _log_double(k, f, e))


def _log_single(k: Arithmetic, f: Value, e: Value) -> Value:
    return k.fma(e, 0.693147182, k.fma(k.mul(f, f), k.pairwise(f, _LOG), f))


def _log_double(k: Arithmetic, f: Value, e: Value) -> Value:
    form = FORMS[FLOAT64]
    s = k.div(f, k.add(f, 2.0))
    z = k.mul(s, s)
    rest = k.mul(z, k.pairwise(z, LOG_DOUBLE))
    half = k.mul(k.mul(f, f), 0.5)
    small = k.fma(s, k.add(half, rest), k.mul(e, form.log2_low))
    return k.sub(k.mul(e, form.log2_high), k.sub(k.sub(half, small), f))


def _log_edges(k: Arithmetic, x: Value, y: Value) -> Value:
    """-inf at 0, inf at inf, NaN below 0."""
    y = k.select(k.lt(x, INFINITY), y, x)
    y = k.select(k.eq(x, 0.0), -INFINITY, y)
    return k.select(k.lt(x, 0.0), NAN, y)


def log2(k: Arithmetic, x: Value) -> Value:
    """log(x) times 1 / log(2), like the eager operation."""
    return k.mul(log(k, x), 1 / math.log(2))


def log1p(k: Arithmetic, x: Value) -> Value:
    """log(1 + x) like the eager operation: Cephes' formula near 0, log of the sum elsewhere."""
    if x.dtype == FLOAT32:
        small = k.lt(k.abs(x), LOG1P_MOST)
        large = _log_by_steps(k, k.add(x, 1.0))
    else:
        small = k.and_(k.gt(x, LOG1P_LEAST), k.lt(x, LOG1P_MOST))
        large = log(k, k.add(x, 1.0))
    ratio = k.div(k.polynomial(x, LOG1P_P), k.polynomial(x, LOG1P_Q))
    square = k.mul(x, x)
    ratio = k.mul(ratio, k.mul(square, x))
    ratio = k.sub(ratio, k.mul(square, 0.5))
    return k.select(small, k.add(x, ratio), large)


def _log_by_steps(k: Arithmetic, x: Value) -> Value:
    """The logarithm of float32 in Cephes' steps, so that random numbers have the same bits."""
    bits = k.bitcast(x, integers_like(x.dtype))  # 1 + x is never subnormal
    m = k.bitcast(k.or_(k.and_(bits, 0x7FFFFF), 0x3F000000), x.dtype)
    exponent = k.sub(k.and_(k.shift_right_logical(bits, 23), 0xFF), 126)
    low = k.lt(m, 0.707106781186547524)
    z = k.sub(k.select(low, k.add(m, m), m), 1.0)
    e = k.convert(k.select(low, k.sub(exponent, 1), exponent), x.dtype)
    square = k.mul(z, z)
    y, second, third = (k.polynomial(z, LOG_P[i : i + 3]) for i in (0, 3, 6))
    cube = k.mul(square, z)
    y = k.fma(k.fma(y, cube, second), cube, third)
    y = k.fma(y, cube, k.mul(e, LOG2_LOW))
    y = k.add(y, k.sub(z, k.mul(square, 0.5)))
    return _log_edges(k, x, k.fma(e, LOG2_HIGH, y))


# (log(1 + f) - f) / f² on [-1/4, 1/2].
_LOG_SUM = (-4.54559326e-2, 1.05529785e-1, -1.32279143e-1, 1.44911006e-1, -1.66416913e-1,
            1.99886635e-1, -2.50001878e-1, 3.33335280e-1, -0.5)


def log_of_sum(k: Arithmetic, x: Value) -> Value:
    """log(1 + x) with an error of one unit in the last place, for functions composed of it.

    float32 scales x and 1 separately, to keep what rounding 1 + x would lose; float64 adds what was
    lost to the logarithm, as (x - (u - 1)) / u with u = 1 + x."""
    u = k.add(x, 1.0)
    if x.dtype != FLOAT32:
        lost = k.div(k.sub(x, k.sub(u, 1.0)), u)
        y = k.select(k.is_finite(u), k.add(log(k, u), lost), log(k, u))
        return k.select(k.eq(u, 1.0), x, y)
    octave = k.and_(k.sub(k.bitcast(u, INT32), 0x3F400000), -(1 << 23))
    f = k.bitcast(k.sub(k.bitcast(x, INT32), octave), FLOAT32)
    scale = k.bitcast(k.sub(k.constant(0x40800000, INT32), octave), FLOAT32)  # 4 / 2**e
    f = k.add(f, k.fma(scale, 0.25, -1.0))
    e = k.mul(k.convert(octave, FLOAT32), 2.0**-23)
    y = k.fma(e, 0.693147182, k.fma(k.mul(f, f), k.pairwise(f, _LOG_SUM), f))
    y = k.select(k.eq(x, 0.0), x, y)
    return k.select(k.lt(x, INFINITY), y, x)
