"""Special functions that exported NumPy files contain, computed in float64.

They hold 12 digits or more where the result is not close to a zero of the function. This module may
import only NumPy and the standard library.
"""

import math

import numpy as np


def by_element(function, *xs):
    """A function of Python floats, applied to each element in float64."""
    out = np.frompyfunc(function, len(xs), 1)(*(np.asarray(x, np.float64) for x in xs))
    return np.asarray(out, np.float64).astype(xs[0].dtype)


ERF_LIMIT = 3.832506856900711  # erf is 1 in float32 from here on
ERF_P = (
    0.00022905065861350646, 0.0034082910107109507, 0.05095569506238086, 0.18520832239976145,
    1.128379143519084,
)
ERF_Q = (
    -1.1791602954361697e-07, 2.3547966471313183e-05, 0.0010179625278914884, 0.014070470171167667,
    0.11098505178285362, 0.49746925110067536, 1.0,
)


def erf(x):
    """The error function; of float32, by a rational function."""
    if x.dtype == np.float64:
        return by_element(math.erf, x)
    wide = np.clip(x.astype(np.float64), -ERF_LIMIT, ERF_LIMIT)
    square = wide * wide
    return (wide * np.polyval(ERF_P, square) / np.polyval(ERF_Q, square)).astype(x.dtype)


def erfc(x):
    """The complementary error function, 1 - erf(x)."""
    return by_element(math.erfc, x)


ERF_INV_CENTER = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
)
ERF_INV_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613,
    0.00943887047, 1.00167406, 2.83297682,
)


def erf_inv(x):
    """The inverse of the error function; of float32, by Giles' polynomials."""
    if x.dtype == np.float64:
        return by_element(erf_inv_of, x)
    w = -np.log1p(-x.astype(np.float64) ** 2)
    near = np.polyval(ERF_INV_CENTER, w - 2.5)
    out = np.where(w < 5, near, np.polyval(ERF_INV_TAIL, np.sqrt(np.abs(w)) - 3)) * x
    return np.where(np.abs(x) == 1, np.copysign(np.inf, x), out).astype(x.dtype)


def erf_inv_of(x):
    """A first estimate, and steps of Halley's method."""
    if not -1 < x < 1:
        return math.copysign(math.inf, x) if abs(x) == 1 else math.nan
    w = math.log1p(-x * x)
    t = 2 / (math.pi * 0.147) + w / 2
    y = math.copysign(math.sqrt(max(0.0, math.sqrt(t * t - w / 0.147) - t)), x)
    for _ in range(4):
        if abs(x) < 0.5:
            error = math.erf(y) - x
        else:  # with the complement, which is accurate near 1
            error = math.copysign(1, x) * ((1 - abs(x)) - math.erfc(abs(y)))
        slope = 2 / math.sqrt(math.pi) * math.exp(-y * y)
        if slope == 0:
            break
        step = error / slope
        y -= step / (1 + y * step)
    return y


def lgamma(x):
    """The logarithm of |Γ(x)|."""
    return by_element(lgamma_of, x)


def lgamma_of(x):
    if math.isinf(x) or x <= 0 and x == math.floor(x):
        return math.inf
    return math.lgamma(x)


def digamma(x):
    """The derivative of log Γ."""
    return by_element(digamma_of, x)


def digamma_of(x):
    if x == 0:
        return -math.inf
    if x == -math.inf or x < 0 and x == math.floor(x):
        return math.nan
    if x < 0:
        return digamma_of(1 - x) - math.pi / math.tan(math.pi * x)
    total = 0.0
    while x < 10:
        total -= 1 / x
        x += 1
    w = 1 / (x * x)
    series = w * (1 / 12 - w * (1 / 120 - w * (1 / 252 - w * (1 / 240 - w * (1 / 132 - w * (
        691 / 32760 - w / 12))))))
    return total + math.log(x) - 0.5 / x - series


def zeta(x, q):
    """The Hurwitz zeta function, the sum of (k + q)**-x."""
    return by_element(zeta_of, x, q)


def zeta_of(x, q):
    """The Euler-Maclaurin formula."""
    if x == 1:
        return math.inf
    if q <= 0 and q == math.floor(q):
        return math.inf if x % 2 == 0 else math.nan
    if not x > 1 or q < 0 and x != math.floor(x) or math.isinf(x) or math.isinf(q) or q != q:
        return math.nan
    total = 0.0
    while q < 12:
        try:
            total += q**-x
        except OverflowError:
            return math.inf
        q += 1
    total += q ** (1 - x) / (x - 1) + 0.5 * q**-x
    factor, power = x, q ** (-x - 1)
    for k, b in enumerate((1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6), 1):
        total += b / math.factorial(2 * k) * factor * power
        factor *= (x + 2 * k - 1) * (x + 2 * k)
        power /= q * q
    return total


def polygamma(m, x):
    """The m-th derivative of digamma."""
    return by_element(polygamma_of, m, x)


def polygamma_of(m, x):
    if m < 0 or m != math.floor(m):
        return math.nan
    if m == 0:
        return digamma_of(x)
    return (-1.0 if m % 2 == 0 else 1.0) * math.exp(math.lgamma(m + 1)) * zeta_of(m + 1, x)


def igamma(a, x):
    """The regularized lower incomplete gamma function P(a, x)."""
    return by_element(lambda a, x: incomplete_gamma(a, x)[0], a, x)


def igammac(a, x):
    """The regularized upper incomplete gamma function Q(a, x)."""
    return by_element(lambda a, x: incomplete_gamma(a, x)[1], a, x)


def incomplete_gamma(a, x):
    """P(a, x) and Q(a, x): a series for small x, a continued fraction for large x."""
    if not (a >= 0 and x >= 0) or a == 0 and x == 0 or math.isinf(a) and x >= 1:
        return math.nan, math.nan
    if a == 0 or math.isinf(x):
        return 1.0, 0.0
    if x == 0 or math.isinf(a):
        return 0.0, 1.0
    front = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        p = front * incomplete_gamma_series(a, x)
        return p, 1 - p
    q = front * incomplete_gamma_fraction(a, x)
    return 1 - q, q


def incomplete_gamma_series(a, x):
    term = total = 1 / a
    n = a
    while term > 1e-17 * total:
        n += 1
        term *= x / n
        total += term
    return total


def incomplete_gamma_fraction(a, x):
    b = x + 1 - a
    c, d = 1e300, 1 / b
    h = d
    for i in range(1, 100000):
        k = -i * (i - a)
        b += 2
        d = 1 / (k * d + b or 1e-300)
        c = b + k / c or 1e-300
        h *= d * c
        if abs(d * c - 1) < 1e-16:
            break
    return h


def igamma_grad_a(a, x):
    """The derivative of P(a, x) with respect to a."""
    return by_element(igamma_grad_a_of, a, x)


def igamma_grad_a_of(a, x):
    slope = random_gamma_grad_of(a, x)
    if slope != slope or x == 0:
        return slope
    return -slope * math.exp((a - 1) * math.log(x) - x - math.lgamma(a))


def random_gamma_grad(a, x):
    """The derivative dx/da of a Gamma(a) sample at a fixed quantile."""
    return by_element(random_gamma_grad_of, a, x)


def random_gamma_grad_of(a, x):
    """-(dP/da) / (dP/dx): by the series of P for small x, else by the integral of the tail."""
    if not (a > 0 and 0 <= x < math.inf):
        return math.nan
    if x == 0:
        return 0.0
    if x <= 1 or x <= a:
        term = total = 1.0
        dterm = dtotal = 0.0
        n = a
        while abs(dterm) > 1e-17 * abs(dtotal) or term > 1e-17 * total:
            n += 1
            dterm = x / n * (dterm - term / n)
            term *= x / n
            total += term
            dtotal += dterm
        return -(dtotal + total * (math.log(x) - digamma_of(a + 1))) * x / a
    psi = digamma_of(a)
    total, step = 0.0, 1 / 64
    for i in range(-400, 401):
        t = math.exp(math.pi / 2 * math.sinh(i * step))
        exponent = (a - 1) * math.log1p(t / x) - t
        if exponent > -745:
            weight = t * math.pi / 2 * math.cosh(i * step) * step
            total += weight * math.exp(exponent) * (math.log(x + t) - psi)
    return total


def betainc(a, b, x):
    """The regularized incomplete beta function."""
    return by_element(betainc_of, a, b, x)


def betainc_of(a, b, x):
    if not (a >= 0 and b >= 0 and 0 <= x <= 1) or a == b == 0:
        return math.nan
    if x in (0, 1):
        return float(x)
    if a == 0 or b == 0:
        return 1.0 if a == 0 else 0.0
    if x > (a + 1) / (a + b + 2):
        return 1 - betainc_of(b, a, 1 - x)
    front = a * math.log(x) + b * math.log1p(-x)
    front += math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return math.exp(front) * beta_fraction(a, b, x) / a


def beta_fraction(a, b, x):
    """Lentz's method for the continued fraction."""
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1) or 1e-300)
    h = d
    for m in range(1, 100000):
        for k in (m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
                  -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))):
            d = 1 / (1 + k * d or 1e-300)
            c = 1 + k / c or 1e-300
            h *= d * c
        if abs(d * c - 1) < 1e-16:
            break
    return h


def bessel_i0e(x):
    """The modified Bessel function I0(x), times exp(-|x|)."""
    return by_element(lambda x: bessel_ie_of(0, x), x)


def bessel_i1e(x):
    """The modified Bessel function I1(x), times exp(-|x|)."""
    return by_element(lambda x: math.copysign(bessel_ie_of(1, x), x), x)


def bessel_ie_of(order, x):
    """The power series for small |x|, the asymptotic series for large |x|."""
    x = abs(x)
    if x != x:
        return x
    if math.isinf(x):
        return 0.0
    if x < 30:
        term = total = (x / 2) ** order
        k = 0
        while term > 1e-18 * total:
            k += 1
            term *= (x / 2) ** 2 / (k * (k + order))
            total += term
        return total * math.exp(-x)
    term = total = 1.0
    for k in range(1, 40):
        step = -(4 * order * order - (2 * k - 1) ** 2) / (8 * x * k)
        if abs(term * step) > abs(term):
            break
        term *= step
        total += term
    return total / math.sqrt(2 * math.pi * x)


def fused_multiply_add(a, b, c):
    """a * b + c, rounded once for float32."""
    if a.dtype == np.float64:
        return a * b + c
    return (a.astype(np.float64) * b + c).astype(a.dtype)


def log1p(x):
    """log(1 + x)."""
    return np.log1p(x)


def logistic(x):
    """1 / (1 + exp(-x))."""
    one = x.dtype.type(1)
    if x.dtype.kind != "c":
        return one / (one + np.exp(-x))
    left = x.real < 0  # where exp(-x) may overflow
    e = np.exp(np.where(left, x, -x))
    return np.where(left, e, one) / (one + e)
