"""Functions of complex numbers in kernels, against mpmath, and at edges against the eager rules.

Edges are zeros of both signs, infinities, NaN, branch points and cuts, and the largest and smallest
numbers, where both parts must agree with the eager rule.
"""

import mpmath
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.compiler.test_mathematics import run
from toile import lax
from toile.primitives import elementwise, transcendental

pytestmark = [pytest.mark.cpu, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

# Units in the last place by which each part may differ from the true one.
FUNCTIONS = {
    "sin": 4, "cos": 4, "tan": 5, "sinh": 4, "cosh": 4, "tanh": 5, "asin": 4, "acos": 4, "atan": 4,
    "asinh": 4, "acosh": 4, "atanh": 4, "log1p": 3, "log": 3, "sqrt": 2, "exp": 3,
}  # fmt: skip
BY_MODULUS = ("expm1", "logistic", "rsqrt")  # accurate as a whole, not in each part
EXACT = {"log1p": lambda z: mpmath.log(1 + z), "rsqrt": lambda z: 1 / mpmath.sqrt(z),
         "logistic": lambda z: 1 / (1 + mpmath.exp(-z))}  # fmt: skip
TYPES = ["complex64", "complex128"]


def operation(name):
    return elementwise.log if name == "log" else getattr(transcendental, name)


def real_type(dtype):
    return np.finfo(dtype).dtype


def numbers(re, im, dtype):
    z = np.empty(len(re), dtype)
    z.real, z.imag = re, im
    return z


def ordinary(dtype, count, seed=0):
    """Numbers of all sizes, among them numbers next to the unit circle and next to ±1."""
    rng, f = np.random.default_rng(seed), np.finfo(dtype)
    least, most = np.log2(float(f.smallest_subnormal)), np.log2(float(f.max))

    def parts():
        sign = rng.choice([-1.0, 1.0], count)
        near = 1 + rng.choice([-1.0, 1.0], count) * 2.0 ** rng.uniform(-f.nmant - 1, -1, count)
        return np.choose(rng.integers(0, 4, count), [
            3 * rng.normal(size=count), sign * 2.0 ** rng.uniform(least, most, count), sign * near,
            sign * 2.0 ** rng.uniform(-20, 20, count)])

    circle = np.exp(2j * np.pi * rng.random(count // 4))
    high = 1.2 * np.log(float(f.max)) * rng.uniform(-1, 1, count)
    return np.concatenate([
        numbers(parts(), parts(), dtype), numbers(circle.real, circle.imag, dtype),
        numbers(circle.real - 1, circle.imag, dtype), numbers(high, parts(), dtype)[::4],
        numbers(parts(), high, dtype)[::4]])


def edges(dtype):
    f = np.finfo(dtype)
    values = [0.0, 0.3, 1.0, 1.5, 40.0, 90.0, 800.0, 1e-5, 1e10, f.eps, f.tiny, f.max, np.inf]
    values = np.array([*values, *(-v for v in values), np.nan]).astype(real_type(dtype))
    return numbers(np.repeat(values, len(values)), np.tile(values, len(values)), dtype)


def true_values(name, z):
    function = EXACT.get(name) or getattr(mpmath, name)
    with mpmath.workprec(2400 if z.dtype == np.complex128 else 400):
        return [function(mpmath.mpc(float(v.real), float(v.imag))) for v in z]


def apart(got, true, dtype):
    """Distances of floats from true numbers, in units in the last place."""
    out = []
    for g, t in zip(got.tolist(), true, strict=True):
        rounded = real_type(dtype).type(float(t))
        if np.isfinite(g) and np.isfinite(rounded):
            out.append(float(abs(mpmath.mpf(g) - t)) / float(np.spacing(abs(rounded))))
        else:  # next to the largest number, either may overflow
            large = abs(t) > 0.99 * float(np.finfo(dtype).max)
            out.append(0.0 if g == rounded or large else np.inf)
    return np.array(out)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_parts_are_accurate(name, dtype):
    z = ordinary(dtype, 160 if dtype == "complex64" else 60)
    got, true = run(operation(name).lower, z), true_values(name, z)
    bound = FUNCTIONS[name]
    for part in ("real", "imag"):
        distance = apart(getattr(got, part), [getattr(t, part) for t in true], dtype)
        if name == "log1p" and dtype == "complex128" and part == "real":
            continue  # accurate relative to the modulus only
        worst = distance.argmax()
        assert distance[worst] <= bound, (part, distance[worst], z[worst], got[worst], true[worst])


def relative_error(got, true):
    return np.array([float(abs(mpmath.mpc(g) - t) / abs(t))
                     for g, t in zip(got.tolist(), true, strict=True)])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", [*BY_MODULUS, *FUNCTIONS])
def test_accurate(name, dtype):
    rng = np.random.default_rng(1)
    z = numbers(3 * rng.normal(size=300), 3 * rng.normal(size=300), dtype)
    got, true = run(operation(name).lower, z), true_values(name, z)
    eps = float(np.finfo(dtype).eps)
    error = relative_error(got, true)
    poles = np.abs(z) * np.abs(1 - got) if name == "logistic" else 0.0  # its condition number
    assert (error <= (3 + poles) * eps).all()


def same_parts(got, expected, tolerance):
    """Whether parts agree: NaN, infinities and the signs of zeros exactly."""
    equal = (got == expected) & (np.signbit(got) == np.signbit(expected))
    close = np.abs(got - expected) <= tolerance * np.abs(expected)
    subnormal = np.abs(got - expected) <= 8 * np.finfo(got.dtype).smallest_subnormal
    return equal | np.isnan(got) & np.isnan(expected) | (got != 0) & (close | subnormal)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", [*FUNCTIONS, *BY_MODULUS])
def test_edges_as_eager(name, dtype):
    z = edges(dtype)
    op, tolerance = operation(name), 12 * np.finfo(dtype).eps
    got, expected = run(op.lower, z), np.asarray(op.eager(np, z))
    same = same_parts(got.real, expected.real, tolerance)
    same &= same_parts(got.imag, expected.imag, tolerance)
    if name in ("exp", "logistic"):  # exp(-inf + i y) has zeros of any sign if y is infinite
        same |= (got == 0) & (expected == 0)
    if name == "log1p":  # hypot overflows
        same |= np.isinf(expected.real) & np.isfinite(z)
    assert same.all(), [*zip(z[~same], got[~same], expected[~same])][:5]


@pytest.mark.parametrize("dtype", TYPES)
def test_branch_cuts(dtype):
    """The sign of a zero chooses the side; numbers next to the cut have almost the same values."""
    x = np.array([1.5, 2.0, 40.0, 1e10], real_type(dtype))
    x = np.concatenate([x, -x])
    zero, little = np.zeros_like(x), np.full_like(x, np.finfo(dtype).tiny)
    cuts = {"asin": (x, zero, x, little), "acos": (x, zero, x, little),
            "atanh": (x, zero, x, little), "asinh": (zero, x, little, x),
            "atan": (zero, x, little, x), "acosh": (-np.abs(x), zero, -np.abs(x), little),
            "log1p": (-np.abs(x), zero, -np.abs(x), little), "log": (-np.abs(x), zero,
            -np.abs(x), little), "sqrt": (-np.abs(x), zero, -np.abs(x), little)}
    for name, (re, im, re_beside, im_beside) in cuts.items():
        for sign in (1, -1):
            across = [re is zero, im is zero]
            side = [np.copysign(part, sign) if turned else part
                    for part, turned in zip((re, im), across, strict=True)]
            beside = [sign * part if turned else part
                      for part, turned in zip((re_beside, im_beside), across, strict=True)]
            on, near = (run(operation(name).lower, numbers(*parts, dtype))
                        for parts in (side, beside))
            np.testing.assert_allclose(on, near, 1e-6, err_msg=name)


def test_powers():
    rng = np.random.default_rng(0)
    for dtype in TYPES:
        eps = float(np.finfo(dtype).eps)
        x, y = (numbers(*(3 * rng.normal(size=(2, 600))), dtype) for _ in range(2))
        y[:100] = rng.integers(-12, 13, 100)
        y[100:200].imag = 0
        got = run(elementwise.pow_.lower, x, y)
        np.testing.assert_array_equal(got[:100], elementwise.pow_.eager(np, x, y)[:100])
        with mpmath.workprec(300):
            true = [mpmath.power(mpmath.mpc(a), mpmath.mpc(b))
                    for a, b in zip(x.tolist(), y.tolist(), strict=True)]
        # e**w of complex128 has the absolute error of w = y log x
        size = np.abs(y * np.log(x)) if dtype == "complex128" else np.zeros(len(x))
        size[:100] = 2
        assert (relative_error(got, true) <= (3 + 2 * size) * eps).all()


@pytest.mark.parametrize("dtype", TYPES)
def test_powers_at_edges_as_eager(dtype):
    values = np.array([0.0, -0.0, 1.0, -1.0, 2.5, -0.3, 3.0, -7.0, 99.0, 100.0, 1e4])
    z = numbers(np.repeat(values, len(values)), np.tile(values, len(values)), dtype)
    x, y = np.repeat(z, len(z)), np.tile(z, len(z))
    got, expected = run(elementwise.pow_.lower, x, y), elementwise.pow_.eager(np, x, y)
    # where both overflow or vanish, parts depend on the last digits of y log x
    size = np.abs(y) * (np.abs(np.log(np.where(x == 0, 1, x))) + 1)
    tame = size < 60
    np.testing.assert_array_equal(np.isnan(got[tame]), np.isnan(expected[tame]))
    finite = tame & np.isfinite(expected)
    np.testing.assert_allclose(got[finite], expected[finite], 200 * np.finfo(dtype).eps)
    zero = (x == 0) | (y == 0)
    np.testing.assert_array_equal(got[zero], expected[zero])


def test_integer_exponents():
    x = np.tile(np.array([1 + 2j, -3j, 0.5, 0, -2 + 1e-3j], np.complex64), 6)
    for dtype in (np.int32, np.uint8):
        y = np.repeat([0, 1, 2, 7, -1, -5] if dtype == np.int32 else range(6), 5).astype(dtype)
        got, expected = run(elementwise.pow_.lower, x, y), elementwise.pow_.eager(np, x, y)
        np.testing.assert_allclose(got, expected, 1e-6)


@pytest.mark.parametrize("dtype", TYPES)
def test_angles(dtype):
    rng = np.random.default_rng(0)
    x, y = (numbers(*rng.normal(size=(2, 500)), dtype) for _ in range(2))
    op = transcendental.atan2
    np.testing.assert_allclose(run(op.lower, x, y), op.eager(np, x, y),
                               atol=20 * np.finfo(dtype).eps, rtol=20 * np.finfo(dtype).eps)


NAMES = [*FUNCTIONS, *BY_MODULUS, "exp2", "log2", "abs", "sign", "square"]


@pytest.mark.parametrize("dtype", TYPES)
def test_no_step_in_python(dtype):
    rng = np.random.default_rng(0)
    with toile.enable_x64(dtype == "complex128"):
        z = jnp.asarray(numbers(*rng.normal(size=(2, 33)), dtype))

        def together(z):
            return [getattr(lax, name)(z) for name in NAMES] + [lax.pow(z, z[::-1]), jnp.cumprod(z)]

        assert "0 steps in Python" in str(toile.explain(together)(z)).splitlines()[0]
        for got, expected in zip(toile.jit(together)(z), together(z), strict=True):
            np.testing.assert_allclose(got, expected, rtol=3e-5 if dtype == "complex64" else 1e-12)


def test_gradients_have_no_step_in_python():
    z = jnp.asarray(numbers(*np.random.default_rng(0).normal(size=(2, 33)), "complex64"))
    for name in ("tan", "acosh", "log1p"):
        step = toile.grad(lambda z: jnp.abs(getattr(lax, name)(z)).sum())  # noqa: B023
        assert "0 steps in Python" in str(toile.explain(step)(z)).splitlines()[0]
        np.testing.assert_allclose(toile.jit(step)(z), step(z), rtol=1e-4)


def test_remainders_of_float64():
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**64, (2, 20000), np.uint64).view(np.float64)
    sizes = rng.normal(size=(2, 20000)) * 10.0 ** rng.uniform(-9, 9, (2, 20000))
    edges = [0.0, -0.0, 1.0, -3.0, np.inf, -np.inf, np.nan, 5e-324, -5e-324, 2.0**-1022, 0.1,
             np.finfo(float).max]
    special = rng.choice(edges, (2, 20000))
    bits[np.isnan(bits)] = 1.0
    x, y = np.choose(rng.integers(0, 3, (2, 20000)), [bits, sizes, special])
    got, expected = run(elementwise.rem.lower, x, y), np.fmod(x, y)
    np.testing.assert_array_equal(got, expected)
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got[known]), np.signbit(expected[known]))
    with toile.enable_x64():
        first = str(toile.explain(lambda x, y: x % y)(jnp.asarray(x), jnp.asarray(y)))
        assert "0 steps in Python" in first.splitlines()[0]


def test_modulus_is_rounded_once():
    """In complex64, of parts of all sizes; subnormal results may be rounded twice."""
    z = ordinary(np.complex64, 40_000)
    z = z[np.isfinite(z.real) & np.isfinite(z.imag)]
    for x in (z, z.real + 1j * z.real, z.real * (1 + 2.0**-9 * 1j)):
        x = x.astype(np.complex64)
        expected = np.hypot(x.real.astype(np.float64), x.imag.astype(np.float64))
        finite = expected <= np.finfo(np.float32).max
        x, expected = x[finite], expected[finite]
        got = run(elementwise.abs_.lower, x)
        assert got.dtype == np.float32
        distance = np.abs(got - expected) / np.spacing(expected.astype(np.float32))
        normal = expected >= np.finfo(np.float32).tiny
        assert distance[normal].max() < 0.50001 and distance[~normal].max(initial=0) <= 0.76


def test_modulus_at_edges():
    inf, nan = np.inf, np.nan
    pairs = [(0, -0.0, 0), (nan, inf, inf), (-inf, nan, inf), (-inf, inf, inf), (1, -inf, inf),
             (nan, 0, nan), (0, nan, nan), (3.4e38, 3.4e38, inf), (1e-45, 0, 1e-45)]
    re, im, expected = (np.array(x, np.float32) for x in zip(*pairs, strict=True))
    np.testing.assert_array_equal(run(elementwise.abs_.lower, numbers(re, im, "c8")), expected)
