"""Products of few rows with a large matrix of floats: results, and which products they are."""

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import toile
import toile.numpy as jnp
from toile.kernels.contraction import cpu_narrow as narrow
from toile.targets.llvm import native

pytestmark = pytest.mark.cpu

FLOATS = ["float32", "bfloat16", "float16"]
ROUNDING = {"float32": 1e-5, "bfloat16": 1e-2, "float16": 2e-3}


@pytest.fixture(autouse=True)
def small_matrices(monkeypatch):
    """Matrices of the sizes of tests count as large, and vectors times matrices avoid BLAS."""
    monkeypatch.setattr(narrow, "LEAST", 1 << 12)
    monkeypatch.setattr(narrow.blas, "symbol", lambda routine: None)
    toile.clear_caches()
    yield
    toile.clear_caches()


def is_narrow(f, *args):
    return "narrow product" in str(toile.explain(toile.jit(f))(*args))


def check(f, reference, *args, rtol):
    found = np.asarray(toile.jit(f)(*args)).astype(np.float64)
    exact = reference(*(np.asarray(a).astype(np.float64) for a in args))
    assert found.shape == exact.shape
    assert np.abs(found - exact).max() <= rtol * np.abs(exact).max()


@st.composite
def products(draw):
    dtype = draw(st.sampled_from(FLOATS))
    most = narrow.MANY if dtype == "float32" else narrow.FEW
    m, k = draw(st.integers(1, most)), draw(st.integers(2, 150))
    n = max(draw(st.integers(64, 300)), -(-narrow.LEAST // k))
    return m, k, n, dtype, draw(st.booleans()), draw(st.integers(0, 99))


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
@hypothesis.given(case=products())
@hypothesis.settings(max_examples=25, deadline=None,
                     suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_any_shape(vector_bytes, case):
    m, k, n, dtype, transposed, seed = case
    rng = np.random.default_rng(seed)
    x = jnp.asarray(rng.normal(size=(k, m) if transposed else (m, k)), dtype)
    w = jnp.asarray(rng.normal(size=(k, n)), dtype)

    def product(x, w):
        return (x.T if transposed else x) @ w

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "vector_bytes", lambda: vector_bytes)
        toile.clear_caches()
        assert is_narrow(product, x, w)
        check(product, product, x, w, rtol=ROUNDING[dtype])


@pytest.mark.parametrize(("text", "x", "w"), [
    ("bd,dhk->bhk", (2, 64), (64, 8, 16)), ("bhk,hkd->bd", (2, 8, 16), (8, 16, 64)),
    ("tbd,df->tbf", (2, 3, 64), (64, 80)), ("d,dhk->hk", (64,), (64, 8, 16)),
    ("bvd,df->bvf", (1, 1, 64), (64, 80)),
])  # fmt: skip
@pytest.mark.parametrize("dtype", FLOATS)
def test_contractions(text, x, w, dtype):
    rng = np.random.default_rng(0)
    x, w = (jnp.asarray(rng.normal(size=shape), dtype) for shape in (x, w))

    def product(x, w):
        return jnp.einsum(text, x, w)

    assert is_narrow(product, x, w)
    check(product, lambda x, w: np.einsum(text, x, w), x, w, rtol=ROUNDING[dtype])


def test_the_large_matrix_may_come_first():
    rng = np.random.default_rng(0)
    w, x = (jnp.asarray(rng.normal(size=shape), jnp.bfloat16) for shape in ((64, 80), (3, 64)))

    def product(w, x):
        return jnp.einsum("df,bd->fb", w, x)

    check(product, lambda w, x: np.einsum("df,bd->fb", w, x), w, x, rtol=1e-2)


@pytest.mark.parametrize(("a", "b", "c"), [
    ("bfloat16", "bfloat16", "float32"), ("float32", "bfloat16", "float32"),
    ("bfloat16", "float32", "bfloat16"), ("float16", "float16", "float32"),
])  # fmt: skip
def test_mixed_dtypes(a, b, c):
    rng = np.random.default_rng(0)
    x, w = jnp.asarray(rng.normal(size=(3, 64)), a), jnp.asarray(rng.normal(size=(64, 80)), b)

    def product(x, w):
        return toile.lax.dot_general(x, w, (((1,), (0,)), ((), ())), preferred_element_type=c)

    check(product, lambda x, w: x @ w, x, w, rtol=ROUNDING[c])
    assert toile.jit(product)(x, w).dtype == c


def test_a_part_of_a_matrix():
    rng = np.random.default_rng(0)
    x, w = (jnp.asarray(rng.normal(size=shape), jnp.bfloat16) for shape in ((2, 64), (70, 128)))

    def product(x, w):
        return x @ w[3:67, 8:104]

    assert is_narrow(product, x, w)
    check(product, product, x, w, rtol=1e-2)


def test_sums_do_not_depend_on_the_number_of_threads():
    rng = np.random.default_rng(0)
    x, w = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((3, 300), (300, 1000)))
    found = []
    for count in (1, 2, 3):
        with toile.threads(count):
            found.append(np.asarray(toile.jit(lambda x, w: x @ w)(x, w)))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


@pytest.mark.parametrize(("reason", "x", "w", "dtype"), [
    ("many rows", (narrow.MANY + 1, 64), (64, 80), "float32"),
    ("many rows", (narrow.FEW + 1, 64), (64, 80), "bfloat16"),
    ("a small matrix", (2, 32), (32, 80), "float32"),
    ("few columns", (2, 640), (640, 7), "float32"),
    ("float64", (2, 64), (64, 80), "float64"),
    ("integers", (2, 64), (64, 80), "int32"),
])  # fmt: skip
def test_other_products_use_other_kernels(reason, x, w, dtype):
    with toile.enable_x64():
        x, w = (jnp.ones(shape, dtype) for shape in (x, w))
        assert not is_narrow(lambda x, w: x @ w, x, w)
        check(lambda x, w: x @ w, lambda x, w: x @ w, x, w, rtol=1e-5)


def test_vectors_of_float32_use_blas_if_there_is_one(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(narrow, "LEAST", 1 << 12)
    toile.clear_caches()
    if narrow.blas.symbol("sgemv") is None:
        pytest.skip("needs a BLAS library")
    x, w = jnp.ones(640, jnp.float32), jnp.ones((640, 800), jnp.float32)
    assert not is_narrow(lambda x, w: x @ w, x, w)
    assert is_narrow(lambda x, w: x @ w, x.astype("bfloat16"), w.astype("bfloat16"))


@pytest.mark.parametrize(("turns", "rows", "narrow_"), [
    (narrow.TURNS, 16, False), (narrow.TURNS - 1, 16, True), (narrow.TURNS, narrow.FEW, True)])
def test_matrices_that_a_long_loop_does_not_change_are_packed_once(turns, rows, narrow_):
    w = jnp.asarray(np.random.default_rng(0).normal(size=(64, 256)) / 16, jnp.float32)
    x = jnp.ones((rows, 64), jnp.float32)

    def scanned(x, w):
        return toile.lax.scan(lambda c, _: ((c @ w)[:, :64], None), x, None, length=turns)[0]

    def looped(x, w):
        return toile.lax.while_loop(
            lambda c: c[0] < turns, lambda c: (c[0] + 1, (c[1] @ w)[:, :64]), (0, x))[1]

    assert is_narrow(scanned, x, w) == narrow_
    assert is_narrow(looped, x, w)  # it might have few turns
    np.testing.assert_allclose(toile.jit(scanned)(x, w), toile.jit(looped)(x, w), 1e-4, 1e-4)
