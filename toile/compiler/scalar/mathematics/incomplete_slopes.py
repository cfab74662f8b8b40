"""Derivatives of the incomplete gamma functions with respect to their parameter.

∂P/∂a = -K E, with E = xᵃ e⁻ˣ / Γ(a + 1), and dx/da = K x / a for samples x at a fixed P. There is
one function K > 0, from the same series, fraction and expansion as P and Q.
"""

from __future__ import annotations

from toile.compiler.scalar.builder import FLOAT64, Arithmetic, Value
from toile.compiler.scalar.mathematics.apart import MOST_TERMS, Digits, apart, when
from toile.compiler.scalar.mathematics.exponential import INFINITY, NAN, exp
from toile.compiler.scalar.mathematics.incomplete import (
    SMALL,
    Parts,
    eta,
    expands,
    parts,
    polynomial,
)
from toile.primitives.arrays import temme


def _by_series(
    k: Arithmetic, on: Value, a: Value, x: Value, of: Parts, digits: Digits
) -> Value:
    """K from the terms of M times the derivative of their logarithms, -Σ 1 / (a + i)."""
    large = k.gt(a, 2.0**200)  # only x / a matters then
    first = k.select(large, 2.0**200, a)
    x = k.select(large, k.mul(k.mul(x, of.inverse), 2.0**200), x)

    def step(t: Value, term: Value, total: Value, inverses: Value, slopes: Value) -> list[Value]:
        ts = [k.add(t, float(i)) for i in range(1, 5)]
        low, high = k.mul(ts[0], ts[1]), k.mul(ts[2], ts[3])
        inverse = k.div(1.0, k.mul(low, high))
        of_low, of_high = k.mul(inverse, high), k.mul(inverse, low)
        for part, other in ((of_low, 1), (of_low, 0), (of_high, 3), (of_high, 2)):
            one = k.mul(part, ts[other])
            term = k.mul(k.mul(term, x), one)
            inverses = k.add(inverses, one)
            total = k.add(total, term)
            slopes = k.fma(term, inverses, slopes)
        return [ts[3], term, total, inverses, slopes]

    def going(t: Value, term: Value, total: Value, inverses: Value, slopes: Value) -> Value:
        return k.and_(on, k.gt(term, k.mul(total, digits.least / 32)))

    one, zero = k.constant(1.0, FLOAT64), k.constant(0.0, FLOAT64)
    _, _, total, _, slopes = k.loop(going, step, first, one, one, zero, zero)
    return k.fma(k.neg(total), of.slope, slopes)


def _by_fraction(
    k: Arithmetic, on: Value, a: Value, x: Value, of: Parts, digits: Digits
) -> Value:
    """K from R and its derivative: the convergents of `_fraction`, differentiated."""
    w = k.div(1.0, x)
    two, aw, most = k.add(w, w), k.mul(a, w), k.mul(w, MOST_TERMS)
    start = k.add(k.sub(1.0, aw), w)
    inverse = k.div(1.0, start)

    def slope_of(
        b: Value, c: Value, dc: Value, y: Value, dy: Value, y1: Value, dy1: Value
    ) -> Value:
        """The derivative of b y + c y1, where that of b is -1/x."""
        return k.fma(b, dy, k.fma(k.neg(w), y, k.fma(dc, y1, k.mul(c, dy1))))

    def step(*state: Value) -> list[Value]:
        n, b, a2, da2, db2, a1, da1, b1, db1 = state
        b2 = k.constant(1.0, FLOAT64)
        for _ in range(2):
            n, b = k.add(n, w), k.add(b, two)
            c, dc = k.mul(n, k.sub(aw, n)), k.mul(n, w)
            da1, da2 = da2, slope_of(b, c, dc, a2, da2, a1, da1)
            db1, db2 = db2, slope_of(b, c, dc, b2, db2, b1, db1)
            a1, a2 = a2, k.fma(b, a2, k.mul(c, a1))
            b1, b2 = b2, k.fma(b, b2, k.mul(c, b1))
        down = k.div(1.0, b2)
        return [n, b, *(k.mul(v, down) for v in (a2, da2, db2, a1, da1, b1, db1))]

    def going(*state: Value) -> Value:
        n, _, ratio, da2, db2, a1, da1, b1, db1 = state
        slope = k.fma(k.neg(ratio), db2, da2)
        square = k.mul(b1, b1)
        before = k.fma(da1, b1, k.neg(k.mul(a1, db1)))  # the slope of a1 / b1 times b1²
        change = k.abs(k.fma(slope, square, k.neg(before)))
        # the change of the slope may happen to be small: that of the ratio must be small, too
        change = k.maximum(change, k.abs(k.mul(b1, k.fma(ratio, b1, k.neg(a1)))))
        size = k.mul(k.add(k.abs(slope), k.abs(ratio)), k.mul(square, digits.change))
        return k.and_(k.and_(on, k.lt(n, most)), k.gt(change, size))

    zero = k.constant(0.0, FLOAT64)
    state = k.loop(going, step, zero, start, inverse, zero, k.neg(k.mul(w, inverse)), zero, zero,
                   inverse, zero)
    ratio = state[2]
    slope = k.fma(k.neg(ratio), state[4], state[3])
    return k.fma(aw, k.fma(ratio, of.slope, slope), k.mul(ratio, w))


def _by_expansion(k: Arithmetic, a: Value, x: Value, of: Parts, digits: Digits) -> Value:
    """K from Temme's expansion S(a, η): e⁻ʸ cancels in Γ* (log λ / η + log λ S - S / 2a + ∂S/∂a)
    with λ = x / a and Γ* = Γ(a) / (aᵃ e⁻ᵃ √(2π / a))."""
    w, at = of.inverse, eta(k, a, x, of)
    same = k.eq(at, 0.0)
    below = k.div(1.0, k.select(same, 1.0, at))
    mu = k.mul(k.sub(x, a), w)
    of_mu, of_log = (k.select(same, 1.0, k.mul(v, below)) for v in (mu, of.log))
    total, weighted, moved = (k.constant(0.0, FLOAT64) for _ in range(3))
    for i, c in reversed(list(enumerate(temme.expansion(digits.least, digits.expands)))):
        here = polynomial(k, at, c)
        total, weighted = k.fma(total, w, here), k.fma(weighted, w, k.mul(here, float(i)))
        moved = k.fma(moved, w, polynomial(k, at, temme.derivative(c)))
    # ∂η/∂a = -μ / (a η)
    y = k.fma(k.neg(w), k.fma(of_mu, moved, k.fma(total, 0.5, weighted)), k.fma(
        of.log, total, of_log))
    return k.mul(y, exp(k, of.stirling))


def _slope(k: Arithmetic, digits: Digits, a: Value, x: Value) -> tuple[Value, Value]:
    """K and E."""
    of = parts(k, a, x)
    real = k.and_(k.gt(k.minimum(a, x), 0.0), k.lt(k.maximum(a, x), INFINITY))
    near = expands(k, a, x, digits)
    others = k.and_(real, k.not_(near))
    beyond = k.and_(k.gt(x, a), k.gt(x, SMALL))
    inside, outside = k.and_(others, k.not_(beyond)), k.and_(others, beyond)
    y = k.select(beyond, _by_fraction(k, outside, a, x, of, digits),
                 _by_series(k, inside, a, x, of, digits))
    y = when(k, near, lambda: _by_expansion(k, a, x, of, digits), y)
    return y, of.density


def _of_domain(k: Arithmetic, a: Value, x: Value, y: Value) -> Value:
    """0 for x = 0, NaN outside the domain."""
    y = k.select(k.eq(x, 0.0), 0.0, y)
    inside = k.and_(k.gt(a, 0.0), k.and_(k.ge(x, 0.0), k.lt(x, INFINITY)))
    return k.select(inside, y, NAN)


@apart
def igamma_grad_a(k: Arithmetic, digits: Digits, a: Value, x: Value) -> Value:
    """The derivative of P(a, x) with respect to a."""
    slope, density = _slope(k, digits, a, x)
    return _of_domain(k, a, x, k.neg(k.mul(slope, density)))


@apart
def random_gamma_grad(k: Arithmetic, digits: Digits, a: Value, x: Value) -> Value:
    """dx/da of a Gamma(a) sample x at a fixed quantile."""
    slope, _ = _slope(k, digits, a, x)
    return _of_domain(k, a, x, k.mul(slope, k.div(x, a)))
