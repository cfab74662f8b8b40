"""log |Γ| and its derivatives, by Stirling's series in float64.

Arguments below 8 are first raised by the recurrence Γ(x + 1) = x Γ(x), and those below 1/2 are
reflected to 1 - x. float32 is computed in float64 and rounded once.
"""

from __future__ import annotations

import math

from toile.compiler.scalar.builder import FLOAT64, Arithmetic, Value
from toile.compiler.scalar.mathematics.exponential import INFINITY, NAN, log
from toile.compiler.scalar.mathematics.trigonometric import sine_cosine_of_turns

_RAISED = 8
# Stirling's series in 1/z²: B(2n) / (2n (2n - 1)), and B(2n) / (2n) for the derivative.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
SERIES = tuple(b / (2 * n * (2 * n - 1)) for n, b in enumerate(_BERNOULLI, 1))[::-1]
SLOPES = tuple(b / (2 * n) for n, b in enumerate(_BERNOULLI, 1))[::-1]


def _raised(k: Arithmetic, x: Value) -> tuple[Value, Value, Value]:
    """z = x + 8 for small x, the product x (x + 1) ... (x + 7), and its logarithmic derivative."""
    small = k.lt(x, float(_RAISED))
    a = k.select(small, x, 1.0)
    product, slope = a, k.constant(1.0, FLOAT64)  # slope / product = Σ 1 / (x + i)
    for i in range(1, _RAISED):
        term = k.add(a, float(i))
        slope = k.fma(slope, term, product)
        product = k.mul(product, term)
    z = k.select(small, k.add(x, float(_RAISED)), x)
    one = k.constant(1.0, FLOAT64)
    return z, k.select(small, product, one), k.select(small, k.div(slope, product), 0.0)


def lgamma(k: Arithmetic, x: Value) -> Value:
    """log |Γ(x)|; infinite at the poles and at both infinities."""
    dtype, x = x.dtype, k.convert(x, FLOAT64)
    left = k.lt(x, 0.5)
    a = k.select(left, k.sub(1.0, x), x)
    z, product, _ = _raised(k, a)
    inverse = k.div(1.0, z)
    series = k.mul(inverse, k.pairwise(k.mul(inverse, inverse), SERIES))
    log_z = log(k, z)
    y = k.add(k.fma(k.sub(z, 0.5), k.sub(log_z, 1.0), series), 0.5 * math.log(2 * math.pi) - 0.5)
    y = k.sub(y, log(k, product))
    # |Γ(x) Γ(1 - x)| = π / |sin πx|
    s, _ = sine_cosine_of_turns(k, k.sub(x, k.round_even(x)))
    mirrored = k.sub(k.sub(math.log(math.pi), log(k, k.abs(s))), y)
    mirrored = k.select(k.eq(s, 0.0), INFINITY, mirrored)
    y = k.select(left, mirrored, y)
    y = k.select(k.or_(k.eq(x, 1.0), k.eq(x, 2.0)), 0.0, y)
    y = k.select(k.eq(k.abs(x), INFINITY), INFINITY, y)
    return k.convert(y, dtype)


def digamma(k: Arithmetic, x: Value) -> Value:
    """The derivative of log Γ: -inf at zero, NaN at the negative integers."""
    dtype, x = x.dtype, k.convert(x, FLOAT64)
    left = k.lt(x, 0.5)
    a = k.select(left, k.sub(1.0, x), x)
    z, _, slope = _raised(k, a)
    inverse = k.div(1.0, z)
    square = k.mul(inverse, inverse)
    series = k.fma(square, k.pairwise(square, SLOPES), k.mul(inverse, 0.5))
    y = k.sub(k.sub(log(k, z), series), slope)
    # ψ(x) = ψ(1 - x) - π / tan πx
    s, c = sine_cosine_of_turns(k, k.sub(x, k.round_even(x)))
    y = k.select(left, k.sub(y, k.div(k.mul(c, math.pi), s)), y)
    pole = k.and_(k.lt(x, 0.0), k.eq(x, k.floor(x)))
    y = k.select(pole, NAN, y)
    return k.convert(k.select(k.eq(x, 0.0), -INFINITY, y), dtype)


def _cotangent(order: int) -> list[int]:
    """The derivative of cot x of this order as a polynomial in cot x: coefficients from c⁰ on."""
    found = [0, 1]
    for _ in range(order):  # dc/dx = -(1 + c²)
        slope = [i * c for i, c in enumerate(found)][1:]
        found = [-(a + b) for a, b in zip([*slope, 0, 0], [0, 0, *slope], strict=True)]
    return found


def _power(k: Arithmetic, x: Value, n: int) -> Value:
    """x to the power n >= 1, by repeated squaring."""
    if n == 1:
        return x
    half = _power(k, x, n // 2)
    square = k.mul(half, half)
    return k.mul(square, x) if n % 2 else square


def polygamma(k: Arithmetic, x: Value, order: int) -> Value:
    """A derivative of digamma, of order >= 1; at the poles infinite or, for even orders, NaN."""
    dtype, x = x.dtype, k.convert(x, FLOAT64)
    left = k.lt(x, 0.5)
    a = k.select(left, k.sub(1.0, x), x)
    small = k.lt(a, float(2 * _RAISED))
    near = k.select(small, a, 1.0)
    terms = k.constant(0.0, FLOAT64)  # Σ 1 / (a + i)ⁿ⁺¹
    for i in range(2 * _RAISED):
        inverse = k.div(1.0, k.add(near, float(i)) if i else near)
        terms = k.add(terms, _power(k, inverse, order + 1))
    z = k.select(small, k.add(a, float(2 * _RAISED)), a)
    inverse = k.div(1.0, z)
    # (n-1)! / zⁿ + n! / (2 zⁿ⁺¹) + Σ B(2i) (2i+n-1)! / ((2i)! z²ⁱ⁺ⁿ)
    series = [b * math.factorial(2 * i + order - 1) / math.factorial(2 * i)
              for i, b in enumerate(_BERNOULLI, 1)][::-1]
    square = k.mul(inverse, inverse)
    y = k.fma(square, k.pairwise(square, series), k.fma(
        inverse, math.factorial(order) / 2, float(math.factorial(order - 1))))
    y = k.mul(_power(k, inverse, order), y)
    y = k.add(y, k.select(small, k.mul(terms, float(math.factorial(order))), 0.0))
    y = y if order % 2 else k.neg(y)
    # ψ(x) = (-1)ⁿ ψ(1 - x) - π dⁿ cot(πx) / dxⁿ
    s, c = sine_cosine_of_turns(k, k.sub(x, k.round_even(x)))
    cotangent = [float(-(math.pi ** (order + 1)) * v) for v in _cotangent(order)][::-1]
    mirrored = k.add(k.neg(y) if order % 2 else y, k.polynomial(k.div(c, s), cotangent))
    y = k.select(left, mirrored, y)
    pole = k.and_(k.le(x, 0.0), k.eq(x, k.floor(x)))
    y = k.select(pole, INFINITY if order % 2 else NAN, y)
    return k.convert(k.select(k.eq(x, INFINITY), NAN, y), dtype)
