"""Calibration: statistics are those of the inputs, and products change less than by rounding."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import lax
from toile import linen as nn
from toile.quantization import calibrate, quantize, quantize_inputs

KEY = toile.random.key(0)
RNG = np.random.default_rng(0)
MIXED = RNG.normal(size=(64, 64)) * 10 ** RNG.uniform(-1, 1, 64)
X = (RNG.normal(size=(400, 64)) @ MIXED / 8).astype(np.float32)  # inputs are correlated
W = RNG.normal(size=(64, 24)).astype(np.float32)


def test_statistics_are_those_of_the_inputs():
    found = calibrate(lambda p, x: x @ p["w"], {"w": W}, [X[:100], (X[100:],)], "w")["w"]
    exact = X.astype(np.float64)
    np.testing.assert_allclose(found.moments, exact.T @ exact / 400, rtol=1e-6)
    np.testing.assert_allclose(found.magnitudes, np.abs(exact).mean(0), rtol=1e-6)
    assert (found.axes, found.rows) == ((0,), 400)
    assert found.largest == pytest.approx(np.abs(X).max())


@toile.custom_jvp
def with_rule(x, w):
    """A product with a derivative rule."""
    return x @ w


with_rule.defjvp(lambda primals, tangents: (primals[0] @ primals[1], tangents[0] @ primals[1]))


@pytest.mark.parametrize(("product", "shape", "axes"), [
    (lambda x, w: w.T @ x.T, (64, 24), (0,)),
    (lambda x, w: jnp.einsum("bi,ki->bk", x, w), (24, 64), (1,)),
    (lambda x, w: jnp.einsum("bhi,hik->bk", x.reshape(-1, 4, 16), w), (4, 16, 24), (0, 1)),
    (lambda x, w: toile.jit(jnp.matmul)(x, w.astype("float32")), (64, 24), (0,)),
    (lambda x, w: toile.checkpoint(jnp.matmul)(x, w), (64, 24), (0,)),
    (lambda x, w: with_rule(x, w), (64, 24), (0,)),
])
def test_products_are_found(product, shape, axes):
    found = calibrate(lambda p, x: product(x, p["w"]), {"w": jnp.ones(shape)}, [X], "w")["w"]
    assert (found.axes, found.rows) == (axes, 400)
    np.testing.assert_allclose(found.moments, X.astype(float).T @ X / 400, rtol=1e-5)


def loss(q, x=X, w=W):
    """The mean squared error of the product."""
    return float((((x @ np.asarray(q)) - x @ w) ** 2).mean())


HOW = [{"bits": 4, "group": 16}, {"bits": 4, "group": 16, "symmetric": False}, {"bits": 4},
       {"bits": 8, "group": 24}, {"dtype": "float8_e4m3fn"}, {"bits": 4, "group": 10}]


@pytest.mark.parametrize("how", HOW, ids=str)
@pytest.mark.parametrize("method", ["gptq", "gptq act_order", "awq"])
def test_errors_of_products_become_smaller(method, how):
    statistics = calibrate(lambda p, x: x @ p["w"], {"w": W}, [X], "w")
    more = {"method": method.split()[0], "act_order": "act_order" in method}
    found = quantize({"w": W}, "w", statistics=statistics, **how, **more)["w"]
    plain = quantize({"w": W}, "w", **how)["w"]
    assert (found.shape, found.values.shape) == (plain.shape, plain.values.shape)
    bound = {"gptq": 0.95, "gptq act_order": 0.7, "awq": 1.0001}[method]
    assert loss(found) <= bound * loss(plain), (loss(found), loss(plain))


def gptq_row_by_row(w, moments, size):
    """GPTQ as its definition says: the inverse of the moments of the rows that are left."""
    w, found = w.astype(np.float64).copy(), np.zeros_like(w, np.float64)
    damped = moments + 0.01 * np.diag(moments).mean() * np.eye(len(w))
    for k in range(len(w)):
        if k % size == 0:
            scale = np.abs(w[k : k + size]).max(0) / 7
        found[k] = np.clip(np.round(w[k] / scale), -7, 7) * scale
        inverse = np.linalg.inv(damped[k:, k:])
        w[k:] -= np.outer(inverse[0] / inverse[0, 0], w[k] - found[k])
    return found


@pytest.mark.parametrize(("k", "size"), [(40, 8), (150, 50), (300, 100)])
def test_gptq_is_its_definition(k, size):
    x = RNG.normal(size=(2 * k, k)) @ RNG.normal(size=(k, k))
    w = RNG.normal(size=(k, 5)).astype(np.float32)
    statistics = calibrate(lambda p, x: x @ p["w"], {"w": w}, [x.astype(np.float32)], "w")
    found = quantize({"w": w}, "w", bits=4, group=size, method="gptq", statistics=statistics)["w"]
    np.testing.assert_allclose(np.asarray(found), gptq_row_by_row(
        w, statistics["w"].moments, size), rtol=1e-3, atol=1e-4)


def test_awq_multiplies_inputs_by_factors():
    w = RNG.normal(size=(64, 70)).astype(np.float32)
    x = X * np.where(np.arange(64) == 3, 100, 1).astype(np.float32)
    statistics = calibrate(lambda p, x: x @ p["w"], {"w": w}, [x], "w")
    q = quantize({"w": w}, "w", bits=4, group=16, method="awq", statistics=statistics)["w"]
    plain = quantize({"w": w}, "w", bits=4, group=16)["w"]
    assert q.factors.shape == (64, 1) and loss(q, x, w) < 0.7 * loss(plain, x, w)
    for rows in (x[:3], x[:30]):
        np.testing.assert_allclose(toile.jit(lambda x, q: x @ q)(rows, q), rows @ np.asarray(q),
                                   rtol=1e-3, atol=1e-2)
    assert "int4 product" in str(toile.explain(toile.jit(lambda x, q: x @ q))(x[:2], q))


class Net(nn.Module):
    @nn.compact
    def __call__(self, ids):
        embed = nn.Embed(30, 32)
        x = embed(ids)
        x = x + nn.MultiHeadDotProductAttention(num_heads=4)(nn.LayerNorm()(x))
        x = x + nn.Dense(32)(nn.gelu(nn.Dense(64)(nn.LayerNorm()(x))))
        return embed.attend(x)


@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_a_model(method):
    ids = toile.random.randint(KEY, (8, 20), 0, 30)
    model = Net()
    variables = model.init(KEY, ids)
    select = ("**/kernel", "**/embedding")
    statistics = calibrate(model.apply, variables, [ids[:4], ids[4:]], select)
    assert len(statistics) == 7 and statistics["params/Dense_0/kernel"].rows == 160
    exact = model.apply(variables, ids)

    def error(**how):
        quantized = quantize(variables, select, bits=4, group=8, **how)
        return float(jnp.linalg.norm(toile.jit(model.apply)(quantized, ids) - exact))

    assert error(method=method, statistics=statistics) < error()


def test_static_inputs():
    statistics = calibrate(lambda p, x: x @ p["w"], {"w": W}, [X], "w")
    q = quantize({"w": W}, "w", statistics=statistics, static_inputs=True)["w"]
    assert float(q.input_scale[0, 0]) == pytest.approx(np.abs(X).max() / 127)
    found = toile.jit(quantize_inputs(lambda x, q: x @ q))(X, q)
    step = float(q.input_scale[0, 0])
    exact = np.round(X / np.float32(step)) * step @ np.asarray(q)
    np.testing.assert_allclose(found, exact, rtol=1e-3, atol=np.abs(exact).max() * 1e-3)


@pytest.mark.parametrize(("call", "said"), [
    (lambda: calibrate(lambda p, x: x, {"w": W}, [X], "w"), "got none with w"),
    (lambda: calibrate(lambda p, x: lax.scan(lambda c, x: (c, x @ p["w"]), 0, x)[1], {"w": W}, [X],
                       "w"), "needed products with all selected parameters"),
    (lambda: quantize({"w": W}, "w", method="gptq"), "needed statistics of the inputs"),
    (lambda: quantize({"w": W}, "w", static_inputs=True), "got none of w"),
    (lambda: quantize({"w": W}, "w", method="awq", axis=1, statistics=calibrate(
        lambda p, x: x @ p["w"], {"w": W}, [X], "w")), "which are (0,), got axis=1"),
])
def test_errors(call, said):
    with pytest.raises(ValueError) as error:
        call()
    assert said in str(error.value)
