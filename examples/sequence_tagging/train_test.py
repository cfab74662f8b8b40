"""Tests of the tagging example: tags, CoNLL-U, networks, runs, and a copied folder."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import random
from toile.training import checkpoints, curves

from . import conllu, input_pipeline, models, python_tags, report, train
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


CODE = """\
'''What it is for.'''
from os.path import join as j

class Pile(list):
    def push(self, item, *, at=0):
        old = self.items[at]
        return j(old, sep=item.name())
"""

TREEBANK = """\
# sent_id = 1
# text = I don't go.
1\tI\tI\tPRON\tPRP\t_\t4\tnsubj\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\tVBP\t_\t4\taux\t_\t_
3\tn't\tnot\tPART\tRB\t_\t4\tadvmod\t_\t_
4\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\tSpaceAfter=No
4.1\tgone\tgo\tVERB\t_\t_\t_\t_\t_\t_
5\t.\t.\tPUNCT\t.\t_\t4\tpunct\t_\t_

1\tYes\tyes\tINTJ\tUH\t_\t0\troot\t_\t_
"""


def small_config(model="bilstm"):
    """A config with four files, a small network and 24 steps."""
    config = tiny.get_config()
    config.files, config.held_out = 4, 2
    config.model, config.features, config.length, config.batch_size = model, 16, 16, 8
    config.num_steps, config.learning_rate, config.warmup_steps = 24, 0.03, 4
    config.eval_batch_size, config.heads = 40, 2
    config.eval_every_steps, config.log_every_steps, config.checkpoint_every_steps = 12, 4, 10
    return config


def test_names_are_tagged_by_what_they_are_there_for():
    found = list(python_tags.tagged(CODE))
    assert found[0] == ("<string>", "docstring") and ("<indent>", "") in found
    roles: dict[str, set[str]] = {}
    for word, tag in found:
        roles.setdefault(word, set()).add(tag)
    wanted = {
        "os": "import", "path": "import", "join": "import", "Pile": "class", "list": "variable",
        "push": "function", "self": "argument", "item": "argument", "at": "argument",
        "old": "variable", "items": "attribute", "j": "import call", "sep": "keyword_argument",
        "name": "method", "return": "keyword", "<number>": "number", "*": "operator",
    }  # fmt: skip
    assert {word: roles[word] for word in wanted} == {w: set(t.split()) for w, t in wanted.items()}
    assert set().union(*roles.values()) <= {*python_tags.TAGS, ""}


def test_the_library_is_the_same_for_every_python():
    train_set, test = input_pipeline.python_library(0, 5)
    assert (len(train_set), len(test)) == (59, 15)
    tokens = [sum(tag != "" for text in part for _, tag in text) for part in (train_set, test)]
    assert tokens == [79475, 15020]


def test_a_treebank_is_read(tmp_path):
    path = tmp_path / "x.conllu"
    path.write_text(TREEBANK, encoding="utf-8")
    first, second = conllu.read(path)
    assert first == [("I", "PRON"), ("do", "AUX"), ("n't", "PART"), ("go", "VERB"), (".", "PUNCT")]
    assert second == [("Yes", "INTJ")] and conllu.read(path, "deprel")[1] == [("Yes", "root")]
    with pytest.raises(ValueError, match="needed one of the columns"):
        conllu.read(path, "pos")
    with pytest.raises(ValueError, match="needed 10 tab-separated columns in line 1, got 2"):
        conllu.sentences(["1\tI"])


def test_a_treebank_is_trained_on_and_a_missing_one_is_told(tmp_path):
    config = default.get_config()
    with pytest.raises(FileNotFoundError, match="git clone https://github.com/Universal"):
        input_pipeline.arrays(config)
    path = tmp_path / "x.conllu"
    path.write_text(TREEBANK * 8, encoding="utf-8")
    config.train_file = config.test_file = str(path)
    config.features, config.batch_size, config.num_steps, config.length = 8, 4, 12, 4
    config.log_every_steps, config.warmup_steps, config.learning_rate = 4, 2, 0.1
    _, finished = train.train_and_evaluate(config, tmp_path / "run")
    losses = list(curves.history(tmp_path / "run", "train_loss").values())
    assert finished and losses[-1] < losses[0]
    config.dataset = "brown"
    with pytest.raises(ValueError, match="'python' or 'conllu', got 'brown'"):
        input_pipeline.arrays(config)


def test_windows_are_padded_and_new_words_keep_their_spelling():
    vocabulary = input_pipeline.Vocabulary([[("a", "X"), ("b", "Y"), ("a", "")]], min_count=1)
    found = vocabulary.windows([[("a", "X"), ("new", "Z"), ("b", "")]], 2)
    assert found["labels"].tolist() == [[0, 2], [-1, -1]]
    assert found["words"][..., 0].tolist() == [[2, 1], [3, 0]]
    assert (found["words"][0] > 0).all() and not found["words"][1, 1].any()


@pytest.mark.parametrize("model", list(models.MODELS))
def test_padding_changes_nothing(model):
    network = models.MODELS[model](20, 5, 8, 1, 2)
    words = np.random.default_rng(0).integers(2, 20, (1, 6, 3)).astype(np.int32)
    longer = np.concatenate([words, np.zeros((1, 3, 3), np.int32)], axis=1)
    variables = network.init(random.key(0), longer)
    whole = network.apply(variables, longer)[:, :6]
    np.testing.assert_allclose(network.apply(variables, words), whole, rtol=1e-4, atol=1e-5)


def test_only_tokens_with_a_tag_count():
    logits = jnp.array([[[9.0, 0.0], [0.0, 9.0], [9.0, 0.0], [9.0, 0.0]]])
    loss, seen = train.measure(logits, jnp.array([[0, -1, 1, 2]]))  # 2 is unknown, so it is wrong
    assert float(seen.compute()["accuracy"]) == pytest.approx(1 / 3)
    assert float(loss) == pytest.approx(18 / 3, rel=1e-3)


def test_the_baseline_takes_the_most_common_tag_of_each_word():
    words = np.array([[[2, 0, 0], [2, 0, 0], [2, 0, 0], [3, 0, 0]]])
    data = {"words": words, "labels": np.array([[1, 1, 0, 0]])}
    found = report.baselines(data, words[0, 1:], np.array([1, 0, 0]))
    assert list(found.values()) == [pytest.approx(2 / 3)] * 2


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
    for part in ("Summary", "training loss", "held-out tokens", "the most common tag of each word"):
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
    for devices in (1, 2):
        train.train_and_evaluate(config, tmp_path / str(devices), devices)
    one, two = (curves.history(tmp_path / folder, "train_loss")[8] for folder in "12")
    assert one == pytest.approx(two, rel=0.02)


def test_half_precision_learns_with_weights_in_float32(tmp_path):
    config = small_config()
    config.precision, config.num_steps, config.log_every_steps = "mixed_bfloat16", 12, 12
    state, _ = train.train_and_evaluate(config, tmp_path)
    assert {x.dtype.name for x in toile.tree.leaves(state.params)} == {"float32"}
    assert curves.history(tmp_path, "train_loss")[12] < 2.6


def test_a_copy_of_the_folder_runs_alone(tmp_path):
    for path in Path(__file__).parent.rglob("*.py"):
        copy = tmp_path / "mine" / path.relative_to(Path(__file__).parent)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    command = [sys.executable, "-P", "-m", "mine.main", f"--workdir={tmp_path / 'run'}"]
    command += ["--config.num_steps=2", "--config.files=4"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for part in ("held-out tokens", "python -m mine.main"):
        assert part in done.stdout
