"""Functions of complex numbers, from those of their parts.

Moduli and square roots of complex64 are computed in float64: squares neither over- nor underflow.
"""

from __future__ import annotations

import math
from typing import Any

from toile.compiler.scalar.builder import FLOAT32, FLOAT64, Arithmetic, Value
from toile.compiler.scalar.mathematics import exponential, trigonometric

INFINITY = float("inf")


def _widened(k: Arithmetic, z: Value) -> tuple[Value, Value, Any]:
    """The parts in float64, and their own dtype."""
    re, im = k.parts(z)
    return k.convert(re, FLOAT64), k.convert(im, FLOAT64), re.dtype


def _modulus(k: Arithmetic, re: Value, im: Value, narrow: bool) -> Value:
    """sqrt(re² + im²) in float64; `narrow`: the parts were float32: squares need no scaling."""
    a, b = k.abs(re), k.abs(im)
    largest = k.select(k.gt(a, b), a, b)
    if not narrow:
        down = k.select(k.gt(largest, 1e150), 2.0**-600, k.constant(1.0, FLOAT64))
        scale = k.select(k.lt(largest, 1e-150), 2.0**600, down)
        a, b = k.mul(a, scale), k.mul(b, scale)
    size = k.sqrt(k.fma(a, a, k.mul(b, b)))
    if not narrow:
        size = k.div(size, scale)
    endless = k.or_(k.eq(k.abs(re), INFINITY), k.eq(k.abs(im), INFINITY))
    return k.select(endless, INFINITY, size)


def modulus(k: Arithmetic, z: Value) -> Value:
    """|z|."""
    re, im, dtype = _widened(k, z)
    return k.convert(_modulus(k, re, im, dtype == FLOAT32), dtype)


def sign(k: Arithmetic, z: Value) -> Value:
    """z / |z|, and 0 at 0."""
    size = modulus(k, z)
    zero = k.eq(size, 0.0)
    safe = k.select(zero, 1.0, size)
    re, im = (k.select(zero, 0.0, k.div(part, safe)) for part in k.parts(z))
    return k.complex(re, im)


def exp(k: Arithmetic, z: Value) -> Value:
    """e**z."""
    re, im = k.parts(z)
    size = exponential.exp(k, re)
    c, s = trigonometric.cos(k, im), trigonometric.sin(k, im)
    # Near the largest number the modulus overflows before its product with a small part does.
    half = exponential.exp(k, k.mul(re, 0.5))
    large = k.eq(size, INFINITY)
    part = lambda t: k.select(large, k.mul(k.mul(half, t), half), k.mul(size, t))
    real = k.eq(im, 0.0)
    nothing = k.eq(size, 0.0)
    out_re = k.select(nothing, k.constant(0.0, re.dtype), k.select(real, size, part(c)))
    out_im = k.select(nothing, k.constant(0.0, re.dtype), k.select(real, im, part(s)))
    return k.complex(out_re, out_im)


def exp2(k: Arithmetic, z: Value) -> Value:
    """2**z."""
    return exp(k, k.mul(z, math.log(2)))


def log(k: Arithmetic, z: Value) -> Value:
    """log |z| + i arg z; near |z| = 1 from (a - 1)(a + 1) + b², which avoids cancellation."""
    re, im, dtype = _widened(k, z)
    size = _modulus(k, re, im, dtype == FLOAT32)
    a, b = k.abs(re), k.abs(im)
    larger = k.gt(a, b)
    a, b = k.select(larger, a, b), k.select(larger, b, a)
    beyond = k.fma(k.sub(a, 1.0), k.add(a, 1.0), k.mul(b, b))
    near = k.and_(k.gt(size, 0.5), k.lt(size, 2.0))
    close = k.mul(exponential.log_of_sum(k, k.select(near, beyond, 0.0)), 0.5)
    magnitude = k.select(near, close, exponential.log(k, size))
    angle = trigonometric.atan2(k, *reversed(k.parts(z)))
    return k.complex(k.convert(magnitude, dtype), angle)


def log2(k: Arithmetic, z: Value) -> Value:
    """Logarithm to base 2, part by part."""
    re, im = (k.mul(part, 1 / math.log(2)) for part in k.parts(log(k, z)))
    return k.complex(re, im)


def sqrt(k: Arithmetic, z: Value) -> Value:
    """The principal root: t = sqrt((|re| + |z|) / 2) is one part, |im| / 2t the other."""
    re, im, dtype = _widened(k, z)
    size = _modulus(k, re, im, dtype == FLOAT32)
    t = k.sqrt(k.fma(k.abs(re), 0.5, k.mul(size, 0.5)))
    zero = k.eq(t, 0.0)
    other = k.div(k.mul(k.abs(im), 0.5), k.select(zero, 1.0, t))
    right = k.ge(re, 0.0)
    out_re = k.select(right, t, other)
    out_im = k.copysign(k.select(right, other, t), im)
    endless = k.eq(k.abs(im), INFINITY)
    out_re = k.select(endless, INFINITY, out_re)
    out_im = k.select(endless, im, out_im)
    # If the real part is infinite, the other part is 0 (the quotient would be NaN).
    level = k.and_(k.eq(k.abs(re), INFINITY), k.is_finite(im))
    out_re = k.select(k.and_(level, k.lt(re, 0.0)), 0.0, out_re)
    out_im = k.select(k.and_(level, right), k.copysign(0.0, im), out_im)
    return k.complex(k.convert(out_re, dtype), k.convert(out_im, dtype))
