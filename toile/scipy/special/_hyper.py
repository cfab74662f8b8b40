"""The confluent and Gauss hypergeometric functions ₁F₁ and ₂F₁ of real arguments.

The functions are computed by their power series where the series converges quickly. Elsewhere, ₁F₁
uses an asymptotic series, and ₂F₁ uses linear transformations of the argument. The derivative with
respect to `x` is a contiguous function. Derivatives with respect to the parameters are computed by
differentiating the series term by term, where `d(a)_k/da = (a)_k (ψ(a+k) - ψ(a))`.
"""

from __future__ import annotations

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.api import custom_jvp
from toile.engine.annotations import Array, ArrayLike
from toile.engine.source import here
from toile.nn._promote import inexact_broadcast, is_complex
from toile.scipy.special._evaluate import eps, series
from toile.scipy.special._gamma import gamma


def _psi_step(a):
    """Return the function `k -> ψ(a + k) - ψ(a)`."""
    return lambda k: lax.digamma(a + k) - lax.digamma(a)


# -- 1F1 -----------------------------------------------------------------------------------------


def _hyp1f1_ratio(a, b, x):
    return lambda k: (a + k) / (b + k) * x / (k + 1)


@custom_jvp
def _hyp1f1(a, b, x):
    near = jnp.abs(x) < 100
    inner = series(1.0, a / b * x, _hyp1f1_ratio(a, b, x), needed=near)
    far = series(1.0, (b - a) * (1 - a) / x, lambda k: (b - a + k) * (1 - a + k) / (k + 1) / x,
                 needed=~near)
    outer = gamma(b) / gamma(a) * jnp.exp(x) * x ** (a - b) * far
    out = jnp.where(near, inner, outer)
    out = jnp.where((b == 0) & (a != 0), np.inf, out)
    out = jnp.where((a == b) & (a != 0), jnp.exp(x), out)
    return jnp.where(a == 0, 1.0, out).astype(x.dtype)


def _along_a1(da, y, a, b, x):
    return da * series(0.0, a / b * x, _hyp1f1_ratio(a, b, x), _psi_step(a))


def _along_b1(db, y, a, b, x):
    return -db * series(0.0, a / b * x, _hyp1f1_ratio(a, b, x), _psi_step(b))


_hyp1f1.defjvps(_along_a1, _along_b1, lambda dx, y, a, b, x: a / b * _hyp1f1(a + 1, b + 1, x) * dx)


def hyp1f1(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """Compute Kummer's confluent hypergeometric function ₁F₁.

    The result is the sum of `(a)_k x^k / ((b)_k k!)` over `k = 0, 1, 2, ...`, where `(a)_k` is
    `poch(a, k)`.

    Args:
        a: parameter of the numerator.
        b: parameter of the denominator. If `b` is 0, the result is inf unless `a` is 0.
        x: real argument. All arguments are broadcast against each other.

    Returns:
        An array with the shape that the arguments broadcast to and the floating-point dtype that
        they promote to.

    Raises:
        ValueError: an argument is complex.
    """
    a, b, x = inexact_broadcast("hyp1f1", a, b, x)
    if is_complex(x):
        raise ValueError("hyp1f1 does not support complex-valued inputs." + here())
    return _hyp1f1(a, b, x)


# -- 2F1 -----------------------------------------------------------------------------------------


def _near_integer(x):
    return jnp.abs(x - jnp.round(x)) < 50 * eps(x)


def _polynomial(a, b, c, x, needed):
    """Compute ₂F₁ where `a` or `b` is a negative integer, and the series is finite."""
    c_stops = (c % 1 == 0) & (c <= 0) & (c > b)
    swap = (b < a) & _near_integer(b) & ~c_stops
    count = jnp.abs(jnp.where(swap, b, a))
    other = jnp.where(swap, a, b)

    def body(state):
        i, total, term = state
        factor = -(count - i + 1) / (c + i - 1) * (other + i - 1) / i * x
        go = needed & (i < count + 1)
        term = jnp.where(go, term * factor, term)
        return i + 1, jnp.where(go, total + term, total), term

    init = (jnp.ones((), x.dtype), jnp.ones_like(x), jnp.ones_like(x))
    return lax.while_loop(lambda s: jnp.any(needed & (s[0] < count + 1)), body, init)[1]


def _plain_series(a, b, c, x, needed):
    def ratio(k):
        return (a + k - 1) * (b + k - 1) / (c + k - 1) / k * x

    return series(0.0, jnp.ones_like(x), ratio, needed=needed)


def _near_one(a, b, c, x, needed):
    """Compute ₂F₁ near 1 for integer `c - a - b`, by a series in `1 - x` with digamma functions."""
    a, b, c, x = (jnp.where(needed, v, w) for v, w in ((a, 0.5), (b, 0.5), (c, 1.0), (x, 0.5)))
    d, s = c - a - b, 1 - x
    rounded = jnp.round(d)
    up = rounded >= 0
    e = jnp.abs(d)
    d1, d2 = jnp.where(up, d, 0.0), jnp.where(up, 0.0, d)
    size = jnp.abs(rounded)
    log_s = jnp.log(s)

    def psi_sum(t):
        return (
            lax.digamma(1.0 + t)
            + lax.digamma(1.0 + t + e)
            - lax.digamma(a + t + d1)
            - lax.digamma(b + t + d1)
            - log_s
        )

    y = psi_sum(jnp.zeros_like(x)) / gamma(e + 1.0)
    first = (a + d1) * (b + d1) * s / gamma(e + 2.0)

    def ratio(t):
        return s * (a + t + d1) / (t + 1.0) * (b + t + d1) / (t + 1.0 + e)

    y = series(y, first, ratio, psi_sum, needed=needed)
    total = _finite_part(a, b, d2, e, s, size)
    top = gamma(c)
    total = total * gamma(e) * top / (gamma(a + d1) * gamma(b + d1))
    y_other = y * top / (gamma(a + d2) * gamma(b + d2))
    y_other = jnp.where(size % 2 == 1, -y_other, y_other)
    power = s**rounded
    mixed = jnp.where(rounded > 0, y_other * power + total, y_other + total * power)
    return jnp.where(rounded == 0, y * top / (gamma(a) * gamma(b)), mixed)


def _finite_part(a, b, d2, e, s, size):
    """Sum the `size` terms that come before the logarithmic series."""

    def body(state):
        t, total, term = state
        go = t + 1 < size
        step = s * (a + t + d2) * (b + t + d2) / (1.0 - e + t) / (t + 1)
        term = jnp.where(go, term * step, term)
        return t + 1, jnp.where(go, total + term, total), term

    init = (jnp.zeros((), s.dtype), jnp.ones_like(s), jnp.ones_like(s))
    return lax.while_loop(lambda state: jnp.any(state[0] + 1 < size), body, init)[1]


def _hyp2f1_inside(a, b, c, x, needed):
    """Compute ₂F₁ for `x < 1` by one of three methods, depending on the arguments."""
    finite = ((a <= 0) & _near_integer(a)) | ((b <= 0) & _near_integer(b))
    logarithmic = ~finite & (x > 0.9) & _near_integer(c - a - b)
    plain = ~finite & ~logarithmic
    out = _plain_series(a, b, c, x, needed & plain)
    out = jnp.where(logarithmic, _near_one(a, b, c, x, needed & logarithmic), out)
    return jnp.where(finite, _polynomial(a, b, c, x, needed & finite), out)


@custom_jvp
def _hyp2f1(a, b, c, x):
    d, s = c - a - b, 1 - x
    ca, cb = c - a, c - b
    trivial = (x == 0) | (((a == 0) | (b == 0)) & (c != 0))
    c_pole = (c == 0) | ((c < 0) & (c % 1 == 0))
    euler = (d <= -1) & ~(~_near_integer(d) & (s < 0))  # (1-x)^(c-a-b) ₂F₁(c-a, c-b; c; x)
    cases = [
        trivial,
        c_pole,
        euler,
        (d <= 0) & (x == 1),
        (x < 1) & (b == c),
        (x < 1) & (a == c),
        x > 1,
        x == 1,
    ]
    taken, rest = [], jnp.ones(x.shape, bool)
    for case in cases:  # the cases made exclusive, first match wins
        taken.append(rest & case)
        rest = rest & ~case
    infinite = jnp.full_like(x, np.inf)
    values = [
        jnp.ones_like(x),
        infinite,
        s**d * _hyp2f1_inside(ca, cb, c, x, taken[2]),
        infinite,
        s**-a,
        s**-b,
        infinite,
        gamma(c) * gamma(d) / (gamma(ca) * gamma(cb)),
    ]
    return jnp.select(taken, values, _hyp2f1_inside(a, b, c, x, rest))


def _hyp2f1_ratio(a, b, c, x):
    return lambda k: (a + k) * (b + k) / (c + k) / (k + 1) * x


def _parameter_slope(a, b, c, x, weight):
    return series(0.0, a * b / c * x, _hyp2f1_ratio(a, b, c, x), weight)


_hyp2f1.defjvps(lambda da, y, a, b, c, x: da * _parameter_slope(a, b, c, x, _psi_step(a)),
                lambda db, y, a, b, c, x: db * _parameter_slope(a, b, c, x, _psi_step(b)),
                lambda dc, y, a, b, c, x: -dc * _parameter_slope(a, b, c, x, _psi_step(c)),
                lambda dx, y, a, b, c, x: a * b / c * _hyp2f1(a + 1, b + 1, c + 1, x) * dx)


def hyp2f1(a: ArrayLike, b: ArrayLike, c: ArrayLike, x: ArrayLike) -> Array:
    """Compute Gauss's hypergeometric function ₂F₁.

    For `|x| < 1`, the result is the sum of `(a)_k (b)_k x^k / ((c)_k k!)` over `k = 0, 1, 2, ...`,
    where `(a)_k` is `poch(a, k)`.

    Args:
        a, b: parameters of the numerator.
        c: parameter of the denominator. The result is inf where `c` is 0 or a negative integer.
        x: real argument, from -1 to 1. All arguments are broadcast against each other.

    Returns:
        An array with the shape that the arguments broadcast to and the floating-point dtype that
        they promote to.

    Differences:
        SciPy's function is correct for all real `x`. For `x` below -1, toile also sums the series,
        although the series generally diverges there. The result is then correct only if `a` or `b`
        is a negative integer, which makes the series finite. For `x` above 1, the result is inf in
        most cases. For a negative integer `c`, SciPy's result is finite if the series ends before
        its terms become infinite.
    """
    return _hyp2f1(*inexact_broadcast("hyp2f1", a, b, c, x))
