"""Sine, cosine and tangent of complex numbers, circular and hyperbolic, and exp(z) - 1.

The parts of sinh and cosh are products of sine or cosine of one part and a hyperbolic function of
the other. They may be finite where the hyperbolic function itself overflows, so that function is
written as a product. Zeros, infinities and NaN are those of C's functions (annex G).
"""

from __future__ import annotations

import math

from toile.compiler.scalar.builder import FLOAT32, FLOAT64, Arithmetic, Value
from toile.compiler.scalar.mathematics import exponential
from toile.compiler.scalar.mathematics.exponential import INFINITY
from toile.compiler.scalar.mathematics.trigonometric import sine_and_cosine

_STEP = {FLOAT32: 64.0, FLOAT64: 512.0}  # above it, e**x is written as e**step e**(x - step)
# For tanh: above the first number, all terms are scaled by the third; above the second, tanh is 1.
_FAR = {FLOAT32: (40.0, 60.0, 2.0**-40), FLOAT64: (300.0, 380.0, 2.0**-400)}


def _hyperbolic(k: Arithmetic, a: Value) -> tuple[Value, Value, Value]:
    """sinh a and cosh a for a >= 0, and a quarter of e**a."""
    q = exponential.expm1_quarter(k, a)
    quarter = k.add(q, 0.25)
    inverse = k.div(0.5, quarter)
    s = k.select(k.lt(a, 2.0**-30), a, k.fma(q, 2.0, k.mul(q, inverse)))  # a / 4 may be subnormal
    return s, k.fma(quarter, 2.0, k.mul(inverse, 0.25)), quarter


def _scaled(k: Arithmetic, x: Value) -> tuple[Value, Value, Value, Value]:
    """sinh x and cosh x divided by two factors, and the factors; all are finite unless x is NaN."""
    step = _STEP[x.dtype]
    a = k.abs(x)
    far = k.gt(a, step)
    a = k.select(far, k.sub(a, step), a)
    further = k.gt(a, step)
    a = k.select(further, k.sub(a, step), a)
    s, c, quarter = _hyperbolic(k, a)
    one = k.constant(1.0, x.dtype)
    first = k.select(far, 2 * math.exp(step), one)
    last = k.select(further, math.exp(step), one)
    s, c = k.select(far, quarter, s), k.select(far, quarter, c)
    return k.copysign(s, x), c, first, last


def _endless(k: Arithmetic, x: Value) -> Value:
    return k.eq(k.abs(x), INFINITY)


def sinh(k: Arithmetic, z: Value) -> Value:
    """sinh x cos y + i cosh x sin y."""
    x, y = k.parts(z)
    s, c = sine_and_cosine(k, y)
    sh, ch, first, last = _scaled(k, x)
    re, im = (k.mul(k.mul(k.mul(t, first), h), last) for t, h in ((c, sh), (s, ch)))
    undefined = k.is_nan(s)  # y is infinite or NaN
    re = k.select(k.and_(undefined, _endless(k, x)), INFINITY, re)
    re = k.select(k.and_(undefined, k.eq(x, 0.0)), x, re)
    return k.complex(re, k.select(k.eq(y, 0.0), y, im))


def cosh(k: Arithmetic, z: Value) -> Value:
    """cosh x cos y + i sinh x sin y."""
    x, y = k.parts(z)
    s, c = sine_and_cosine(k, y)
    sh, ch, first, last = _scaled(k, x)
    re, im = (k.mul(k.mul(k.mul(t, first), h), last) for t, h in ((c, ch), (s, sh)))
    undefined = k.is_nan(s)
    re = k.select(k.and_(undefined, _endless(k, x)), INFINITY, re)
    im = k.select(k.and_(undefined, k.eq(x, 0.0)), 0.0, im)
    im = k.select(k.and_(k.is_nan(x), k.eq(y, 0.0)), y, im)
    return k.complex(re, im)


def tanh(k: Arithmetic, z: Value) -> Value:
    """(sinh x cosh x + i sin y cos y) / (sinh² x + cos² y)."""
    x, y = k.parts(z)
    s, c = sine_and_cosine(k, y)
    far, limit, less = _FAR[x.dtype]
    a = k.abs(x)
    sh, ch, _ = _hyperbolic(k, k.within(a, None, limit))
    scale = k.select(k.gt(a, far), less, k.constant(1.0, x.dtype))
    sh, ch, s, c = (k.mul(t, scale) for t in (sh, ch, s, c))
    inverse = k.div(1.0, k.fma(sh, sh, k.mul(c, c)))
    re, im = k.mul(k.mul(sh, ch), inverse), k.mul(k.mul(s, c), inverse)
    undefined = k.is_nan(s)
    endless = k.and_(undefined, _endless(k, x))
    re = k.copysign(k.select(endless, 1.0, re), x)
    re = k.select(k.and_(undefined, k.eq(x, 0.0)), x, re)
    im = k.select(endless, k.copysign(0.0, y), im)
    return k.complex(re, k.select(k.eq(y, 0.0), y, im))


def exchanged(k: Arithmetic, z: Value) -> Value:
    """y + i x: its sinh, tanh and inverses are sin z, tan z ... with their parts exchanged."""
    return k.complex(k.imag(z), k.real(z))


def sin(k: Arithmetic, z: Value) -> Value:
    """sin x cosh y + i cos x sinh y."""
    return exchanged(k, sinh(k, exchanged(k, z)))


def cos(k: Arithmetic, z: Value) -> Value:
    """cosh i z."""
    return cosh(k, k.complex(k.neg(k.imag(z)), k.real(z)))


def tan(k: Arithmetic, z: Value) -> Value:
    """The tangent, from tanh."""
    return exchanged(k, tanh(k, exchanged(k, z)))


def expm1(k: Arithmetic, z: Value) -> Value:
    """(exp x - 1) cos y - (1 - cos y) + i exp x sin y; 1 - cos y without cancellation."""
    x, y = k.parts(z)
    s, c = sine_and_cosine(k, y)
    right = k.gt(c, 0.0)
    below = k.select(right, k.div(k.mul(s, s), k.add(c, 1.0)), k.sub(1.0, c))
    re = k.sub(k.mul(exponential.expm1(k, x), c), below)
    return k.complex(re, k.select(k.eq(y, 0.0), y, k.mul(exponential.exp(k, x), s)))
