"""The Hurwitz zeta function Σ (k + q)⁻ˢ: its first terms, and the rest by Euler and Maclaurin."""

from __future__ import annotations

import math

from toile.compiler.scalar.builder import FLOAT64, Arithmetic, Value
from toile.compiler.scalar.mathematics.apart import Digits, apart
from toile.compiler.scalar.mathematics.exponential import INFINITY, NAN
from toile.compiler.scalar.mathematics.powers import power_double, power_short

# B(2n) / (2n)!
_RATIOS = tuple(b / math.factorial(2 * n) for n, b in enumerate(
    (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798,
     -174611 / 330, 854513 / 138, -236364091 / 2730), 1))


def _sum(k: Arithmetic, s: Value, q: Value, single: bool) -> Value:
    """The sum for q > 0. Its relative error is 2e-9 or 1e-16, plus those of the powers."""
    terms, corrections, power = (3, 7, power_short) if single else (6, 12, power_double)
    together = 4 if single else 1  # powers in each step of the loop: many would make the code long
    exponent, zero = k.neg(s), k.constant(0.0, FLOAT64)

    def step(i: Value, total: Value, last: Value) -> list[Value]:
        for _ in range(together):
            last = power(k, k.add(q, i), exponent)
            i, total = k.add(i, 1.0), k.add(total, last)
        return [i, total, last]

    _, total, last = k.loop(lambda i, *_: k.le(i, float(terms)), step, zero, zero, zero)
    z = k.add(q, float(terms))
    w = k.div(1.0, z)
    # Where s / z is larger than 8, the corrections, which would diverge, are negligible.
    u = k.mul(s, w)
    u = k.select(k.gt(u, 8.0), 8.0, u)
    rest = k.constant(_RATIOS[corrections - 1], FLOAT64)
    for n in range(corrections - 1, 0, -1):
        factor = k.mul(k.fma(w, 2.0 * n - 1, u), k.fma(w, 2.0 * n, u))
        rest = k.fma(rest, factor, _RATIOS[n - 1])
    # the term at z was added in full, but the formula takes half of it
    rest = k.fma(u, rest, k.sub(k.div(z, k.sub(s, 1.0)), 0.5))
    return k.fma(last, rest, total)


@apart
def zeta(k: Arithmetic, digits: Digits, s: Value, q: Value) -> Value:
    """The Hurwitz zeta function; s > 1, and s is an integer if q < 0.

    The negative terms of a sum over q + k are those of two sums over positive numbers:
    ζ(s, q) = ζ(s, f) ± (ζ(s, 1 - f) - ζ(s, 1 - q)) with f = q modulo 1."""
    below = k.lt(q, 0.0)
    half = k.mul(s, 0.5)
    even = k.eq(half, k.floor(half))
    one = k.constant(1.0, FLOAT64)
    sign = k.select(even, one, k.constant(-1.0, FLOAT64))
    count = k.select(below, 3.0, one)
    first = k.select(below, k.sub(q, k.floor(q)), q)
    second, third = k.sub(k.ceil(q), q), k.sub(1.0, q)

    def step(i: Value, total: Value) -> list[Value]:
        at = k.select(k.eq(i, 0.0), first, k.select(k.eq(i, 1.0), second, third))
        times = k.select(k.eq(i, 0.0), one, k.select(k.eq(i, 1.0), sign, k.neg(sign)))
        return [k.add(i, 1.0), k.fma(times, _sum(k, s, at, digits.single), total)]

    zero = k.constant(0.0, FLOAT64)
    _, y = k.loop(lambda i, total: k.lt(i, count), step, zero, zero)
    pole = k.and_(k.le(q, 0.0), k.eq(q, k.floor(q)))
    y = k.select(pole, k.select(even, k.constant(INFINITY, FLOAT64), NAN), y)
    wrong = k.or_(k.lt(s, 1.0), k.and_(below, k.ne(s, k.floor(s))))
    infinite = k.or_(k.eq(k.abs(s), INFINITY), k.eq(q, INFINITY))
    wrong = k.or_(k.and_(wrong, k.not_(pole)), k.or_(infinite, k.is_nan(s)))
    return k.select(k.eq(s, 1.0), INFINITY, k.select(wrong, NAN, y))
