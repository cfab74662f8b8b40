"""Products with 8-bit inputs: what they compute, where they are found, and their derivatives."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import lax
from toile import linen as nn
from toile.quantization import quantize, quantize_array, quantize_inputs

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 5, 24)).astype(np.float32)
X[1, 2] = 0
W = RNG.normal(size=(24, 8)).astype(np.float32)


def rounded(x, axes, static=None):
    """The numbers that 8-bit inputs stand for."""
    scale = np.abs(x).max(axes, keepdims=True) / 127 if static is None else np.float32(static)
    scale = np.maximum(scale, 1e-30)
    return np.clip(np.round(x / scale), -127, 127) * scale


@pytest.mark.parametrize("group", [None, 8, 10])
@pytest.mark.parametrize("static", [None, 0.01])
def test_products_of_integers(group, static):
    q = quantize_array(W, group=group)
    if static:
        q = q.replace(input_scale=jnp.full((1, 1), static))
    f = quantize_inputs(lambda x, q: x @ q)
    groups = [slice(0, None)] if group is None else [
        slice(i, i + group) for i in range(0, 24, group)]
    exact = sum(rounded(X, -1, static)[..., g] @ np.asarray(q)[g] for g in groups)
    if group is not None and not static:  # a row has one scale for all its groups
        exact = rounded(X, -1) @ np.asarray(q)
    for run in (f, toile.jit(f)):
        np.testing.assert_allclose(run(X, q), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("text", "shape", "axis", "axes"), [
    ("abd,dhk->abhk", (24, 2, 4), 0, -1), ("abd,kd->abk", (8, 24), 1, -1),
    ("abd,bdk->ak", (5, 24, 8), 1, (1, 2)),
])
def test_contractions(text, shape, axis, axes):
    q = quantize_array(RNG.normal(size=shape).astype(np.float32), axis=axis, group=6)
    f = toile.jit(quantize_inputs(lambda x, q: jnp.einsum(text, x, q)))
    exact = np.einsum(text, rounded(X, axes), np.asarray(q))
    np.testing.assert_allclose(f(X, q), exact, rtol=1e-4, atol=1e-4)
    assert "i8[" in str(toile.make_jaxpr(f)(X, q)) and "i32[" in str(toile.make_jaxpr(f)(X, q))


def test_the_product_is_one_of_bytes():
    q = quantize_array(W)
    program = str(toile.make_jaxpr(quantize_inputs(lambda x, q: x @ q))(X, q))
    assert "i8[3,5,24]" in program and "i32[3,5,8]" in program and "dequantize" not in program


def test_float8():
    q = quantize_array(W, dtype="float8_e4m3fn")
    found = quantize_inputs(lambda x, q: x @ q)(X, q)
    exact = X @ np.asarray(q)
    assert 0 < np.abs(found - exact).max() < 0.1 * np.abs(exact).max()


@pytest.mark.parametrize("how", [{"bits": 4}, {"symmetric": False}])
def test_other_forms_are_not_changed(how):
    q = quantize_array(W, **how)
    np.testing.assert_allclose(quantize_inputs(lambda x, q: x @ q)(X, q), X @ np.asarray(q),
                               rtol=1e-5, atol=1e-5)


def test_other_operations_read_the_numbers():
    q = quantize_array(W)
    f = lambda q: (q.T, jnp.tanh(q[1:]), q * 2, q.astype("bfloat16"), q @ q.T)
    for found, exact in zip(quantize_inputs(f)(q), f(q.dequantize()), strict=True):
        np.testing.assert_allclose(np.asarray(found, np.float32), np.asarray(exact, np.float32),
                                   rtol=2e-2, atol=2e-2)


def test_derivatives_are_those_of_unrounded_inputs():
    q = quantize_array(W)
    weights = RNG.normal(size=(3, 5, 8)).astype(np.float32)
    loss = lambda x: (quantize_inputs(lambda x: x @ q)(x) * weights).sum()
    for grad in (toile.grad(loss), toile.jit(toile.grad(loss))):
        np.testing.assert_allclose(grad(jnp.asarray(X)), weights @ np.asarray(q).T, rtol=1e-5,
                                   atol=1e-5)


class Layers(nn.Module):
    """Products inside jit, scan, remat and cond."""

    @nn.compact
    def __call__(self, x):
        w = self.param("kernel", nn.initializers.lecun_normal(), (24, 24))
        x = toile.jit(lambda x, w: x @ w)(x, w)
        x, _ = lax.scan(lambda x, _: (jnp.tanh(x @ w), None), x, None, length=2)
        x = nn.remat(nn.Dense)(24, name="remat")(x)
        x = nn.MultiHeadDotProductAttention(num_heads=2, name="attention")(x)
        return lax.cond(x.sum() > 0, lambda x: x @ w, lambda x: x + x @ w, x)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_model(compiled):
    model, key = Layers(), toile.random.key(0)
    variables = quantize(model.init(key, X))
    apply = quantize_inputs(model.apply)
    apply = toile.jit(apply) if compiled else apply
    found, exact = apply(variables, X), model.apply(variables, X)
    error = np.linalg.norm(found - exact) / np.linalg.norm(exact)
    assert 1e-4 < error < 0.05


def test_programs_that_are_carried_are_changed():
    q = quantize_array(W[:, :8])

    def run(x, q):
        return lax.scan(lambda c, x: (c, toile.jit(lambda x, q: x @ q)(x, q)), 0, x)[1]

    np.testing.assert_allclose(quantize_inputs(run)(X, q), rounded(X, -1) @ np.asarray(q),
                               rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(quantize_inputs(toile.jit(run))(X, q),
                               rounded(X, -1) @ np.asarray(q), rtol=1e-5, atol=1e-5)
