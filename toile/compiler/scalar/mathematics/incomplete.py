"""The incomplete gamma functions.

With E = xᵃ e⁻ˣ / Γ(a + 1), the lower function is P = E M, where M is a series, and the upper one is
Q = E a R, where R is a continued fraction. Where both would need many terms (large a, and x near
a), Temme's uniform expansion gives P or Q. Each of these is computed only if some element of a
vector needs it. All numbers are float64; results of float32 need fewer terms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from toile.compiler.scalar.builder import FLOAT64, Arithmetic, Value
from toile.compiler.scalar.mathematics.apart import MOST_TERMS, Digits, apart, when
from toile.compiler.scalar.mathematics.error import erfc
from toile.compiler.scalar.mathematics.exponential import INFINITY, NAN, exp, expm1, log
from toile.compiler.scalar.mathematics.stirling import log_near, raised
from toile.primitives.arrays import temme


class Parts(NamedTuple):
    """Numbers that depend on a parameter a > 0 and an argument x > 0; z is a, or a + 8 if a is
    small."""

    density: Value  # E = xᵃ e⁻ˣ / Γ(a + 1)
    log: Value  # log(x / z)
    decay: Value  # a (x/a - 1 - log(x/a)), if a is not small
    slope: Value  # log x - ψ(a + 1)
    stirling: Value
    inverse: Value  # 1 / z


def parts(k: Arithmetic, a: Value, x: Value) -> Parts:
    """What the functions of a and x are composed of."""
    of = raised(k, a)
    tiny = k.lt(x, 2.0**-900)
    ratio = k.mul(k.select(tiny, k.mul(x, 2.0**128), x), of.inverse)
    relative, rest = log_near(k, ratio, k.mul(k.sub(x, of.z), of.inverse))
    relative = k.select(tiny, k.sub(relative, 128 * math.log(2)), relative)
    decay = k.neg(k.mul(of.z, rest))
    exponent = k.select(of.small, k.fma(a, relative, k.sub(a, x)), k.neg(decay))
    factor = k.mul(of.factor, k.sqrt(k.mul(of.z, 1 / (2 * math.pi))))
    density = k.mul(factor, exp(k, k.sub(exponent, of.stirling)))
    return Parts(density, relative, decay, k.add(relative, of.slope), of.stirling, of.inverse)


def _series(k: Arithmetic, on: Value, a: Value, x: Value, digits: Digits) -> Value:
    """M = Σ xⁿ / ((a + 1) ... (a + n)), four terms with one division, for x <= a or small x."""
    fourth = k.mul(k.mul(x, x), k.mul(x, x))

    def step(t: Value, term: Value, total: Value) -> list[Value]:
        t1, t2, t3, t4 = (k.add(t, float(i)) for i in range(1, 5))
        t34 = k.mul(t3, t4)
        t234 = k.mul(t2, t34)
        terms = k.fma(k.fma(k.add(x, t4), x, t34), x, t234)
        term = k.div(term, k.mul(t1, t234))
        return [t4, k.mul(term, fourth), k.fma(k.mul(term, x), terms, total)]

    def going(t: Value, term: Value, total: Value) -> Value:
        return k.and_(on, k.gt(term, k.mul(total, digits.least)))

    one = k.constant(1.0, FLOAT64)
    return k.loop(going, step, a, one, one)[2]


def _fraction(k: Arithmetic, on: Value, a: Value, x: Value, digits: Digits) -> Value:
    """x R for x > a and x > 1: the convergents A / B of Legendre's continued fraction
    1 / (b0 + c1 / (b1 + c2 / ...)) with b = (x + 2n + 1 - a) / x and c = n (a - n) / x².

    After every four terms, both are divided by B, which is then 1."""
    w = k.div(1.0, x)
    two, aw, most = k.add(w, w), k.mul(a, w), k.mul(w, MOST_TERMS)
    first = k.div(1.0, k.add(k.sub(1.0, aw), w))

    def step(n: Value, b: Value, ratio: Value, a1: Value, b1: Value) -> list[Value]:
        a2, b2 = ratio, k.constant(1.0, FLOAT64)
        for _ in range(4):
            n, b = k.add(n, w), k.add(b, two)
            c = k.mul(n, k.sub(aw, n))
            a1, a2 = a2, k.fma(b, a2, k.mul(c, a1))
            b1, b2 = b2, k.fma(b, b2, k.mul(c, b1))
        inverse = k.div(1.0, b2)
        return [n, b, k.mul(a2, inverse), k.mul(a1, inverse), k.mul(b1, inverse)]

    def going(n: Value, b: Value, ratio: Value, a1: Value, b1: Value) -> Value:
        change = k.abs(k.fma(ratio, b1, k.neg(a1)))
        return k.and_(k.and_(on, k.lt(n, most)), k.gt(change, k.mul(k.abs(a1), digits.change)))

    zero = k.constant(0.0, FLOAT64)
    return k.loop(going, step, zero, k.add(k.sub(1.0, aw), w), first, zero, first)[2]


SMALL, SMALL_PARAMETER = 1.1, 1.25  # x and a up to which Q may need the alternating series
# log Γ(1 + a) / a = P / Q from 0 to 1.25.
_LGAMMA_P = (0.00023786244708105537, 0.011434834228796098, 0.1312012343058987, 0.5449169874868565,
             0.8274590794009906, 0.01809848134497392, -0.956132814313064, -0.5772156649015329)
_LGAMMA_Q = (5.091014937543562e-05, 0.004401907327133669, 0.08398081858618053, 0.6156101539688904,
             2.1185280244662947, 3.66504171299664, 3.081343691600237, 1.0)


def _alternating(k: Arithmetic, a: Value, x: Value, digits: Digits) -> Value:
    """Q for small a and x, exact where it is small: 1 - P, as 1 - xᵃ / Γ(a + 1) minus the rest of
    the series xᵃ / Γ(a) Σ (-x)ⁿ / (n! (a + n))."""
    a = k.select(k.lt(a, SMALL_PARAMETER), a, SMALL_PARAMETER)
    rate = k.div(k.pairwise(a, _LGAMMA_P), k.pairwise(a, _LGAMMA_Q))
    power = expm1(k, k.mul(a, k.sub(log(k, x), rate)))  # xᵃ / Γ(a + 1) - 1
    n = digits.alternating
    below = k.add(a, float(n))  # the sum is above / below
    above = k.constant((-1.0) ** n / math.factorial(n), FLOAT64)
    for i in range(n - 1, 0, -1):
        term = k.add(a, float(i))
        above = k.fma(below, (-1.0) ** i / math.factorial(i), k.mul(k.mul(above, x), term))
        below = k.mul(below, term)
    total = k.mul(a, k.mul(x, k.div(above, below)))
    return k.neg(k.fma(power, total, k.add(power, total)))


def eta(k: Arithmetic, a: Value, x: Value, of: Parts) -> Value:
    """η of Temme's expansion, which is a function of x / a."""
    root = k.mul(k.sqrt(of.decay), k.sqrt(k.mul(of.inverse, 2.0)))
    return k.select(k.lt(x, a), k.neg(root), root)


def polynomial(k: Arithmetic, x: Value, c: Sequence[float]) -> Value:
    """Σ c xⁿ, even if there is only one coefficient."""
    return k.pairwise(x, c) if len(c) > 1 else k.constant(c[0], FLOAT64)


def _expanded(k: Arithmetic, a: Value, x: Value, of: Parts, digits: Digits) -> Value:
    """P for x < a, Q for x >= a: erfc(√y) / 2 ± e⁻ʸ / √(2πa) Σ cₖ(η) / aᵏ with y = a η²/2."""
    at, total = eta(k, a, x, of), k.constant(0.0, FLOAT64)
    for c in reversed(temme.expansion(digits.least, digits.expands)):
        total = k.fma(total, of.inverse, polynomial(k, at, c))
    # E = e⁻ʸ / √(2πa) e⁻ˢ
    s = of.stirling
    lifted = k.mul(of.density, k.polynomial(s, [1 / math.factorial(i) for i in range(5, -1, -1)]))
    total = k.mul(lifted, total)
    total = k.select(k.lt(x, a), k.neg(total), total)
    return k.fma(erfc(k, k.sqrt(of.decay)), 0.5, total)


def expands(k: Arithmetic, a: Value, x: Value, digits: Digits) -> Value:
    """Whether Temme's expansion is used."""
    near = k.le(k.abs(k.sub(x, a)), k.mul(a, temme.WIDTH))
    return k.and_(k.gt(a, digits.expands), near)


def _incomplete(k: Arithmetic, digits: Digits, upper: bool, a: Value, x: Value) -> Value:
    """P or Q for positive numbers. Roughly, the larger one is computed as 1 minus the other."""
    of = parts(k, a, x)
    real = k.and_(k.gt(of.density, 0.0), k.gt(k.minimum(a, x), 0.0))
    near = expands(k, a, x, digits)
    others = k.and_(real, k.not_(near))
    beyond = k.and_(k.gt(x, a), k.gt(x, SMALL if upper else 3.0))
    inside = k.and_(others, k.not_(beyond))
    ratio = k.div(_fraction(k, k.and_(others, beyond), a, x, digits), x)
    y = k.mul(of.density, k.mul(a, ratio))  # Q
    if upper:
        # where xᵃ / Γ(a + 1) > 2/3, roughly, and so P is not far from 1
        power = k.mul(of.density, k.polynomial(x, (1 / 6, 1 / 2, 1.0, 1.0)))
        small = k.and_(k.and_(k.le(x, SMALL), k.lt(a, SMALL_PARAMETER)), k.gt(power, 0.67))
        small = k.and_(inside, small)
        inside = k.and_(inside, k.not_(small))
        y = when(k, small, lambda: _alternating(k, a, x, digits), y)
        beyond = k.or_(beyond, small)
    y = k.select(inside, k.mul(of.density, _series(k, inside, a, x, digits)), y)
    y = when(k, near, lambda: _expanded(k, a, x, of, digits), y)
    beyond = k.select(near, k.ge(x, a), beyond)
    y = k.select(k.or_(real, near), y, 0.0)
    return k.select(beyond if upper else k.not_(beyond), y, k.sub(1.0, y))


def _at_edges(k: Arithmetic, upper: bool, a: Value, x: Value, y: Value) -> Value:
    """Replace the results at zeros and infinities, and outside the domain, where they are NaN."""
    none, all_ = (1.0, 0.0) if upper else (0.0, 1.0)
    y = k.select(k.eq(x, 0.0), none, y)
    y = k.select(k.eq(a, 0.0), all_, y)
    limit = k.select(k.ge(x, 1.0), k.constant(NAN, FLOAT64), k.constant(none, FLOAT64))
    y = k.select(k.eq(a, INFINITY), limit, y)
    y = k.select(k.eq(x, INFINITY), all_, y)
    valid = k.and_(k.ge(k.minimum(a, x), 0.0), k.gt(k.maximum(a, x), 0.0))
    return k.select(valid, y, NAN)


@apart
def igamma(k: Arithmetic, digits: Digits, a: Value, x: Value) -> Value:
    """The regularized lower incomplete gamma function P(a, x)."""
    return _at_edges(k, False, a, x, _incomplete(k, digits, False, a, x))


@apart
def igammac(k: Arithmetic, digits: Digits, a: Value, x: Value) -> Value:
    """The regularized upper incomplete gamma function Q(a, x) = 1 - P(a, x)."""
    return _at_edges(k, True, a, x, _incomplete(k, digits, True, a, x))
