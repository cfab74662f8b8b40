"""Weights that torch wrote: the same outputs here, the same bytes back.

The fixtures are torch's (`make_torch_fixtures`); with TOILE_TEST_ALL=1, where torch is installed,
torch makes new ones from another seed and takes back what changed here.
"""

import functools
import pathlib
import warnings

import ml_dtypes
import numpy as np
import pytest

import toile
import toile.linen as nn
import toile.numpy as jnp
from tests.interop import toile_models
from toile.interop import safetensors, torch_files, torch_weights

FIXTURES = pathlib.Path(__file__).parent / "fixtures"
CASES = {**toile_models.MODELS, **toile_models.LAYERS}


@functools.cache
def recorded(name):
    """A model's "state_dict", "inputs" and "outputs", as torch wrote them."""
    if name in toile_models.MODELS:
        return torch_files.load(FIXTURES / f"{name}.pt")
    return torch_files.load(FIXTURES / "layers.pt")[name]


@functools.cache
def template(name):
    """The shapes of a model's variables."""
    module, _ = CASES[name]
    inputs = toile_models.arguments(name, recorded(name)["inputs"])
    return toile.eval_shape(module.init, toile.random.key(0), *inputs)


@functools.cache
def loaded(name):
    """A model's variables with torch's values."""
    return torch_weights.load(template(name), recorded(name)["state_dict"], CASES[name][1])


def check_outputs(name, record, variables):
    out = CASES[name][0].apply(variables, *toile_models.arguments(name, record["inputs"]))
    out = out[1] if isinstance(out, tuple) else out
    want = np.asarray(toile_models.channels_last(name, record["outputs"]))
    np.testing.assert_allclose(np.asarray(out), want, rtol=1e-5, atol=1e-5)


def assert_same_bytes(got, want):
    assert list(got) == list(want)
    for name, x in want.items():
        x = torch_files.array_of(x)
        assert got[name].dtype == x.dtype and got[name].shape == x.shape, name
        assert got[name].tobytes() == np.ascontiguousarray(x).tobytes(), name


@pytest.mark.parametrize("name", CASES)
def test_outputs_are_those_of_torch(name):
    check_outputs(name, recorded(name), loaded(name))


@pytest.mark.parametrize("name", CASES)
def test_the_way_back_gives_the_same_bytes(name):
    state = recorded(name)["state_dict"]
    assert_same_bytes(torch_weights.export(loaded(name), CASES[name][1], like=state), state)


@pytest.mark.parametrize("name", CASES)
def test_the_way_there_and_back_gives_the_same_bytes(name):
    """From variables, without a torch model to go by."""
    state = torch_weights.export(loaded(name), CASES[name][1])
    again = torch_weights.load(template(name), state, CASES[name][1])
    toile.tree.map(lambda x, y: np.testing.assert_array_equal(x, y), again, loaded(name))
    flat = zip(toile.tree.leaves(again), toile.tree.leaves(loaded(name)), strict=True)
    assert all(np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in flat)


@pytest.mark.parametrize("name", toile_models.MODELS)
def test_both_files_hold_the_same(name):
    state = recorded(name)["state_dict"]
    other = safetensors.load_file(FIXTURES / f"{name}.safetensors")
    assert_same_bytes({n: other[n] for n in state}, state)


def test_changed_recurrent_biases_add_up():
    state = recorded("lstm")["state_dict"]
    changed = toile.tree.map(lambda x: x + 1, loaded("lstm"))
    back = torch_weights.export(changed, toile_models.LSTM_NAMES, like=state)
    assert back["lstm.bias_hh_l0"].tobytes() == state["lstm.bias_hh_l0"].tobytes()
    total = back["lstm.bias_ih_l0"] + back["lstm.bias_hh_l0"]
    cell = changed["params"]["OptimizedLSTMCell_0"]
    kept = np.concatenate([cell[f"h{gate}"]["bias"] for gate in "ifgo"])
    np.testing.assert_allclose(total, kept, rtol=1e-6, atol=1e-6)


def test_values_take_the_dtypes_of_the_variables():
    state = recorded("linear")["state_dict"]
    halves = {n: x.astype(ml_dtypes.bfloat16) for n, x in state.items()}
    names = {"": ""}
    variables = torch_weights.load(template("linear"), halves, names)
    assert variables["params"]["kernel"].dtype == jnp.float32
    assert_same_bytes(torch_weights.export(variables, names, like=halves), halves)
    with pytest.raises(ValueError, match="needed float32 for params/kernel, got int64"):
        torch_weights.load(template("linear"), {**state, "weight": np.ones((5, 4), int)}, names)


def test_the_linear_layer_behind_a_flattened_image():
    weight = np.arange(2 * 12, dtype=np.float32).reshape(2, 12)
    image = np.random.default_rng(0).normal(size=(1, 3, 2, 2)).astype(np.float32)
    shapes = {"params": {"kernel": jnp.zeros((12, 2))}}
    names = {"fc": torch_weights.Dense("", flattened=(3, 2, 2))}
    variables = torch_weights.load(shapes, {"fc.weight": weight}, names)
    here = image.transpose(0, 2, 3, 1).reshape(1, -1) @ np.asarray(variables["params"]["kernel"])
    np.testing.assert_allclose(here, image.reshape(1, -1) @ weight.T, rtol=1e-5)
    assert_same_bytes(torch_weights.export(variables, names), {"fc.weight": weight})


def test_projections_that_are_layers_of_their_own():
    state = recorded("attention")["state_dict"]
    q, k, v = np.split(state["in_proj_weight"], 3)
    biases = np.split(state["in_proj_bias"], 3)
    apart = {"q.weight": q, "k.weight": k, "v.weight": v, "o.weight": state["out_proj.weight"]}
    apart |= {f"{n}.bias": b for n, b in zip("qkv", biases, strict=True)}
    apart["o.bias"] = state["out_proj.bias"]
    names = {"q": "query", "k": "key", "v": "value", "o": "out"}
    variables = torch_weights.load(template("attention"), apart, names)
    toile.tree.map(np.testing.assert_array_equal, variables, loaded("attention"))
    assert_same_bytes(torch_weights.export(variables, names, like=apart), apart)


def test_tied_weights_leaves_and_metadata_boxes():
    class Tied(nn.Module):
        @nn.compact
        def __call__(self, words):
            init = nn.with_partitioning(nn.initializers.zeros, (None, "model"))
            table = nn.Embed(5, 3, embedding_init=init, name="table")
            return table.attend(table(words) + self.param("shift", nn.initializers.zeros, (3, 1)).T)

    variables = Tied().init(toile.random.key(0), jnp.zeros((2,), int))
    table = np.arange(15, dtype=np.float32).reshape(5, 3)
    state = {"emb.weight": table, "head.weight": table, "shift": np.ones((1, 3), np.float32)}
    leaf = torch_weights.Leaf("shift", axes=(1, 0))
    names = {"emb": "table", "head": "table", "shift": leaf}
    new = torch_weights.load(variables, state, names)
    assert isinstance(new["params"]["table"]["embedding"], nn.Partitioned)
    assert_same_bytes(torch_weights.export(new, names, like=state), state)
    with pytest.raises(ValueError, match="head.weight: needed the value that another tensor"):
        torch_weights.load(variables, {**state, "head.weight": table + 1}, names)


def test_parts_may_be_left_out_and_kept():
    state = {f"fc.{name}": x for name, x in recorded("linear")["state_dict"].items()}
    state |= {"head.weight": np.ones((2, 5)), "x.mask": np.ones(3)}
    fc = template("linear")["params"]
    variables = {"params": {"fc": fc, "new": {"kernel": jnp.ones((5, 7))}}}
    options = {"ignore": ["head.*", "*mask"], "keep": "new/**"}
    new = torch_weights.load(variables, state, {"fc": "fc"}, **options)
    assert new["params"]["new"]["kernel"].shape == (5, 7)
    back = torch_weights.export(new, {"fc": "fc"}, like=state, **options)
    assert_same_bytes(back, state)


def test_the_error_lists_everything_on_both_sides():
    state = {
        "a.weight": np.ones((3, 2, 5)),
        "a.bias": np.ones(3),
        "b.weight": np.ones((4, 4)),
        "c.bias": np.ones(4),
        "norm.weight": np.ones(2),
    }
    variables = {
        "params": {
            "up": {"kernel": jnp.ones((5, 3, 2)), "bias": jnp.ones(2)},
            "fc": {"kernel": jnp.ones((4, 6))},
            "head": {"kernel": jnp.ones((1, 1))},
        }
    }
    with pytest.raises(ValueError) as caught:
        torch_weights.load(variables, state, {"a": "up", "b": "fc", "c": "haed"}, keep="tail/**")
    told = str(caught.value)
    for line in [
        "wrong names (2):",
        "'c': no layer at 'haed' (did you mean 'head'?)",
        "keep='tail/**' matches nothing",
        "torch tensors without a place (2):",
        "c.bias (4,)",
        "norm.weight (2,)",
        "variables without a tensor (1):",
        "params/head/kernel (1, 1)",
        "a.weight: needed (2, 3, 5) for params/up/kernel, got (3, 2, 5) (a transposed convolution?",
        "a.bias: needed (2,) for params/up/bias, got (3,)",
        "b.weight: needed (6, 4) for params/fc/kernel, got (4, 4)",
    ]:
        assert line in told, told


def test_a_missing_bias_is_told_by_its_torch_name():
    state = {"weight": recorded("linear")["state_dict"]["weight"]}
    with pytest.raises(ValueError, match=r"params/bias: no tensor bias \(5,\)"):
        torch_weights.load(template("linear"), state, {"": ""})
    with pytest.raises(ValueError, match=r"torch_weights.load: needed the variables of a module"):
        torch_weights.load(template("linear")["params"], state)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_live_against_torch(name):
    torch = pytest.importorskip("torch")
    from tests.interop import torch_models

    torch.manual_seed(7)
    if name in torch_models.MODELS:
        module, inputs = torch_models.MODELS[name]()
    else:
        module, shapes = torch_models.LAYERS[name]()
        inputs = torch_models.inputs_of(shapes)
    record = torch_models.recorded(module, inputs)
    names = CASES[name][1]
    variables = torch_weights.load(template(name), record["state_dict"], names)
    plain = {**record, "inputs": [x.numpy() for x in inputs], "outputs": record["outputs"].numpy()}
    check_outputs(name, plain, variables)

    changed = toile.tree.map(lambda x: 1.25 * x, variables)
    back = torch_weights.export(changed, names, like=record["state_dict"])
    module.load_state_dict({n: torch.from_numpy(x) for n, x in back.items()})
    check_outputs(name, {**plain, "outputs": torch_models.answer(module, inputs).numpy()}, changed)


@pytest.mark.slow
def test_live_against_a_resnet_18_of_full_width():
    torch = pytest.importorskip("torch")
    from tests.interop import torch_models

    torch.manual_seed(3)
    record = torch_models.recorded(torch_models.ResNet18(64, 1000), [torch.randn(1, 3, 64, 64)])
    state, model = record["state_dict"], toile_models.ResNet18(64, 1000)
    assert sum(x.numel() for n, x in state.items() if "running" not in n) == 11_689_512 + 20
    x = toile_models.channels_last("resnet", record["inputs"][0].numpy())
    shapes = toile.eval_shape(model.init, toile.random.key(0), x)
    names = toile_models.resnet_names()
    variables = torch_weights.load(shapes, state, names)
    out = np.asarray(model.apply(variables, x))
    np.testing.assert_allclose(out, record["outputs"].numpy(), rtol=1e-5, atol=1e-5)
    assert_same_bytes(torch_weights.export(variables, names, like=state), state)


class Flattening(nn.Module):
    """A convolution, then a dense layer on the flattened image or on the means of the channels."""

    pooled: bool

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(3, (2, 2), padding="VALID", name="conv")(x)
        x = x.mean((1, 2)) if self.pooled else x.reshape(x.shape[0], -1)
        return nn.Dense(2, name="out")(nn.relu(nn.Dense(6, name="fc")(x)))


def flattening(pooled):
    shapes = toile.eval_shape(Flattening(pooled).init, toile.random.key(0), jnp.ones((1, 3, 3, 1)))
    inputs = 3 if pooled else 12
    state = {"conv.weight": np.ones((3, 1, 2, 2)), "conv.bias": np.ones(3),
             "fc.weight": np.ones((6, inputs)), "fc.bias": np.ones(6),
             "out.weight": np.ones((2, 6)), "out.bias": np.ones(2)}
    return shapes, state


def test_a_flattened_image_without_its_shape_is_told():
    """Otherwise the weights would load silently in another order."""
    names = {"conv": "conv", "out": "out"}
    for fc in (None, "fc"):
        shapes, state = flattening(pooled=False)
        with pytest.warns(UserWarning, match=r"'fc' follows .* 3 channels and has 12 = 3 \* 4"):
            torch_weights.load(shapes, state, names | {"fc": fc} if fc else None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for image in ((3, 2, 2), (12,)):
            fc = torch_weights.Dense("fc", flattened=image)
            torch_weights.load(shapes, state, names | {"fc": fc})
        torch_weights.load(*flattening(pooled=True))
