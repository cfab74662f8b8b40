"""Tests that the losses of the examples are those of the same training in Flax."""

import pytest

from . import __main__ as tool
from . import counterparts, speed

pytest.importorskip("flax")

# Fields that make the recipes small.
SMALL: dict[str, dict[str, object]] = {
    "mnist": {"train_examples": 100, "features": (2, 2), "hidden": 8, "batch_size": 20},
    "seq2seq": {"features": 8, "max_digits": 1, "smallest": 0, "held_out": 5, "batch_size": 8},
    "lm1b": {"features": 8, "qkv_features": 8, "mlp_features": 8, "layers": 2, "length": 32,
             "dropout": 0.1},
    "imagenet": {"num_filters": 2, "image_size": 32, "stored_size": 32, "batch_size": 4,
                 "train_examples": 16, "held_out": 4},
    "cifar10": {"features": 2, "blocks": (1, 1), "batch_size": 4, "train_examples": 16,
                "held_out": 4},
    "t5": {},
}  # fmt: skip
LONG = set(SMALL) - {"mnist"}  # jax compiles these slowly


def named(name):
    return pytest.param(name, marks=[pytest.mark.slow] if name in LONG else [])


@pytest.mark.parametrize("name", [named(name) for name in SMALL])
def test_losses_are_those_of_flax(name):
    example = tool.example(name, "tiny")
    for field, value in SMALL[name].items():
        setattr(example.config, field, value)
    found = tool.side_by_side(example, 3)
    assert len(found["toile"]) == len(found["flax"]) == 3
    assert found["toile"] == pytest.approx(found["flax"], abs=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lm1b", "imagenet"])
def test_half_precision_is_that_of_flax(name):
    example = tool.example(name, "tiny")
    for field, value in (*SMALL[name].items(), ("precision", "mixed_bfloat16")):
        setattr(example.config, field, value)
    found = tool.side_by_side(example, 3)
    assert found["toile"] == pytest.approx(found["flax"], rel=0.01)


def test_every_recipe_has_a_counterpart():
    assert set(tool.RECIPES) == set(counterparts.EXAMPLES) == set(SMALL) >= set(speed.NAMES)


def test_curves_are_means_of_parts():
    assert tool.smooth([1.0, 2.0]) == {1: 1.0, 2: 2.0}
    assert tool.smooth([float(i) for i in range(100)])[100] == 98.5


def test_the_table_has_rates_and_shares_of_the_peak():
    one = {"seconds": 0.5, "count": 100, "unit": "images", "bytes": 2**30, "flops": 989.4e12 / 4}
    text = speed.table({"cifar10": {"flax": one, "toile": {**one, "seconds": 0.25}}}, "NVIDIA H200")
    assert "| cifar10 | toile | 400 images | 100.0% | 1.00 GiB | 250.00 ms |" in text
    assert "| cifar10 | flax | 200 images | 50.0% |" in text
    assert "| t5 | flax | gone |" in speed.table({"t5": {"flax": {"error": "gone"}}}, "")


def test_products_are_counted_and_loops_counted_out():
    import jax
    import jax.numpy as jnp

    def apply(x, w):
        return jax.lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x, w)[0]

    jaxpr = jax.make_jaxpr(jax.jit(apply))(jnp.zeros((2, 3)), jnp.zeros((5, 3, 3))).jaxpr
    assert speed.forward_flops(jaxpr) == 5 * 2 * 2 * 3 * 3
    conv = lambda x, w: jax.lax.conv_general_dilated(x, w, (1, 1), "SAME")
    jaxpr = jax.make_jaxpr(conv)(jnp.zeros((1, 4, 8, 8)), jnp.zeros((6, 4, 3, 3))).jaxpr
    assert speed.forward_flops(jaxpr) == 2 * 64 * 6 * 4 * 9
