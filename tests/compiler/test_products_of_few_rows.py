"""Many products of few rows each: results, and which products they are."""

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import toile
import toile.numpy as jnp
from toile.kernels.contraction import cpu_few_rows as few_rows
from toile.targets.llvm import native

pytestmark = pytest.mark.cpu

FLOATS = ["float32", "bfloat16", "float16"]
ROUNDING = {"float32": 1e-5, "bfloat16": 1e-2, "float16": 2e-3}


def is_used(f, *args):
    return "products of few rows" in str(toile.explain(toile.jit(f))(*args))


def check(f, *args, rtol):
    found = np.asarray(toile.jit(f)(*args)).astype(np.float64)
    exact = np.asarray(f(*(np.asarray(a).astype(np.float64) for a in args)))
    assert found.shape == exact.shape
    assert np.abs(found - exact).max() <= rtol * np.abs(exact).max()


@st.composite
def products(draw):
    m, n = draw(st.integers(1, few_rows.FEW)), draw(st.integers(16, 90))
    k = draw(st.sampled_from([16, 48, 64]))
    batch = (draw(st.integers(2, 4)), draw(st.integers(1, 3)))
    return batch, m, n, k, draw(st.sampled_from(FLOATS)), draw(st.integers(0, 99))


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
@pytest.mark.parametrize("text", ["bgmk,bngk->bgmn", "bgmk,bkgn->bgmn", "bngk,bgmk->bgmn"])
@hypothesis.given(case=products())
@hypothesis.settings(max_examples=15, deadline=None)
def test_any_shape(vector_bytes, text, case):
    batch, m, n, k, dtype, seed = case
    sizes = dict(zip("bgmnk", (*batch, m, n, k), strict=True))
    rng = np.random.default_rng(seed)
    x, y = (jnp.asarray(rng.normal(size=[sizes[c] for c in labels]), dtype)
            for labels in text.split("->")[0].split(","))

    def product(x, y):
        xp = np if isinstance(x, np.ndarray) else jnp
        return xp.einsum(text, x, y)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "vector_bytes", lambda: vector_bytes)
        toile.clear_caches()
        if n * m * k * batch[1] > 1 << 13:  # smaller ones may be one kernel for tiny matrices
            assert is_used(product, x, y)
        check(product, x, y, rtol=ROUNDING[dtype])
    toile.clear_caches()


@pytest.mark.parametrize(("reason", "text", "m", "n", "k"), [
    ("many rows", "bgmk,bngk->bgmn", few_rows.FEW + 1, 64, 64),
    ("few columns", "bgmk,bngk->bgmn", 2, 3, 640),
    ("part of a vector", "bgmk,bngk->bgmn", 3, 64, 65),
    ("no batches", "mk,nk->mn", 3, 64, 64),
])
def test_other_products_have_other_kernels(reason, text, m, n, k):
    sizes = {"b": 3, "g": 4, "m": m, "n": n, "k": k}
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=[sizes[c] for c in labels]).astype(np.float32)
            for labels in text.split("->")[0].split(","))

    def product(x, y):
        return (np if isinstance(x, np.ndarray) else jnp).einsum(text, x, y)

    assert not is_used(product, jnp.asarray(x), jnp.asarray(y))
    check(product, jnp.asarray(x), jnp.asarray(y), rtol=1e-5)


def test_attention_of_one_query():
    """Keys and values are read as a cache stores them."""
    rng = np.random.default_rng(0)
    q = jnp.asarray(rng.normal(size=(2, 1, 12, 64)), jnp.bfloat16)
    k, v = (jnp.asarray(rng.normal(size=(2, 160, 4, 64)), jnp.bfloat16) for _ in range(2))
    text = str(toile.explain(toile.jit(toile.nn.dot_product_attention))(q, k, v))
    assert text.count("products of few rows") == 2, text


@pytest.mark.parametrize("text", ["bgmk,bngk->bgmn", "bgmk,bkgn->bgmn"])
@pytest.mark.parametrize("view", ["reversed", "repeated"])
def test_views(text, view):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 3, 2, 64)).astype(np.float32)
    y = rng.normal(size=(2, 1 if view == "repeated" else 64, 3, 64)).astype(np.float32)

    def product(x, y):
        xp = np if isinstance(x, np.ndarray) else jnp
        y = y[:, ::-1] if view == "reversed" else xp.broadcast_to(y, (2, 64, 3, 64))
        return xp.einsum(text, x, y)

    check(product, jnp.asarray(x), jnp.asarray(y), rtol=1e-5)
