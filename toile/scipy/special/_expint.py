"""Exponential, sine and cosine integrals, and Spence's function.

`E_n(x)` is computed by its power series for `x` up to 1, and by a continued fraction for larger
`x`. Ei, Si and Ci use rational approximations on intervals. Derivatives are exact.
"""

from __future__ import annotations

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.api import custom_jvp
from toile.engine.annotations import Array, ArrayLike
from toile.nn._promote import real_inexact
from toile.scipy.special import _tables
from toile.scipy.special._evaluate import const, eps, float_array, quotient

_BIG = 1.44115188075855872e17  # 2^57: the continued fraction is rescaled when it grows past this


def _expn_series(n, x, needed):
    """Compute `E_n(x)` for `0 < x ≤ 1` by its power series.

    It is `(-x)^(n-1) (ψ(n) - log x)/Γ(n) - Σ (-x)^k / (k! (k - n + 1))`."""
    safe_n = jnp.where(needed, n, 1.0)
    x = jnp.where(needed, x, 1.0)
    lead = jnp.where(safe_n == 1, 0.0, 1.0 / (1.0 - jnp.where(safe_n == 1, 2.0, safe_n)))

    def active(state):
        _, power, total, _ = state
        ratio = jnp.where(total != 0, jnp.abs(power / total), 1.0)
        return needed & (ratio > eps(x))

    def body(state):
        k, power, total, _ = state
        go = active(state) | (k == 0)
        power = jnp.where(go, power * (-x / (k + 1)), power)
        below = k + 2 - safe_n
        step = jnp.where(below != 0, power / jnp.where(below == 0, 1.0, below), 0.0)
        return k + 1, power, jnp.where(go, total + step, total), go

    def running(state):
        return (state[0] == 0) | (jnp.any(active(state)) & (state[0] < 1000))

    init = (jnp.zeros((), x.dtype), jnp.ones_like(x), lead, needed)
    total = lax.while_loop(running, body, init)[2]
    psi = lax.digamma(safe_n) - jnp.log(x)
    return (-x) ** (safe_n - 1) * psi / jnp.exp(lax.lgamma(safe_n)) - total


def _expn_fraction(n, x, needed):
    """Compute `E_n(x)` for `x > 1` by its continued fraction, rescaled if it becomes large."""
    x = jnp.where(needed, x, 2.0)
    n = jnp.where(needed, n, 1.0)

    def body(state):
        k, p2, q2, p1, q1, out, change = state
        go = needed & (change > eps(x))
        k = k + 1
        odd = k % 2 == 1
        y = jnp.where(odd, jnp.ones_like(x), x)
        c = jnp.where(odd, n + (k - 1) / 2, k / 2)
        p, q = p1 * y + p2 * c, q1 * y + q2 * c
        ok = q != 0
        value = jnp.where(ok, p / jnp.where(ok, q, 1.0), out)
        moved = jnp.where(ok, jnp.abs((out - value) / value), 1.0)
        shrink = jnp.where(jnp.abs(p) > const(x, _BIG), const(x, 1 / _BIG), const(x, 1))
        new = (p1 * shrink, q1 * shrink, p * shrink, q * shrink, value, moved)
        old = (p2, q2, p1, q1, out, change)
        return (k, *(jnp.where(go, a, b) for a, b in zip(new, old)))

    def running(state):
        return jnp.any(needed & (state[-1] > eps(x))) & (state[0] < 10000)

    one = jnp.ones_like(x)
    init = (jnp.ones((), x.dtype), one, x, one, x + n, 1.0 / (x + n), jnp.full_like(x, np.inf))
    return lax.while_loop(running, body, init)[5] * jnp.exp(-x)


def _expn_large_order(n, x):
    """Compute `E_n(x)` for `n ≥ 5000` as `exp(-x)/(x+n) · (1 + n/(x+n)² + ...)`."""
    sum_ = x + n
    inv = 1.0 / (sum_ * sum_)
    out = inv * n * (6.0 * x * x - 8.0 * n * x + n * n)
    out = inv * (out + n * (n - 2.0 * x))
    out = inv * (out + n)
    return (out + 1.0) * jnp.exp(-x) / sum_


@custom_jvp
def _expn(n, x):
    bad = (n < 0) | (x < 0)
    at_zero = x == 0
    order_zero = n == 0
    large = n >= 5000
    regular = ~(bad | at_zero | order_zero | large)
    fraction = regular & (x > 1)
    series = regular & (x <= 1)
    cases = [bad, at_zero & (n < 2), at_zero, order_zero, large, fraction, series]
    values = [
        jnp.full_like(x, np.nan),
        jnp.full_like(x, np.inf),
        1.0 / jnp.where(n == 1, 1.0, n - 1),
        jnp.exp(-x) / x,
        _expn_large_order(n, x),
        _expn_fraction(n, x, fraction),
        _expn_series(n, x, series),
    ]
    return jnp.select(cases, values, jnp.full_like(x, np.nan))


@_expn.defjvp
def _expn_jvp(primals, tangents):
    (n, x), (_, dx) = primals, tangents
    return _expn(n, x), -dx * _expn(n - 1, x)


def expn(n: ArrayLike, x: ArrayLike) -> Array:
    """Compute the exponential integral Eₙ, the integral of `exp(-x t) / t^n` from 1 to infinity.

    Args:
        n: orders, nonnegative integers. Derivatives with respect to `n` are 0.
        x: nonnegative numbers. The result is NaN where `n` or `x` is negative.

    Returns:
        An array with the shape that the arguments broadcast to and the floating-point dtype that
        they promote to.

    Raises:
        ValueError: an argument is complex.

    Differences:
        SciPy rounds `n` down to an integer. In toile, the result is NaN or inexact where `n` is not
        an integer.
    """
    n, x = real_inexact("expn", n, x)
    return _expn(*jnp.broadcast_arrays(lax.stop_gradient(n), x))


def exp1(x: ArrayLike) -> Array:
    """Compute the exponential integral E₁, the integral of `exp(-t) / t` from `x` to infinity.

    Args:
        x: nonnegative numbers. The result is inf at 0 and NaN for negative numbers.

    Returns:
        A floating-point array with the shape of `x`.

    Raises:
        ValueError: `x` is complex.
    """
    (x,) = real_inexact("exp1", x)
    return expn(1, x)


def _expi_positive(x):
    small = quotient(_tables.EXPI_SMALL, x)
    out = x * small + np.euler_gamma + jnp.log(x)
    w = 1.0 / x
    for i, pair in enumerate(_tables.EXPI_LARGE):
        piece = jnp.exp(x) * w * (w * quotient(pair, w) + 1.0)
        out = jnp.where(x > 2 ** (i + 1), piece, out)
    return out


@custom_jvp
def expi(x: ArrayLike) -> Array:
    """Compute the exponential integral Ei, the integral of `exp(t) / t` from minus infinity to `x`.

    For positive `x`, the result is the principal value of the integral. At 0, the result is -inf.

    Args:
        x: real array or number.

    Returns:
        A floating-point array with the shape of `x`.

    Raises:
        ValueError: `x` is complex.
    """
    (x,) = real_inexact("expi", x)
    below = x < 0
    left = -exp1(jnp.where(below, -x, jnp.ones_like(x)))
    right = _expi_positive(jnp.where(below, jnp.ones_like(x), x))
    # At zero the last formula of the table is out of its range: the limit is -inf.
    return jnp.where(below, left, jnp.where(x == 0, -np.inf, right))


expi.defjvps(lambda dx, y, x: jnp.exp(x) / x * dx)


def _sici_small(x):
    """Compute the sine and cosine integrals for `x` up to 4 by series."""
    t = x * x
    si = x * quotient(_tables.SI_SERIES, t)
    ci = np.euler_gamma + jnp.log(x) + t * quotient(_tables.CI_SERIES, t)
    return jnp.where(x == 0, 0.0, si), jnp.where(x == 0, -np.inf, ci)


def _sici_large(x):
    """Compute the sine and cosine integrals for large `x` by auxiliary functions `f` and `g`.

    `Si(x) = π/2 - f cos x - g sin x` and `Ci(x) = f sin x - g cos x`."""
    z = 1.0 / (x * x)
    near = x < 8.0
    f = jnp.where(near, quotient(_tables.SICI_F4, z), quotient(_tables.SICI_F8, z)) / x
    g = z * jnp.where(near, quotient(_tables.SICI_G4, z), quotient(_tables.SICI_G8, z))
    sin, cos = jnp.sin(x), jnp.cos(x)
    return np.pi / 2 - f * cos - g * sin, f * sin - g * cos


def _sici_far(x):
    si = jnp.where(jnp.isinf(x), np.pi / 2, np.pi / 2 - jnp.cos(x) / x)
    return si, jnp.where(jnp.isinf(x), 0.0, jnp.sin(x) / x)


@custom_jvp
def sici(x: ArrayLike) -> tuple[Array, Array]:
    """Compute the sine and cosine integrals.

    The sine integral is the integral of `sin(t) / t` from 0 to `x`. The cosine integral is minus
    the integral of `cos(t) / t` from `|x|` to infinity. At 0, the cosine integral is -inf.

    Args:
        x: real array or number.

    Returns:
        A tuple `(Si, Ci)` of arrays with the shape of `x`.

    Raises:
        ValueError: `x` is complex.
    """
    (x,) = real_inexact("sici", x)
    ax = jnp.abs(x)
    small, large = ax <= 4, ax <= 1e9
    parts = zip(_sici_small(ax), _sici_large(ax), _sici_far(ax))
    si, ci = (jnp.where(small, a, jnp.where(large, b, c)) for a, b, c in parts)
    return jnp.sign(x) * si, jnp.where(jnp.isneginf(x), np.nan, ci)


@sici.defjvp
def _sici_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    return sici(x), (jnp.sinc(x / np.pi) * dx, jnp.cos(x) / x * dx)


def spence(x: ArrayLike) -> Array:
    """Compute Spence's function, the integral of `log(t) / (1 - t)` from 1 to `x`.

    The result is the dilogarithm of `1 - x`.

    Args:
        x: array or number of dtype `float32` or `float64`. The result is NaN for negative numbers.

    Returns:
        An array with the shape and dtype of `x`.

    Raises:
        TypeError: `x` has another dtype; integers are not converted.
    """
    x = float_array(x)
    regular = (x >= 0.0) & (x != 1.0) & (x != 0.0)
    value = _spence(jnp.where(regular, x, const(x, 0.75)))
    at = jnp.select([x < 0.0, x == 1.0, x == 0.0], [np.nan, 0.0, np.pi**2 / 6], np.nan)
    return jnp.where(regular, value, at.astype(x.dtype))


def _spence(x):
    """Map `x` into [½, 3/2] by `x → 1/x` and `x → 1 - x`, and evaluate a quotient there."""
    inverted = x > 2.0
    x = jnp.where(inverted, 1.0 / x, x)
    upper, lower = x > 1.5, x < 0.5
    w = jnp.where(upper, 1.0 / x - 1.0, jnp.where(lower, -x, x - 1.0))
    y = -w * quotient(_tables.SPENCE, w)
    y = jnp.where(lower, np.pi**2 / 6.0 - jnp.log(x) * jnp.log(1.0 - x) - y, y)
    return jnp.where(inverted | upper, -0.5 * jnp.log(x) ** 2 - y, y)
