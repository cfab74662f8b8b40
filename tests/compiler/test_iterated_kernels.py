"""Functions that loop until they converge, element by element: zeta, incomplete gamma and beta.

Kernels give what the eager rules do, at edges too, and are close to exact values where SciPy's
continued fractions lose digits. No step runs in Python.
"""

import re

import mpmath
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.compiler.test_mathematics import compiled_for, run, text_of
from toile import lax
from toile.compiler.scalar.builder import FLOAT64, Unsupported
from toile.primitives import special
from toile.targets.llvm import native
from toile.targets.llvm import text as ir

pytestmark = [pytest.mark.cpu, pytest.mark.filterwarnings("ignore::RuntimeWarning")]
BINARY = {"igamma": lax.igamma, "igammac": lax.igammac, "igamma_grad_a": lax.igamma_grad_a,
          "random_gamma_grad": lax.random_gamma_grad, "zeta": lax.zeta}
ALL = {**BINARY, "betainc": lax.betainc}
EDGES = [0.0, -0.0, -1.0, -2.0, -2.5, 1e-30, 1e-3, 0.3, 0.5, 1.0, 1.2, 2.0, 2.5, 7.9, 8.0, 14.5,
         19.9, 20.5, 30.0, 100.0, 1e6, np.inf, -np.inf, np.nan]
UNIT = [0.0, -0.0, -0.5, 1e-30, 1e-5, 0.1, 0.3, 0.5, 0.7, 0.95, 0.9999, 1.0, 1.5, np.inf, np.nan]


def grid(name, dtype):
    axes = [EDGES, EDGES, UNIT] if name == "betainc" else [EDGES, EDGES]
    return [x.ravel().astype(jnp.dtype(dtype)) for x in np.meshgrid(*axes)]


def compiled(fun, *xs):
    """What a compiled function returns; none of its steps runs in Python."""
    assert "0 steps in Python" in str(toile.explain(lambda *v: fun(*v))(*xs)).splitlines()[0]
    return np.asarray(toile.jit(lambda *v: fun(*v))(*xs)).astype(np.float64)


@pytest.mark.parametrize("dtype, bound", [("bfloat16", 2**-7), ("float16", 2**-9),
                                          ("float32", 2e-7), ("float64", 2e-9)])
@pytest.mark.parametrize("name", ALL)
def test_as_eager(name, dtype, bound):
    with toile.enable_x64(dtype == "float64"):
        xs = [jnp.asarray(x) for x in grid(name, dtype)]
        got = compiled(ALL[name], *xs)
        want = np.asarray(ALL[name](*xs)).astype(np.float64)
        least = float(jnp.finfo(dtype).tiny)
    close = np.abs(got - want) <= bound * np.abs(want) + least
    wrong = ~(close | (got == want) | (np.isnan(got) & np.isnan(want)))
    assert not wrong.any(), [(*(float(x[i]) for x in xs), got[i], want[i])
                             for i in np.flatnonzero(wrong)[:5]]


# ------------------------------------------------------------------------------------ exact values


def lower(a, x):
    return mpmath.gammainc(a, 0, x, regularized=True)


def upper(a, x):
    return mpmath.gammainc(a, x, mpmath.inf, regularized=True)


def slope(a, x):
    h = a * mpmath.mpf(10) ** -20
    with mpmath.workdps(80):
        return +((lower(a + h, x) - lower(a - h, x)) / (2 * h))


def quantile_slope(a, x):
    with mpmath.workdps(80):
        return +(-slope(a, x) / mpmath.exp((a - 1) * mpmath.log(x) - x - mpmath.loggamma(a)))


def zeta(s, q):
    with mpmath.workdps(50):
        before = max(0, int(mpmath.ceil(-q)))
        return +(sum((q + i) ** -s for i in range(before)) + mpmath.zeta(s, q + before))


def beta(a, b, x):
    return mpmath.betainc(a, b, 0, x, regularized=True)


def pairs(rng, n=12):
    """Parameters and arguments in all of the branches: ordinary, small, large, near each other."""
    a = [rng.uniform(0.5, 5, n), rng.uniform(0, 1.5, n), np.exp(rng.uniform(-30, 2, n)),
         rng.uniform(5, 100, n), rng.uniform(10, 300, n)]
    x = [rng.uniform(0.01, 10, n), rng.uniform(0, 1.5, n), np.exp(rng.uniform(-30, 2, n)),
         rng.uniform(5, 100, n), a[4] * rng.uniform(0.5, 1.6, n)]
    return np.concatenate(a), np.concatenate(x)


def triples(rng, n=12):
    a = [rng.uniform(0.5, 5, n), rng.uniform(0, 1, n), np.exp(rng.uniform(0, 7, n))]
    b = [rng.uniform(0.5, 5, n), rng.uniform(0, 1, n), np.exp(rng.uniform(0, 7, n))]
    mean, c = a[2] / (a[2] + b[2]), a[2] + b[2]
    near = mean + rng.uniform(-3, 3, n) * np.sqrt(mean * (1 - mean) / (c + 1))
    x = [rng.uniform(0, 1, n), rng.uniform(0, 1, n), np.clip(near, 1e-3, 0.999)]
    return tuple(map(np.concatenate, (a, b, x)))


def orders(rng, n=20):
    s = [rng.uniform(1.01, 5, n), 1 + np.exp(rng.uniform(-5, 4, n)), rng.integers(2, 9, n)]
    q = [rng.uniform(0.1, 5, n), np.exp(rng.uniform(-5, 3, n)), rng.uniform(-9, 0, n)]
    return np.concatenate(s), np.concatenate(q)


EXACT = {"igamma": (lower, pairs), "igammac": (upper, pairs), "igamma_grad_a": (slope, pairs),
         "random_gamma_grad": (quantile_slope, pairs), "zeta": (zeta, orders),
         "betainc": (beta, triples)}


@pytest.mark.parametrize("name", EXACT)
def test_exact(name):
    exact, drawn = EXACT[name]
    xs = drawn(np.random.default_rng(0))
    for dtype, bound in (("float32", 2**-23), ("float64", 1e-12)):
        given = [x.astype(dtype) for x in xs]
        with toile.enable_x64(dtype == "float64"):
            got = compiled(ALL[name], *map(jnp.asarray, given))
        least, most = float(np.finfo(dtype).tiny), float(np.finfo(dtype).max)
        for i, v in enumerate(zip(*given)):
            want = exact(*(mpmath.mpf(float(w)) for w in v))
            if abs(want) > most:
                assert np.isinf(got[i])
                continue
            assert abs(got[i] - want) <= bound * abs(want) + least, (v, got[i], want)


def test_large_parameters():
    """Where series would need thousands of terms: the mean of Gamma(a) and Beta(a, b)."""
    with toile.enable_x64(True):
        a = jnp.array([1e5, 1e8, 1e12, 1e200])
        x = a * jnp.array([1.0, 1.0, 1 + 1e-6, 1.0])
        normal = 0.5 * mpmath.erfc(-mpmath.sqrt(0.5))
        p = np.array([0.5 + 1 / np.sqrt(18 * np.pi * 1e5), 0.5 + 1 / np.sqrt(18 * np.pi * 1e8),
                      float(normal), 0.5])
        np.testing.assert_allclose(compiled(lax.igamma, a, x), p, rtol=1e-6)
        np.testing.assert_allclose(compiled(lax.igammac, a, x), 1 - p, rtol=1e-6)
        for f in (toile.jit(lambda a, x: lax.random_gamma_grad(a, x)), lax.random_gamma_grad):
            np.testing.assert_allclose(f(a, x), 1 + np.array([1e-5, 1e-8, 3e-6, 0]) / 6, rtol=1e-6)
        same = compiled(lax.betainc, a, a, jnp.full(4, 0.5))
        np.testing.assert_allclose(same, 0.5, rtol=1e-13)


# ------------------------------------------------------------------------------------ in programs


def test_fused_with_others():
    """In sums, with operands that are broadcast, constant or not contiguous, and in loops."""
    rng = np.random.default_rng(1)
    a, x = (jnp.asarray(rng.uniform(0.5, 5, (33, 70)).astype(np.float32)) for _ in range(2))
    programs = [
        lambda a, x: (lax.igamma(a, x) * 2 + x).sum(1), lambda a, x: lax.igammac(a.T, x.T),
        lambda a, x: lax.zeta(x[:, ::3] + 1, a[:, ::3]).sum(0),
        lambda a, x: lax.igamma(a[:, :1] + 0 * x, jnp.exp(x)),
        lambda a, x: lax.igammac(jnp.full_like(x, 2.5), x),
        lambda a, x: lax.igamma(a, x) + lax.igammac(a, x) + lax.betainc(a, x, a / (a + x)),
        toile.grad(lambda a, x: lax.igamma(a, x).sum(), (0, 1)),
        lambda a, x: lax.fori_loop(0, 3, lambda _, v: lax.igammac(v + 0.5, x[0, :3]), a[0, :3]),
        toile.vmap(lambda a, x: lax.zeta(a + 1, x), (0, None)),
    ]
    for f in programs:
        args = (a[0, :7], x[0, :9]) if f is programs[-1] else (a, x)
        assert "0 steps in Python" in str(toile.explain(f)(*args)).splitlines()[0]
        for g, w in zip(toile.tree_util.tree_leaves(toile.jit(f)(*args)),
                        toile.tree_util.tree_leaves(f(*args)), strict=True):
            np.testing.assert_allclose(g, w, rtol=2e-5, atol=1e-6)


def test_elements_do_not_depend_on_neighbors():
    rng = np.random.default_rng(2)
    a, x = np.exp(rng.uniform(-3, 5, 500)), np.exp(rng.uniform(-3, 5, 500))
    order = rng.permutation(500)
    with toile.enable_x64(True):
        for name, fun in BINARY.items():
            f = toile.jit(lambda a, x, fun=fun: fun(a, x))
            whole = np.asarray(f(jnp.asarray(a), jnp.asarray(x)))
            others = np.asarray(f(jnp.asarray(a[order]), jnp.asarray(x[order])))
            assert whole[order].tobytes() == others.tobytes(), name
            one = np.asarray(f(jnp.asarray(a[7:8]), jnp.asarray(x[7:8])))
            assert one[0] == whole[7] or np.isnan(one[0]), name


def test_without_optimization(monkeypatch):
    monkeypatch.setenv("TOILE_OPTIMIZE", "0")
    a, x = jnp.linspace(0.5, 40, 21), jnp.linspace(0.1, 60, 21)
    np.testing.assert_allclose(compiled(lax.igammac, a, x), lax.igammac(a, x), rtol=1e-6)


# ----------------------------------------------------------------------------------- the builder


def divisor(k, a, b):
    """The greatest common divisor of whole numbers: the state is exchanged in each step."""
    step = lambda a, b: [b, k.sub(a, k.mul(k.floor(k.div(a, b)), b))]
    return k.loop(lambda a, b: k.gt(b, 0.0), step, a, b)[0]


def test_loop():
    a, b = (np.random.default_rng(i).integers(1, 10**6, 1003).astype(np.float64) for i in (0, 1))
    got = run(lambda k, a, b: k.apart("divisor", divisor, a, b), a, b)
    np.testing.assert_array_equal(got, np.gcd(a.astype(np.int64), b.astype(np.int64)))


def test_loops_are_in_functions_of_their_own():
    with pytest.raises(Unsupported, match="function of its own"):
        text_of(divisor, [FLOAT64, FLOAT64])


@pytest.mark.parametrize("target", ["x86_64", "aarch64"])
def test_loops_around_are_vectorized(target):
    """The vectorizer replaces calls for one element by calls for a vector of them."""
    text, _ = text_of(special.igamma.lower, [np.dtype("f4"), np.dtype("f4")])
    code, _ = compiled_for(target, text)
    body = re.search(r"\nvector.body:.*?\n\n", code, re.S)[0]
    vector = f"call <{ir.LANES} x double> @igamma_float32.of.body.lanes"
    assert vector in body and "@igamma_float32.of.body(" not in body
    assert all(f"@{name}" in native.declarations(text) for name in (
        "igamma_float32.of.body", "igamma_float32.of.body.lanes"))


def test_one_function_for_several_calls():
    def twice(k, a, x):
        return k.add(k.igamma(a, x), k.igamma(x, a))

    text, _ = text_of(twice, [FLOAT64, FLOAT64])
    heads = re.findall(r"^define internal [^@]*@([\w.]+)\(", text, re.M)
    assert heads.count("igamma_float64.of.body.lanes") == 1
    a, x = np.random.default_rng(0).uniform(0.5, 5, (2, 101))
    want = special.igamma.eager(np, a, x) + special.igamma.eager(np, x, a)
    np.testing.assert_allclose(run(twice, a, x), want, rtol=1e-12)
    assert len(heads) == len(set(heads))
