"""Tests of the language model: packed rows, the cache, sampling, runs, and a copied folder."""

import os
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import random
from toile.training import checkpoints, curves, text

from . import input_pipeline, models, report, sample, train
from .configs import default, lamb, tiny

ROOT = Path(__file__).parents[__name__.count(".")]  # the folder from which the package is imported
WORDS = "the statement assigns a value to an object and returns the type of an expression".split()


class StopAfter:
    """StopRequests that requests a stop after a number of steps."""

    def __init__(self, steps: int):
        self.left = steps

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        pass

    def __bool__(self):
        self.left -= 1
        return self.left <= 0


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Two text files of generated sentences."""
    folder, rng = tmp_path_factory.mktemp("text"), np.random.default_rng(0)
    found = []
    for name, count in (("train.txt", 150), ("test.txt", 20)):
        sentences = [" ".join(rng.choice(WORDS, rng.integers(3, 9))) for _ in range(count)]
        (folder / name).write_text("\n\n".join(sentences))
        found.append(str(folder / name))
    return found


def small_config(files):
    """A config with a small network, a small text and 24 steps."""
    config = tiny.get_config()
    config.dataset, (config.train_file, config.test_file) = "file", files
    config.length, config.features, config.qkv_features, config.mlp_features = 32, 16, 16, 32
    config.heads, config.layers, config.batch_size, config.eval_batch_size = 2, 2, 8, 8
    config.num_steps, config.learning_rate, config.warmup_steps, config.dropout = 24, 0.02, 4, 0.1
    config.eval_every_steps, config.log_every_steps, config.checkpoint_every_steps = 24, 4, 10
    config.prompts, config.sample_length = ("the ", ""), 12
    return config


def small_model(**options):
    return models.TransformerLM(20, 16, 2, 2, 16, 32, longest=16, **options)


def test_rows_are_packed_and_shifted_within_documents():
    rows = text.pack([[5, 6], [7], [8, 9, 10]], 6)
    batch = input_pipeline.shifted(rows)
    assert batch["targets"].tolist() == [[5, 6, 1, 7, 1, 0], [8, 9, 10, 1, 0, 0]]
    assert batch["inputs"].tolist() == [[0, 5, 6, 0, 7, 0], [0, 8, 9, 10, 0, 0]]
    assert batch["positions"].tolist() == [[0, 1, 2, 0, 1, 0], [0, 1, 2, 3, 0, 1]]
    assert batch["segments"].tolist() == [[1, 1, 1, 2, 2, 0], [1, 1, 1, 1, 0, 0]]


def test_a_packed_document_does_not_see_its_neighbours():
    model, documents = small_model(), [[5, 6, 7], [8, 9]]
    apart = input_pipeline.shifted(text.pack(documents, 8, together=False))
    packed = input_pipeline.shifted(text.pack(documents, 8))
    assert len(apart["inputs"]) == 2 and len(packed["inputs"]) == 1
    variables = model.init(random.key(0), apart["inputs"], apart["positions"])
    alone, together = (
        model.apply(variables, b["inputs"], b["positions"], b["segments"]) for b in (apart, packed)
    )
    np.testing.assert_allclose(together[0, :4], alone[0, :4], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(together[0, 4:7], alone[1, :3], rtol=1e-4, atol=1e-5)


def test_a_loop_over_layers_and_remat_change_nothing():
    inputs = np.arange(12).reshape(2, 6) % 20
    places = np.arange(6)[None]
    plain, looped = small_model(), small_model(scan_layers=True, remat=True)
    params = plain.init(random.key(0), inputs, places)["params"]
    layers = [params[f"layer_{i}"] for i in range(2)]
    stacked = {k: v for k, v in params.items() if not k.startswith("layer_")}
    stacked["layers"] = toile.tree.map(lambda *xs: jnp.stack(xs), *layers)
    shapes = toile.eval_shape(lambda: looped.init(random.key(0), inputs, places))["params"]
    assert toile.tree.map(jnp.shape, shapes) == toile.tree.map(jnp.shape, stacked)

    def loss(model, params):
        return model.apply({"params": params}, inputs, places).var()

    value, grads = toile.value_and_grad(lambda p: loss(plain, p))(params)
    other, more = toile.value_and_grad(lambda p: loss(looped, p))(stacked)
    np.testing.assert_allclose(other, value, rtol=1e-5)
    kernel = lambda tree: tree["Dense_0"]["kernel"]
    np.testing.assert_allclose(
        kernel(more["layers"])[1], kernel(grads["layer_1"]), rtol=1e-3, atol=1e-6
    )


@pytest.mark.parametrize("scan_layers", [False, True])
def test_the_cache_gives_what_whole_rows_give(scan_layers):
    model = small_model(scan_layers=scan_layers)
    places = np.arange(10)[None].repeat(2, 0)
    params = model.init(random.key(1), np.zeros((2, 10), int), places)["params"]
    prompts = np.array([[5, 6, 7], [9, 0, 0]])
    tokens = sample.continued(model, params, prompts, random.key(2), length=10, temperature=0)
    tokens = np.asarray(tokens)
    assert tokens[0, :3].tolist() == [5, 6, 7] and tokens[1, 0] == 9
    inputs = np.pad(tokens, ((0, 0), (1, 0)))[:, :-1]
    logits = np.asarray(model.apply({"params": params}, inputs, places))[..., 1:]
    for row, given in enumerate((3, 1)):
        ends = np.flatnonzero(tokens[row] == text.END)
        last = ends[0] + 1 if len(ends) else 10
        guesses = logits[row].argmax(-1) + 1
        assert guesses[given:last].tolist() == tokens[row, given:last].tolist()
        assert not tokens[row, last:].any()


def test_tokens_are_drawn_by_temperature_and_from_the_likeliest():
    logits = jnp.log(jnp.array([0.9, 0.0001, 0.03, 0.05, 0.02]))  # 0 is padding and is never drawn
    draws = lambda **kind: {
        int(sample.choose(random.key(i), logits, **kind)) for i in range(60)
    }
    assert draws(temperature=0, top_k=0) == {3}
    assert draws(temperature=1.0, top_k=2) == {2, 3}
    assert draws(temperature=100.0, top_k=0) == {1, 2, 3, 4}
    assert draws(temperature=0.01, top_k=4) == {3}


def test_the_recipes_have_the_same_fields_and_flax_s_size():
    assert set(default.get_config()) == set(tiny.get_config()) == set(lamb.get_config())
    config = default.get_config()
    config.scan_layers = False
    model, row = train.create_model(config, 30_000), np.zeros((1, 128), int)
    shapes = toile.eval_shape(lambda: model.init(random.key(0), row, row))
    layer = 4 * 512 + 4 * 512 * 512 + 2 * 512 * 2048 + 2048 + 512
    total = sum(int(np.prod(x.shape)) for x in toile.tree.leaves(shapes))
    assert total == 6 * layer + 2 * 512 + 2 * 30_000 * 512 + 30_000


def test_baselines_count_what_follows():
    assert abs(report.order(["abababab" * 50], ["ab" * 40], 1) - 0.2) < 0.2
    assert report.order(["aaab" * 50], ["ab" * 40], 0) > 1
    assert report.compressed(["abcdefgh" * 50], ["abcdefgh" * 50]) < 0.5


def test_a_short_run_learns_and_reports(files, tmp_path, capsys):
    config = small_config(files)
    state, finished = train.train_and_evaluate(config, tmp_path)
    assert finished and int(state.step) == 24
    losses = list(curves.history(tmp_path, "train_loss").values())
    assert len(losses) == 6 and losses[-1] < 0.8 * losses[0]
    bits = report.show(config, tmp_path, state)
    assert 1 < bits < 7 and bits == pytest.approx(
        curves.history(tmp_path, "eval_bits_per_byte")[24], rel=1e-4
    )
    out = capsys.readouterr().out
    for part in ("Summary", "samples", "  | the ", "bits per byte of", "checkpoint_24"):
        assert part in out
    page = (tmp_path / "report.html").read_text()
    assert "<svg" in page and "Configuration" in page and "Summary" in page


def test_stopped_and_resumed_it_ends_with_the_same_bits(files, tmp_path, monkeypatch):
    config = small_config(files)
    config.num_steps = 14
    whole, _ = train.train_and_evaluate(config, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(train, "StopRequests", lambda: StopAfter(12))
        _, finished = train.train_and_evaluate(config, tmp_path / "parts")
    assert not finished and checkpoints.available_steps(tmp_path / "parts") == [10, 12]
    resumed, finished = train.train_and_evaluate(config, tmp_path / "parts")
    assert finished
    for x, y in zip(toile.tree.leaves(whole.params), toile.tree.leaves(resumed.params)):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def test_half_precision_lamb_and_remat_learn_with_weights_in_float32(files, tmp_path):
    config = small_config(files)
    large = lamb.get_config()
    config.optimizer, config.remat, config.schedule = large.optimizer, large.remat, "rsqrt"
    config.precision, config.num_steps, config.log_every_steps = "mixed_bfloat16", 8, 4
    state, _ = train.train_and_evaluate(config, tmp_path)
    assert {x.dtype.name for x in toile.tree.leaves(state.params)} == {"float32"}
    losses = curves.history(tmp_path, "train_loss")
    assert losses[8] < losses[4]


def test_topics_are_whole_and_split_by_document():
    train_texts, held_out = input_pipeline.documents(tiny.get_config())
    assert len(train_texts) == 62 and len(held_out) == 8
    assert not set(train_texts) & set(held_out)
    assert 'The "assert" statement' in train_texts[0]


def test_lm1b_is_read_and_what_is_missing_is_told(files, tmp_path, monkeypatch):
    sentences = [{"text": b"a first sentence"}, {"text": "ein zweiter é".encode()}] * 8

    def data_source(name, split, download):
        assert (name, split, download) == ("lm1b", ["train", "test"], False)
        return [sentences, sentences[:3]]

    fake = types.SimpleNamespace(data_source=data_source)
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", fake)
    config = default.get_config()
    config.tokenizer, config.train_documents, config.length = "bytes", 10, 40
    config.batch_size, config.eval_batch_size = 2, 2
    _, loader, held_out, size = input_pipeline.loaders(config, random.key(0))
    assert size == 2 * 16 + 14 and loader.examples == 5
    assert sum(int((b["targets"] > 0).sum()) for b in held_out) == size + 3
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(ImportError, match=r"toile\[datasets\]"):
        input_pipeline.loaders(config, random.key(0))
    config.dataset, config.train_file = "file", str(tmp_path / "absent.txt")
    with pytest.raises(FileNotFoundError, match="absent"):
        input_pipeline.loaders(config, random.key(0))
    config.dataset = "wikitext"
    with pytest.raises(ValueError, match="'topics', 'tfds' or 'file', got 'wikitext'"):
        input_pipeline.loaders(config, random.key(0))


def test_a_copy_of_the_folder_runs_alone(files, tmp_path):
    for path in Path(__file__).parent.rglob("*.py"):
        copy = tmp_path / "mine" / path.relative_to(Path(__file__).parent)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    command = [sys.executable, "-P", "-m", "mine.main", f"--workdir={tmp_path / 'run'}"]
    command += ["--config.num_steps=2", "--config.layers=1", "--config.features=16"]
    command += ["--config.qkv_features=16", "--config.sample_length=30", "--config.dataset=file"]
    command += [f"--config.train_file={files[0]}", f"--config.test_file={files[1]}"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for part in ("held-out bytes", "python -m mine.main"):
        assert part in done.stdout
