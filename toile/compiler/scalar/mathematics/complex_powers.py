"""Powers of complex numbers.

Small whole exponents multiply repeatedly, like the eager operation; other powers are e**(y log x).
The logarithm of complex64 is computed in float64, and the exponential of its product with y in
float32, with a correction for what rounding the product loses.
"""

from __future__ import annotations

from toile.compiler.scalar.builder import FLOAT32, FLOAT64, INT32, Arithmetic, Value, kind
from toile.compiler.scalar.mathematics import complexes, trigonometric
from toile.compiler.scalar.mathematics.exponential import NAN

_MOST = 99  # the largest whole exponent whose power is a product


def pow_(k: Arithmetic, x: Value, y: Value) -> Value:
    """x to the power y; y may be an integer."""
    if kind(y.dtype) in "iu":
        y = k.convert(y, x.dtype)
    re, im = k.parts(y)
    whole = k.and_(k.eq(re, k.trunc(re)), k.and_(k.eq(im, 0.0), k.le(k.abs(re), float(_MOST))))
    out = k.select(whole, _whole_power(k, x, k.select(whole, re, 0.0)), _power(k, x, y))
    zero = k.and_(k.eq(x, 0.0), k.not_(k.eq(y, 0.0)))
    at_zero = k.select(k.gt(re, 0.0), k.constant(0.0, re.dtype), NAN)
    return k.select(zero, k.complex(at_zero, at_zero), out)


def _whole_power(k: Arithmetic, x: Value, y: Value) -> Value:
    """x to a whole power, by squaring; for a negative power, the reciprocal."""
    n = k.convert(k.abs(y), INT32)
    result, base = k.constant(1.0, x.dtype), x
    for i in range(_MOST.bit_length()):
        if i:
            base = k.mul(base, base)
        first = k.eq(k.and_(n, (1 << i) - 1), 0)  # no product with 1, which is not exact for inf
        product = k.select(first, base, k.mul(result, base)) if i else base
        result = k.select(k.ne(k.and_(n, 1 << i), 0), product, result)
    return k.select(k.lt(y, 0.0), k.div(k.constant(1.0, x.dtype), result), result)


def _power(k: Arithmetic, x: Value, y: Value) -> Value:
    """e**(y log x)."""
    dtype = k.real(x).dtype
    a, b, c, d = (k.convert(part, FLOAT64) for part in (*k.parts(x), *k.parts(y)))
    size, angle = complexes.log_modulus(k, a, b, dtype == FLOAT32), trigonometric.atan2(k, b, a)
    re = k.sub(k.mul(c, size), k.mul(d, angle))
    im = k.add(k.mul(c, angle), k.mul(d, size))
    if dtype == FLOAT64:
        return complexes.exp(k, k.complex(re, im))
    (re, re_low), (im, im_low) = _rounded(k, re), _rounded(k, im)
    s, c = trigonometric.sine_and_cosine(k, im)
    s, c = k.fma(c, im_low, s), k.fma(k.neg(s), im_low, c)
    return complexes.turned(k, re, im, k.fma(s, re_low, s), k.fma(c, re_low, c))


def _rounded(k: Arithmetic, x: Value) -> tuple[Value, Value]:
    """A float64 rounded to float32, and what rounding loses."""
    high = k.convert(x, FLOAT32)
    low = k.convert(k.sub(x, k.convert(high, FLOAT64)), FLOAT32)
    return high, k.select(k.is_finite(high), low, 0.0)
