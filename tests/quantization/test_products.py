"""Products of few rows read the stored numbers: results, what is fused, what memory is used."""

import re

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import toile
import toile.numpy as jnp
from toile import lax
from toile import linen as nn
from toile.compiler.passes.quantized_products import FEW, QuantizedProduct
from toile.kernels.quantized_product import cpu as few_rows
from toile.kernels.quantized_product import cpu_digits
from toile.primitives.quantized import Dequantize
from toile.quantization import dequantize, quantize, quantize_array
from toile.targets.llvm import native

pytestmark = pytest.mark.cpu


def kernels(f, *args):
    """What `explain` says of the compiled function."""
    return str(toile.explain(toile.jit(f))(*args))


def wanted(x, q, by_rows):
    w = np.asarray(q).astype(np.float64)
    return np.asarray(x).astype(np.float64) @ (w.T if by_rows else w)


def close(found, exact, rtol=2e-5):
    found = np.asarray(found).astype(np.float64)
    assert np.abs(found - exact).max() <= rtol * np.abs(exact).max()


@st.composite
def products(draw):
    how = {"bits": draw(st.sampled_from([4, 8])), "symmetric": draw(st.booleans()),
           "group": draw(st.sampled_from([None, 2, 16, 24, 32, 64, 100]))}
    k, n, m = draw(st.integers(33, 200)), draw(st.integers(1, 150)), draw(st.integers(1, FEW))
    return k, max(n, -(-4200 // k)), m, how, draw(st.booleans()), draw(st.integers(0, 1 << 30))


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
@hypothesis.given(case=products())
@hypothesis.settings(max_examples=25, deadline=None)
def test_any_shape(vector_bytes, case):
    k, n, m, how, by_rows, seed = case
    rng = np.random.default_rng(seed)
    x, w = rng.normal(size=(m, k)).astype(np.float32), rng.normal(size=(k, n)).astype(np.float32)
    q = quantize_array(w.T if by_rows else w, axis=-1 if by_rows else -2, **how)

    def product(x, q):
        return x @ (q.T if by_rows else q)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "vector_bytes", lambda: vector_bytes)
        toile.clear_caches()
        assert f"int{how['bits']} product" in kernels(product, x, q)
        close(toile.jit(product)(x, q), wanted(x, q, by_rows))


integers = pytest.mark.skipif(not cpu_digits.instruction(),
                              reason="needs an instruction that multiplies 8-bit integers")


@st.composite
def products_with_integers(draw):
    bits = draw(st.sampled_from([4, 8]))
    how = {"bits": bits, "symmetric": draw(st.booleans()),
           "group": draw(st.sampled_from([None, 2, 16, 24, 32, 64, 100]))}
    few = st.integers(1, few_rows.DIRECT)
    many = st.integers(FEW + 1, 70) if few_rows.most_rows() > FEW else few
    m = draw(st.one_of(few, many) if bits == 4 else many)
    k, n = draw(st.integers(33, 200)), draw(st.integers(cpu_digits.WIDTH, 200))
    n = max(n, -(-4200 // k))
    return k, n, m, how, draw(st.sampled_from(["float32", "bfloat16"])), draw(st.integers(0, 99))


@integers
@hypothesis.given(case=products_with_integers())
@hypothesis.settings(max_examples=60, deadline=None)
def test_products_with_integers(case):
    k, n, m, how, dtype, seed = case
    rng = np.random.default_rng(seed)
    x = jnp.asarray(rng.normal(size=(m, k)) * 10.0 ** rng.integers(-30, 30), dtype)
    w = rng.normal(size=(k, n)).astype(np.float32)
    q = quantize_array(jnp.asarray(w, dtype), **how)
    product = lambda x, q: x @ q
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(few_rows, "WIDE_ENOUGH", 0)
        toile.clear_caches()
        assert f"int{how['bits']} product" in kernels(product, x, q)
        exact = wanted(x, q.replace(dtype=np.dtype("float32")), False)
        close(toile.jit(product)(x, q), exact, {"float32": 2e-6, "bfloat16": 2**-8 + 2e-4}[dtype])


@integers
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
def test_inputs_without_digits_are_multiplied_as_floats(bits, symmetric):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(few_rows.BLOCK + 9, 96)).astype(np.float32)
    x[0, 5], x[1, 90], x[33, 40] = np.inf, np.nan, -np.inf  # parts of three spans
    x[2] *= 1e-37  # the unit would be subnormal
    x[3] = 0
    q = quantize_array(W, bits=bits, group=32, symmetric=symmetric)
    found = np.asarray(toile.jit(lambda x, q: x @ q)(x, q))
    with np.errstate(invalid="ignore"):
        exact = x @ np.asarray(q)
    finite = np.isfinite(x).all(1)
    assert not np.isfinite(found[~finite]).any()
    assert np.isnan(found[1]).all()
    for row in np.flatnonzero(finite):
        close(found[row], exact[row], 1e-5)


@integers
def test_an_outlier_spoils_only_the_terms_near_it():
    """Digits are relative to the largest of a few terms, not of the whole row."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(FEW + 1, 256)).astype(np.float32)
    w = rng.normal(size=(256, 128)).astype(np.float32)
    q = quantize_array(w, bits=8)
    q = q.replace(values=jnp.asarray(q.values).at[7].set(0))
    calm = np.asarray(toile.jit(lambda x, q: x @ q)(x, q))
    x[:, 7] = 1e6  # multiplied by 0
    found = np.asarray(toile.jit(lambda x, q: x @ q)(x, q))
    x[:, :64] = 0
    rest = wanted(x, q, False)
    close(np.asarray(toile.jit(lambda x, q: x @ q)(x, q)), rest, 2e-6)
    assert np.abs(found - calm).max() < 64 * 1e6 / 2**20  # the errors of 64 terms


@hypothesis.given(case=products())
@hypothesis.settings(max_examples=30, deadline=None)
def test_the_numpy_meaning_of_the_operation(case):
    k, n, m, how, by_rows, seed = case
    how["group"] = None if how["group"] is None else how["group"] // 2 * 2
    rng = np.random.default_rng(seed)
    k += k % 2
    x, w = rng.normal(size=(m, k)).astype(np.float32), rng.normal(size=(k, n)).astype(np.float32)
    q = quantize_array(w.T if by_rows else w, axis=-1 if by_rows else -2, **how)
    given = np.concatenate([x[:, ::2], x[:, 1::2]], 1) if by_rows and how["bits"] == 4 else x
    parts = [np.asarray(a) for a in (q.values, q.scales, q.zeros) if a is not None]
    found = QuantizedProduct(q.bits, q.group, by_rows).eager(np, given, None, *parts)
    close(found, wanted(x, q, by_rows))


W = np.random.default_rng(0).normal(size=(96, 128)).astype(np.float32)
X = np.random.default_rng(1).normal(size=(2, 96)).astype(np.float32)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_dtypes(dtype):
    x, q = jnp.asarray(X, dtype), quantize_array(jnp.asarray(W, dtype), bits=4, group=32)
    product = lambda x, q: x @ q
    assert "int4 product" in kernels(product, x, q)
    found = toile.jit(product)(x, q)
    assert found.dtype == dtype
    close(found, wanted(x, q, False), {"float32": 2e-5, "bfloat16": 1e-2, "float16": 2e-3}[dtype])


@pytest.mark.parametrize(("text", "x", "shape", "axis"), [
    ("bd,dhk->bhk", (2, 64), (64, 8, 16), 0), ("bhk,hkd->bd", (2, 8, 16), (8, 16, 64), 1),
    ("tbd,df->tbf", (2, 3, 64), (64, 80), 0), ("df,bd->fb", (3, 64), (64, 80), 0),
    ("bd,vd->bv", (2, 64), (80, 64), 1), ("d,dhk->hk", (64,), (64, 8, 16), 0),
    ("bhk,dhk->bd", (2, 8, 16), (64, 8, 16), 2),
])  # fmt: skip
@pytest.mark.parametrize("bits", [4, 8])
def test_contractions(text, x, shape, axis, bits):
    rng = np.random.default_rng(0)
    x = rng.normal(size=x).astype(np.float32)
    q = quantize_array(rng.normal(size=shape).astype(np.float32), bits=bits, group=16, axis=axis)
    def product(x, q):
        return jnp.einsum(text, *((q, x) if text.startswith("df,b") else (x, q)))
    assert f"int{bits} product" in kernels(product, x, q)
    operands = (np.asarray(q), x) if text.startswith("df,b") else (x, np.asarray(q))
    close(toile.jit(product)(x, q), np.einsum(text, *operands))


@pytest.mark.parametrize(("reason", "x", "how"), [
    ("many rows", np.ones((few_rows.most_rows() + 1, 96), np.float32), {"bits": 8}),
    ("groups along the other axis", X, {"bits": 8, "axis": 1}),
    ("odd groups", X, {"bits": 4, "group": 3}),
    ("float8", X, {"dtype": "float8_e4m3fn"}),
])
def test_other_products_compute_the_numbers_first(reason, x, how):
    q = quantize_array(W, **how)
    product = lambda x, q: x @ q
    assert not any(f"int{bits} product" in kernels(product, x, q) for bits in (4, 8))
    close(toile.jit(product)(x, q), wanted(x, q, False))


def test_the_numbers_are_not_written_to_memory():
    q = quantize_array(np.random.default_rng(0).normal(size=(512, 512)).astype(np.float32), bits=4)
    product = lambda x, q: jnp.tanh(x @ q)
    x = jnp.ones((1, 512))
    stats = toile.jit(product).lower(x, q).compile().memory_analysis()
    assert stats.temp_size_in_bytes < 512 * 16


def test_products_of_the_same_inputs_run_in_one_step():
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal((1, 256)), jnp.bfloat16)
    w = [quantize_array(jnp.asarray(rng.standard_normal((256, n)), jnp.bfloat16), bits=4, group=32)
         for n in (256, 64, 64)]
    text = kernels(lambda x, a, b, c: (x @ a, x @ b, x @ c), x, *w)
    steps = re.findall(r"int4 product [^\n]*\(step (\d+)", text)
    assert len(steps) == 3 and len(set(steps)) == 1, text
    assert "reduce_sum" not in text  # the products sum up the inputs of each group themselves


def test_a_loop_reads_the_stored_numbers():
    q = quantize_array(np.random.default_rng(0).normal(size=(128, 128)).astype(np.float32) / 8)

    def run(x, q):
        return lax.scan(lambda x, _: (jnp.tanh(x @ q), None), x, None, length=5)[0]

    x = np.ones((1, 128), np.float32)
    assert "int8 product" in kernels(run, x, q)
    exact = x
    for _ in range(5):
        exact = np.tanh(exact @ np.asarray(q))
    np.testing.assert_allclose(toile.jit(run)(x, q), exact, rtol=1e-4, atol=1e-5)


def test_gradients_of_the_inputs():
    q = quantize_array(W, bits=4, group=32)
    loss = lambda x: (jnp.tanh(x @ q) ** 2).sum()
    plain = lambda x: (jnp.tanh(x @ q.dequantize()) ** 2).sum()
    np.testing.assert_allclose(toile.jit(toile.grad(loss))(X), toile.grad(plain)(jnp.asarray(X)),
                               rtol=1e-4, atol=1e-5)


class Decoder(nn.Module):
    """What a step of decoding has: projections, heads, and an embedding that is also the output."""

    @nn.compact
    def __call__(self, ids):
        embed = nn.Embed(120, 64)
        x = embed(ids)
        x = x + nn.MultiHeadDotProductAttention(num_heads=4)(x)
        x = x + nn.Dense(64)(nn.gelu(nn.Dense(256)(x)))
        return embed.attend(x)


def test_a_model_reads_all_its_kernels():
    model, ids = Decoder(), jnp.array([[3, 5]])
    params = model.init(toile.random.key(0), ids)
    quantized = quantize(params, ("**/kernel", "**/embedding"), bits=4, group=16)
    found = kernels(model.apply, quantized, ids)
    # query, key, value, out, two of Dense, and the output layer
    assert found.count("int4 product (") == 7, found
    np.testing.assert_allclose(toile.jit(model.apply)(quantized, ids),
                               model.apply(dequantize(quantized), ids), rtol=1e-3, atol=1e-4)


def test_the_operation_infers_its_result():
    op = QuantizedProduct(8, 32, False)
    q = quantize_array(W, group=32)
    avals = [toile.ShapeDtypeStruct(a.shape, a.dtype) for a in (X, X[:, :3], q.values, q.scales)]
    assert op.infer(*avals).shape == (2, 128)
    stored = Dequantize(8, 32, 96, -2, np.dtype("float32"))
    with pytest.raises(ValueError, match="values with 96 elements of 8 bits along axis -2"):
        stored(q.values[:5], q.scales)


@pytest.mark.parametrize("mode", ["fill", "clip", "wrap"])
@pytest.mark.parametrize("how", [{"bits": 8}, {"bits": 4, "group": 4, "symmetric": False}])
def test_lookups_read_the_stored_rows(mode, how):
    table = quantize_array(np.random.default_rng(0).normal(size=(999, 12)).astype(np.float32),
                           axis=-1, **how)
    ids = jnp.array([[3, -1], [998, 5]] if mode != "fill" else [[3, 1000], [998, 5]])
    f = toile.jit(lambda table, ids: jnp.take(table, ids, axis=0, mode=mode).astype("float32"))
    np.testing.assert_allclose(f(table, ids), jnp.take(table.dequantize(), ids, axis=0, mode=mode))
    stats = f.lower(table, ids).compile().memory_analysis()
    assert stats.temp_size_in_bytes < 4096
