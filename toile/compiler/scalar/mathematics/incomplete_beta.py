"""The incomplete beta function, by a continued fraction.

The fraction is that of Gauss, times xᵃ yᵇ / (a B(a, b)) with y = 1 - x. x and y are exchanged where
it would converge slowly. If both parameters are huge, it needs thousands of terms near the mean;
there the function is computed as a normal distribution with one correction. All numbers are
float64; results of float32 need fewer terms.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from toile.compiler.scalar.builder import FLOAT64, Arithmetic, Value
from toile.compiler.scalar.mathematics.apart import MOST_TERMS, Digits, apart, when
from toile.compiler.scalar.mathematics.error import erfc
from toile.compiler.scalar.mathematics.exponential import INFINITY, NAN, exp
from toile.compiler.scalar.mathematics.stirling import Raised, log_near, raised


class _Density(NamedTuple):
    value: Value  # xᵃ yᵇ / (a B(a, b))
    decay: Value  # the logarithm at the mean minus that here, if no parameter is small


def _density(
    k: Arithmetic, a: Value, b: Value, x: Value, y: Value, rest: Value, lost: Value
) -> _Density:
    """A `_Density` from `rest` = a - x c and `lost`, the rounding error of c, where c = a + b.

    Γ is computed by Stirling's series. Logarithms are those of x c / a and y c / b, the ratios to
    the mean."""
    c = k.add(a, b)
    of_c = raised(k, c)

    def part(v: Value, of: Raised, u: Value, more: Value) -> Value:
        """v log(u c / v); if v is not small, the linear term `more` is subtracted."""
        ratio = k.mul(u, k.mul(of_c.z, of.inverse))
        excess = k.select(of.small, k.sub(ratio, 1.0), k.mul(more, of.inverse))
        log, less = log_near(k, ratio, excess)
        return k.mul(v, k.select(of.small, log, less))

    of_a, of_b = raised(k, a), raised(k, b)
    logs = k.add(part(a, of_a, x, k.neg(rest)), part(b, of_b, y, k.add(rest, lost)))
    # Linear terms cancel: a (x c / a - 1) = -rest, b (y c / b - 1) = rest + lost, and a + b - c.
    zero = k.constant(0.0, FLOAT64)
    linear = k.select(of_a.small, k.select(of_b.small, zero, rest),
                      k.select(of_b.small, k.neg(k.add(rest, lost)), zero))
    exponent = k.add(logs, linear)
    stirling = k.sub(of_c.stirling, k.add(of_a.stirling, of_b.stirling))
    root = k.sqrt(k.mul(k.mul(of_a.z, k.mul(of_b.z, of_c.inverse)), 1 / (2 * math.pi)))
    factor = k.div(k.mul(k.mul(of_a.factor, of_b.factor), k.mul(root, b)), k.mul(of_c.factor, c))
    value = k.mul(factor, exp(k, k.add(exponent, stirling)))
    return _Density(value, k.neg(exponent))


def _fraction(
    k: Arithmetic, on: Value, a: Value, b: Value, x: Value, y: Value, rest: Value, digits: Digits
) -> Value:
    """a / (b₀ + c₁ / (b₁ + c₂ / ...)), Gauss' fraction with every other term, where
    bₘ = m + m (b - m) x g + (a + m) (rest + 1 + m (1 + y)) h and cₘ = (a + m - 1) (a + b + m - 1)
    m (b - m) x² g², for g = 1 / (a + 2m - 1) and h = 1 / (a + 2m + 1).

    Every two terms, the convergents are divided by the last denominator to avoid overflow."""
    c, more, one = k.add(a, b), k.add(rest, 1.0), k.constant(1.0, FLOAT64)
    twice = k.add(y, 1.0)
    inverse = k.div(1.0, k.add(a, 1.0))
    first = k.div(1.0, k.mul(more, inverse))

    def step(m: Value, g: Value, ratio: Value, a1: Value, b1: Value) -> list[Value]:
        low, a2, b2 = k.add(a, k.add(m, m)), ratio, one
        low, high = k.add(low, 1.0), k.add(low, 3.0)
        both = k.div(1.0, k.mul(low, high))
        for i, h in enumerate((k.mul(both, high), k.mul(both, low))):
            here = k.add(m, 1.0) if i else m
            gx = k.mul(g, x)
            part = k.mul(k.mul(here, k.sub(b, here)), gx)
            last = k.mul(k.fma(here, twice, more), h)
            t = k.fma(k.add(a, here), last, k.add(here, part))
            # the first numerator lacks its factor a
            n = k.select(k.eq(here, 1.0), one, k.add(a, k.sub(here, 1.0)))
            n = k.mul(k.mul(n, part), k.mul(k.add(c, k.sub(here, 1.0)), gx))
            a1, a2 = a2, k.fma(t, a2, k.mul(n, a1))
            b1, b2 = b2, k.fma(t, b2, k.mul(n, b1))
            g = h
        down = k.div(1.0, b2)
        return [k.add(m, 2.0), g, k.mul(a2, down), k.mul(a1, down), k.mul(b1, down)]

    def going(m: Value, g: Value, ratio: Value, a1: Value, b1: Value) -> Value:
        change = k.abs(k.fma(ratio, b1, k.neg(a1)))
        more = k.and_(on, k.lt(m, MOST_TERMS))
        return k.and_(more, k.gt(change, k.mul(k.abs(a1), digits.change)))

    zero = k.constant(0.0, FLOAT64)
    return k.loop(going, step, one, inverse, first, zero, first)[2]


def _normal(k: Arithmetic, a: Value, b: Value, rest: Value, decay: Value) -> Value:
    """The function f or, to the right of the mean, 1 - f is erfc(√d) / 2 ± e⁻ᵈ / √(2πc) (1/η - 1/τ)
    with η² = 2d / c and τ = -rest / √(ab); η is a series in τ."""
    right = k.lt(rest, 0.0)
    root_a, root_b = k.sqrt(a), k.sqrt(b)
    skew = k.sub(k.div(root_b, root_a), k.div(root_a, root_b))
    tau = k.neg(k.div(k.div(rest, root_a), root_b))
    terms = k.fma(k.mul(tau, -1 / 12), k.fma(skew, skew, 3.0), k.mul(skew, 1 / 3))
    scale = k.div(1 / math.sqrt(2 * math.pi), k.sqrt(k.add(a, b)))
    more = k.mul(k.mul(exp(k, k.neg(decay)), scale), terms)
    y = k.fma(erfc(k, k.sqrt(decay)), 0.5, k.select(right, k.neg(more), more))
    return k.select(right, k.sub(1.0, y), y)


@apart
def betainc(k: Arithmetic, digits: Digits, a: Value, b: Value, x: Value) -> Value:
    """The regularized incomplete beta function Iₓ(a, b)."""
    valid = k.and_(k.ge(k.minimum(k.minimum(a, b), x), 0.0), k.le(x, 1.0))
    valid = k.and_(valid, k.and_(k.gt(k.maximum(a, b), 0.0), k.lt(k.minimum(a, b), INFINITY)))
    c = k.add(a, b)
    part = k.sub(c, a)
    lost = k.sub(k.sub(part, b), k.sub(a, k.sub(c, part)))  # c - (a + b), exactly
    rest = k.fma(k.neg(x), c, a)
    y = k.sub(1.0, x)
    # If a result is small, subtracting a number near 1 from 1 loses its digits. For small b, the
    # parameters are therefore exchanged only if the fraction would need many terms.
    slow = k.gt(k.mul(x, k.add(c, 2.0)), k.add(a, 1.0))
    least = k.select(k.lt(b, 1e-3), k.constant(1e-5, FLOAT64), k.select(
        k.lt(b, 0.1), k.constant(0.03, FLOAT64), 1.0))
    swap = k.and_(slow, k.lt(y, least))
    p, q = k.select(swap, b, a), k.select(swap, a, b)
    u, v = k.select(swap, y, x), k.select(swap, x, y)
    rest = k.select(swap, k.neg(k.add(rest, lost)), rest)
    density = _density(k, p, q, u, v, rest, lost)
    huge = k.and_(k.gt(k.minimum(a, b), 1e6 if digits.single else 1e10), k.lt(density.decay, 40.0))
    real = k.and_(k.and_(valid, k.gt(density.value, 0.0)), k.not_(huge))
    out = k.mul(density.value, _fraction(k, real, p, q, u, v, k.fma(u, lost, rest), digits))
    out = k.select(real, out, 0.0)
    out = when(k, huge, lambda: _normal(k, p, q, rest, density.decay), out)
    out = k.select(swap, k.sub(1.0, out), out)
    out = k.select(k.or_(k.eq(a, 0.0), k.eq(b, INFINITY)), 1.0, out)
    out = k.select(k.or_(k.eq(b, 0.0), k.eq(a, INFINITY)), 0.0, out)
    out = k.select(k.eq(x, 0.0), 0.0, k.select(k.eq(x, 1.0), 1.0, out))
    return k.select(valid, out, NAN)
