"""Error functions and the normal distribution: erf, Faddeeva, Dawson, Fresnel, ndtr, Owen's T.

The functions are rational approximations in float32 or float64. Each has a custom rule with the
exact derivative, so that no approximation is differentiated.
"""

from __future__ import annotations

import functools

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.api import custom_jvp
from toile.engine.annotations import Array, ArrayLike
from toile.engine.source import here
from toile.nn._promote import inexact, is_complex, real_inexact, to_complex
from toile.numpy._helpers import at_rank
from toile.scipy.special import _tables
from toile.scipy.special._evaluate import const, float_array, poly, quotient

_SQRT_PI = float(np.sqrt(np.pi))


def erf(x: ArrayLike) -> Array:
    """Compute the error function, `2/√π` times the integral of `exp(-t²)` from 0 to `x`.

    Args:
        x: real array or number.

    Returns:
        A floating-point array with the shape of `x`.

    Differences:
        SciPy also accepts complex numbers.
    """
    return lax.erf(*inexact("erf", x))


def erfc(x: ArrayLike) -> Array:
    """Compute the complementary error function, `1 - erf(x)`, accurately even for large `x`.

    Args:
        x: real array or number.

    Returns:
        A floating-point array with the shape of `x`.

    Differences:
        SciPy also accepts complex numbers.
    """
    return lax.erfc(*inexact("erfc", x))


def erfinv(x: ArrayLike) -> Array:
    """Compute the inverse of the error function `erf`.

    Args:
        x: values of `erf`, from -1 to 1. The result is -inf at -1, inf at 1, and NaN outside this
            range.

    Returns:
        A floating-point array with the shape of `x`.
    """
    return lax.erf_inv(*inexact("erfinv", x))


def erfcinv(y: ArrayLike) -> Array:
    """Compute the inverse of the complementary error function, accurately even for small `y`.

    Args:
        y: values of `erfc`, from 0 to 2. The result is inf at 0, -inf at 2, and NaN outside this
            range.

    Returns:
        A floating-point array with the shape of `y`.

    Raises:
        ValueError: `y` is complex.
    """
    y, = real_inexact("erfcinv", y)
    if np.dtype(y.dtype).itemsize < 4:
        return _erfcinv(y.astype(np.float32)).astype(y.dtype)
    return _erfcinv(y)


@custom_jvp
def _erfcinv(y):
    upper = y > 1
    # erfc(x) = 2 Φ(-√2 x); 2 - y is exact.
    x = ndtri(jnp.where(upper, 2 - y, y) * 0.5) * const(y, -np.sqrt(0.5))
    return jnp.where(upper, -x, x) + 0  # +0, not -0, at 1


_erfcinv.defjvps(lambda dy, x, y: dy * -0.5 * _SQRT_PI * jnp.exp(x * x))


# -- Faddeeva ------------------------------------------------------------------------------------

_WOFZ_L = 4.756828460010884  # √(32/√2), the scale of the conformal map for 32 terms


def _wofz_upper(z):
    """Evaluate Weideman's rational expansion, which is valid where `Im z ≥ 0`."""
    iz = z * 1j
    below = _WOFZ_L - iz
    p = poly(_tables.WOFZ, (_WOFZ_L + iz) / below)
    return 2 * p / (below * below) + (1.0 / _SQRT_PI) / below


@custom_jvp
def _wofz(z):
    upper = jnp.imag(z) >= 0
    w = _wofz_upper(jnp.where(upper, z, -z))
    return jnp.where(upper, w, 2 * jnp.exp(-(z * z)) - w)


_wofz.defjvps(lambda dz, w, z: dz * (-(2 * z * w) + 2j / _SQRT_PI))


def wofz(z: ArrayLike) -> Array:
    """Compute the Faddeeva function, `exp(-z²) erfc(-iz)`.

    Args:
        z: array or number, real or complex.

    Returns:
        A complex array with the shape of `z`.
    """
    (z,) = inexact("wofz", z)
    return _wofz(z.astype(to_complex(z.dtype)))


# exp(x²)·erfc(x) ~ Σ (-1)^k (2k-1)!! / (2x²)^k / (x√π)
_ERFCX = (7918.06640625, -1055.7421875, 162.421875, -29.53125, 6.5625, -1.875, 0.75, -0.5, 1.0)


@custom_jvp
def _erfcx(x):
    if x.dtype not in (np.float32, np.float64):
        return _erfcx(x.astype(np.float32)).astype(x.dtype)
    terms = 9 if x.dtype == np.float64 else 5
    # Beyond this point exp(x²) overflows, and the asymptotic series is exact to rounding.
    large = x > const(x, np.sqrt(np.log(float(jnp.finfo(x.dtype).max))))
    safe = jnp.where(large, jnp.ones_like(x), x)
    direct = jnp.exp(jnp.square(safe)) * lax.erfc(safe)
    far = poly(_ERFCX[-terms:], const(x, 1) / jnp.square(x)) / (x * const(x, _SQRT_PI))
    return jnp.where(large, far, direct)


_erfcx.defjvps(lambda dx, y, x: dx * (2 * x * y - const(x, 2.0 / _SQRT_PI)))


def erfcx(x: ArrayLike) -> Array:
    """Compute the scaled complementary error function, `exp(x²) erfc(x)`.

    The result is accurate even for large `x`, where `erfc(x)` is rounded to 0.

    Args:
        x: array or number, real or complex.

    Returns:
        An array with the shape of `x`. It is complex if `x` is complex, and otherwise
        floating-point.
    """
    (x,) = inexact("erfcx", x)
    return _wofz(x * 1j) if is_complex(x) else _erfcx(x)


# -- Dawson and Fresnel --------------------------------------------------------------------------


@custom_jvp
def _dawsn(x):
    if x.dtype not in (np.float32, np.float64):
        return _dawsn(x.astype(np.float32)).astype(x.dtype)
    ax = jnp.abs(x)
    small, middle = ax < 3.25, ax < 6.25
    near = jnp.where(small, ax, 1.0)
    out_small = near * quotient(_tables.DAWSN_SMALL, near * near)
    far = jnp.where(small, 1.0, ax)
    t = const(x, 1) / (far * far)
    out_middle = 0.5 / far * (1.0 + t * quotient(_tables.DAWSN_MIDDLE, t))
    out_large = 0.5 / far * (1.0 + t * quotient(_tables.DAWSN_LARGE, t))
    out = jnp.where(small, out_small, jnp.where(middle, out_middle, out_large))
    return jnp.sign(x) * out


_dawsn.defjvps(lambda dx, y, x: dx * (const(x, 1) - const(x, 2) * x * y))


def dawsn(x: ArrayLike) -> Array:
    """Compute Dawson's integral, `exp(-x²)` times the integral of `exp(t²)` from 0 to `x`.

    Args:
        x: real array or number.

    Returns:
        A floating-point array with the shape of `x`.

    Raises:
        ValueError: `x` is complex.
    """
    return _dawsn(*real_inexact("dawsn", x))


def _half_square_angle(x):
    """Compute the sine and cosine of `πx²/2`, with `x²` reduced modulo 4 first for accuracy."""
    x = jnp.abs(x)
    s = jnp.fmod(x, 2.0)
    r = jnp.fmod(s * (x - s / 2), 2.0)  # x²/2 modulo 2
    sin = jnp.where(r < 0.5, jnp.sin(np.pi * r),
                    jnp.where(r > 1.5, jnp.sin(np.pi * (r - 2.0)), -jnp.sin(np.pi * (r - 1.0))))
    cos = jnp.where(r < 1.0, -jnp.sin(np.pi * (r - 0.5)), jnp.sin(np.pi * (r - 1.5)))
    return sin, jnp.where(r == 0.5, 0.0, cos)


def _fresnel_parts(x, x2):
    """Compute both integrals S and C for small `x`, and the functions f and g for large `x`."""
    t, u = x2 * x2, 1.0 / (np.pi * x2) ** 2
    if x.dtype == np.float32:
        s = x * x2 * poly(_tables.FRESNEL32_S, t)
        c = x * poly(_tables.FRESNEL32_C, t)
        f = 1.0 - u * poly(_tables.FRESNEL32_F, u)
        g = poly(_tables.FRESNEL32_G, u) / (np.pi * x2)
        return s, c, f, g
    s = x * x2 * quotient(_tables.FRESNEL64_S, t)
    c = x * quotient(_tables.FRESNEL64_C, t)
    f = 1.0 - u * quotient(_tables.FRESNEL64_F, u)
    g = quotient(_tables.FRESNEL64_G, u) / (np.pi * x2)
    return s, c, f, g


@custom_jvp
def fresnel(x: ArrayLike) -> tuple[Array, Array]:
    """Compute the Fresnel integrals, which are the integrals of `sin(πt²/2)` and `cos(πt²/2)`.

    Args:
        x: real array or number.

    Returns:
        A tuple `(S, C)` of the integrals of the sine and the cosine from 0 to `x`. Both are arrays
        with the shape of `x`.

    Raises:
        NotImplementedError: `x` is complex.
    """
    (x,) = inexact("fresnel", x)
    if is_complex(x):
        raise NotImplementedError("Support for complex-valued inputs is not implemented "
                                  "yet." + here())
    if x.dtype not in (np.float32, np.float64):
        s, c = fresnel(x.astype(np.float32))
        return s.astype(x.dtype), c.astype(x.dtype)
    ax = jnp.abs(x)
    x2 = ax * ax
    sin, cos = _half_square_angle(ax)
    s_small, c_small, f, g = _fresnel_parts(ax, x2)
    angle = np.pi * ax
    c_other = 0.5 + (f * sin - g * cos) / angle
    s_other = 0.5 - (f * cos + g * sin) / angle
    if x.dtype == np.float32:
        s_far = c_far = const(x, 0.5)
    else:
        s_far, c_far = 0.5 - cos / angle, 0.5 + sin / angle
    small, far, infinite = x2 < 2.5625, ax > 36974.0, jnp.isinf(x)
    sign = jnp.where(x < 0.0, -1.0, 1.0).astype(x.dtype)
    out = []
    for near, other, distant in ((s_small, s_other, s_far), (c_small, c_other, c_far)):
        value = jnp.where(small, near, jnp.where(far, distant, other))
        out.append(sign * jnp.where(infinite, 0.5, value))
    return out[0], out[1]


@fresnel.defjvp
def _fresnel_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    sin, cos = _half_square_angle(x)
    return fresnel(x), (sin * dx, cos * dx)


# -- the normal distribution ---------------------------------------------------------------------


def ndtr(x: ArrayLike) -> Array:
    """Compute the distribution function of the standard normal distribution.

    The result is the probability that a standard normal random variable is at most `x`.

    Args:
        x: array or number of dtype `float32` or `float64`.

    Returns:
        An array with the shape and dtype of `x`. Its values are between 0 and 1.

    Raises:
        TypeError: `x` has another dtype; integers are not converted.
    """
    return _ndtr(float_array(x))


def _ndtr(x):
    half_sqrt_2 = const(x, 0.5 * np.sqrt(2.0))
    w = x * half_sqrt_2
    z = jnp.abs(w)
    tail = lax.erfc(z)
    y = jnp.where(z < half_sqrt_2, 1.0 + lax.erf(w), jnp.where(w > 0.0, 2.0 - tail, tail))
    return 0.5 * y


def ndtri(p: ArrayLike) -> Array:
    """Compute quantiles of the standard normal distribution (the inverse of `ndtr`).

    Args:
        p: probabilities, of dtype `float32` or `float64`. The result is -inf at 0, inf at 1, and
            NaN outside `[0, 1]`.

    Returns:
        An array with the shape and dtype of `p`.

    Raises:
        TypeError: `p` has another dtype; integers are not converted.
    """
    return _ndtri(float_array(p))


@custom_jvp
def _ndtri(p):
    upper = p > const(p, -np.expm1(-2.0))
    q = jnp.where(upper, const(p, 1.0) - p, p)
    q = jnp.where(q == 0.0, const(p, 0.5), q)  # the ends are patched below
    w = q - 0.5
    ww = w * w
    centre = (w + w * ww * quotient(_tables.NDTRI_CENTRE, ww)) * const(p, -np.sqrt(2.0 * np.pi))
    z = jnp.sqrt(-2.0 * jnp.log(q))
    inv = 1 / z
    lead = z - jnp.log(z) / z
    tail = jnp.where(z >= 8.0, lead - quotient(_tables.NDTRI_FAR, inv) / z,
                     lead - quotient(_tables.NDTRI_TAIL, inv) / z)
    x = jnp.where(q > const(p, np.exp(-2.0)), centre, tail)
    x = jnp.where(p > const(p, 1.0 - np.exp(-2.0)), x, -x)
    infinity = const(p, np.inf)
    return jnp.where(p == 0.0, -infinity, jnp.where(p == 1.0, infinity, x))


@_ndtri.defjvp
def _(primals, tangents):
    x = _ndtri(*primals)
    slope = const(x, np.sqrt(2.0 * np.pi)) * jnp.exp(0.5 * x * x)  # 0 at the ends, as in JAX
    return x, tangents[0] * jnp.where(jnp.isinf(x), const(x, 0.0), slope)


def _log_ndtr_tail(x, order):
    """Compute `log Φ(x)` for very negative `x` by an asymptotic series of `order` terms.

    The series is `-x²/2 - log(-x√(2π)) + log Σ (-1)^n (2n-1)!!/x^2n`."""
    x2 = jnp.square(x)
    even, odd, power = 1.0, 0.0, x2
    for n in range(1, order + 1):
        term = const(x, np.prod(np.arange(2 * n - 1, 1, -2, dtype=float))) / power
        even, odd = (even, odd + term) if n % 2 else (even + term, odd)
        power = power * x2
    scale = -0.5 * x2 - jnp.log(-x) - const(x, 0.5 * np.log(2.0 * np.pi))
    return scale + jnp.log(even - odd)


@functools.partial(custom_jvp, nondiff_argnums=(1,))
def log_ndtr(x: ArrayLike, series_order: int = 3) -> Array:
    """Compute the logarithm of `ndtr`, accurately even in the lower tail, where `ndtr` underflows.

    Args:
        x: array or number of dtype `float32` or `float64`.
        series_order: number of terms in the asymptotic series, from 0 to 30. The series is used for
            `x` below -10 (`float32`) or -20 (`float64`).

    Returns:
        An array with the shape and dtype of `x`.

    Raises:
        TypeError: `x` has another dtype, or `series_order` is not an integer.
        ValueError: `series_order` is out of range.
    """
    if not isinstance(series_order, int):
        raise TypeError("series_order must be a Python integer." + here())
    if series_order < 0:
        raise ValueError("series_order must be non-negative." + here())
    if series_order > 30:
        raise ValueError("series_order must be <= 30." + here())
    z = jnp.asarray(x)
    if z.dtype not in (np.float32, np.float64):
        raise TypeError(f"x.dtype={z.dtype} is not supported.{here()}")
    low, high = (-20, 8) if z.dtype == np.float64 else (-10, 5)
    low, high = const(z, low), const(z, high)
    beyond = z > high  # there log Φ(z) = -Φ(-z) to rounding
    direct = _ndtr(jnp.where(beyond, -z, jnp.maximum(z, low)))
    tail = _log_ndtr_tail(jnp.minimum(z, low), series_order)
    return jnp.where(beyond, -direct, jnp.where(z > low, jnp.log(direct), tail))


@log_ndtr.defjvp
def _log_ndtr_jvp(series_order, primals, tangents):
    (x,), (dx,) = primals, tangents
    y = log_ndtr(x, series_order)
    log_density = -0.5 * jnp.square(x) - 0.5 * np.log(2 * np.pi)
    return y, dx * jnp.exp(log_density - y)


# -- Owen's T ------------------------------------------------------------------------------------


def _owens_quadrature(h, a):
    """Compute Owen's T function for `0 ≤ a ≤ 1` by quadrature.

    The sum is `a Σ wᵢ exp(-h²(1 + a²rᵢ)/2) / (1 + a²rᵢ)`."""
    nodes, weights = (at_rank(np.array(t, dtype=a.dtype), a.ndim + 1)
                      for t in (_tables.OWENS_NODES, _tables.OWENS_WEIGHTS))
    r = jnp.square(a)[..., None] * nodes
    values = jnp.exp(-0.5 * jnp.square(h)[..., None] * (1.0 + r)) / (1.0 + r)
    return a * jnp.sum(values * weights, axis=-1)


@custom_jvp
def _owens_t(h, a):
    h, abs_a = jnp.abs(h), jnp.abs(a)
    ah = abs_a * h
    inside = abs_a <= 1.0  # larger a is reduced by T(h,a) + T(ah,1/a) = [Φ(h)+Φ(ah)]/2 - Φ(h)Φ(ah)
    a_red = jnp.where(inside, abs_a, 1.0 / abs_a)
    h_red = jnp.where(inside, h, ah)
    out = _owens_quadrature(h_red, a_red)
    out = jnp.where(h_red == 0.0, jnp.arctan(a_red) / (2 * np.pi), out)
    root = const(h, np.sqrt(2))
    out = jnp.where(a_red == 1.0, 0.125 * lax.erfc(-h_red / root) * lax.erfc(h_red / root), out)
    ph, pah = lax.erfc(h / root), lax.erfc(ah / root)
    central = 0.25 - 0.25 * lax.erf(h / root) * lax.erf(ah / root) - out
    tail = 0.25 * (ph + pah - ph * pah) - out
    out = jnp.where(inside, out, jnp.where(ah <= 0.67, central, tail))
    return jnp.where(jnp.isnan(a) | jnp.isnan(h), np.nan, jnp.sign(a) * out)


@_owens_t.defjvp
def _owens_t_jvp(primals, tangents):
    (h, a), (dh, da) = primals, tangents
    y = _owens_t(h, a)
    along_h = -jnp.exp(-0.5 * h * h) * lax.erf(a * h / np.sqrt(2)) / (2.0 * np.sqrt(2 * np.pi))
    one = a * a + 1.0
    along_a = jnp.exp(-0.5 * one * h * h) / (2.0 * np.pi * one)
    return y, (along_h * dh + along_a * da).astype(y.dtype)


def owens_t(h: ArrayLike, a: ArrayLike) -> Array:
    """Compute Owen's T function: the probability that `X > h` and `0 < Y < a X`.

    `X` and `Y` are independent standard normal random variables.

    Args:
        h: lower bound on `X`.
        a: slope of the upper bound on `Y`. For negative `a`, the result is `-owens_t(h, -a)`.

    Returns:
        An array with the shape that the arguments broadcast to and the floating-point dtype that
        they promote to.
    """
    h, a = inexact("owens_t", h, a)
    return _owens_t(*jnp.broadcast_arrays(h, a))
