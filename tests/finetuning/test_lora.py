"""Low-rank adapters: properties over a table of layers."""

import functools
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import linen as nn
from toile import optim, random, serialization, training
from toile.finetuning import (
    LoRAArray,
    adapter_mask,
    adapters_of,
    lora,
    merge_adapters,
    with_adapters,
    without_adapters,
)
from toile.primitives.low_rank import LowRankSum
from toile.quantization import QuantizedArray, dequantize, quantize
from toile.training.train_state import TrainState


class Tied(nn.Module):
    """An embedding that is also the output layer."""

    @nn.compact
    def __call__(self, tokens):
        embed = nn.Embed(7, 6, name="table")
        return embed.attend(embed(tokens))


class Stacked(nn.Module):
    """Layers in a loop, whose kernels are stacked along a leading axis."""

    remat: bool = False

    @nn.compact
    def __call__(self, x):
        block = nn.remat(Block) if self.remat else Block
        layers = nn.scan(block, variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
        return layers(x.shape[-1])(x, None)[0]


class Block(nn.Module):
    """One step of the loop."""

    features: int

    @nn.compact
    def __call__(self, x, _):
        return jnp.tanh(nn.Dense(self.features)(x)), None


class Wrapped(nn.Module):
    """Layers behind transformations of modules."""

    @nn.compact
    def __call__(self, x):
        x = nn.remat(nn.Dense)(6, name="remat")(x)
        x = nn.jit(nn.Dense)(5, name="jit")(jnp.tanh(x))
        x = nn.tanh(x)
        both = nn.vmap(nn.Dense, variable_axes={"params": 0}, split_rngs={"params": True},
                       in_axes=None, out_axes=0, axis_size=2)
        return both(4, name="vmap")(x)


class Plain(nn.Module):
    """Operators of arrays instead of layers."""

    @nn.compact
    def __call__(self, x):
        w = self.param("kernel", nn.initializers.lecun_normal(), (x.shape[-1], 4))
        return x @ w + (w * 2).sum() + (3 - w)[0, 0]


@dataclass(frozen=True)
class Case:
    """A module with an input, and what to select."""

    module: nn.Module
    shape: tuple[int, ...]
    select: Any = "**/kernel"
    integers: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    merges: bool = False  # whether the weights are computed, because a layer needs them

    def inputs(self):
        if self.integers:
            return random.randint(random.key(9), self.shape, 0, 7)
        return random.normal(random.key(9), self.shape)

    @functools.cached_property
    def variables(self):
        return self.module.init(random.key(0), self.inputs())

    def adapted(self, moved=True, of=lambda x: x, **options):
        """The variables with adapters, which change the results if `moved`."""
        options = {"rank": 2, "alpha": 3.0, "key": random.key(1), **self.options, **options}
        found = lora(of(self.variables), self.select, **options)
        return moved_adapters(found) if moved else found


def moved_adapters(params):
    """Adapters whose second factor is not zero."""
    new = {path: {**x, "b": random.normal(random.fold_in(random.key(2), i), x["b"].shape) / 4}
           for i, (path, x) in enumerate(adapters_of(params).items())}
    return with_adapters(params, new)


TWO = (2, 3, 6)
CASES = {
    "dense": Case(nn.Dense(5), TWO),
    "general": Case(nn.DenseGeneral((4, 5), axis=(-2, -1)), (2, 3, 6)),
    "batch axes": Case(nn.DenseGeneral(5, batch_dims=(0,)), (3, 4, 6), options={"stacked": 1}),
    "attention": Case(nn.MultiHeadDotProductAttention(2, qkv_features=8), TWO),
    "einsum": Case(nn.Einsum((6, 2, 5), "abc,cde->abde"), TWO),
    "conv": Case(nn.Conv(5, (3,)), TWO),
    "conv with strides": Case(nn.Conv(8, (3, 2), strides=2, padding="VALID"), (2, 7, 6, 8)),
    "grouped conv": Case(nn.Conv(4, (3,), feature_group_count=2), TWO, merges=True),
    "conv transpose": Case(nn.ConvTranspose(5, (3,), strides=(2,)), TWO),
    "embed": Case(nn.Embed(7, 6), (2, 3), "**/embedding", True),
    "tied": Case(Tied(), (2, 3), "**/embedding", True),
    "recurrent": Case(nn.RNN(nn.GRUCell(4)), TWO, "**/h*/kernel"),
    "scan": Case(Stacked(), TWO, options={"stacked": 1}),
    "remat scan": Case(Stacked(remat=True), TWO, options={"stacked": 1}),
    "wrapped": Case(Wrapped(), TWO, ["**/remat/kernel", "**/jit/kernel"]),
    "vmap": Case(Wrapped(), TWO, "**/vmap/kernel", options={"stacked": 1}),
    "operators": Case(Plain(), TWO, merges=True),
    "two globs": Case(nn.Sequential([nn.Dense(4), jnp.tanh, nn.Dense(3)]), TWO,
                      ["**/layers_0/kernel", "**/layers_2/kernel"]),
}  # fmt: skip
each = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def close(found, expected, rtol=2e-5, atol=2e-5):
    found, expected = toile.tree.leaves(found), toile.tree.leaves(expected)
    assert len(found) == len(expected)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(x, float), np.asarray(y, float), rtol=rtol, atol=atol)


@each
def test_adapters_start_at_the_model(case):
    x, variables = case.inputs(), case.variables
    adapted = case.adapted(moved=False)
    found = [x for x in toile.tree.leaves(adapted, is_leaf=is_adapted) if is_adapted(x)]
    assert found and all(x.rank == 2 and x.scale == 1.5 for x in found)
    np.testing.assert_array_equal(case.module.apply(adapted, x), case.module.apply(variables, x))
    same = without_adapters(adapted)
    assert toile.tree.structure(same) == toile.tree.structure(variables)
    assert all(a is b for a, b in zip(*map(toile.tree.leaves, (same, variables)), strict=True))


def equations(program):
    """The equations of a program, and those of the programs inside it."""
    for e in program.equations:
        yield e
        for inner in e.op.programs():
            yield from equations(inner)


@each
def test_weights_are_not_merged(case):
    adapted = case.adapted()
    program = toile.make_jaxpr(case.module.apply)(adapted, case.inputs()).program
    stacked = case.options.get("stacked", 0)
    shapes = {x.shape[stacked:] for x in toile.tree.leaves(adapted, is_leaf=is_adapted)
              if is_adapted(x)}
    found = list(equations(program))
    assert not any(isinstance(e.op, LowRankSum) for e in found)
    merged = [e for e in found if e.op.kernel_family == "contraction" and any(
        e.outs[0].aval.shape[-len(shape):] == shape for shape in shapes)]
    assert bool(merged) == case.merges


def is_adapted(x):
    return isinstance(x, LoRAArray)


@each
def test_adapted_equals_merged(case):
    x, adapted = case.inputs(), case.adapted()
    merged = merge_adapters(adapted)
    assert not any(map(is_adapted, toile.tree.leaves(merged, is_leaf=is_adapted)))
    expected = case.module.apply(merged, x)
    assert np.abs(np.asarray(expected - case.module.apply(case.variables, x))).max() > 0.01
    close(case.module.apply(adapted, x), expected)
    close(toile.jit(case.module.apply)(adapted, x), expected)


@each
def test_gradients_are_those_of_the_merged_model(case):
    x, adapted = case.inputs(), case.adapted()
    adapters = {p: {k: v[k] for k in "ab"} for p, v in adapters_of(adapted).items()}

    def joined(adapters):
        return with_adapters(adapted, {p: {**v, "scale": 1.5} for p, v in adapters.items()})

    def loss(adapters, of=lambda params: params):
        return jnp.sum(jnp.sin(case.module.apply(of(joined(adapters)), x)))

    expected = toile.grad(loss)(adapters, merge_adapters)
    assert all(np.abs(np.asarray(g)).max() > 1e-4 for g in toile.tree.leaves(expected))
    close(toile.jit(toile.grad(loss))(adapters), expected, 1e-4, 1e-4)
    close(toile.grad(loss)(adapters), expected, 1e-4, 1e-4)
    whole = toile.grad(lambda params: jnp.sum(jnp.sin(case.module.apply(params, x))))(adapted)
    bases = [g.base for g in toile.tree.leaves(whole, is_leaf=is_adapted) if is_adapted(g)]
    assert bases and all((np.asarray(g) == 0).all() for g in bases)
    close({p: {k: v[k] for k in "ab"} for p, v in adapters_of(whole).items()}, expected, 1e-4, 1e-4)


@each
def test_vmap_maps_over_adapters_of_one_model(case):
    x, first = case.inputs(), case.adapted()
    two = [adapters_of(first), adapters_of(moved_adapters(case.adapted(key=random.key(5))))]
    pair = toile.tree.map(lambda *xs: jnp.stack(xs), *[
        {p: {k: v[k] for k in "ab"} for p, v in one.items()} for one in two])

    def run(adapters):
        scaled = {p: {**v, "scale": 1.5} for p, v in adapters.items()}
        return case.module.apply(with_adapters(first, scaled), x)

    found = toile.vmap(run)(pair)
    for i, one in enumerate(two):
        close(found[i], case.module.apply(with_adapters(first, one), x))


@each
def test_adapters_are_saved_alone(case):
    adapted = case.adapted()
    stored = serialization.to_bytes(adapters_of(adapted))
    again = with_adapters(case.variables, serialization.msgpack_restore(stored))
    assert toile.tree.structure(again) == toile.tree.structure(adapted)
    close(again, adapted, 0, 0)
    whole = serialization.from_bytes(case.adapted(moved=False), serialization.to_bytes(adapted))
    close(whole, adapted, 0, 0)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("name", ["dense", "attention", "conv", "tied", "two globs", "scan"])
def test_adapters_of_quantized_kernels(name, bits):
    case = CASES[name]
    axis = 1 if name == "scan" else None

    def rounded(variables):
        return quantize(variables, case.select, bits=bits, group=2, axis=axis)

    x, adapted = case.inputs(), case.adapted(of=rounded)
    arrays = [v for v in toile.tree.leaves(adapted, is_leaf=is_adapted) if is_adapted(v)]
    assert arrays and all(isinstance(v.base, QuantizedArray) for v in arrays)
    merged = merge_adapters(adapted)
    expected = case.module.apply(merged, x)
    close(toile.jit(case.module.apply)(adapted, x), expected, 1e-4, 1e-4)
    plain = lora(dequantize(rounded(case.variables)), case.select, key=random.key(1), rank=2,
                 alpha=3.0, **case.options)
    close(case.module.apply(with_adapters(plain, adapters_of(adapted)), x), expected, 1e-4, 1e-4)
    state = TrainState.create(apply_fn=case.module.apply, params=adapted, tx=optim.sgd(0.1),
                              trainable=adapter_mask)
    _, grads = training.value_and_grad(lambda p: case.module.apply(p, x).sum(), state)
    assert len(toile.tree.leaves(grads)) == 2 * len(arrays)


def operations(function, *args):
    """The number of multiplications and additions in products and convolutions."""

    def count(program):
        return sum(e.op.flops(*(a.aval for a in e.ins)) * (
            e.op.kernel_family in ("contraction", "convolution"))
            + sum(map(count, e.op.programs())) for e in program.equations)

    return count(toile.make_jaxpr(function)(*args).program)


@pytest.mark.parametrize("bits", [None, 8, 4])
def test_constant_weights_cost_nothing_in_the_backward_pass(bits):
    features, layers, rows, rank = 32, 4, 16, 2
    model = nn.Sequential([nn.Dense(features, use_bias=False) for _ in range(layers)])
    x = random.normal(random.key(0), (rows, features))
    params = model.init(random.key(1), x)["params"]

    def loss(params):
        return (model.apply({"params": params}, x) ** 2).sum()

    product = 2 * rows * features * features
    assert operations(toile.grad(loss), params) == product * (layers + layers - 1 + layers)
    if bits is not None:
        params = quantize(params, "**/kernel", bits=bits, group=8)
    adapted = lora(params, "**/kernel", rank=rank, key=random.key(2))
    state = TrainState.create(apply_fn=None, params=adapted, tx=optim.adam(0.1),
                              trainable=adapter_mask)
    found = operations(lambda state: training.value_and_grad(loss, state)[1], state)
    # Forward, and backward for the inputs of all layers but the first; no gradients of kernels.
    # A factor: forward, backward for its inputs (not for x), and its gradient.
    small = 2 * rows * features * rank
    assert found == product * (layers + layers - 1) + small * (6 * layers - 1)
    assert sorted({x.shape for x in toile.tree.leaves(state.opt_state)}) == [
        (), (rank, features), (features, rank)]
    _, grads = training.value_and_grad(loss, state)
    assert len(toile.tree.leaves(grads)) == 2 * layers


def test_globs_of_optim_see_the_parts_of_adapters():
    case = CASES["two globs"]
    params = case.adapted()["params"]
    groups = {"a": optim.sgd(1.0), "b": optim.sgd(0.5), "rest": optim.set_to_zero()}
    tx = optim.partition(groups, {"**/kernel/a": "a", "**/kernel/b": "b", "**": "rest"})
    updates, _ = tx.update(toile.tree.map(jnp.ones_like, params), tx.init(params))
    kernel = updates["layers_0"]["kernel"]
    assert (kernel.base == 0).all() and (kernel.a == -1).all() and (kernel.b == -0.5).all()
    mask = adapter_mask(params)
    assert mask["layers_2"] == {"bias": False, "kernel": replace(
        params["layers_2"]["kernel"], base=False, a=True, b=True)}


def test_shapes_of_factors_are_small():
    shapes = {(64, 4, 16): (64, 2), (4, 16, 64): (4, 16, 2), (3, 3, 8, 32): (3, 3, 8, 2),
              (5, 5, 1, 8): (5, 5, 1, 2), (6, 5): (6, 2)}
    for shape, a in shapes.items():
        found = lora({"kernel": jnp.ones(shape)}, "kernel", rank=2, key=random.key(0))["kernel"]
        assert found.a.shape == a and found.b.shape == (2, *shape[len(a) - 1 :])
        assert found.shape == shape and found.ndim == len(shape) and len(found) == shape[0]
        assert float(jnp.abs(found.a).max()) <= np.prod(a[:-1]) ** -0.5
    chosen = lora({"kernel": jnp.ones((4, 4, 4))}, "kernel", rank=2, inputs=1, dtype="bfloat16",
                  key=random.key(0))["kernel"]
    assert chosen.a.shape == (4, 2) and chosen.b.shape == (2, 4, 4) and chosen.b.dtype == "bfloat16"
    assert chosen.dtype == "float32" and chosen.nbytes == 4 * 64 + 2 * (8 + 32)


def test_half_precision():
    x = random.normal(random.key(0), (4, 8)).astype(jnp.bfloat16)
    layer = nn.Dense(8, dtype=jnp.bfloat16)
    params = moved_adapters(lora(layer.init(random.key(0), x), key=random.key(1), rank=2))
    found = layer.apply(params, x)
    assert found.dtype == jnp.bfloat16
    close(found.astype("float32"), layer.apply(merge_adapters(params), x).astype("float32"),
          0.03, 0.03)


@pytest.mark.parametrize(("params", "options", "text"), [
    ({"w": jnp.ones((2, 2))}, {"select": "v"}, "lora: needed globs that match some parameter"),
    ({"w": jnp.ones(2)}, {}, r"got w of shape \(2,\)"),
    ({"w": jnp.ones((2, 2), int)}, {}, "got w of dtype int32"),
    ({"w": jnp.ones((2, 2))}, {"rank": 0}, "needed a rank of at least 1, got 0"),
    ({"w": jnp.ones((2, 2))}, {"inputs": 2}, r"got w of shape \(2, 2\)"),
    ({"w": jnp.ones((2, 2))}, {"stacked": 1}, r"got w of shape \(2, 2\)"),
    (lora({"w": jnp.ones((2, 2))}, "w", key=random.key(0)), {}, "got w with an adapter"),
])
def test_parameters_that_cannot_have_adapters(params, options, text):
    with pytest.raises(ValueError, match=text):
        lora(params, **{"select": "w", "key": random.key(0), **options})


def test_adapters_that_do_not_fit():
    saved = adapters_of(lora({"w": jnp.ones((2, 3))}, "w", key=random.key(0), rank=1))
    with pytest.raises(ValueError, match=r"w: \(2, 1\) and \(1, 3\) for a parameter of shape"):
        with_adapters({"w": jnp.ones((3, 2))}, saved)
    with pytest.raises(ValueError, match="w: no such parameter"):
        with_adapters({"v": jnp.ones((2, 3))}, saved)
