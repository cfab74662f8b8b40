"""The error function, its complement and its inverse.

`erf` and `erf_inv` of float32 repeat the steps of the eager operations bit for bit, because random
numbers are computed with them. `erfc` is exp(-x²) times a rational function on the whole half line:
both factors have a small relative error even where the result is as small as 1e-45.
"""

from __future__ import annotations

from toile.compiler.scalar.builder import FLOAT32, Arithmetic, Value
from toile.compiler.scalar.mathematics import exponential
from toile.compiler.scalar.mathematics.exponential import INFINITY
from toile.primitives.arrays.coefficients import (
    ERF_INV_DOUBLE,
    ERF_INV_SINGLE,
    ERF_LIMIT,
    ERF_P,
    ERF_Q,
)

# erf x / x - 1 in x² below 0.9277, and log(1 - erf x) + x above; error of one ulp.
_NEAR = (-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1,
         1.28379166e-1)
_FAR = (-1.72853470e-5, 3.83197126e-4, -3.88396438e-3, 2.42546219e-2, -1.06777877e-1,
        -6.34846687e-1, -1.28717512e-1)
_FAR_FROM = 0.927734375
# erf x = x P(x²) / Q(x²) below 1 in float64; relative error 2**-58.
_DOUBLE_P = (0.00019493339743148055, 0.001827238085058369, 0.0453032150169734,
             0.14214997219346354, 1.1283791670955126)
_DOUBLE_Q = (2.0293885538195673e-05, 0.0006811686454705998, 0.010581964009247118,
             0.0932524176721464, 0.45931046614354104, 1.0)
# exp(x²) erfc(x) = P(x) / Q(x): float32 from 0 to 10.1, float64 from 0.45 to 27.3.
_LIFT = 64
_CX_P = tuple(c * 2.0**-_LIFT for c in (
    0.03205990104, 0.2256973282, 0.7242005797, 1.231321742, 1.000000005))
_CX_Q = (0.05682386582, 0.4000681492, 1.311550404, 2.386830379, 2.359701404, 1.0)
_CX_DOUBLE_P = (9.289182584449109e-05, 0.0016319767963185378, 0.014316815752157097,
                0.08040450649675021, 0.3150278089260862, 0.8880469144590635, 1.7986674051152696,
                2.531185427451907, 2.264601069820465, 0.9999999999809502)
_CX_DOUBLE_Q = (0.0001646464744357999, 0.0028926035572096223, 0.025458218450799933,
                0.14395957890741015, 0.5709778786579588, 1.6438324842415017, 3.4547593738242197,
                5.205774286633699, 5.359753643225191, 3.3929802366019426, 1.0)


def erf(k: Arithmetic, x: Value, precise: bool = False) -> Value:
    """The error function; `precise` for an error of one unit in the last place of float32."""
    if x.dtype != FLOAT32:
        return _erf_double(k, x)
    if precise:
        return _erf_precise(k, x)
    inside = k.within(x, -ERF_LIMIT, ERF_LIMIT)
    z = k.mul(inside, inside)
    return k.div(k.mul(inside, k.polynomial(z, ERF_P)), k.polynomial(z, ERF_Q))


def _erf_precise(k: Arithmetic, x: Value) -> Value:
    t = k.within(k.abs(x), None, 4.0)  # beyond, erf of float32 is 1
    r = k.fma(k.pairwise(t, _FAR), t, k.neg(t))
    far = k.copysign(k.sub(1.0, exponential.exp_near_zero(k, r)), x)
    near = k.fma(k.pairwise(k.mul(x, x), _NEAR), x, x)
    return k.select(k.gt(t, _FAR_FROM), far, near)


def _erf_double(k: Arithmetic, x: Value) -> Value:
    z = k.mul(x, x)
    near = k.div(k.mul(x, k.pairwise(z, _DOUBLE_P)), k.pairwise(z, _DOUBLE_Q))
    far = k.copysign(k.sub(1.0, _erfc_double(k, k.within(k.abs(x), 0.5, 27.3))), x)
    return k.select(k.gt(k.abs(x), 1.0), far, near)


def _erfc_single(k: Arithmetic, x: Value) -> Value:
    """erfc of float32 x from 0 to 10.1: exp(-x²) 2**64 times 2**-64 P / Q.

    Both factors are normal numbers, and only their product is rounded to a subnormal one. The
    quotient does not depend on the exponential."""
    square = k.mul(x, x)
    ratio = k.div(k.pairwise(x, _CX_P), k.pairwise(x, _CX_Q))
    return k.mul(exponential.exp_of_square(k, x, square, _LIFT), ratio)


def _erfc_double(k: Arithmetic, x: Value) -> Value:
    """erfc of positive x: exp(-x²), corrected for the rounding of x², times a rational function."""
    square = k.mul(x, x)
    lost = k.fma(x, x, k.neg(square))
    e = exponential.exp_negative(k, k.neg(square))
    e = k.fma(k.neg(lost), e, e)
    return k.div(k.mul(e, k.pairwise(x, _CX_DOUBLE_P)), k.pairwise(x, _CX_DOUBLE_Q))


def erfc(k: Arithmetic, x: Value) -> Value:
    """1 - erf(x), accurate for large x."""
    if x.dtype == FLOAT32:
        y = _erfc_single(k, k.within(k.abs(x), None, 10.1))
        return k.select(k.lt(x, 0.0), k.sub(2.0, y), y)
    y = _erfc_double(k, k.within(k.abs(x), 0.45, 27.3))
    y = k.select(k.lt(x, 0.0), k.sub(2.0, y), y)
    z = k.mul(x, x)
    near = k.div(k.mul(x, k.pairwise(z, _DOUBLE_P)), k.pairwise(z, _DOUBLE_Q))
    return k.select(k.lt(k.abs(x), 0.5), k.sub(1.0, near), y)


def erf_inv(k: Arithmetic, x: Value) -> Value:
    """Inverse of the error function, ±inf at ±1 and NaN beyond."""
    w = k.neg(exponential.log1p(k, k.mul(k.neg(x), x)))
    table = ERF_INV_SINGLE if x.dtype == FLOAT32 else ERF_INV_DOUBLE
    p = None
    for limit, root, center, coefficients in reversed(table):
        t = k.sub(k.sqrt(w) if root else w, center)
        here = k.polynomial(t, coefficients)
        p = here if p is None else k.select(k.lt(w, limit), here, p)
    assert p is not None
    edge = k.eq(k.abs(x), 1.0)
    return k.select(edge, k.mul(x, INFINITY), k.mul(p, x))
