"""The raw special functions: float32 formulas to the bit, the rest to their accuracy."""

import jax
import numpy as np
import pytest
import scipy.special
from jax import lax

from tests.random.oracle import OLD, ulps
from toile.primitives.arrays import special

EDGES = [0.0, -0.0, 1, -1, 2, -2, 0.5, -2.5, np.inf, -np.inf, np.nan, 1e-30, 3.7, 200, 1e5]


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def samples(dtype, scale=1.0):
    rng = np.random.default_rng(0)
    parts = EDGES, rng.uniform(-1, 1, 40000), np.exp(rng.standard_normal(40000) * 6 * scale)
    return np.concatenate(parts).astype(dtype)


@pytest.mark.parametrize("name", ["erf_inv", "erf", "log1p", "log"])
def test_float32_formulas_are_exact(name):
    x = samples(np.float32)
    expected = np.asarray(jax.jit(getattr(lax, name))(x))
    np.testing.assert_array_equal(getattr(special, name)(np, x), expected)


@pytest.mark.parametrize("name", ["erf_inv", "erf", "log1p", "log"])
def test_float64_formulas(name):
    x = samples(np.float64)
    with jax.enable_x64(True):
        expected = np.asarray(jax.jit(getattr(lax, name))(x))
    most = {"log1p": 128, "erf_inv": 32}.get(name, 4) if OLD else 4
    assert ulps(getattr(special, name)(np, x), expected).max() <= most


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_types(dtype):
    x = np.asarray(jax.numpy.asarray(np.random.default_rng(0).uniform(-1, 1, 5000), dtype))
    found = special.erf_inv(np, x)
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found, np.asarray(lax.erf_inv(x)))


@pytest.mark.parametrize("name", ["erf_inv", "log1p"])
def test_chunks_join(name):
    x = np.random.default_rng(0).uniform(-1, 1, (3, 20000)).astype(np.float32)
    f = getattr(special, name)
    np.testing.assert_array_equal(f(np, x)[1], f(np, x[1]))
    assert f(np, x[0, 0]).shape == ()
    assert f(np, x[:0]).shape == (0, 20000)


UNARY = ["lgamma", "digamma", "bessel_i0e", "bessel_i1e", "erfc", "logistic", "cbrt", "rsqrt"]


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    x = np.concatenate([EDGES, np.random.default_rng(0).standard_normal(200) * 5])
    x = x.astype(np.float32)
    found = getattr(special, name)(np, x)
    assert found.dtype == np.float32
    expected = np.array(getattr(lax, name)(x))
    if name == "digamma":
        expected[x == 0] = -np.inf  # nan before jax 0.11
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", ["igamma", "igammac", "zeta", "polygamma"])
def test_binary_edges(name):
    a, x = (v.ravel() for v in np.meshgrid([0, -1, -2.5, np.nan, 1, 2, 3.7],
                                           [0, -1, -2, -0.5, np.inf, np.nan, 1, 2, 3.7]))
    a, x = a.astype(np.float32), x.astype(np.float32)
    expected = np.array(getattr(lax, name)(a, x))
    if name == "polygamma":
        expected[(a == 0) & (x == 0)] = -np.inf  # nan before jax 0.11
    np.testing.assert_allclose(getattr(special, name)(np, a, x), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["igamma", "igammac", "igamma_grad_a", "random_gamma_grad"])
def test_gamma_family(name):
    rng = np.random.default_rng(1)
    a = np.exp(rng.standard_normal(200))
    x = rng.gamma(a)  # where samples lie
    with jax.enable_x64(True):
        expected = np.asarray(getattr(lax, name)(a, x))
    np.testing.assert_allclose(getattr(special, name)(np, a, x), expected, rtol=1e-7, atol=1e-12)


def test_random_gamma_grad_is_the_slope_of_the_quantile():
    a, x, h = np.array([200.0, 30.0, 5.0, 0.3]), np.array([30.0, 0.5, 20.0, 2.0]), 1e-5
    da = (scipy.special.gammainc(a + h, x) - scipy.special.gammainc(a - h, x)) / (2 * h)
    density = np.exp((a - 1) * np.log(x) - x - scipy.special.gammaln(a))
    np.testing.assert_allclose(special.random_gamma_grad(np, a, x), -da / density, rtol=1e-5)


def test_betainc():
    rng = np.random.default_rng(2)
    a, b, x = (rng.uniform(lo, hi, 300).astype(np.float32) for lo, hi in [(0.1, 9)] * 2 + [(0, 1)])
    np.testing.assert_allclose(special.betainc(np, a, b, x), lax.betainc(a, b, x), rtol=1e-4)
