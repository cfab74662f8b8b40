"""Inverses of the trigonometric and hyperbolic functions of complex numbers.

asin, acos, asinh and acosh are W. Kahan's (Branch Cuts for Complex Elementary Functions): they
follow from the square roots of 1 - z and 1 + z by sums of positive terms. Each function is computed
for positive parts and gets its signs afterwards, so that signed zeros choose the side of a branch
cut. Zeros, infinities and NaN are those of C's functions (annex G).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from toile.compiler.scalar.builder import FLOAT32, FLOAT64, Arithmetic, Value
from toile.compiler.scalar.mathematics import exponential
from toile.compiler.scalar.mathematics.complex_waves import exchanged
from toile.compiler.scalar.mathematics.exponential import INFINITY
from toile.compiler.scalar.mathematics.trigonometric import atan2

_LARGE = 2.0**28  # above it, asinh x is log 2 x
# Where squares overflow, numbers above 2**i are multiplied by 2**j.
_DOWN = {FLOAT32: (62, -66), FLOAT64: (510, -513)}
# Where a square underflows, the number below 2**i is multiplied by 2**j, and not squared.
_UP = {FLOAT32: (-40, 30), FLOAT64: (-400, 100)}


class _Positive(NamedTuple):
    """The absolute values of a number's parts, and a factor that avoids overflow of squares."""

    a: Value
    b: Value
    endless: Value  # whether a part is infinite
    large: Value
    scale: Value


def _positive(k: Arithmetic, z: Value) -> _Positive:
    a, b = (k.abs(part) for part in k.parts(z))
    above, power = _DOWN[a.dtype]
    large = k.or_(k.gt(a, 2.0**above), k.gt(b, 2.0**above))
    endless = k.or_(k.eq(a, INFINITY), k.eq(b, INFINITY))
    return _Positive(a, b, endless, large,
                     k.select(large, 2.0**power, k.constant(1.0, a.dtype)))


def _root(k: Arithmetic, u: Value, v: Value) -> tuple[Value, Value]:
    """The absolute values of both parts of sqrt(2 (u + i v)), for v >= 0."""
    size = k.select(k.eq(u, 0.0), v, k.sqrt(k.fma(u, u, k.mul(v, v))))
    root = k.sqrt(k.add(k.abs(u), size))
    other = k.select(k.eq(root, 0.0), 0.0, k.div(v, root))
    right = k.ge(u, 0.0)
    return k.select(right, root, other), k.select(right, other, root)


def _roots(k: Arithmetic, z: Value) -> tuple[_Positive, Any, Any, Value]:
    """The parts of sqrt(2 s (1 - w)) and sqrt(2 s (1 + w)) of w = |x| + i |y|, where s is the
    scale; and |Im asin z|."""
    given = _positive(k, z)
    a, b, endless, large, scale = given
    v = k.mul(b, scale)
    less, more = (_root(k, k.mul(u, scale), v) for u in (k.sub(1.0, a), k.add(a, 1.0)))
    t = k.mul(k.fma(less[0], more[1], k.mul(less[1], more[0])), 0.5)
    far = k.or_(large, k.ge(t, _LARGE))
    near = k.select(far, 1.0, t)
    square = k.mul(near, near)
    inner = k.add(near, k.div(square, k.add(k.sqrt(k.add(square, 1.0)), 1.0)))
    height = exponential.log_of_sum(k, k.select(far, k.fma(t, 2.0, -1.0), inner))
    lost = -_DOWN[a.dtype][1] * math.log(2)
    height = k.add(height, k.select(large, lost, k.constant(0.0, a.dtype)))
    return given, less, more, k.select(endless, INFINITY, height)


def asin(k: Arithmetic, z: Value) -> Value:
    """Inverse sine."""
    x, y = k.parts(z)
    (a, b, endless, _, scale), less, more, height = _roots(k, z)
    across = k.fma(less[0], more[0], k.mul(less[1], more[1]))  # 2 s Re sqrt(1 - z²)
    up = k.mul(k.mul(a, scale), 2.0)
    angle = atan2(k, k.select(endless, a, up), k.select(endless, b, across))
    re = k.select(k.eq(x, 0.0), x, k.copysign(angle, x))
    return k.complex(re, k.copysign(height, y))


def _acos(k: Arithmetic, z: Value) -> tuple[Value, Value]:
    """Re acos z and |Im acos z|."""
    x, y = k.parts(z)
    (_, b, endless, _, _), less, more, height = _roots(k, z)
    left = k.lt(x, 0.0)
    up, across = k.select(left, more[0], less[0]), k.select(left, less[0], more[0])
    angle = atan2(k, k.select(endless, b, up), k.select(endless, x, across))
    angle = k.mul(angle, k.select(endless, 1.0, k.constant(2.0, x.dtype)))
    upright = k.and_(k.eq(x, 0.0), k.is_nan(y))
    return k.select(upright, math.pi / 2, angle), height


def acos(k: Arithmetic, z: Value) -> Value:
    """Inverse cosine."""
    re, height = _acos(k, z)
    return k.complex(re, k.copysign(height, k.neg(k.imag(z))))


def acosh(k: Arithmetic, z: Value) -> Value:
    """Inverse hyperbolic cosine: i acos z or -i acos z, whose real part is not negative."""
    angle, height = _acos(k, z)
    return k.complex(height, k.copysign(angle, k.imag(z)))


def asinh(k: Arithmetic, z: Value) -> Value:
    """Inverse hyperbolic sine, from asin."""
    return exchanged(k, asin(k, exchanged(k, z)))


def atanh(k: Arithmetic, z: Value) -> Value:
    """log(1 + 4 |x| / ((1 - |x|)² + y²)) / 4 + i atan2(2 y, 1 - x² - y²) / 2."""
    x, y = k.parts(z)
    a, b, endless, large, scale = _positive(k, z)
    less, more, v = (k.mul(t, scale) for t in (k.sub(1.0, a), k.add(a, 1.0), b))
    square = k.mul(v, v)
    # Next to 1 the logarithm is that of 2 / |y|, halved.
    below, power = _UP[x.dtype]
    pole = k.and_(k.eq(a, 1.0), k.lt(b, 2.0**below))
    over = k.select(pole, 2.0, k.mul(k.select(large, k.mul(a, scale), a), 4.0))
    under = k.select(pole, k.mul(b, 2.0**power), k.fma(less, less, square))
    ratio = k.mul(k.div(over, under), scale)
    ratio = k.sub(ratio, k.select(pole, 1.0, k.constant(0.0, x.dtype)))
    re = k.mul(exponential.log_of_sum(k, ratio), k.select(pole, 0.5, k.constant(0.25, x.dtype)))
    lost = power * math.log(2) / 2
    re = k.add(re, k.select(pole, lost, k.constant(0.0, x.dtype)))
    re = k.select(endless, 0.0, re)
    re = k.select(k.eq(x, 0.0), x, k.copysign(re, x))
    up = k.mul(k.mul(v, scale), 2.0)
    im = k.mul(atan2(k, up, k.fma(less, more, k.neg(square))), 0.5)
    im = k.select(endless, k.select(k.is_nan(b), b, math.pi / 2), im)
    return k.complex(re, k.copysign(im, y))


def atan(k: Arithmetic, z: Value) -> Value:
    """Inverse tangent, from atanh."""
    return exchanged(k, atanh(k, exchanged(k, z)))
