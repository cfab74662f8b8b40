"""Functions of complex numbers, from those of their parts.

Moduli, their logarithms and square roots of complex64 are computed in float64, where squares
neither over- nor underflow.
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
    """sqrt(re² + im²) in float64; `narrow`: the parts were float32 (no scaling is needed)."""
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


def _modulus_single(k: Arithmetic, re: Value, im: Value) -> Value:
    """sqrt(re² + im²) of float32 numbers: a root r, and a step of Newton's method.

    It takes half the time of a root in float64; normal results are as exact. (a² + b² - r²) / 2r is
    added to r, where a² + b² is the rounded sum s and the rounding errors of the squares and of
    the sum. Squares are written as fused operations, so that the compiler does not contract them
    with the sum, which would change these errors."""
    a, b = k.abs(re), k.abs(im)
    endless = k.or_(k.eq(a, INFINITY), k.eq(b, INFINITY))
    steep = k.lt(a, b)
    a, b = k.select(steep, b, a), k.select(steep, a, b)
    large, small = k.ge(a, 2.0**60), k.lt(a, 2.0**-40)
    scale, back = (
        k.select(large, down, k.select(small, up, k.constant(1.0, FLOAT32)))
        for down, up in ((2.0**-100, 2.0**100), (2.0**100, 2.0**-100))
    )
    a, b = k.mul(a, scale), k.mul(b, scale)
    p, q = k.fma(a, a, -0.0), k.fma(b, b, -0.0)
    s = k.add(p, q)
    lost = k.add(k.fma(a, a, k.neg(p)), k.fma(b, b, k.neg(q)))
    lost = k.add(lost, k.sub(q, k.sub(s, p)))
    r = k.sqrt(s)
    rest = k.add(k.fma(k.neg(r), r, s), lost)
    size = k.mul(k.add(r, k.div(rest, k.add(r, r))), back)
    return k.select(endless, INFINITY, k.select(k.eq(s, 0.0), 0.0, size))


def modulus(k: Arithmetic, z: Value) -> Value:
    """|z|."""
    re, im = k.parts(z)
    return _modulus_single(k, re, im) if re.dtype == FLOAT32 else _modulus(k, re, im, False)


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
    return turned(k, re, im, *trigonometric.sine_and_cosine(k, im))


def turned(k: Arithmetic, re: Value, im: Value, s: Value, c: Value) -> Value:
    """e**(re + i im) from the sine and the cosine of `im`."""
    size = exponential.exp(k, re)
    # Near the largest number the modulus overflows before its product with a small part does.
    half = exponential.exp(k, k.mul(re, 0.5))
    large = k.eq(size, INFINITY)
    part = lambda t: k.select(large, k.mul(k.mul(half, t), half), k.mul(size, t))
    out_re, out_im = part(c), k.select(k.eq(im, 0.0), im, part(s))
    undefined = k.is_nan(s)  # the angle is infinite or NaN
    nothing = k.and_(undefined, k.eq(re, -INFINITY))
    out_re = k.select(k.and_(undefined, k.eq(re, INFINITY)), INFINITY, out_re)
    out_re, out_im = (k.select(nothing, 0.0, t) for t in (out_re, out_im))
    return k.complex(out_re, out_im)


def exp2(k: Arithmetic, z: Value) -> Value:
    """2**z."""
    return exp(k, k.mul(z, math.log(2)))


def log(k: Arithmetic, z: Value) -> Value:
    """log |z| + i arg z."""
    re, im, dtype = _widened(k, z)
    size = log_modulus(k, re, im, dtype == FLOAT32)
    return k.complex(k.convert(size, dtype), trigonometric.atan2(k, *reversed(k.parts(z))))


def log1p(k: Arithmetic, z: Value) -> Value:
    """log |1 + z| + i arg(1 + z)."""
    re, im, dtype = _widened(k, z)
    beyond = k.fma(re, k.add(re, 2.0), k.mul(im, im))
    size = log_modulus(k, k.add(re, 1.0), im, dtype == FLOAT32, beyond)
    angle = trigonometric.atan2(k, k.imag(z), k.add(k.real(z), 1.0))
    return k.complex(k.convert(size, dtype), angle)


def log_modulus(k: Arithmetic, re: Value, im: Value, narrow: bool,
                beyond: Value | None = None) -> Value:
    """log |z| in float64: half the logarithm of |z|², near 1 computed from `beyond` = |z|² - 1.

    If `narrow`, the parts were float32, whose squares need no scaling."""
    a, b = k.abs(re), k.abs(im)
    larger = k.gt(a, b)
    a, b = k.select(larger, a, b), k.select(larger, b, a)
    lost = k.constant(0.0, FLOAT64)
    if not narrow:
        high, low = k.gt(a, 1e150), k.lt(a, 1e-150)
        scale = k.select(low, 2.0**600, k.select(high, 2.0**-600, k.constant(1.0, FLOAT64)))
        shift = 600 * math.log(2)
        lost = k.select(low, -shift, k.select(high, shift, lost))
        a, b = k.mul(a, scale), k.mul(b, scale)
    square, other = k.mul(a, a), k.mul(b, b)
    if beyond is None:
        rest = k.add(k.fma(a, a, k.neg(square)), k.fma(b, b, k.neg(other)))
        beyond = k.add(k.add(k.sub(square, 1.0), other), rest)
    near = k.lt(k.abs(beyond), 0.75)
    u = k.select(near, k.add(beyond, 1.0), k.add(square, other))
    rest = k.select(near, k.sub(beyond, k.sub(u, 1.0)), 0.0)
    rest = k.div(rest, k.select(near, u, 1.0))
    out = k.fma(k.add(exponential.log(k, u), rest), 0.5, lost)
    endless = k.or_(k.eq(k.abs(re), INFINITY), k.eq(k.abs(im), INFINITY))
    return k.select(endless, INFINITY, out)


def log2(k: Arithmetic, z: Value) -> Value:
    """Logarithm to base 2, part by part."""
    re, im = (k.mul(part, 1 / math.log(2)) for part in k.parts(log(k, z)))
    return k.complex(re, im)


def sqrt(k: Arithmetic, z: Value) -> Value:
    """The principal root: t = sqrt((|re| + |z|) / 2) is one part, |im| / 2t the other."""
    re, im, dtype = _widened(k, z)
    back = None
    if dtype == FLOAT64:  # keep |z| far from overflow, and its half from underflow
        a, b = k.abs(re), k.abs(im)
        largest = k.select(k.gt(a, b), a, b)
        high, low = k.gt(largest, 2.0**1000), k.lt(largest, 2.0**-900)
        one = k.constant(1.0, FLOAT64)
        scale, back = (k.select(high, 2.0**-n, k.select(low, 2.0 ** (50 * n), one))
                       for n in (4, -2))
        re, im = k.mul(re, scale), k.mul(im, scale)
    size = _modulus(k, re, im, dtype == FLOAT32)
    t = k.sqrt(k.fma(k.abs(re), 0.5, k.mul(size, 0.5)))
    other = k.div(k.abs(im), k.select(k.eq(t, 0.0), 1.0, k.add(t, t)))
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
    if back is not None:
        out_re, out_im = k.mul(out_re, back), k.mul(out_im, back)
    return k.complex(k.convert(out_re, dtype), k.convert(out_im, dtype))


def rsqrt(k: Arithmetic, z: Value) -> Value:
    """1 / sqrt(z)."""
    return k.div(k.constant(1.0, z.dtype), sqrt(k, z))


def logistic(k: Arithmetic, z: Value) -> Value:
    """1 / (1 + e**-z), or e**z / (1 + e**z) if the real part is negative."""
    one = k.constant(1.0, z.dtype)
    left = k.lt(k.real(z), 0.0)
    e = exp(k, k.select(left, z, k.neg(z)))
    return k.div(k.select(left, e, one), k.add(e, one))


def atan2(k: Arithmetic, y: Value, x: Value) -> Value:
    """-i log((x + i y) / sqrt(x² + y²)), like the eager operation."""
    i = k.constant(1j, x.dtype)
    length = sqrt(k, k.add(k.mul(y, y), k.mul(x, x)))
    return k.mul(k.neg(i), log(k, k.div(k.add(x, k.mul(i, y)), length)))
