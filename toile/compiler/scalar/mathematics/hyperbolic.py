"""Hyperbolic functions and their inverses."""

from __future__ import annotations

import math

from toile.compiler.scalar.builder import FLOAT32, Arithmetic, Value
from toile.compiler.scalar.mathematics import exponential
from toile.compiler.scalar.mathematics.exponential import INFINITY, NAN

# tanh x = x P(x²) / Q(x²) on |x| <= 9.02, where float32 reaches 1; relative error 2**-25.5.
_TANH_P = (1.3318880946285849e-08, 2.058333230415669e-05, 0.0034940250202772126,
           0.1337970974224538, 0.9999999789908649)
_TANH_Q = (7.76193799304322e-07, 0.00032830775828149067, 0.025871036396938444,
           0.46713024972766126, 1.0)
_TANH_LIMIT = 9.02
_TANH_SMALL = (1.57394409e-2, -5.23025580e-2, 1.33152470e-1, -3.33327681e-1)  # (tanh x - x) / x³


def tanh(k: Arithmetic, x: Value, precise: bool = False) -> Value:
    """Hyperbolic tangent; `precise` for 2 units in the last place of float32 instead of 5."""
    if x.dtype == FLOAT32 and not precise:
        inside = k.within(x, -_TANH_LIMIT, _TANH_LIMIT)
        z = k.mul(inside, inside)
        return k.div(k.mul(inside, k.pairwise(z, _TANH_P)), k.pairwise(z, _TANH_Q))
    a = k.abs(x)
    near = k.lt(a, 0.55)  # beyond, the distance from 1 is more accurate: 2 / (exp(2a) + 1)
    if x.dtype == FLOAT32:
        e = exponential.exp_near_zero(k, k.within(k.add(a, a), None, 20.0))
        y = k.sub(1.0, k.div(2.0, k.add(e, 1.0)))
        z = k.mul(x, x)
        small = k.fma(k.mul(k.pairwise(z, _TANH_SMALL), z), a, a)
        return k.copysign(k.select(near, small, y), x)
    t = exponential.expm1(k, k.add(a, a))
    y = k.div(k.select(near, t, -2.0), k.add(t, 2.0))
    return k.copysign(k.select(near, y, k.add(y, 1.0)), x)


def sinh(k: Arithmetic, x: Value) -> Value:
    """Hyperbolic sine: (e + e / (e + 1)) / 2 with e = exp |x| - 1, which is computed as 4 q."""
    q = exponential.expm1_quarter(k, k.abs(x))
    y = k.fma(q, 2.0, k.mul(k.div(q, k.add(q, 0.25)), 0.5))
    y = k.select(k.lt(q, INFINITY), y, q)
    return k.copysign(y, x)


def cosh(k: Arithmetic, x: Value) -> Value:
    """Hyperbolic cosine: (e + 1/e) / 2 with e = exp |x|, which is computed as 4 q."""
    q = exponential.exp_quarter(k, k.abs(x))
    return k.fma(q, 2.0, k.div(0.125, q))


# Beyond this, x² + 1 rounds to x².
_LARGE = 2.0**28


def asinh(k: Arithmetic, x: Value) -> Value:
    """Inverse hyperbolic sine: log(1 + a + a² / (1 + sqrt(1 + a²))) of a = |x|."""
    a = k.abs(x)
    far = k.ge(a, _LARGE)
    b = k.select(far, 1.0, a)
    square = k.mul(b, b)
    inner = k.add(b, k.div(square, k.add(k.sqrt(k.add(square, 1.0)), 1.0)))
    y = k.select(far, k.add(exponential.log(k, a), math.log(2)), exponential.log_of_sum(k, inner))
    return k.copysign(y, x)


def acosh(k: Arithmetic, x: Value) -> Value:
    """Inverse hyperbolic cosine: log(1 + t + sqrt(2 t + t²)) of t = x - 1."""
    far = k.ge(x, _LARGE)
    t = k.sub(k.select(far, 2.0, x), 1.0)
    inner = k.add(t, k.sqrt(k.mul(t, k.add(t, 2.0))))
    y = k.select(far, k.add(exponential.log(k, x), math.log(2)), exponential.log_of_sum(k, inner))
    return k.select(k.lt(x, 1.0), NAN, y)


def atanh(k: Arithmetic, x: Value) -> Value:
    """Inverse hyperbolic tangent: log(1 + 2 a / (1 - a)) / 2 of a = |x|."""
    a = k.abs(x)
    y = k.mul(exponential.log_of_sum(k, k.div(k.add(a, a), k.sub(1.0, a))), 0.5)
    y = k.select(k.eq(a, 1.0), INFINITY, y)
    y = k.select(k.gt(a, 1.0), NAN, y)
    return k.copysign(y, x)
