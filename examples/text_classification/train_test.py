"""Tests of the text classification example: data, networks, runs, and a copied folder."""

import os
import re
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import random
from toile.training import checkpoints, curves

from . import input_pipeline, models, report, train
from .configs import default, tiny

ROOT = Path(__file__).parents[__name__.count(".")]  # the folder from which the package is imported


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


def small_config(model="bag"):
    """A config with few reviews, a small network and 24 steps."""
    config = tiny.get_config()
    config.model, config.train_examples, config.held_out, config.batch_size = model, 300, 60, 30
    config.embedding, config.hidden, config.num_steps, config.learning_rate = 16, 16, 24, 0.02
    config.eval_batch_size, config.dropout, config.word_dropout = 25, 0.1, 0.1
    config.eval_every_steps, config.log_every_steps, config.checkpoint_every_steps = 12, 4, 10
    return config


def test_reviews_are_always_the_same_and_none_is_held_out_and_trained_on():
    train_set, held_out = input_pipeline.generated_reviews(500, 100)
    assert (train_set, held_out) == input_pipeline.generated_reviews(500, 100)
    texts = [text for text, _ in train_set + held_out]
    assert len(set(texts)) == 600
    assert 0.4 < np.mean([label for _, label in train_set]) < 0.6


def test_a_clause_says_what_it_is_labelled():
    rng = np.random.default_rng(0)
    found = {g: {input_pipeline.clause(rng, g) for _ in range(3000)} for g in (False, True)}
    good = {"(not|never|hardly) .*dull$", "was +witty$", "nobody mocked", "everybody +loved"}
    bad = {"(not|never|hardly) .*witty$", "was +dull$", "nobody loved", "everybody +mocked"}
    for pattern in good | bad:
        said = [any(re.search(pattern, text) for text in found[g]) for g in (False, True)]
        assert said == [pattern in bad, pattern in good]


def test_texts_are_cut_padded_and_rare_words_unknown():
    words = input_pipeline.Vocabulary(["A good film.", "a bad film", "a film"], min_count=2)
    assert words.words == ["<pad>", "<unknown>", "a", "film"]
    assert words.encode(["a fine film", "film " * 9], 4).tolist() == [[2, 1, 3, 0], [3, 3, 3, 3]]


@pytest.mark.parametrize("model", list(models.MODELS))
def test_padding_changes_nothing_and_order_counts_for_the_lstm_only(model):
    network = models.MODELS[model](20, 8, 8)
    tokens = jnp.array([[5, 6, 7, 8]])
    variables = network.init(random.key(0), tokens)
    logits = network.apply(variables, tokens)
    padded = network.apply(variables, jnp.pad(tokens, ((0, 0), (0, 3))))
    np.testing.assert_allclose(padded, logits, rtol=1e-5, atol=1e-6)
    turned = network.apply(variables, tokens[:, ::-1])
    assert np.allclose(turned, logits, atol=1e-6) == (model == "bag")


def test_naive_bayes_knows_words():
    data = {"tokens": np.array([[2, 3], [2, 4]] * 5), "label": np.array([0, 1] * 5)}
    assert report.naive_bayes(data, data, 5) == 1.0


def test_the_recipes_have_the_same_fields():
    assert set(default.get_config()) == set(tiny.get_config())


@pytest.mark.parametrize("model", list(models.MODELS))
def test_a_short_run_learns_and_reports(model, tmp_path, capsys):
    config = small_config(model)
    state, finished = train.train_and_evaluate(config, tmp_path)
    assert finished and int(state.step) == 24
    losses = list(curves.history(tmp_path, "train_loss").values())
    assert len(losses) == 6 and losses[-1] < losses[0]
    assert 0.3 < report.show(config, tmp_path, state) <= 1
    text = capsys.readouterr().out
    for part in ("Summary", "training loss", "60 held-out sentences", "naive Bayes"):
        assert part in text
    page = (tmp_path / "report.html").read_text()
    assert "<svg" in page and "Configuration" in page and "Summary" in page


def test_stopped_and_resumed_it_ends_with_the_same_bits(tmp_path, monkeypatch):
    config = small_config()
    whole, _ = train.train_and_evaluate(config, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(train, "StopRequests", lambda: StopAfter(14))
        _, finished = train.train_and_evaluate(config, tmp_path / "parts")
    assert not finished and checkpoints.available_steps(tmp_path / "parts") == [10, 14]
    resumed, finished = train.train_and_evaluate(config, tmp_path / "parts")
    assert finished
    for x, y in zip(toile.tree.leaves(whole.params), toile.tree.leaves(resumed.params)):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


@pytest.fixture
def cpu_devices():
    """Restore the number of CPU devices, which --devices changes."""
    before = toile.config.jax_num_cpu_devices
    yield
    toile.config.update("jax_num_cpu_devices", before)


def test_two_devices_learn_what_one_does(cpu_devices, tmp_path):
    config = small_config()
    config.dropout, config.num_steps, config.log_every_steps = 0.0, 8, 8
    config.word_dropout = 0.0
    for devices in (1, 2):
        train.train_and_evaluate(config, tmp_path / str(devices), devices)
    one, two = (curves.history(tmp_path / folder, "train_loss")[8] for folder in "12")
    assert one == pytest.approx(two, rel=1e-4)


def test_half_precision_learns_with_weights_in_float32(tmp_path):
    config = small_config()
    config.precision, config.num_steps, config.log_every_steps = "mixed_bfloat16", 12, 12
    state, _ = train.train_and_evaluate(config, tmp_path)
    assert {x.dtype.name for x in toile.tree.leaves(state.params)} == {"float32"}
    assert curves.history(tmp_path, "train_loss")[12] < 0.75


def test_sst2_is_read_and_a_missing_one_is_told(monkeypatch):
    train_set = [{"sentence": b"a good film", "label": 1}, {"sentence": b"Bad !", "label": 0}] * 5

    def data_source(name, split, download):
        assert (name, split, download) == ("glue/sst2", ["train", "validation"], False)
        return [train_set, train_set[:3]]

    fake = types.SimpleNamespace(data_source=data_source)
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", fake)
    config = default.get_config()
    config.batch_size, config.eval_batch_size = 5, 2
    vocabulary, loader, held_out = input_pipeline.loaders(config, random.key(0))
    assert len(loader) == 2 and len(vocabulary) == 7
    assert [b["label"][b["mask"]].tolist() for b in held_out] == [[1, 0], [1]]
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(ImportError, match=r"toile\[datasets\]"):
        input_pipeline.loaders(config, random.key(0))
    config.dataset = "imdb"
    with pytest.raises(ValueError, match="'generated' or 'tfds', got 'imdb'"):
        input_pipeline.loaders(config, random.key(0))


def test_a_copy_of_the_folder_runs_alone(tmp_path):
    for path in Path(__file__).parent.rglob("*.py"):
        copy = tmp_path / "mine" / path.relative_to(Path(__file__).parent)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    command = [sys.executable, "-P", "-m", "mine.main", f"--workdir={tmp_path / 'run'}"]
    command += ["--config.num_steps=2", "--config.model=bag", "--config.train_examples=200"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for part in ("2000 held-out sentences", "python -m mine.main"):
        assert part in done.stdout
