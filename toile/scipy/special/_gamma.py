"""The gamma function and what is built from it: beta, factorial, binomials, zeta, polygamma.

Real arguments go through `lax.lgamma` and its relatives, which carry their own derivatives; complex
ones through Lanczos' approximation with g = 7.
"""

import functools
import operator

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.api import custom_jvp, jvp
from toile.engine.source import here
from toile.nn._promote import inexact, inexact_broadcast, is_complex, is_integer, real_inexact
from toile.scipy.special._tables import LANCZOS, ZETA

__all__ = [
    "bernoulli", "beta", "betainc", "betaln", "comb", "digamma", "factorial", "gamma", "gammainc",
    "gammaincc", "gammaln", "gammasgn", "loggamma", "multigammaln", "poch", "polygamma", "zeta",
]


def gammaln(x):
    """log|Γ(x)|."""
    return lax.lgamma(*inexact("gammaln", x))


def gammasgn(x):
    """Sign of Γ(x); NaN at its poles below zero."""
    (x,) = real_inexact("gammasgn", x)
    scalar = np.dtype(x.dtype).type
    low = jnp.floor(x)
    negative = x < 0
    pole = negative & (x == low) | jnp.isnan(x)
    minus = negative & (low % 2 != 0) | (x == 0) & jnp.signbit(x)
    return jnp.select([pole, minus], [scalar(np.nan), scalar(-1.0)], scalar(1.0))


def gamma(x):
    """Γ(x)."""
    (x,) = inexact("gamma", x)
    if is_complex(x):
        bad = _pole(x) | jnp.isnan(x)
        safe = jnp.where(bad, jnp.ones_like(x), x)
        return jnp.where(bad, _nan(x), jnp.exp(_principal_loggamma(safe)))
    return gammasgn(x) * jnp.exp(lax.lgamma(x))


def loggamma(x):
    """log Γ(x), analytic off the negative axis; NaN for real x ≤ 0."""
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
    """log Γ(z) up to a multiple of 2πi: Lanczos in the right half plane, reflection in the left."""
    left = jnp.real(z) < 0.5
    w = jnp.where(left, 1.0 - z, z) - 1.0
    total = LANCZOS[0]
    for k, c in enumerate(LANCZOS[1:], start=1):
        total = total + c / (w + k)
    t = w + 7.5
    right = 0.5 * np.log(2 * np.pi) + (w + 0.5) * jnp.log(t) - t + jnp.log(total)
    safe = jnp.where(left, z, jnp.full_like(z, 0.5))
    reflected = np.log(np.pi) - jnp.log(jnp.sin(np.pi * safe)) - right  # Γ(z)Γ(1-z) = π/sin πz
    return jnp.where(left, reflected, right).astype(z.dtype)


def _complex_loggamma(z):
    """The analytic log Γ: shift right by n, log Γ(z) = log Γ(z+n) - Σ log(z+k)."""
    bad = _pole(z) | jnp.isnan(z)
    safe = jnp.where(bad, jnp.ones_like(z), z)
    n = jnp.maximum(0, jnp.ceil(0.5 - jnp.real(safe)))

    def body(state):
        k, total = state
        factor = jnp.where(k < n, safe + k, jnp.ones_like(safe))
        return k + 1, total + jnp.log(factor)

    init = (jnp.zeros((), n.dtype), jnp.zeros_like(safe))
    _, total = lax.while_loop(lambda state: jnp.any(state[0] < n), body, init)
    return jnp.where(bad, _nan(z), _principal_loggamma(safe + n) - total)


# Coefficients of the difference of Stirling corrections, log Γ(b) - log Γ(a + b) for large b.
_STIRLING = (
    0.833333333333333e-01, -0.277777777760991e-02, 0.793650666825390e-03, -0.595202931351870e-03,
    0.837308034031215e-03, -0.165322962780713e-02,
)


def _lgamma_ratio(a, b):
    """log(Γ(b)/Γ(a+b)) for b ≥ 8, without the cancellation of the two logarithms."""
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


def betaln(a, b):
    """log|B(a, b)|."""
    a, b = inexact("betaln", a, b)
    small, large = jnp.minimum(a, b), jnp.maximum(a, b)
    direct = lax.lgamma(small) + (lax.lgamma(large) - lax.lgamma(small + large))
    return jnp.where(large < 8, direct, lax.lgamma(small) + _lgamma_ratio(small, large))


def beta(a, b):
    """B(a, b) = Γ(a)Γ(b)/Γ(a+b)."""
    a, b = real_inexact("beta", a, b)
    return gammasgn(a) * gammasgn(b) * gammasgn(a + b) * jnp.exp(betaln(a, b))


def betainc(a, b, x):
    """The regularised incomplete beta function."""
    a, b, x = inexact_broadcast("betainc", a, b, x)
    if is_complex(x):
        raise ValueError("betainc does not support complex-valued inputs." + here())
    return lax.betainc(a, b, x)


def factorial(n, exact=False):
    """n! as a float; 0 for negative n."""
    if exact:
        raise NotImplementedError("factorial with exact=True" + here())
    (n,) = inexact("factorial", n)
    return jnp.where(n < 0, 0, jnp.exp(lax.lgamma(n + 1)))


def comb(N, k, *, repetition=False):
    """Number of ways to choose k of N, with or without repetition; 0 outside 0 ≤ k ≤ N."""
    N, k = inexact("comb", N, k)
    if repetition:
        return jnp.where((k == 0) & (N >= 0), 1.0, comb(N + k - 1, k))
    ok = (k <= N) & (N >= 0) & (k >= 0)
    n, k = jnp.where(ok, N, 0.0), jnp.where(ok, k, 0.0)
    return jnp.where(ok, jnp.exp(gammaln(n + 1) - gammaln(k + 1) - gammaln(n + 1 - k)), 0.0)


def multigammaln(a, d):
    """log of the multivariate gamma function of dimension d."""
    d = operator.index(d) if not isinstance(d, float) else int(d)
    a, size = inexact("multigammaln", a, d)
    constant = 0.25 * size * (size - 1) * np.log(np.pi)
    steps = jnp.arange(d, dtype=size.dtype) / 2
    return jnp.sum(gammaln(jnp.expand_dims(a, -1) - steps), axis=-1) + constant


def digamma(x):
    """d log Γ(x)/dx."""
    return lax.digamma(*inexact("digamma", x))


def polygamma(n, x):
    """The n-th derivative of `digamma`; n must be of integer type."""
    n = jnp.asarray(n)
    if not is_integer(n):
        raise ValueError("Argument `n` to polygamma must be of integer type. Got dtype "
                         f"{n.dtype}.{here()}")
    n, x = inexact_broadcast("polygamma", n, x)
    if is_complex(x):
        raise ValueError("polygamma does not support complex-valued inputs." + here())
    return lax.polygamma(n, x)


def gammainc(a, x):
    """The regularised lower incomplete gamma function."""
    return lax.igamma(*inexact_broadcast("gammainc", a, x))


def gammaincc(a, x):
    """The regularised upper incomplete gamma function."""
    return lax.igammac(*inexact_broadcast("gammaincc", a, x))


@custom_jvp
def _zeta(x, q):
    return lax.zeta(x, q)


def zeta(x, q=None):
    """The Hurwitz zeta function Σ (k + q)^-x."""
    if q is None:
        raise NotImplementedError("Riemann zeta function not implemented; pass q != None to "
                                  "compute the Hurwitz Zeta function." + here())
    return _zeta(*inexact_broadcast("zeta", x, q))


def _zeta_expansion(s, a):
    """Euler-Maclaurin summation of the zeta series: what its derivative is taken of."""
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


def poch(z, m):
    """The rising factorial Γ(z+m)/Γ(z)."""
    return _poch(*real_inexact("jnp.poch", z, m))


def bernoulli(n):
    """The Bernoulli numbers B(0) ... B(n)."""
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
