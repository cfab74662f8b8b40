"""The gamma function and related functions: beta, factorial, binomials, zeta, polygamma.

Functions of real arguments use `lax.lgamma` and similar functions of `lax`, which define the
derivatives. Functions of complex arguments use Lanczos' approximation with `g = 7`.
"""

from __future__ import annotations

import functools
import math
import operator

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.api import custom_jvp, jvp
from toile.engine.annotations import Array, ArrayLike
from toile.engine.source import here
from toile.nn._promote import inexact, inexact_broadcast, is_complex, is_integer, real_inexact
from toile.numpy._helpers import at_rank
from toile.scipy.special._tables import LANCZOS, ZETA


def gammaln(x: ArrayLike) -> Array:
    """Compute the logarithm of the absolute value of the gamma function.

    Args:
        x: real array or number. The result is inf at 0 and at negative integers.

    Returns:
        A floating-point array with the shape of `x`.
    """
    return lax.lgamma(*inexact("gammaln", x))


def gammasgn(x: ArrayLike) -> Array:
    """Compute the sign of the gamma function.

    Args:
        x: real array or number. The result is NaN at negative integers. At 0.0, it is 1, and at
            -0.0, it is -1.

    Returns:
        A floating-point array with the shape of `x`. Its elements are 1, -1 or NaN.

    Raises:
        ValueError: `x` is complex.
    """
    (x,) = real_inexact("gammasgn", x)
    scalar = np.dtype(x.dtype).type
    low = jnp.floor(x)
    negative = x < 0
    pole = negative & (x == low) | jnp.isnan(x)
    minus = negative & (low % 2 != 0) | (x == 0) & jnp.signbit(x)
    return jnp.select([pole, minus], [scalar(np.nan), scalar(-1.0)], scalar(1.0))


def gamma(x: ArrayLike) -> Array:
    """Compute the gamma function, which extends the factorial: `gamma(n + 1)` is `n!`.

    Args:
        x: array or number, real or complex. The result is NaN at negative integers. For real `x`,
            it is inf at 0.0 and -inf at -0.0.

    Returns:
        An array with the shape of `x`. It is complex if `x` is complex, and otherwise
        floating-point.
    """
    (x,) = inexact("gamma", x)
    if is_complex(x):
        bad = _pole(x) | jnp.isnan(x)
        safe = jnp.where(bad, jnp.ones_like(x), x)
        return jnp.where(bad, _nan(x), jnp.exp(_principal_loggamma(safe)))
    return gammasgn(x) * jnp.exp(lax.lgamma(x))


def loggamma(x: ArrayLike) -> Array:
    """Compute the logarithm of the gamma function as an analytic function of `x`.

    Args:
        x: array or number, real or complex. For real `x`, the result is NaN where `x ≤ 0`. For
            complex `x`, it is NaN at 0 and at negative integers.

    Returns:
        An array with the shape of `x`. It is complex if `x` is complex, and otherwise
        floating-point.

    Differences:
        For real `x`, SciPy's result at 0 is inf.
    """
    (x,) = inexact("loggamma", x)
    if is_complex(x):
        return _complex_loggamma(x)
    return jnp.where(x > 0, lax.lgamma(x), np.nan)


def _nan(x):
    return jnp.array(complex(np.nan, np.nan), dtype=x.dtype)


def _pole(z):
    re = jnp.real(z)
    return (jnp.imag(z) == 0) & (re == jnp.floor(re)) & (re <= 0)


def _principal_loggamma(z):
    """Compute `log Γ(z)` up to a multiple of 2πi, using Lanczos' approximation and reflection."""
    left = jnp.real(z) < 0.5
    w = jnp.where(left, 1.0 - z, z) - 1.0
    total = LANCZOS[0]
    for k, c in enumerate(LANCZOS[1:], start=1):
        total = total + c / (w + k)
    t = w + 7.5
    right = float(0.5 * np.log(2 * np.pi)) + (w + 0.5) * jnp.log(t) - t + jnp.log(total)
    safe = jnp.where(left, z, jnp.full_like(z, 0.5))
    # Γ(z) Γ(1-z) = π / sin πz
    reflected = float(np.log(np.pi)) - jnp.log(jnp.sin(np.pi * safe)) - right
    return jnp.where(left, reflected, right).astype(z.dtype)


def _complex_loggamma(z):
    """Compute the analytic `log Γ(z)` by shifting `z` to the right by an integer `n`.

    The result is `log Γ(z+n) - Σ log(z+k)`."""
    bad = _pole(z) | jnp.isnan(z)
    safe = jnp.where(bad, jnp.ones_like(z), z)
    n = jnp.maximum(0, jnp.ceil(0.5 - jnp.real(safe)))

    def body(state):
        k, total = state
        factor = jnp.where(k < n, safe + k.astype(safe.dtype), jnp.ones_like(safe))
        return k + 1, total + jnp.log(factor)

    init = (jnp.zeros((), n.dtype), jnp.zeros_like(safe))
    _, total = lax.while_loop(lambda state: jnp.any(state[0] < n), body, init)
    return jnp.where(bad, _nan(z), _principal_loggamma(safe + n.astype(z.dtype)) - total)


# Coefficients of the difference of Stirling corrections, log Γ(b) - log Γ(a + b) for large b.
_STIRLING = (
    0.833333333333333e-01, -0.277777777760991e-02, 0.793650666825390e-03, -0.595202931351870e-03,
    0.837308034031215e-03, -0.165322962780713e-02,
)


def _lgamma_ratio(a, b):
    """Compute `log(Γ(b)/Γ(a+b))` for `b ≥ 8`, without subtracting two large logarithms."""
    h = a / b
    x = h / (1 + h)
    sums = [1.0]  # 1 + x + ... + x^(2k)
    for _ in range(5):
        sums.append(1.0 + (x + x * x * sums[-1]))
    t = (1.0 / b) ** 2
    w = _STIRLING[5] * sums[5]
    for k in range(4, -1, -1):
        w = w * t + _STIRLING[k] * sums[k]
    w = w * (x / b)
    u = (b + (a - 0.5)) * lax.log1p(h)
    v = a * (jnp.log(b) - 1.0)
    return jnp.where(u <= v, w - v - u, w - u - v)  # the larger of u, v last


def betaln(a: ArrayLike, b: ArrayLike) -> Array:
    """Compute the logarithm of the absolute value of the beta function.

    Args:
        a, b: real arrays or numbers, which are broadcast against each other.

    Returns:
        An array with the shape that the arguments broadcast to and the floating-point dtype that
        they promote to.
    """
    a, b = inexact("betaln", a, b)
    small, large = jnp.minimum(a, b), jnp.maximum(a, b)
    direct = lax.lgamma(small) + (lax.lgamma(large) - lax.lgamma(small + large))
    return jnp.where(large < 8, direct, lax.lgamma(small) + _lgamma_ratio(small, large))


def beta(a: ArrayLike, b: ArrayLike) -> Array:
    """Compute the beta function, `gamma(a) gamma(b) / gamma(a + b)`.

    Args:
        a, b: real arrays or numbers, which are broadcast against each other.

    Returns:
        An array with the shape that the arguments broadcast to and the floating-point dtype that
        they promote to.

    Raises:
        ValueError: an argument is complex.
    """
    a, b = real_inexact("beta", a, b)
    return gammasgn(a) * gammasgn(b) * gammasgn(a + b) * jnp.exp(betaln(a, b))


def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """Compute the regularized incomplete beta function.

    The result is the integral of `t^(a-1) (1-t)^(b-1)` from 0 to `x`, divided by `beta(a, b)`. As
    a function of `x`, the result is the distribution function of the beta distribution.

    Args:
        a, b: nonnegative shape parameters.
        x: upper limits of the integral, from 0 to 1. The result is NaN outside this range.

    Returns:
        An array with the shape that the arguments broadcast to and the floating-point dtype that
        they promote to.

    Raises:
        ValueError: an argument is complex.
    """
    a, b, x = inexact_broadcast("betainc", a, b, x)
    if is_complex(x):
        raise ValueError("betainc does not support complex-valued inputs." + here())
    return lax.betainc(a, b, x)


def factorial(n: ArrayLike, exact: bool = False) -> Array:
    """Compute the factorial as a float: `gamma(n + 1)`, or 0 if `n` is negative.

    Args:
        n: array or number; the elements need not be integers.
        exact: must be False; other values are not supported.

    Returns:
        A floating-point array with the shape of `n`. Even for small `n`, its elements are accurate
        only to a few units in the last place.

    Raises:
        NotImplementedError: `exact` is True.
    """
    if exact:
        raise NotImplementedError("factorial with exact=True" + here())
    (n,) = inexact("factorial", n)
    return jnp.where(n < 0, 0, jnp.exp(lax.lgamma(n + 1)))


def comb(N: ArrayLike, k: ArrayLike, *, repetition: bool = False) -> Array:
    """Compute the number of ways to choose `k` of `N` items, as a float.

    Args:
        N: number of items to choose from.
        k: number of items to choose. The result is 0 where `k` is negative or greater than `N`.
        repetition: whether an item may be chosen more than once.

    Returns:
        An array with the shape that the arguments broadcast to and the floating-point dtype that
        they promote to. Even for small numbers, its elements are accurate only to a few units in
        the last place.

    Differences:
        SciPy has an argument `exact`, which requests exact integers of any size.
    """
    N, k = inexact("comb", N, k)
    if repetition:
        return jnp.where((k == 0) & (N >= 0), 1.0, comb(N + k - 1, k))
    ok = (k <= N) & (N >= 0) & (k >= 0)
    n, k = jnp.where(ok, N, 0.0), jnp.where(ok, k, 0.0)
    return jnp.where(ok, jnp.exp(gammaln(n + 1) - gammaln(k + 1) - gammaln(n + 1 - k)), 0.0)


def multigammaln(a: ArrayLike, d: int) -> Array:
    """Compute the logarithm of the multivariate gamma function.

    The result is `d (d - 1) log(π) / 4` plus the sum of `gammaln(a - j / 2)` for `j` from 0 to
    `d - 1`.

    Args:
        a: real array or number, greater than `(d - 1) / 2`.
        d: dimension, an integer.

    Returns:
        A floating-point array with the shape of `a`.

    Differences:
        SciPy raises an error if `a` is too small. toile does not check `a`.
    """
    d = operator.index(d) if not isinstance(d, float) else int(d)
    a, size = inexact("multigammaln", a, d)
    constant = 0.25 * size * (size - 1) * math.log(math.pi)
    steps = jnp.arange(d, dtype=size.dtype) / 2
    shifted = jnp.expand_dims(a, -1) - at_rank(steps, a.ndim + 1)
    return jnp.sum(gammaln(shifted), axis=-1) + constant


def digamma(x: ArrayLike) -> Array:
    """Compute the digamma function, which is the derivative of `log(gamma(x))`.

    Args:
        x: real array or number. The result is NaN at negative integers and -inf at 0.

    Returns:
        A floating-point array with the shape of `x`.

    Differences:
        SciPy also accepts complex numbers.
    """
    return lax.digamma(*inexact("digamma", x))


def polygamma(n: ArrayLike, x: ArrayLike) -> Array:
    """Compute the polygamma function, which is the `n`-th derivative of `digamma`.

    Args:
        n: orders of the derivatives, of an integer dtype.
        x: real array or number, which is broadcast against `n`.

    Returns:
        An array with the shape that the arguments broadcast to and the floating-point dtype that
        they promote to.

    Raises:
        ValueError: `n` does not have an integer dtype, or `x` is complex.
    """
    orders = jnp.asarray(n)
    if not is_integer(orders):
        raise ValueError("Argument `n` to polygamma must be of integer type. Got dtype "
                         f"{orders.dtype}.{here()}")
    n, x = inexact_broadcast("polygamma", orders, x)
    if is_complex(x):
        raise ValueError("polygamma does not support complex-valued inputs." + here())
    return lax.polygamma(n, x)


def gammainc(a: ArrayLike, x: ArrayLike) -> Array:
    """Compute the regularized lower incomplete gamma function.

    The result is the integral of `t^(a-1) exp(-t)` from 0 to `x`, divided by `gamma(a)`. As a
    function of `x`, the result is the distribution function of the gamma distribution.

    Args:
        a: nonnegative shape parameters.
        x: nonnegative upper limits of the integral. The result is NaN where `a` or `x` is negative.

    Returns:
        An array with the shape that the arguments broadcast to and the floating-point dtype that
        they promote to.
    """
    return lax.igamma(*inexact_broadcast("gammainc", a, x))


def gammaincc(a: ArrayLike, x: ArrayLike) -> Array:
    """Compute the regularized upper incomplete gamma function, `1 - gammainc(a, x)`.

    The result is accurate even where it is small.

    Args:
        a: nonnegative shape parameters.
        x: nonnegative numbers, the lower limits of the integral that defines the function. The
            result is NaN where `a` or `x` is negative.

    Returns:
        An array with the shape that the arguments broadcast to and the floating-point dtype that
        they promote to.
    """
    return lax.igammac(*inexact_broadcast("gammaincc", a, x))


@custom_jvp
def _zeta(x, q):
    return lax.zeta(x, q)


def zeta(x: ArrayLike, q: ArrayLike | None = None) -> Array:
    """Compute the Hurwitz zeta function, which is the sum of `(k + q)^-x` over `k = 0, 1, 2, ...`.

    Args:
        x: exponents. The result is inf at 1 and NaN below 1.
        q: base of the first term; this argument is required. If `q` is 1, the result is the Riemann
            zeta function.

    Returns:
        An array with the shape that the arguments broadcast to and the floating-point dtype that
        they promote to.

    Raises:
        NotImplementedError: `q` is None.

    Differences:
        In SciPy, `q` may be omitted; it is then 1.
    """
    if q is None:
        raise NotImplementedError("Riemann zeta function not implemented; pass q != None to "
                                  "compute the Hurwitz Zeta function." + here())
    return _zeta(*inexact_broadcast("zeta", x, q))


def _zeta_expansion(s, a):
    """Sum the zeta series by the Euler-Maclaurin formula, to differentiate the sum."""
    n = 8 if s.dtype == np.float32 else 16
    total = sum((a + k) ** -s for k in range(n))
    tail = (a + n) ** (1 - s) / (s - 1)
    correction, product = 0.5, 1.0
    largest = float(jnp.finfo(s.dtype).max)
    for k in range(n):  # product: s (s+1) ... (s+2k) / (a+n)^(2k+1)
        for m in (2 * k - 1, 2 * k) if k else (0,):
            product = product * ((s + m) / (a + n))
        correction = correction + jnp.clip(product, max=largest) / np.dtype(s.dtype).type(ZETA[k])
    return total + tail + (a + n) ** -s * correction


_zeta.defjvp(functools.partial(jvp, _zeta_expansion))


@custom_jvp
def _poch(z, m):
    return jnp.where(m == 0.0, jnp.array(1, dtype=z.dtype), gamma(z + m) / gamma(z))


_poch.defjvps(lambda dz, y, z, m: (digamma(z + m) - digamma(z)) * _poch(z, m) * dz, lambda dm, y, z,
              m: digamma(z + m) * _poch(z, m) * dm)


def poch(z: ArrayLike, m: ArrayLike) -> Array:
    """Compute the rising factorial (Pochhammer symbol), `gamma(z + m) / gamma(z)`.

    Args:
        z: first factor. For a positive integer `m`, the result is `z (z + 1) ... (z + m - 1)`.
        m: number of factors, which need not be an integer.

    Returns:
        An array with the shape that the arguments broadcast to and the floating-point dtype that
        they promote to.

    Raises:
        ValueError: an argument is complex.

    Differences:
        If `z` is a negative integer, toile returns NaN unless `m` is 0. SciPy returns finite
        values, such as 6 for `poch(-3, 2)`.
    """
    return _poch(*real_inexact("jnp.poch", z, m))


def bernoulli(n: int) -> Array:
    """Compute the Bernoulli numbers up to the `n`-th: `B(0)`, ..., `B(n)`.

    Args:
        n: index of the last number, a nonnegative integer.

    Returns:
        A vector of length `n + 1`, of the default float dtype. `B(1)` is -1/2.

    Raises:
        ValueError: `n` is negative.
    """
    n = operator.index(n)
    if n < 0:
        raise ValueError("n must be a non-negative integer." + here())
    first = jnp.array([1, -1 / 2, 1 / 6])
    if n < 3:
        return first[: n + 1]
    out = jnp.zeros(n + 1).at[:3].set(first)
    m = jnp.arange(4, n + 1, 2, dtype=out.dtype)
    # B(2k) = 2 (-1)^(k+1) (2k)!/(2π)^(2k) ζ(2k): ratio of successive terms times the zeta sum
    lead = (1.0 / np.pi**2) * jnp.cumprod(-(m - 1) * m / 4 / np.pi**2)
    k = jnp.arange(2, 50, dtype=out.dtype)
    return out.at[4::2].set(lead * (1 + jnp.sum(k[:, None] ** -m[None, :], axis=0)))
