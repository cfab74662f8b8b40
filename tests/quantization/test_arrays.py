"""Quantized arrays: errors are bounded, and they are read as the arrays they stand for."""

import hypothesis
import ml_dtypes
import numpy as np
import pytest
from hypothesis import strategies as st

import toile
import toile.numpy as jnp
from toile import lax, serialization
from toile.core.frozen_dict import freeze
from toile.quantization import QuantizedArray, dequantize, quantize, quantize_array, size_of

DTYPES = ("float32", "bfloat16", "float16")


@st.composite
def weights(draw):
    """An array, with some groups of zeros, and how to quantize it."""
    ndim = draw(st.integers(1, 3))
    shape = tuple(draw(st.integers(1, 9)) for _ in range(ndim))
    axis = draw(st.integers(-ndim, ndim - 1))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    w = rng.normal(0, 10.0 ** draw(st.integers(-3, 3)), shape)
    w *= rng.random(shape) < draw(st.sampled_from([0.0, 0.3, 1.0]))
    dtype = draw(st.sampled_from(DTYPES))
    how = {"bits": draw(st.sampled_from([4, 8])), "axis": axis,
           "group": draw(st.sampled_from([None, 1, 2, 3, 4, 100])),
           "symmetric": draw(st.booleans())}
    return jnp.asarray(w, dtype), how


@hypothesis.given(weights())
@hypothesis.settings(max_examples=150, deadline=None)
def test_errors_are_at_most_half_a_step(case):
    w, how = case
    q = quantize_array(w, **how)
    assert (q.shape, q.ndim, q.size, q.dtype) == (w.shape, w.ndim, w.size, w.dtype)
    group = min(how["group"] or 100, w.shape[how["axis"]])
    step = np.repeat(np.asarray(q.scales), group, q.axis)
    step = np.take(step, range(w.shape[q.axis]), q.axis)
    exact, found = (np.asarray(x).astype(np.float64) for x in (w, q.dequantize()))
    rounding = np.abs(exact) * float(ml_dtypes.finfo(w.dtype).eps) + np.abs(step) * 2e-4
    zero = 0 if q.zeros is None else 1e-6 * np.abs(np.asarray(q.zeros)).max() * step
    assert (np.abs(found - exact) <= step / 2 + rounding + zero).all()


@hypothesis.given(weights())
@hypothesis.settings(max_examples=40, deadline=None)
def test_compiled_code_computes_the_same_numbers(case):
    w, how = case
    q = quantize_array(w, **how)
    np.testing.assert_array_equal(
        np.asarray(toile.jit(lambda q: q.dequantize().astype("float32"))(q)),
        np.asarray(q.dequantize().astype("float32")))


@pytest.mark.parametrize("length", [1, 2, 5, 8])
def test_integers_of_4_bits_are_packed_in_pairs(length):
    integers = np.random.default_rng(0).integers(-7, 8, (length, 3))
    integers[0] = 7
    q = quantize_array(jnp.asarray(integers, "float32"), bits=4)
    assert q.values.shape == ((length + 1) // 2, 3) and q.values.dtype == jnp.uint8
    stored = np.asarray(q.values)
    for k in range(length):
        np.testing.assert_array_equal((stored[k // 2] >> 4 * (k % 2)) & 15, integers[k] + 8)
    np.testing.assert_array_equal(np.asarray(q), integers)


@pytest.mark.parametrize("how", [{}, {"symmetric": False}, {"bits": 4}, {"dtype": "float8_e4m3fn"}])
def test_groups_of_zeros_are_exact(how):
    w = jnp.zeros((6, 2)).at[3:, 0].set(1.5)
    q = quantize_array(w, group=3, **how)
    np.testing.assert_array_equal(np.asarray(q)[:3], 0)
    assert np.isfinite(np.asarray(q)).all()


def test_constant_groups_with_zero_points_are_exact():
    q = quantize_array(jnp.full((4, 4), -3.7), bits=4, symmetric=False)
    np.testing.assert_array_equal(np.asarray(q), np.float32(-3.7))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_float8(dtype):
    w = np.random.default_rng(0).normal(size=(32, 8)).astype(np.float32)
    q = quantize_array(w, dtype=dtype, group=8)
    assert q.values.dtype == dtype and q.nbytes == 32 * 8 + 4 * 4 * 8
    bound = {"float8_e4m3fn": 2**-4, "float8_e5m2": 2**-3}[dtype]
    least = np.repeat(np.asarray(q.scales), 8, 0) * 2**-6
    assert (np.abs(np.asarray(q) - w) <= np.maximum(np.abs(w) * bound, least) * 1.01).all()


W = np.random.default_rng(1).normal(size=(6, 4)).astype(np.float32)
Q = quantize_array(W, bits=4, group=4)
D = Q.dequantize()
X = np.random.default_rng(2).normal(size=(3, 6)).astype(np.float32)


@pytest.mark.parametrize(("name", "f"), [
    ("x @ w", lambda w: X @ w), ("traced x @ w", lambda w: jnp.asarray(X) @ w),
    ("w @ y", lambda w: w @ X[:, :4].T), ("matmul", lambda w: jnp.matmul(X, w)),
    ("einsum", lambda w: jnp.einsum("bi,ij->jb", X, w)), ("dot", lambda w: jnp.dot(X, w)),
    ("dot_general", lambda w: lax.dot_general(X, w, (((1,), (0,)), ((), ())))),
    ("w.T", lambda w: w.T), ("w[1:]", lambda w: w[1:]), ("take", lambda w: jnp.take(w, 2, axis=1)),
    ("arithmetic", lambda w: (2 * w + 1 - w / 3) ** 2), ("w + w", lambda w: w + w),
    ("1 - w", lambda w: 1 - w), ("-w", lambda w: -w), ("reshape", lambda w: w.reshape(3, -1)),
    ("astype", lambda w: w.astype("bfloat16")), ("asarray", jnp.asarray), ("sum", jnp.sum),
    ("stack", lambda w: jnp.stack([w, w])), ("numpy", np.asarray), ("len", len),
], ids=lambda x: x if isinstance(x, str) else "")  # fmt: skip
def test_it_is_read_as_an_array(name, f):
    np.testing.assert_allclose(f(Q), f(D), rtol=1e-6)
    if name != "numpy":
        np.testing.assert_allclose(toile.jit(f)(Q), f(D), rtol=2e-5, atol=1e-6)


def test_the_gradient_reaches_inputs_and_not_the_array():
    loss = lambda x, q: ((x @ q) ** 2).sum()
    np.testing.assert_allclose(toile.jit(toile.grad(loss))(X, Q), toile.grad(loss)(X, D), rtol=1e-5)
    found = toile.grad(loss, 1, allow_int=True)(jnp.asarray(X), Q)
    assert not np.asarray(found.scales).any() and found.values.dtype == toile.dtypes.float0


def test_low_rank_adapters_are_trained_beside_frozen_weights():
    def loss(adapter):
        return ((X @ Q + X @ adapter["a"] @ adapter["b"]) ** 2).mean()

    adapter = {"a": jnp.zeros((6, 2)), "b": jnp.asarray(W[:2])}
    found, wanted = toile.grad(loss)(adapter), toile.grad(lambda m: (
        (X @ D + X @ m["a"] @ m["b"]) ** 2).mean())(adapter)
    for name, grad in found.items():
        np.testing.assert_allclose(grad, wanted[name], rtol=1e-4, atol=1e-6)


def test_vmap_and_scan_slice_leading_axes():
    stacked = np.stack([W, 2 * W, -W])
    q = quantize_array(stacked, bits=4, group=4, axis=1)
    wanted = np.einsum("bi,lij->lbj", X, np.asarray(q))
    np.testing.assert_allclose(toile.vmap(lambda w: X @ w)(q), wanted, rtol=1e-5)
    _, found = lax.scan(lambda c, w: (c, X @ w), None, q)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    made = toile.vmap(lambda w: quantize_array(w, bits=4, group=4))(stacked)
    assert made.shape == q.shape
    np.testing.assert_array_equal(np.asarray(made), np.asarray(q))


def test_a_loop_reads_the_stored_values_in_each_step():
    def run(x, q):
        return lax.scan(lambda x, _: (jnp.tanh(x @ q @ q.T), None), x, None, length=4)[0]

    x = X
    for _ in range(4):
        x = np.tanh(x @ np.asarray(D) @ np.asarray(D).T)
    np.testing.assert_allclose(toile.jit(run)(X, Q), x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [dict, freeze])
@pytest.mark.parametrize("how", [{}, {"bits": 4, "symmetric": False}, {"dtype": "float8_e4m3fn"}])
def test_checkpoints(kind, how):
    params = kind({"layer": {"kernel": jnp.asarray(W), "bias": jnp.ones(4)}})
    saved = quantize(params, "**/kernel", group=3, **how)
    blank = quantize(toile.tree.map(jnp.zeros_like, params), "**/kernel", group=3, **how)
    found = serialization.from_bytes(blank, serialization.to_bytes(saved))
    assert type(found) is type(params)
    kernel = found["layer"]["kernel"]
    assert isinstance(kernel, QuantizedArray) and kernel.group == 3
    np.testing.assert_array_equal(np.asarray(kernel), np.asarray(saved["layer"]["kernel"]))


def test_trees():
    params = {"layer": {"kernel": jnp.asarray(W), "bias": jnp.ones(4)}}
    quantized = quantize(params, "layer/kernel", bits=4, group=2)
    assert quantized["layer"]["bias"] is params["layer"]["bias"]
    placed = toile.device_put(quantized, toile.devices()[0])
    for tree in (toile.tree.map(lambda x: x, quantized), placed):
        np.testing.assert_array_equal(tree["layer"]["kernel"].values,
                                      quantized["layer"]["kernel"].values)
    plain, kernel = dequantize(quantized), quantized["layer"]["kernel"]
    np.testing.assert_array_equal(plain["layer"]["kernel"], np.asarray(kernel))
    assert size_of(quantized) == 6 * 4 // 2 + 4 * 3 * 4 + 4 * 4
    assert "QuantizedArray(float32[6,4], bits=4, group=2, axis=-2)" in repr(quantized)
    assert "QuantizedArray" in repr(toile.tree.map(lambda x: None, quantized))


def test_masks_select_what_is_trained():
    params = quantize({"kernel": jnp.asarray(W), "bias": jnp.ones(4)}, "kernel")
    tx = toile.optim.masked(toile.optim.sgd(0.1), {"kernel": False, "bias": True})
    grads = toile.grad(lambda p: (X @ p["kernel"] + p["bias"]).sum(), allow_int=True)(params)
    updates, _ = tx.update(grads, tx.init(params), params)
    np.testing.assert_allclose(updates["bias"], -0.3)


def test_the_dtype_of_the_weights_is_kept():
    with toile.enable_x64():
        q = quantize_array(W.astype("float64"), bits=8)
        assert q.dtype == "float64" and (X.astype("float64") @ q).dtype == "float64"
    x, w = (jnp.asarray(a, "bfloat16") for a in (X, W))
    assert (x @ quantize_array(w)).dtype == "bfloat16"


@pytest.mark.parametrize(("call", "said"), [
    (lambda: quantize_array(W, bits=3), "needed bits=4 or bits=8, got bits=3"),
    (lambda: quantize_array(W, group=0), "needed a positive group size or None, got group=0"),
    (lambda: quantize_array(W, axis=2), "needed an axis of float32[6,4], got axis=2"),
    (lambda: quantize_array(np.arange(3)), "needed a floating array with an axis, got int"),
    (lambda: quantize_array(W, dtype="int8"), "needed dtype=None, float8_e4m3fn or float8_e5m2"),
    (lambda: quantize_array(W, dtype="float8_e5m2", bits=4), "got dtype=float8_e5m2, bits=4"),
    (lambda: quantize({"w": W}, "**/kernel"), "needed globs that match some parameter"),
    (lambda: quantize({"w": Q}, "w"), "needed arrays, got quantized arrays: w"),
    (lambda: quantize({"w": W}, "w", method="best"), "needed method='round', 'gptq' or 'awq'"),
])
def test_errors(call, said):
    with pytest.raises(ValueError) as error:
        call()
    assert said in str(error.value)
