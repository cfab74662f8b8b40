"""Policies: where casts happen, that master weights stay, and loss scales behind one interface."""

import numpy as np
import pytest

import toile
from toile import linen as nn
from toile import numpy as jnp
from toile import optim, random, training, tree
from toile.training.dynamic_scale import DynamicScale
from toile.training.mixed_precision import NoScale, Policy, StaticScale, select_finite
from toile.training.train_state import ModelState


class Spy(nn.Module):
    """Tells the dtype it computes in."""

    @nn.compact
    def __call__(self, x):
        self.sow("intermediates", "dtype", jnp.zeros((), x.dtype))
        return nn.LayerNorm()(x)


class Net(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        x = nn.Dense(8)(x)
        x = nn.BatchNorm(use_running_average=not train)(x)
        x = Spy(name="spy")(x)
        self.sow("intermediates", "after", x)
        return nn.Dense(2)(x)


X = np.random.RandomState(0).normal(size=(16, 4)).astype(np.float32)
VARIABLES = Net().init(random.key(0), X)
BF16, F16, F32 = jnp.bfloat16, np.dtype("float16"), np.dtype("float32")


def test_parse():
    mixed = Policy.parse("mixed_bfloat16")
    assert (mixed.param_dtype, mixed.compute_dtype, mixed.output_dtype) == (F32, BF16, F32)
    assert Policy.parse("params=float32, compute=bf16,output=f32") == mixed
    assert Policy.parse("half").param_dtype == F16
    assert hash(Policy.parse("f16")) == hash(Policy(F16, F16, F16))
    with pytest.raises(ValueError, match="needed params=, compute= or output="):
        Policy.parse("weights=f32")
    with pytest.raises(ValueError, match="needed a floating dtype, got int32"):
        Policy("int32")


def test_casts_touch_floats_only():
    mixed = Policy.parse("p=f32,c=bf16,o=f16")
    x = {"f": jnp.ones(2), "i": jnp.arange(2), "k": random.key(0), "n": 3}
    got = mixed.cast_to_compute(x)
    assert got["f"].dtype == BF16 and got["i"].dtype == jnp.int32 and got["n"] == 3
    assert mixed.cast_to_output(x)["f"].dtype == F16
    assert mixed.cast_to_param(got)["f"].dtype == F32


@pytest.mark.parametrize("override", [None, "spy/**", "**/LayerNorm_*/**"])
def test_wrap(override):
    policy = Policy.parse("mixed_bfloat16", {override: "float32"} if override else {})
    apply = policy.wrap(Net().apply)
    y, changed = apply(VARIABLES, X, train=True, mutable=["batch_stats", "intermediates"])
    assert y.dtype == F32
    seen = changed["intermediates"]
    assert seen["spy"]["dtype"][0].dtype == (F32 if override == "spy/**" else BF16)
    assert seen["after"][0].dtype == BF16  # back in the dtype around it
    assert {x.dtype for x in tree.leaves(changed["batch_stats"])} == {F32}
    plain, _ = Net().apply(VARIABLES, X, train=True, mutable=["batch_stats", "intermediates"])
    np.testing.assert_allclose(y, plain, atol=0.1)
    assert (y != plain).any()
    assert policy.wrap(abs) == policy.wrap(abs) and policy.wrap(abs) != Policy().wrap(abs)


def test_overrides_that_match_nothing_are_refused():
    policy = Policy.parse("mixed_bfloat16", {"nothing/**": "float32"})
    with pytest.raises(ValueError, match=r"Policy.overrides.*'nothing/\*\*'"):
        policy.cast_params(VARIABLES["params"])
    first = Policy.parse("mixed_float16", [("**/bias", "float32"), ("Dense_0/**", "bfloat16")])
    got = first.cast_params(VARIABLES["params"])
    assert got["Dense_0"]["bias"].dtype == F32 and got["Dense_0"]["kernel"].dtype == BF16
    assert got["Dense_1"]["kernel"].dtype == F16


@pytest.mark.parametrize("text", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_one_loop_for_every_policy(text):
    policy = Policy.parse(text)
    model = Net()
    state = ModelState.init(
        model, optim.sgd(0.05), random.key(0), X, train=True, apply_fn=policy.wrap(model.apply)
    )
    target = X @ np.ones((4, 2), np.float32)

    @toile.jit
    def step(state, scale):
        def squares(params):
            y, changed = state.forward(params, X, train=True)
            return jnp.mean((y - target) ** 2), changed

        scale, finite, (value, changed), grads = training.value_and_grad(
            squares, state, has_aux=True, scale=scale
        )
        new = state.apply_gradients(grads=grads, collections=changed)
        return select_finite(finite, new, state), scale, value

    scale, losses = policy.loss_scale(), []
    for _ in range(15):
        state, scale, value = step(state, scale)
        losses.append(float(value))
    assert losses[-1] < 0.7 * losses[0]
    assert {x.dtype for x in tree.leaves(state.params)} == {F32}  # the master weights
    assert isinstance(scale, DynamicScale if text == "mixed_float16" else NoScale)


def test_a_step_with_infinite_gradients_is_left_out():
    scale = StaticScale(4.0)
    new, finite, value, grad = scale.value_and_grad(lambda p: p * jnp.inf)(1.0)
    assert new is scale and not bool(finite)
    assert float(select_finite(finite, jnp.float32(2), jnp.float32(1))) == 1.0
    _, finite, (value, aux), grad = scale.value_and_grad(lambda p: (p * p, 7), has_aux=True)(3.0)
    assert (float(value), aux, float(grad), bool(finite)) == (9.0, 7, 6.0, True)
    _, finite, value, grad = NoScale().value_and_grad(lambda p: p * p)(3.0)
    assert finite is True and select_finite(finite, 1, 2) == 1
