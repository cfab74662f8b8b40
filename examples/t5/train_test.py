"""Tests of T5: sizes, parts, span corruption, gin files, runs, and a copied folder."""

import dataclasses
import os
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import toile
from toile import random
from toile.training import checkpoints, curves, text

pytest.importorskip("gin")

from . import gin_files, input_pipeline, models, report, span_corruption, train
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


SIZES = {
    "small": 76_961_152, "base": 247_577_856, "large": 783_150_080, "xl": 2_849_757_184,
    "xxl": 11_135_332_352,
}  # fmt: skip
SMALL = [
    "T5Config.features=16", "T5Config.layers=1", "T5Config.heads=2", "T5Config.depth=8",
    "T5Config.mlp_features=32", "Recipe.inputs_length=24", "Recipe.batch_size=8",
    "Recipe.eval_batch_size=8", "Recipe.num_steps=12", "Recipe.warmup_steps=2",
    "Recipe.eval_every_steps=12", "Recipe.log_every_steps=4", "Recipe.checkpoint_every_steps=8",
    "Recipe.learning_rate=0.02", "Recipe.mean_span=3.0",
]  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Two text files."""
    folder, found = tmp_path_factory.mktemp("text"), []
    for name, count in (("train.txt", 80), ("test.txt", 10)):
        lines = [f"the number {i} is followed by {i + 1} and then by {i + 2}" for i in range(count)]
        (folder / name).write_text("\n\n".join(lines))
        found.append(str(folder / name))
    return found


def configured(file: str, bindings=()):
    """The recipe and the sizes from a gin file."""
    config = tiny.get_config()
    config.gin_files = (file,)
    return gin_files.configured(config, bindings)


def small(files, *bindings):
    """A recipe with a small network, a small text and 12 steps."""
    data = ["Recipe.dataset='file'", f"Recipe.train_file={files[0]!r}"]
    data += [f"Recipe.test_file={files[1]!r}"]
    return configured("tiny.gin", [*SMALL, *data, *bindings])


# large and xl are left out: they take as long as xxl and would add little.
LONG = ("large", "xl")
SHOWN = [pytest.param(s, marks=[pytest.mark.slow] if s in LONG else []) for s in SIZES]


@pytest.mark.parametrize("size", SHOWN)
def test_the_sizes_are_the_published_ones(size):
    _, config = configured(f"{size}.gin")
    row = np.ones((1, 4), int)
    shapes = toile.eval_shape(lambda: models.T5(config).init(random.key(0), row, row))
    assert sum(int(np.prod(x.shape)) for x in toile.tree.leaves(shapes)) == SIZES[size]


def test_distances_fall_into_buckets():
    distance = np.arange(-200, 201)
    back = np.asarray(models.bucket(distance, False, 32, 128))
    assert (back[distance >= 0] == 0).all() and back[0] == 31
    assert back[(distance <= 0) & (distance > -16)].tolist() == list(range(15, -1, -1))
    assert (np.diff(back[distance <= 0]) <= 0).all()
    both = np.asarray(models.bucket(distance, True, 32, 128))
    assert (both[distance > 0] >= 16).all() and (both[distance <= 0] < 16).all()
    assert both.min() == 0 and both.max() == 31 and both[distance == 7] == 23


def test_the_decoder_looks_back_only_and_nobody_at_padding():
    config = models.T5Config(30, 16, 2, 2, 8, 32)
    model = models.T5(config)
    inputs, targets = np.array([[5, 6, 7, 0]]), np.array([[8, 9, 10, 11]])
    variables = model.init(random.key(0), inputs, targets)
    logits = model.apply(variables, inputs, targets)
    changed = model.apply(variables, inputs, np.array([[8, 9, 12, 13]]))
    np.testing.assert_allclose(changed[:, :3], logits[:, :3], rtol=1e-4, atol=1e-5)
    assert abs(changed[:, 3] - logits[:, 3]).max() > 1e-3
    padded = model.apply(variables, np.pad(inputs, ((0, 0), (0, 3))), targets)
    np.testing.assert_allclose(padded, logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "length, density, span", [(30, 0.15, 3.0), (568, 0.15, 3.0), (9, 0.5, 1.0)]
)
def test_hidden_spans_are_the_targets(length, density, span):
    vocabulary, rng = 1000, np.random.default_rng(length)
    tokens = np.arange(2, length + 2)
    for _ in range(5):
        inputs, targets = span_corruption.corrupted(rng, tokens, vocabulary, density, span)
        assert (len(inputs), len(targets)) == span_corruption.lengths(length, density, span)
        assert inputs[-1] == targets[-1] == text.END
        gaps: dict[int, list[int]] = {}
        for t in targets[:-1].tolist():
            if t >= length + 2:
                gaps[t] = latest = []
            else:
                latest.append(t)
        whole: list[int] = []
        for t in inputs[:-1].tolist():
            whole += gaps[t] if t >= length + 2 else [t]
        assert whole == tokens.tolist() and all(gaps.values())
        assert list(gaps) == [vocabulary - 1 - i for i in range(len(gaps))]


def test_t5_s_own_lengths():
    assert span_corruption.text_length(512, 0.15, 3.0) == 568
    assert span_corruption.lengths(568, 0.15, 3.0) == (512, 114)


def test_gin_files_and_flags_are_read():
    recipe, config = gin_files.configured(default.get_config())
    assert config == models.T5Config() and recipe.optimizer == "adafactor"
    chosen = default.get_config()
    chosen.gin_files, chosen.num_steps = ("default.gin", "small.gin"), 7
    recipe, config = gin_files.configured(chosen, ["T5Config.layers = 3"])
    assert (recipe.num_steps, recipe.dataset, config.layers) == (7, "tfds", 3)
    assert config.features == 512
    with pytest.raises(ValueError, match="banana"):
        configured("tiny.gin", ["Recipe.banana = 1"])


def test_the_text_that_ships_is_cut_into_windows():
    recipe, config = configured("tiny.gin")
    loader, held_out = input_pipeline.loaders(recipe, config.vocabulary, random.key(0))
    batch = next(iter(loader))
    assert batch["inputs"].shape == (32, 64) and loader.examples > 4000
    a, b = ([x["inputs"] for x in held_out] for _ in range(2))
    assert all((x == y).all() for x, y in zip(a, b))
    with pytest.raises(ValueError, match="a sentinel for each span"):
        input_pipeline.loaders(recipe, 258, random.key(0))


def test_a_short_run_learns_and_reports(files, tmp_path, capsys):
    recipe, config = small(files, "Recipe.num_steps=30", "Recipe.eval_every_steps=30")
    state, finished = train.train_and_evaluate(recipe, config, tmp_path)
    assert finished and int(state.step) == 30
    losses = list(curves.history(tmp_path, "train_loss").values())
    assert losses[-1] < 0.9 * losses[0]
    assert report.show(recipe, config, tmp_path, state) < losses[0]
    out = capsys.readouterr().out
    for part in ("Summary", "training loss", "guess   <0>", "loss per held-out token"):
        assert part in out
    page = (tmp_path / "report.html").read_text()
    assert "<svg" in page and "Configuration" in page and "Summary" in page


def test_stopped_and_resumed_it_ends_with_the_same_bits(files, tmp_path, monkeypatch):
    recipe, config = small(files)
    whole, _ = train.train_and_evaluate(recipe, config, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(train, "StopRequests", lambda: StopAfter(10))
        _, finished = train.train_and_evaluate(recipe, config, tmp_path / "parts")
    assert not finished and checkpoints.available_steps(tmp_path / "parts") == [8, 10]
    resumed, finished = train.train_and_evaluate(recipe, config, tmp_path / "parts")
    assert finished
    for x, y in zip(toile.tree.leaves(whole.params), toile.tree.leaves(resumed.params)):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def test_adafactor_half_precision_remat_and_two_devices(files, tmp_path):
    recipe, config = small(
        files, "Recipe.optimizer='adafactor'", "Recipe.schedule='rsqrt'", "T5Config.remat=True",
        "Recipe.precision='mixed_bfloat16'", "T5Config.dropout=0.1", "Recipe.warmup_steps=100",
        "Recipe.learning_rate=1.0", "Recipe.num_steps=6",
    )  # fmt: skip
    state, finished = train.train_and_evaluate(recipe, config, tmp_path, devices=2)
    assert finished
    assert {x.dtype.name for x in toile.tree.leaves(state.params)} == {"float32"}
    assert all(np.isfinite(v) for v in curves.history(tmp_path, "train_loss").values())
    with pytest.raises(ValueError, match="got 'sam'"):
        train.create_optimizer(dataclasses.replace(recipe, optimizer="sam"))


def test_a_seqio_task_is_read_and_what_is_missing_is_told(files, monkeypatch):
    pairs = [{"inputs": np.arange(2, 2 + i), "targets": np.arange(3)} for i in range(1, 9)]

    class Task:
        def get_dataset(self, sequence_length, split, shuffle):
            assert sequence_length == {"inputs": 6, "targets": 4} and not shuffle
            return types.SimpleNamespace(as_numpy_iterator=lambda: iter(pairs))

    fake = types.SimpleNamespace(get_mixture_or_task=lambda name: Task())
    monkeypatch.setitem(sys.modules, "seqio", fake)
    recipe, config = small(
        files, "Recipe.dataset='seqio'", "Recipe.train_documents=8", "Recipe.test_documents=3",
        "Recipe.inputs_length=6", "Recipe.targets_length=4", "Recipe.eval_batch_size=2",
    )  # fmt: skip
    loader, held_out = input_pipeline.loaders(recipe, config.vocabulary, random.key(0))
    assert len(loader) == 1 and [int(b["mask"].sum()) for b in held_out] == [2, 1]
    assert next(iter(held_out))["inputs"].tolist() == [[2, 0, 0, 0, 0, 0], [2, 3, 0, 0, 0, 0]]
    monkeypatch.setitem(sys.modules, "seqio", None)
    with pytest.raises(ImportError, match="pip install seqio"):
        input_pipeline.loaders(recipe, config.vocabulary, random.key(0))
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    recipe = dataclasses.replace(recipe, dataset="tfds")
    with pytest.raises(ImportError, match=r"toile\[datasets\]"):
        input_pipeline.loaders(recipe, config.vocabulary, random.key(0))
    recipe = dataclasses.replace(recipe, dataset="c4")
    with pytest.raises(ValueError, match="'seqio', got 'c4'"):
        input_pipeline.loaders(recipe, config.vocabulary, random.key(0))


def test_a_copy_of_the_folder_runs_alone(files, tmp_path):
    for path in Path(__file__).parent.rglob("*"):
        if path.suffix in (".py", ".gin"):
            copy = tmp_path / "mine" / path.relative_to(Path(__file__).parent)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    command = [sys.executable, "-P", "-m", "mine.main", f"--workdir={tmp_path / 'run'}"]
    command += ["--config.num_steps=2", "--gin=Recipe.dataset='file'"]
    command += [f"--gin={binding}" for binding in SMALL if "num_steps" not in binding]
    command += [f"--gin=Recipe.train_file={files[0]!r}", f"--gin=Recipe.test_file={files[1]!r}"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for part in ("loss per held-out token", "python -m mine.main"):
        assert part in done.stdout
