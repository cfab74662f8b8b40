"""Tests of the MNIST example: data, model, a short run, and a run that is killed and resumed."""

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import toile
from toile import random
from toile.training import checkpoints

from . import input_pipeline, models, report, train
from .configs import default, tiny

ROOT = Path(__file__).parents[__name__.count(".")]  # the folder from which the package is imported

# The tiny recipe; the run is killed in the middle of the second epoch.
KILLED = """
import os, signal, sys
from examples.mnist import train
from examples.mnist.configs import tiny

real_step = train.train_step

def step(state, seen, batch):
    if int(state.step) == 17:
        os.kill(os.getpid(), signal.SIGKILL)
    return real_step(state, seen, batch)

train.train_step = step
train.train_and_evaluate(tiny.get_config(), sys.argv[1])
"""


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """The workdir and the state of a run with the tiny recipe, without interruption."""
    workdir = tmp_path_factory.mktemp("mnist")
    state, finished = train.train_and_evaluate(tiny.get_config(), workdir)
    assert finished
    return workdir, state


def test_the_shipped_digits_are_balanced_and_whole():
    digits, held_out = input_pipeline.shipped_digits()
    assert digits["image"].shape == (4000, 28, 28, 1) and digits["image"].dtype == np.uint8
    assert np.bincount(digits["label"]).tolist() == [400] * 10
    assert np.bincount(held_out["label"]).tolist() == [100] * 10


def test_batches_are_floats_and_the_last_one_is_masked():
    config = tiny.get_config()
    config.eval_batch_size = 300
    loader, held_out = input_pipeline.loaders(config, random.key(0))
    batch = next(iter(loader))
    assert batch["image"].shape == (50, 28, 28, 1) and batch["image"].dtype == np.float32
    assert batch["image"].min() == 0 and batch["image"].max() == 1
    assert batch["label"].dtype == np.int32
    assert sum(int(b["mask"].sum()) for b in held_out) == 1000


def test_shifting_moves_pixels_and_loses_none():
    images = np.zeros((50, 6, 6, 1), np.uint8)
    images[:, 2:4, 2:4] = [[[1], [2]], [[3], [4]]]
    batch: dict[str, np.ndarray] = {"image": images, "label": np.arange(50)}
    moved = input_pipeline.shifted(batch, np.random.default_rng(0), most=2)
    assert moved["label"] is batch["label"] and (moved["image"].sum(axis=(1, 2, 3)) == 10).all()
    corners = {tuple(np.argwhere(x[..., 0] == 1)[0]) for x in moved["image"]}
    assert len(corners) > 15 and all(0 <= i <= 4 for corner in corners for i in corner)


def test_the_network_is_that_of_flax():
    variables = models.CNN().init(random.key(0), np.zeros((1, 28, 28, 1), np.float32))
    assert sum(x.size for x in toile.tree.leaves(variables)) == 824_458


def test_the_recipes_have_the_same_fields():
    assert set(default.get_config()) == set(tiny.get_config())


def test_a_short_run_learns_and_reports(whole_run, capsys):
    workdir, state = whole_run
    accuracy = report.show(tiny.get_config(), workdir, state)
    assert accuracy > 0.3  # guessing would give 0.1
    text = capsys.readouterr().out
    for part in ("CNN Summary", "training loss by step", "mistaken for", "checkpoint_24", "mine"):
        assert part in text
    page = (workdir / "report.html").read_text()
    assert "<svg" in page and "Configuration" in page and "Summary" in page
    assert (workdir / "mistakes.png").read_bytes().startswith(b"\x89PNG")
    assert list(report.history(workdir, "train_loss")) == [5, 10, 15, 20]
    assert list(report.history(workdir, "eval_accuracy")) == [12, 24]
    assert list(workdir.glob("events.out.tfevents.*"))


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
def test_killed_in_mid_epoch_it_ends_with_the_same_bits(whole_run, tmp_path):
    workdir, whole = whole_run
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path], env=env, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert checkpoints.available_steps(tmp_path) == [12, 16]
    resumed, finished = train.train_and_evaluate(tiny.get_config(), tmp_path)
    assert finished and int(resumed.step) == int(whole.step) == 24
    assert_same_bits(whole.params, resumed.params)
    assert_same_bits(whole.opt_state, resumed.opt_state)
    for name in ("train_loss", "train_accuracy", "eval_loss", "eval_accuracy"):
        assert report.history(tmp_path, name) == report.history(workdir, name)


def assert_same_bits(tree, other):
    for x, y in zip(toile.tree.leaves(tree), toile.tree.leaves(other), strict=True):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def test_ctrl_c_saves_and_the_same_call_goes_on(tmp_path, monkeypatch, capsys):
    config = tiny.get_config()
    config.train_examples, config.num_epochs = 200, 1
    real_step = train.train_step

    def step(state, seen, batch):
        if int(state.step) == 1:
            signal.raise_signal(signal.SIGINT)
        return real_step(state, seen, batch)

    monkeypatch.setattr(train, "train_step", step)
    state, finished = train.train_and_evaluate(config, tmp_path)
    assert not finished and int(state.step) == 2  # the current step was finished
    assert checkpoints.available_steps(tmp_path) == [2]
    assert "stopped after step 2" in capsys.readouterr().out
    state, finished = train.train_and_evaluate(config, tmp_path)
    assert finished and int(state.step) == 4
    assert "resuming after step 2" in capsys.readouterr().out


def test_tfds_is_read_example_by_example(monkeypatch):
    calls = []

    class Source:  # as tfds.data_source: random access to dicts of arrays
        def __init__(self, size):
            self.size = size

        def __len__(self):
            return self.size

        def __getitem__(self, i):
            if not 0 <= i < self.size:
                raise IndexError(i)
            return {"image": np.full((28, 28, 1), i, np.uint8), "label": np.int64(i % 10)}

    def data_source(name, split):
        calls.append((name, split))
        return Source(40), Source(7)

    fake = types.SimpleNamespace(data_source=data_source)
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", fake)
    config = default.get_config()
    config.dataset, config.batch_size, config.eval_batch_size = "tfds", 8, 4
    loader, held_out = input_pipeline.loaders(config, random.key(0))
    assert calls == [("mnist", ["train", "test"])] and len(loader) == 5
    batches = list(held_out)
    assert [b["label"][b["mask"]].tolist() for b in batches] == [[0, 1, 2, 3], [4, 5, 6]]
    assert batches[0]["image"].shape == (4, 28, 28, 1)
    config.train_examples = 8
    assert len(input_pipeline.loaders(config, random.key(0))[0]) == 1


def test_a_missing_tfds_and_a_wrong_name_are_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    config = tiny.get_config()
    config.dataset = "tfds"
    with pytest.raises(ImportError, match=r"toile\[datasets\]"):
        input_pipeline.sources(config)
    config.dataset = "fashion"
    with pytest.raises(ValueError, match="'digits' or 'tfds', got 'fashion'"):
        input_pipeline.sources(config)


def test_a_copy_of_the_folder_runs_alone(tmp_path):
    for path in Path(__file__).parent.rglob("*"):
        if path.suffix in (".py", ".npz"):
            copy = tmp_path / "mine" / path.relative_to(Path(__file__).parent)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    command = [sys.executable, "-P", "-m", "mine.main", f"--workdir={tmp_path / 'run'}"]
    command += ["--config=mine/configs/tiny.py", "--config.train_examples=100"]
    command += ["--config.num_epochs=1"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for part in ("accuracy on 1000 held-out digits", "python -m mine.main"):
        assert part in done.stdout
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["step"] == 2


TABULAR = """
import numpy as np
from toile import linen as nn
from toile.training import datasets
from toile.training.loader import Loader

class Dense(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(10)(nn.relu(nn.Dense(16)(x)))

def CNN(features, hidden):
    return Dense()

def loaders(config, key):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 12)).astype(np.float32)
    rows = {NAME: x, "label": (x[:, :3] > 0) @ np.array([1, 2, 4], np.int32)}
    train, held_out = datasets.split(rows)
    return Loader(train, config.batch_size, key=key), Loader(held_out, 50, last="pad")
"""


@pytest.mark.parametrize("name", ["image", "features"])
def test_a_fork_on_rows_of_numbers_reports_without_a_change(name, tmp_path, monkeypatch, capsys):
    """The data, the model and the names in train.py are changed, but report.py is not."""
    package = f"fork_on_{name}"
    fork = tmp_path / package
    fork.mkdir()
    for source in Path(__file__).parent.glob("*.py"):
        (fork / source.name).write_bytes(source.read_bytes())
    for part in ("models.py", "input_pipeline.py"):
        (fork / part).write_text(TABULAR.replace("NAME", repr(name)))
    text = (fork / "train.py").read_text().replace('batch["image"]', f'batch["{name}"]')
    (fork / "train.py").write_text(re.sub(r"\(1, 28, 28, 1\)", "(1, 12)", text))
    monkeypatch.syspath_prepend(tmp_path)
    forked = {part: importlib.import_module(f"{package}.{part}") for part in ("train", "report")}
    config, workdir = tiny.get_config(), tmp_path / "run"
    state, finished = forked["train"].train_and_evaluate(config, workdir)
    assert finished and 0 < forked["report"].show(config, workdir, state) < 1
    printed, page = capsys.readouterr().out, (workdir / "report.html").read_text()
    assert "Dense Summary" in printed and "accuracy on 120 held-out" in printed
    for shown in (printed, page):
        row = r"most confident mistakes.*\d, mistaken for \d \(\d+%\): (-?[\d.e-]+ ){8}\.\.\.\n"
        assert re.search(row, shown, re.S)
    assert "<svg" in page and not (workdir / "mistakes.png").exists()
