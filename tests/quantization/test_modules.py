"""Modules read quantized parameters: results are those of the numbers that they stand for."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import linen as nn
from toile.quantization import QuantizedArray, dequantize, quantize

KEY = toile.random.key(0)


class Layers(nn.Module):
    """A layer in which `nn.scan` stacks the kernels."""

    @nn.compact
    def __call__(self, x):
        step = nn.scan(lambda mdl, x, _: (nn.tanh(nn.Dense(8, name="dense")(x)), None),
                       variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
        return step(self, x, None)[0]


class Tied(nn.Module):
    """An embedding that is also the output layer."""

    @nn.compact
    def __call__(self, ids):
        embed = nn.Embed(11, 8)
        return embed.attend(nn.Dense(8)(embed(ids)))


X = toile.random.normal(KEY, (2, 5, 8))
IDS = jnp.array([[1, 4, 10, 0]])
CASES = [
    ("Dense", nn.Dense(7), X, "**/kernel", {}),
    ("Dense bf16", nn.Dense(7, dtype=jnp.bfloat16), X, "**/kernel", {}),
    ("Dense bf16 params", nn.Dense(7, param_dtype=jnp.bfloat16), X, "**/kernel", {}),
    ("DenseGeneral", nn.DenseGeneral((2, 3), axis=(1, -1)), X, "**/kernel", {"axis": 0}),
    ("Einsum", nn.Einsum((8, 3), "...d,dk->...k"), X, "**/kernel", {}),
    ("Embed", nn.Embed(11, 8), IDS, "**/embedding", {}),
    ("Embed and Dense", Tied(), IDS, ("**/embedding", "**/kernel"), {}),
    ("attention", nn.MultiHeadDotProductAttention(num_heads=2), X, "**/kernel", {}),
    ("Conv", nn.Conv(4, (3,)), X, "**/kernel", {}),
    ("LSTM", nn.RNN(nn.LSTMCell(6)), X, "**/kernel", {}),
    ("scan", Layers(), X[0], "**/kernel", {"axis": 1}),
    ("remat", nn.remat(nn.Dense)(7), X, "**/kernel", {}),
]


@pytest.mark.parametrize("how", [{"bits": 8}, {"bits": 4, "group": 4, "symmetric": False}], ids=str)
@pytest.mark.parametrize(("model", "x", "select", "more"), [c[1:] for c in CASES],
                         ids=[c[0] for c in CASES])
def test_module(model, x, select, more, how):
    variables = model.init(KEY, x)
    quantized = quantize(variables, select, **how, **more)
    kinds = toile.tree.leaves(quantized, is_leaf=lambda x: isinstance(x, QuantizedArray))
    assert any(isinstance(k, QuantizedArray) for k in kinds)
    wanted = np.asarray(model.apply(dequantize(quantized), x), np.float32)
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if "float16" not in str(model) else {
        "rtol": 3e-2, "atol": 3e-2}
    for apply in (model.apply, toile.jit(model.apply)):
        np.testing.assert_allclose(np.asarray(apply(quantized, x), np.float32), wanted, **tolerance)


def test_a_wrong_shape_is_reported():
    params = quantize(nn.Dense(7).init(KEY, X))
    with pytest.raises(toile.errors.ScopeParamShapeError):
        nn.Dense(6).apply(params, X)
    with pytest.raises(toile.errors.ScopeParamShapeError):
        nn.DenseGeneral(6).apply(params, X)


def test_groups_follow_the_input_axes():
    model = nn.MultiHeadDotProductAttention(num_heads=2)
    params = quantize(model.init(KEY, X), bits=4, group=4)["params"]
    assert [params[name]["kernel"].axis for name in ("query", "out")] == [-3, -2]
