"""Folders of Hugging Face models: the examples compute what transformers computes.

The folders in tests/golden/pretrained were made with transformers (`tests.golden.huggingface`).
With TOILE_TEST_ALL=1, where transformers is installed, it makes new ones from another seed and
loads what toile saved.
"""

import functools
import json
import os

import numpy as np
import pytest

import toile
import toile.linen as nn
import toile.numpy as jnp
from examples.language_model import generate, layers, models
from tests.golden import huggingface as golden
from toile.errors import UnreadableFileError
from toile.interop import huggingface, safetensors, torch_weights
from toile.optim import paths

pytestmark = pytest.mark.filterwarnings("ignore:jit. .* is traced")  # for each model
TOLERANCE = {"rtol": 2e-4, "atol": 2e-5}


@functools.cache
def loaded(folder):
    return models.load(folder)


@functools.cache
def answers(folder):
    with np.load(folder / "answers.npz") as file:
        return dict(file)


def computed(model, variables, loss, *inputs):
    """Return the loss, the logits and the gradients."""

    def run(variables):
        logits = model.apply(variables, *inputs)
        logits = getattr(logits, "logits", logits)
        return loss(logits), logits

    (value, logits), gradients = toile.value_and_grad(run, has_aux=True)(variables)
    return value, logits, gradients


def full_names(tensors, table):
    """Put the prefix of a table in front of names, if none has it; leave out what it ignores."""
    known = any(name.startswith(table.prefix) for name in tensors)
    left_out = {n for n in tensors if any(paths.matches(glob, n) for glob in table.ignore)}
    return {n if known else table.prefix + n: x for n, x in tensors.items() if n not in left_out}


def check_gradients(folder, gradients, table, tmp_path):
    """The gradients, under the names of torch, are those of torch."""
    huggingface.save(tmp_path, gradients, {}, table)
    got = huggingface.load_tensors(tmp_path)
    want = {name[5:]: x for name, x in answers(folder).items() if name.startswith("grad/")}
    want = full_names(want, table)
    assert set(got) >= set(want)
    for name, x in want.items():
        np.testing.assert_allclose(got[name], x, err_msg=name, rtol=1e-3, atol=1e-5)


def check_causal(folder, tmp_path):
    model, variables, config = loaded(folder)
    want = answers(folder)
    for side in ("left", "right"):
        tokens, mask = want[f"{side}/tokens"], want[f"{side}/mask"].astype(bool)
        loss = functools.partial(layers.next_token_loss, labels=want[f"{side}/labels"])
        value, logits, gradients = computed(model, variables, loss, tokens, mask)
        got, expected = np.asarray(logits)[mask], want[f"{side}/logits"][mask]
        np.testing.assert_allclose(got, expected, err_msg=side, **TOLERANCE)
        np.testing.assert_allclose(value, want[f"{side}/loss"], rtol=1e-5)
        if side == "left":
            table = models.architecture(config).table(config)
            check_gradients(folder, gradients, table, tmp_path)
    prompts = want["left/tokens"], want["left/mask"]
    complete = functools.partial(generate.complete, model, variables, *map(jnp.asarray, prompts))
    assert complete(steps=golden.STEPS).tolist() == want["greedy"].tolist()
    ended = np.asarray(complete(steps=golden.STEPS, ends=(int(want["end"]),)))
    assert ended[:, : want["ended"].shape[1]].tolist() == want["ended"].tolist()


def check_masked(folder, tmp_path):
    model, variables, config = loaded(folder)
    want = answers(folder)
    for side in ("left", "right"):
        tokens, mask, types = (want[f"{side}/{name}"] for name in ("tokens", "mask", "types"))
        loss = functools.partial(layers.token_loss, labels=want[f"{side}/labels"])
        value, logits, gradients = computed(model, variables, loss, tokens, mask, types)
        got, expected = np.asarray(logits)[mask > 0], want[f"{side}/logits"][mask > 0]
        np.testing.assert_allclose(got, expected, err_msg=side, **TOLERANCE)
        np.testing.assert_allclose(value, want[f"{side}/loss"], rtol=1e-5)
        if f"{side}/relation" in want:
            relation = model.apply(variables, tokens, mask, types).relation
            np.testing.assert_allclose(relation, want[f"{side}/relation"], **TOLERANCE)
    check_gradients(folder, gradients, models.architecture(config).table(config), tmp_path)


def check_pooled(folder, tmp_path):
    model, variables, config = loaded(folder)
    want = answers(folder)

    def loss(variables):
        out = model.apply(variables, want["tokens"], want["mask"], want["types"])
        return jnp.mean(out.features[:, 1] ** 2) + jnp.mean(out.pooled**2), out

    (_, out), gradients = toile.value_and_grad(loss, has_aux=True)(variables)
    real = want["mask"] > 0
    np.testing.assert_allclose(np.asarray(out.features)[real], want["features"][real], **TOLERANCE)
    np.testing.assert_allclose(out.pooled, want["pooled"], **TOLERANCE)
    check_gradients(folder, gradients, models.architecture(config).table(config), tmp_path)


def check_seq2seq(folder, tmp_path):
    model, variables, config = loaded(folder)
    want = answers(folder)
    for side in ("right", "left"):
        tokens, mask, before = (want[f"{side}/{name}"] for name in ("tokens", "mask", "before"))
        loss = functools.partial(layers.token_loss, labels=want[f"{side}/labels"])
        value, logits, gradients = computed(model, variables, loss, tokens, before, mask)
        np.testing.assert_allclose(logits, want[f"{side}/logits"], err_msg=side, **TOLERANCE)
        np.testing.assert_allclose(value, want[f"{side}/loss"], rtol=1e-5)
    check_gradients(folder, gradients, models.architecture(config).table(config), tmp_path)
    prompts = want["left/tokens"], want["left/mask"]
    answer = functools.partial(generate.answer, model, variables, *map(jnp.asarray, prompts))
    assert answer(steps=golden.STEPS).tolist() == want["greedy"].tolist()
    ended = np.asarray(answer(steps=golden.STEPS, ends=(int(want["end"]),)))
    assert ended[:, : want["ended"].shape[1]].tolist() == want["ended"].tolist()


CHECKS = {
    "causal": check_causal, "masked": check_masked, "pooled": check_pooled, "seq2seq": check_seq2seq
}  # fmt: skip


@pytest.mark.parametrize("name", golden.CASES)
def test_models_compute_what_transformers_computed(name, tmp_path):
    CHECKS[golden.CASES[name].kind](golden.FOLDER / name, tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", golden.CASES)
def test_models_compute_what_transformers_computes(name, tmp_path):
    transformers = pytest.importorskip("transformers")
    golden.make(name, tmp_path / "made", seed=7)
    CHECKS[golden.CASES[name].kind](tmp_path / "made", tmp_path / "gradients")
    _, variables, config = loaded(tmp_path / "made")
    table = models.architecture(config).table(config)
    huggingface.save(tmp_path / "saved", variables, config, table, max_shard_size=9000)
    kind = getattr(transformers, golden.CASES[name].model)
    ours, theirs = (kind.from_pretrained(tmp_path / folder) for folder in ("saved", "made"))
    for (key, x), (_, y) in zip(
        ours.state_dict().items(), theirs.state_dict().items(), strict=True
    ):
        assert x.dtype == y.dtype and x.numpy().tobytes() == y.numpy().tobytes(), key


def assert_same_tensors(got, want):
    assert set(got) == set(want)
    for name, x in want.items():
        assert got[name].dtype == x.dtype and got[name].shape == x.shape, name
        assert got[name].tobytes() == x.tobytes(), name


@pytest.mark.parametrize("most", [5_000_000_000, 10_000])
@pytest.mark.parametrize("name", golden.CASES)
def test_weights_there_and_back(name, most, tmp_path):
    folder = golden.FOLDER / name
    _, variables, config = loaded(folder)
    table = models.architecture(config).table(config)
    huggingface.save(tmp_path, variables, config, table, max_shard_size=most)
    stored = full_names(huggingface.load_tensors(folder), table)
    kept = {n: x for n, x in stored.items() if n not in table.tied}
    assert_same_tensors(huggingface.load_tensors(tmp_path), kept)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1 or most > 10_000
    assert huggingface.load_config(tmp_path) == huggingface.load_config(folder)
    toile.tree.map(np.testing.assert_array_equal, models.load(tmp_path)[1], variables)


def old_bert(tensors):
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    for new, name in old.items():
        tensors = {n.replace(new, name): x for n, x in tensors.items()}
    return tensors | {
        "bert.embeddings.position_ids": np.arange(32)[None],
        "bert.pooler.dense.weight": np.ones((16, 16), np.float32),
        "cls.seq_relationship.weight": np.ones((2, 16), np.float32),
        "cls.predictions.decoder.weight": tensors["bert.embeddings.word_embeddings.weight"],
    }


def old_gpt2(tensors):
    tensors = {n.removeprefix("transformer."): x for n, x in tensors.items() if "lm_head" not in n}
    return tensors | {"h.1.attn.bias": np.tri(32)[None, None], "h.0.attn.masked_bias": np.ones(())}


def old_t5(tensors):
    cross = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    shared = tensors["shared.weight"]
    copies = {f"{name}.weight": shared for name in ("encoder.embed_tokens", "decoder.embed_tokens")}
    return tensors | copies | {"lm_head.weight": shared, cross: np.ones((8, 3), np.float32)}


def old_llama(tensors):
    frequencies = {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": np.ones(3) for i in range(2)}
    return tensors | frequencies


@pytest.mark.parametrize("name, changed", [
    ("bert", old_bert), ("gpt2", old_gpt2), ("t5", old_t5), ("llama", old_llama),
])  # fmt: skip
def test_files_of_older_versions(name, changed, tmp_path):
    tensors = huggingface.load_tensors(golden.FOLDER / name)
    config = (golden.FOLDER / name / "config.json").read_text()
    (tmp_path / "config.json").write_text(config)
    safetensors.save_file(changed(tensors), tmp_path / "model.safetensors")
    got, want = models.load(tmp_path)[1], loaded(golden.FOLDER / name)[1]
    toile.tree.map(np.testing.assert_array_equal, got, want)


class Tiny(nn.Module):
    """Two layers, an embedding and a norm."""

    @nn.compact
    def __call__(self, tokens):
        embed = nn.Embed(5, 4, name="embedding")
        x = embed(tokens)
        for i in range(2):
            x = nn.Dense(4, name=f"layer_{i}")(x)
        return embed.attend(nn.LayerNorm(name="norm")(x))


NAMES = {"body.word": "embedding", "body.h.{i}": "layer_{i}", "body.ln": "norm"}
TABLE = huggingface.Table(
    NAMES, "body.", {"head.weight": "body.word.weight"}, ("*.mask",), {".gamma": ".weight"}
)


@functools.cache
def tiny():
    return Tiny().init(toile.random.key(0), jnp.zeros((1, 2), jnp.int32))


@pytest.fixture
def folder(tmp_path):
    """A folder of the tiny model."""
    huggingface.save(tmp_path, tiny(), {"model_type": "tiny"}, TABLE)
    return tmp_path


def rewrite(folder, change):
    """Change the tensors of a folder."""
    tensors = safetensors.load_file(folder / "model.safetensors")
    safetensors.save_file(change(tensors), folder / "model.safetensors")


def without_prefix(tensors):
    return {name.removeprefix("body."): x for name, x in tensors.items()}


@pytest.mark.parametrize("change", [
    without_prefix,
    lambda t: t | {"head.weight": t["body.word.weight"]},
    lambda t: {n.replace("word", "gone"): x for n, x in t.items() if "word" not in n}
    | {"head.weight": t["body.word.weight"]},
    lambda t: t | {"body.h.0.mask": np.ones(3)},
    lambda t: {n.replace("ln.weight", "ln.gamma"): x for n, x in t.items()},
    lambda t: {n: x.astype(np.float64) for n, x in t.items()},
], ids=["no prefix", "tied", "only the tied name", "ignored", "old ending", "float64"])  # fmt: skip
def test_variants_of_a_file(folder, change):
    rewrite(folder, change)
    toile.tree.map(np.testing.assert_array_equal, huggingface.load(folder, tiny(), TABLE), tiny())


@pytest.mark.parametrize("change, told", [
    (lambda t: {n: x for n, x in t.items() if n != "body.h.1.bias"},
     ["params/layer_1/bias: no tensor body.h.1.bias (4,)"]),
    (lambda t: t | {"body.h.2.weight": np.ones((4, 4)), "extra": np.ones(2)},
     ["body.h.2.weight (4, 4)", "extra (2,)"]),
    (lambda t: t | {"body.h.0.weight": np.ones((3, 4))},
     ["body.h.0.weight: needed (4, 4) for params/layer_0/kernel, got (3, 4)"]),
    (lambda t: t | {"head.weight": t["body.word.weight"] + 1},
     ["head.weight: needed the values of body.word.weight"]),
    (lambda t: t | {"body.ln.weight": np.ones(4, int)}, ["needed float32 for params/norm/scale"]),
    (lambda t: t | {"extra": np.ones(2), "body.ln.bias": np.ones(9)},
     ["extra (2,)", "body.ln.bias: needed (4,) for params/norm/bias, got (9,)"]),
])  # fmt: skip
def test_one_error_names_everything_that_does_not_fit(folder, change, told):
    rewrite(folder, change)
    with pytest.raises(ValueError, match="needed a tensor in") as error:
        huggingface.load(folder, tiny(), TABLE)
    assert str(error.value).startswith("huggingface.load: ")
    assert [text for text in told if text not in str(error.value)] == []


def test_tensors_that_are_left_out_and_variables_that_are_kept(folder):
    rewrite(folder, lambda t: {n: x for n, x in t.items() if "ln" not in n} | {"x": np.ones(1)})
    fresh = Tiny().init(toile.random.key(1), jnp.zeros((1, 2), jnp.int32))
    got = huggingface.load(folder, fresh, TABLE, dtype="bfloat16", keep="norm/**", ignore="x")
    assert {x.dtype.name for x in toile.tree.leaves(got)} == {"bfloat16"}
    assert got["params"]["norm"]["scale"].tolist() == fresh["params"]["norm"]["scale"].tolist()
    want = tiny()["params"]["layer_1"]["kernel"].astype("bfloat16")
    assert got["params"]["layer_1"]["kernel"].tolist() == want.tolist()


def test_a_table_with_a_layer_that_the_module_lacks(folder):
    table = huggingface.Table({**NAMES, "body.more.{i}": "more_{i}/x"})
    with pytest.raises(ValueError, match=r"'body.more.\{i\}': no layer at 'more_\{i\}/x'"):
        huggingface.load(folder, tiny(), table)
    with pytest.raises(ValueError, match=r"params/norm/scale \(4,\)"):
        less = {name: path for name, path in NAMES.items() if path != "norm"}
        huggingface.save(folder, tiny(), {}, huggingface.Table(less))


def test_leaves_are_placed_and_sharded(folder):
    device = toile.devices()[0]
    got = huggingface.load(folder, tiny(), TABLE, device=device)
    assert {x.device for x in toile.tree.leaves(got)} == {device}
    mesh = toile.sharding.Mesh(np.array([device]), ("model",))
    spec = toile.sharding.NamedSharding(mesh, toile.sharding.PartitionSpec("model"))
    tree = toile.tree.map(lambda x: spec if x.ndim == 2 else device, tiny())
    got = huggingface.load(folder, tiny(), TABLE, device=tree)
    assert got["params"]["layer_0"]["kernel"].sharding == spec
    toile.tree.map(np.testing.assert_array_equal, got, tiny())


def test_saving_again_removes_the_weights_that_were_there(folder):
    config = {"model_type": "tiny", "torch_dtype": "float32"}
    half = toile.tree.map(lambda x: x.astype("bfloat16"), tiny())
    huggingface.save(folder, half, config, TABLE, max_shard_size=50, generation_config={"a": 1})
    assert not (folder / "model.safetensors").exists()
    assert huggingface.load_config(folder) == {"model_type": "tiny", "torch_dtype": "bfloat16"}
    assert huggingface.load_generation_config(folder) == {"a": 1}
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"]) == set(huggingface.load_tensors(folder))
    assert index["metadata"]["total_size"] == sum(x.nbytes for x in toile.tree.leaves(half))
    huggingface.save(folder, tiny(), config, TABLE)
    assert [p.name for p in folder.glob("model*")] == ["model.safetensors"]
    assert [name for name in os.listdir(folder) if "tmp" in name] == []


def test_arrays_are_views_of_the_file(folder):
    tensors = huggingface.load_tensors(folder)
    assert_same_tensors(tensors, safetensors.load_file(folder / "model.safetensors"))
    for x in tensors.values():
        assert not x.flags.writeable and not x.flags.owndata


@pytest.mark.parametrize("content, error, told", [
    ({"config.json": "[1]"}, UnreadableFileError, "needed a JSON object"),
    ({"config.json": '{"a": '}, UnreadableFileError, "needed a file of JSON"),
    ({"config.json": "[" * 100_000}, UnreadableFileError, "needed a file of JSON"),
    ({}, FileNotFoundError, "needed the file .*config.json"),
])  # fmt: skip
def test_wrong_configurations(tmp_path, content, error, told):
    for name, text in content.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(error, match=told):
        huggingface.load_config(tmp_path)


@pytest.mark.parametrize("index, error, told", [
    ({"weight_map": {"a": "../x.safetensors"}}, UnreadableFileError, "names of files"),
    ({"weight_map": {"a": "/etc/x"}}, UnreadableFileError, "names of files"),
    ({"weight_map": {"a": 3}}, UnreadableFileError, "names of files"),
    ({"weight_map": []}, UnreadableFileError, "names of files"),
    ({}, UnreadableFileError, "names of files"),
    ({"weight_map": {"a": "x.safetensors"}}, FileNotFoundError, "got no .*x.safetensors"),
    ({"weight_map": {"b": "y.safetensors"}}, UnreadableFileError, "a file without 'b'"),
    (None, FileNotFoundError, "got y.safetensors"),
])  # fmt: skip
def test_wrong_indices(tmp_path, index, error, told):
    safetensors.save_file({"a": np.ones(2)}, tmp_path / "y.safetensors")
    if index is not None:
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(error, match=told):
        huggingface.load_tensors(tmp_path)


def test_a_name_of_the_hub_is_not_a_folder():
    with pytest.raises(FileNotFoundError, match="hf download some/model --local-dir"):
        huggingface.load_config("some/model")


def test_ids_come_from_the_configuration_if_there_is_no_other_file(tmp_path):
    (tmp_path / "config.json").write_text('{"eos_token_id": [2, 3], "hidden_size": 4}')
    assert huggingface.load_generation_config(tmp_path) == {"eos_token_id": [2, 3]}


def test_tokenizers(tmp_path):
    with pytest.raises(FileNotFoundError, match="needed the file .*tokenizer.json"):
        huggingface.load_tokenizer(tmp_path)
    tokenizers = pytest.importorskip("tokenizers")
    words = {"<unk>": 0, "the": 1, "cat": 2}
    raw = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    raw.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    raw.save(str(tmp_path / "tokenizer.json"))
    tokenizer = huggingface.load_tokenizer(tmp_path)
    assert tokenizer.size == 3 and tokenizer.encode("the cat") == [1, 2]
    assert tokenizer.decode(np.array([2, 1])) == "cat the"
    tokenizer.save(tmp_path / "again.json")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UnreadableFileError, match="needed a tokenizer.json"):
        huggingface.load_tokenizer(tmp_path)


def test_an_error_names_the_package_that_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ImportError, match=r"pip install 'toile\[huggingface\]'"):
        huggingface.load_tokenizer(tmp_path)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_one_linear_that_is_several_layers(transposed, bias):
    class Split(nn.Module):
        @nn.compact
        def __call__(self, x):
            for name, shape in (("query", (2, 3)), ("key", (1, 3)), ("gate", 5)):
                nn.DenseGeneral(shape, use_bias=bias, name=name)(x)

    draw = np.random.default_rng(0)
    weight = draw.normal(size=(4, 14) if transposed else (14, 4)).astype("float32")
    state = {"all.weight": weight}
    if bias:
        state["all.bias"] = draw.normal(size=14).astype("float32")
    rule = torch_weights.Fused("", ("query", "key", "gate"), transposed)
    shapes = toile.eval_shape(Split().init, toile.random.key(0), jnp.ones((1, 4)))
    variables = torch_weights.load(shapes, state, {"all": rule})
    kernels = [variables["params"][n]["kernel"].reshape(4, -1) for n in ("query", "key", "gate")]
    want = weight if transposed else weight.T
    np.testing.assert_array_equal(np.concatenate(kernels, axis=1), want)
    back = torch_weights.export(variables, {"all": rule})
    assert_same_tensors(back, state)
