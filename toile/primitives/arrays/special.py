"""Special functions of raw NumPy or CuPy arrays; the first argument is the array module `xp`.

There are two kinds. `erf`, `erf_inv` and `log1p` repeat in float32 the formulas of XLA's CPU
compiler step by step, fused multiply-adds included, because random samplers use them and must agree
with it bit for bit; float64 uses the formulas of recent releases and fuses the last steps. The
others call scipy.special (cupyx on a GPU) in float64 and round once, with JAX's values at the edges
of the domain. Narrow types are computed in float32 or float64 and rounded to the input type.
"""

import functools
import importlib
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from toile.primitives.arrays import temme
from toile.primitives.arrays.coefficients import (
    ERF_INV_DOUBLE,
    ERF_INV_SINGLE,
    ERF_LIMIT,
    ERF_P,
    ERF_Q,
    LOG1P_LEAST,
    LOG1P_MOST,
    LOG1P_P,
    LOG1P_Q,
    LOG2_HIGH,
    LOG2_LOW,
    LOG_P,
)

Array = Any  # numpy.ndarray or cupy.ndarray

CHUNK = 1 << 14  # elements per pass of the step-by-step formulas: buffers stay in cache
FUSED = 4  # last steps of a float64 polynomial with fused multiply-adds

# Step-by-step formulas.


def erf_inv(xp: ModuleType, x: Array) -> Array:
    """Inverse of the error function, ±inf at ±1 and nan beyond."""
    return _stepwise(xp, x, _erf_inv)


def log1p(xp: ModuleType, x: Array) -> Array:
    """log(1 + x), accurate for small x."""
    if x.dtype.kind == "c":
        return _complex_log1p(xp, x)
    return _stepwise(xp, x, _log1p)


def _complex_log1p(xp: ModuleType, z: Array) -> Array:
    """Modulus and angle of 1 + z; near 1, the modulus from its distance to 1."""
    x, y = z.real.astype(xp.float64), z.imag.astype(xp.float64)
    with np.errstate(all="ignore"):
        near = 0.5 * xp.log1p(x * (2 + x) + y * y)
        large = xp.log(xp.hypot(1 + x, y))
        out = xp.empty(z.shape, z.dtype)
        out.real = xp.where(xp.abs(x) + xp.abs(y) < 0.5, near, large)
        out.imag = xp.arctan2(y, 1 + x)
    return out


def log(xp: ModuleType, x: Array) -> Array:
    """Natural logarithm; float32 in Cephes' steps."""
    if x.dtype.kind == "c":
        return xp.log(x)
    return _stepwise(xp, x, _log)


def exp(xp: ModuleType, x: Array) -> Array:
    """The exponential function of float32, rounded once on every processor."""
    return xp.exp(x.astype(np.float64)).astype(np.float32)


def erf(xp: ModuleType, x: Array) -> Array:
    """The error function."""
    return _stepwise(xp, x, _erf)


_libm_erf = np.frompyfunc(math.erf, 1, 1)


def erf_by_element(xp: ModuleType, x: Array) -> Array:
    """The error function; float64 from the C library, like XLA's, with one call per element."""
    if xp is not np or x.dtype != np.float64:
        return erf(xp, x)
    return np.asarray(_libm_erf(x), np.float64)


def _stepwise(xp: ModuleType, x: Array, steps: Callable[[ModuleType, Array], Array]) -> Array:
    """Apply `steps` to flat float32 or float64 pieces of x."""
    wide = x if x.dtype in (np.float32, np.float64) else x.astype(np.float32)
    flat = wide.reshape(-1)
    if x.size <= CHUNK or xp is not np:
        out = steps(xp, flat)
    else:
        out = np.empty(x.size, wide.dtype)
        for start in range(0, x.size, CHUNK):
            part = slice(start, start + CHUNK)
            out[part] = steps(xp, flat[part])
    return out.reshape(x.shape).astype(x.dtype, copy=False)


def _horner(xp: ModuleType, x: Array, *tables: tuple[float, ...]) -> Array:
    """Polynomials of one degree, leading coefficient first, as rows; one rounding per step.

    The product of two float32 numbers is exact in float64, so adding there and rounding to float32
    is a fused multiply-add, except for a double rounding 29 bits further down. In float64 fusing
    takes twenty operations a step; only the last steps, which decide the last bit, are fused."""
    constants = _constants(x.dtype, tables)
    if xp is not np:
        constants = tuple(map(xp.asarray, constants))
    if x.dtype != np.float32:
        p = x * constants[0]
        p += constants[1]
        for c in constants[2:-FUSED]:
            p *= x
            p += c
        for c in constants[-FUSED:]:
            p = fused_multiply_add(xp, p, x, c)
        return p
    wide = x.astype(np.float64)
    t = wide * constants[0]
    t += constants[1]
    p = t.astype(np.float32)
    for c in constants[2:]:
        t[...] = p
        t *= wide
        t += c
        p[...] = t
    return p


_CONSTANTS: dict[Any, tuple[Any, ...]] = {}


def _constants(dtype: Any, tables: tuple[tuple[float, ...], ...]) -> tuple[Array, ...]:
    """Coefficients rounded to `dtype` and held as float64, one column per step of `_horner`."""
    key = dtype.char, tables
    if key not in _CONSTANTS:
        rows = np.array(tables, dtype).astype(np.float64)
        _CONSTANTS[key] = tuple(rows.T[:, :, None])
    return _CONSTANTS[key]


def _by_branch(xp: ModuleType, inside: Array, f: Callable, g: Callable, *xs: Array) -> Array:
    """f where `inside`, g elsewhere; on the CPU each is computed for its own elements only."""
    if xp is not np:
        return xp.where(inside, f(*xs), g(*xs))
    chosen = inside.nonzero()[0]
    if chosen.size == inside.size:
        return f(*xs)
    if not chosen.size:
        return g(*xs)
    out = np.empty_like(xs[0])
    out[chosen] = f(*(x[chosen] for x in xs))
    others = (~inside).nonzero()[0]
    out[others] = g(*(x[others] for x in xs))
    return out


def _log(xp: ModuleType, x: Array) -> Array:
    if x.dtype != np.float32:
        return xp.log(x)
    m, e = xp.frexp(x)  # x = m 2**e with m in [1/2, 1)
    low = m < np.float32(0.707106781186547524)
    z = xp.where(low, m + m, m)
    z -= np.float32(1)
    e = (e - low).astype(np.float32)
    z2 = z * z
    y, *rest = _horner(xp, z, LOG_P[0:3], LOG_P[3:6], LOG_P[6:9])
    cube = (z2 * z).astype(np.float64)
    for term in (*rest, e * np.float32(LOG2_LOW)):
        t = y * cube
        t += term
        y = t.astype(np.float32)
    y += z - np.float32(0.5) * z2
    t = e * np.float64(LOG2_HIGH)
    t += y
    y = t.astype(np.float32)
    special = ~((x > 0) & (x < np.inf))  # zero, negative, infinite or nan
    if special.any():
        y[special] = xp.log(x[special])
    return y


def _log1p(xp: ModuleType, x: Array) -> Array:
    if x.dtype == np.float32:
        small = xp.abs(x) < np.float32(LOG1P_MOST)
    else:
        small = (x > LOG1P_LEAST) & (x < LOG1P_MOST)
    return _by_branch(xp, small, lambda x: _log1p_small(xp, x), lambda x: _log(xp, x + 1), x)


def _log1p_small(xp: ModuleType, x: Array) -> Array:
    ratio, below = _horner(xp, x, LOG1P_P, LOG1P_Q)
    ratio /= below
    x2 = x * x
    ratio *= x2 * x
    ratio -= x.dtype.type(0.5) * x2
    return x + ratio  # x - x²/2 + x³ P/Q


def _erf_inv(xp: ModuleType, x: Array) -> Array:
    w = -_log1p(xp, -x * x)
    table = ERF_INV_SINGLE if x.dtype == np.float32 else ERF_INV_DOUBLE
    p = _erf_inv_branches(xp, table, w)
    p *= x
    edge = xp.abs(x) == 1
    if edge.any():
        p[edge] = np.inf * x[edge]
    return p


def _erf_inv_branches(xp: ModuleType, table: tuple, w: Array) -> Array:
    (limit, root, center, coefficients), *rest = table

    def here(w: Array) -> Array:
        t = xp.sqrt(w) if root else w
        return _horner(xp, t - w.dtype.type(center), coefficients)[0]

    if not rest:
        return here(w)
    return _by_branch(xp, w < limit, here, lambda w: _erf_inv_branches(xp, tuple(rest), w), w)


def _erf(xp: ModuleType, x: Array) -> Array:
    if x.dtype != np.float32:
        return _library(xp).erf(x)
    limit = np.float32(ERF_LIMIT)
    x = xp.clip(x, -limit, limit)
    x2 = x * x
    return x * _horner(xp, x2, ERF_P)[0] / _horner(xp, x2, ERF_Q)[0]


# Functions through scipy.special.


def _library(xp: ModuleType) -> Any:
    return importlib.import_module("scipy.special" if xp is np else "cupyx.scipy.special")


def _in_double(xp: ModuleType, name: str, *xs: Array) -> Array:
    """Call a scipy.special function in float64 and round to the type of the operands."""
    dtype = xs[0].dtype
    out = getattr(_library(xp), name)(*(x.astype(np.float64, copy=False) for x in xs))
    return out.astype(dtype, copy=False)


def erfc(xp: ModuleType, x: Array) -> Array:
    """1 - erf(x), accurate for large x."""
    return _in_double(xp, "erfc", x)


def lgamma(xp: ModuleType, x: Array) -> Array:
    """log |Γ(x)|, infinite at both infinities."""
    return xp.where(xp.isinf(x), x.dtype.type(np.inf), _in_double(xp, "gammaln", x))


def digamma(xp: ModuleType, x: Array) -> Array:
    """The derivative of log Γ, -inf at zero and nan at the negative integers."""
    out, number = _in_double(xp, "psi", x), x.dtype.type
    out = xp.where(x == 0, number(-np.inf), out)
    return xp.where((x < 0) & (x == xp.floor(x)), number(np.nan), out)


def bessel_i0e(xp: ModuleType, x: Array) -> Array:
    """exp(-|x|) I₀(x)."""
    return _in_double(xp, "i0e", x)


def bessel_i1e(xp: ModuleType, x: Array) -> Array:
    """exp(-|x|) I₁(x)."""
    return _in_double(xp, "i1e", x)


def igamma(xp: ModuleType, a: Array, x: Array) -> Array:
    """The regularized lower incomplete gamma function P(a, x)."""
    return _incomplete_gamma(xp, "gammainc", a, x, 1.0)


def igammac(xp: ModuleType, a: Array, x: Array) -> Array:
    """The regularized upper incomplete gamma function Q(a, x) = 1 - P(a, x)."""
    return _incomplete_gamma(xp, "gammaincc", a, x, 0.0)


def _incomplete_gamma(xp: ModuleType, name: str, a: Array, x: Array, at_infinity: float) -> Array:
    out = _in_double(xp, name, a, x)
    number = x.dtype.type
    out = xp.where((a == np.inf) & (x >= 1), number(np.nan), out)
    out = xp.where((x == np.inf) & (a >= 0), number(at_infinity), out)
    return xp.where(~((a >= 0) & (x >= 0)) | ((a == 0) & (x == 0)), number(np.nan), out)


def _outside_gamma(a: Array, x: Array) -> Array:
    return ~((a > 0) & (x >= 0) & (x < np.inf))


def igamma_grad_a(xp: ModuleType, a: Array, x: Array) -> Array:
    """∂P(a, x)/∂a."""
    dtype, a, x = a.dtype, a.astype(np.float64), x.astype(np.float64)
    density = xp.exp((a - 1) * xp.log(x) - x - _library(xp).gammaln(a))  # ∂P/∂x
    out = -_sample_slope(xp, a, x) * density
    out = xp.where(x == 0, 0.0, out)
    return xp.where(_outside_gamma(a, x), np.nan, out).astype(dtype)


def random_gamma_grad(xp: ModuleType, a: Array, x: Array) -> Array:
    """The derivative dx/da of a Gamma(a) sample x at a fixed quantile, -(∂P/∂a) / (∂P/∂x)."""
    dtype, a, x = a.dtype, a.astype(np.float64), x.astype(np.float64)
    out = xp.where(x == 0, 0.0, _sample_slope(xp, a, x))
    return xp.where(_outside_gamma(a, x), np.nan, out).astype(dtype)


def _sample_slope(xp: ModuleType, a: Array, x: Array) -> Array:
    """-(∂P/∂a) / (∂P/∂x); the density cancels, so nothing overflows."""
    a, x = xp.broadcast_arrays(a, x)
    valid = (a > 0) & (x > 0) & (x < np.inf)
    a, x = xp.where(valid, a, 1.0).reshape(-1), xp.where(valid, x, 1.0).reshape(-1)
    expands = (a > temme.LEAST) & (xp.abs(x - a) < temme.WIDTH * a)
    slope = _by_branch(xp, expands, functools.partial(temme.slope, xp),
                       functools.partial(_slope_by_terms, xp), a, x)
    return slope.reshape(valid.shape)


def _slope_by_terms(xp: ModuleType, a: Array, x: Array) -> Array:
    return _by_branch(xp, (x <= 1) | (x <= a), functools.partial(_slope_by_series, xp),
                      functools.partial(_slope_by_fraction, xp), a, x)


def _slope_by_series(xp: ModuleType, a: Array, x: Array) -> Array:
    """By P = xᵃ e⁻ˣ / Γ(a+1) Σ cₙ with cₙ = cₙ₋₁ x/(a+n), differentiated term by term."""
    term, total = xp.ones_like(x), xp.ones_like(x)
    dterm, dtotal = xp.zeros_like(x), xp.zeros_like(x)
    n = a.copy()
    for _ in range(2000):
        n += 1
        factor = x / n
        dterm = factor * (dterm - term / n)
        term = factor * term
        total += term
        dtotal += dterm
        if (xp.abs(dterm) <= 1e-17 * xp.abs(dtotal)).all() and (term <= 1e-17 * total).all():
            break
    return -(dtotal + total * (xp.log(x) - _library(xp).psi(a + 1))) * x / a


def _slope_by_fraction(xp: ModuleType, a: Array, x: Array) -> Array:
    """By Q = xᵃ e⁻ˣ / Γ(a) R; the convergents of R, Legendre's fraction, are differentiated.

    The convergents are computed for x R, with terms divided by x."""
    zero, w = xp.zeros_like(x), 1 / x
    y, z, c = (1 - a) * w, (x + 2 - a) * w, zero
    p2, q2, p1, q1 = zero + 1, zero + 1, 1 + w, z
    dp2, dq2, dp1, dq1 = zero, zero, zero, -w
    ratio = p1 / q1
    dratio, on = (dp1 - ratio * dq1) / q1, xp.ones(x.shape, bool)
    for _ in range(2000):
        c = c + w
        y = y + w
        z = z + 2 * w
        yc = y * c
        p, q = p1 * z - p2 * yc, q1 * z - q2 * yc
        # dz/da = -1/x and d(yc)/da = -c/x
        dp = dp1 * z - p1 * w - dp2 * yc + p2 * c * w
        dq = dq1 * z - q1 * w - dq2 * yc + q2 * c * w
        new = p / q
        dnew = (dp - new * dq) / q
        going = ((xp.abs(new - ratio) > 1e-15 * xp.abs(ratio))
                 | (xp.abs(dnew - dratio) > 1e-15 * (xp.abs(dratio) + xp.abs(ratio))))
        # Elements that have converged stay: rounding errors would accumulate.
        on = on & going
        ratio, dratio = xp.where(on, new, ratio), xp.where(on, dnew, dratio)
        if not on.any():
            break
        scale = 1 / q  # convergents grow or shrink without bound
        p2, q2, p1, q1 = p1 * scale, q1 * scale, p * scale, q * scale
        dp2, dq2, dp1, dq1 = dp1 * scale, dq1 * scale, dp * scale, dq * scale
    return dratio + ratio * (xp.log(x) - _library(xp).psi(a))


def zeta(xp: ModuleType, x: Array, q: Array) -> Array:
    """The Hurwitz zeta function Σ (k + q)⁻ˣ."""
    dtype, x, q = x.dtype, x.astype(np.float64), q.astype(np.float64)
    out = _library(xp).zeta(x, q)
    # At a pole, terms of even order are all positive; odd ones change sign there.
    pole = (q <= 0) & (q == xp.floor(q))
    out = xp.where(pole, xp.where(x % 2 == 0, np.inf, np.nan), out)
    undefined = (x < 1) & ~pole | (q < 0) & (x != xp.floor(x)) | (x == np.inf) | (q == np.inf)
    out = xp.where(undefined | (x != x), np.nan, out)
    return xp.where(x == 1, np.inf, out).astype(dtype)


def polygamma(xp: ModuleType, m: Array, x: Array) -> Array:
    """The m-th derivative of digamma, (-1)ᵐ⁺¹ m! ζ(m+1, x)."""
    dtype, m, x = x.dtype, m.astype(np.float64), x.astype(np.float64)
    sign = xp.where(m % 2 == 0, -1.0, 1.0)
    out = sign * xp.exp(_library(xp).gammaln(m + 1)) * zeta(xp, m + 1, x)
    out = xp.where(m == 0, digamma(xp, x), out)
    return xp.where((m < 0) | (m != xp.floor(m)), np.nan, out).astype(dtype)


def betainc(xp: ModuleType, a: Array, b: Array, x: Array) -> Array:
    """The regularized incomplete beta function Iₓ(a, b)."""
    return _in_double(xp, "betainc", a, b, x)


def fused_multiply_add(xp: ModuleType, a: Array, b: Array, c: Array) -> Array:
    """a * b + c with a single rounding, except for a double rounding far below the last digit."""
    wider = {2: np.float32, 4: np.float64}.get(a.dtype.itemsize)
    if wider is not None and a.dtype.kind == "f":  # products are exact in the wider type
        return (a.astype(wider) * b + c).astype(a.dtype)
    p = a * b
    s = p + c
    if a.dtype != np.float64:
        return s
    # Dekker: the rounding error of the product, from halves of 26 bits; Knuth: that of the sum.
    (ah, al), (bh, bl) = _halves(a), _halves(b)
    product_error = ((ah * bh - p) + ah * bl + al * bh) + al * bl
    rest = s - p
    sum_error = (p - (s - rest)) + (c - rest)
    return s + (sum_error + product_error)


def _halves(x: Array) -> tuple[Array, Array]:
    t = x * 134217729.0  # 2**27 + 1
    high = t - (t - x)
    return high, x - high


# Small helpers without a NumPy function of the same meaning.


def logistic(xp: ModuleType, x: Array) -> Array:
    """1 / (1 + exp(-x))."""
    one = x.dtype.type(1)
    if x.dtype.kind != "c":
        return one / (one + xp.exp(-x))
    left = x.real < 0  # where e**-x may overflow
    e = xp.exp(xp.where(left, x, -x))
    return xp.where(left, e, one) / (one + e)


def expm1(xp: ModuleType, x: Array) -> Array:
    """exp(x) - 1; of a complex number without imaginary part, a real result."""
    y = xp.expm1(x)
    if x.dtype.kind != "c":
        return y
    out = xp.empty_like(y)
    out.real, out.imag = y.real, xp.where(x.imag == 0, x.imag, y.imag)
    return out


def rsqrt(xp: ModuleType, x: Array) -> Array:
    """1 / sqrt(x), rounded once in narrow types."""
    wide = x if x.dtype.itemsize >= 4 else x.astype(np.float32)
    return (wide.dtype.type(1) / xp.sqrt(wide)).astype(x.dtype, copy=False)


def cbrt(xp: ModuleType, x: Array) -> Array:
    """The real cube root."""
    return xp.cbrt(x)
