"""Tests of the VAE example: data, the bound, runs, and a copied folder."""

import os
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import toile
from toile import random
from toile.training import checkpoints, curves

from . import input_pipeline, report, train
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


def small_config():
    """A config with a small network and 24 steps."""
    config = tiny.get_config()
    config.hidden, config.latents, config.num_steps, config.learning_rate = 32, 4, 24, 0.01
    config.eval_every_steps, config.log_every_steps, config.checkpoint_every_steps = 12, 4, 10
    return config


def test_pixels_are_black_or_white_and_held_out_ones_stay():
    loader, held_out = input_pipeline.loaders(tiny.get_config(), random.key(0))
    batch = next(iter(loader))
    assert batch["image"].shape == (100, 28, 28, 1) and batch["image"].dtype == np.float32
    assert set(np.unique(batch["image"])) == {0, 1}
    once, again = ([b["image"] for b in held_out] for _ in range(2))
    assert all((x == y).all() for x, y in zip(once, again, strict=True))
    gray = np.full((1, 100, 100, 1), 64, np.uint8)
    lit = input_pipeline.binarized({"image": gray}, np.random.default_rng(0))["image"]
    assert set(np.unique(lit)) == {0, 255} and (lit > 0).mean() == pytest.approx(0.25, abs=0.02)


def test_the_bound_is_that_of_the_formula():
    rng = np.random.default_rng(0)
    logits, mean, log_var = rng.normal(size=(3, 5, 784)).astype(np.float32)[:, :2]
    mean, log_var = mean[:, :3], log_var[:, :3]
    image = (rng.random((2, 28, 28, 1)) < 0.5).astype(np.float32)
    elbo, seen = train.measure((logits, mean, log_var), {"image": image})
    x, p = image.reshape(2, 784), 1 / (1 + np.exp(-logits.astype(float)))
    likelihood = (x * np.log(p) + (1 - x) * np.log(1 - p)).sum(1)
    divergence = (np.exp(log_var) + mean**2 - 1 - log_var).sum(1) / 2
    assert float(elbo) == pytest.approx((likelihood - divergence).mean(), rel=1e-5)
    assert float(seen.compute()["divergence"]) == pytest.approx(divergence.mean(), rel=1e-5)


def test_the_recipes_have_the_same_fields():
    assert set(default.get_config()) == set(tiny.get_config())


def test_a_short_run_learns_and_reports(tmp_path, capsys):
    config = small_config()
    state, finished = train.train_and_evaluate(config, tmp_path)
    assert finished and int(state.step) == 24
    elbo = list(curves.history(tmp_path, "train_elbo").values())
    assert len(elbo) == 6 and elbo[-1] > elbo[0] + 50  # about -540 at the start
    assert report.show(config, tmp_path, state) > -400
    text = capsys.readouterr().out
    for part in ("VAE Summary", "training ELBO", "1000 held-out digits", "checkpoint_24"):
        assert part in text
    page = (tmp_path / "report.html").read_text()
    assert "<svg" in page and "Configuration" in page and "Summary" in page
    for name in ("samples.png", "reconstructions.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


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


@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision_learns_with_weights_in_float32(precision, tmp_path):
    config = small_config()
    config.precision, config.num_steps, config.log_every_steps = precision, 12, 12
    state, _ = train.train_and_evaluate(config, tmp_path)
    assert {x.dtype.name for x in toile.tree.leaves(state.params)} == {"float32"}
    assert curves.history(tmp_path, "train_elbo")[12] > -540


def test_tfds_is_read_and_a_missing_one_is_told(monkeypatch):
    class Source:
        def __len__(self):
            return 9

        def __getitem__(self, i):
            return {"image": np.full((28, 28, 1), i % 2, np.uint8)}

    def data_source(name, split, download):
        assert (name, split, download) == ("binarized_mnist", ["train", "test"], False)
        return [Source(), Source()]

    fake = types.SimpleNamespace(data_source=data_source)
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", fake)
    config = default.get_config()
    config.batch_size, config.eval_batch_size = 4, 9
    loader, held_out = input_pipeline.loaders(config, random.key(0))
    assert len(loader) == 2
    assert next(iter(held_out))["image"][:4, 0, 0, 0].tolist() == [0, 1, 0, 1]
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(ImportError, match=r"toile\[datasets\]"):
        input_pipeline.loaders(config, random.key(0))
    config.dataset = "fashion"
    with pytest.raises(ValueError, match="'digits' or 'tfds', got 'fashion'"):
        input_pipeline.loaders(config, random.key(0))


def test_a_copy_of_the_folder_runs_alone(tmp_path):
    for path in Path(__file__).parent.rglob("*.py"):
        copy = tmp_path / "mine" / path.relative_to(Path(__file__).parent)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    command = [sys.executable, "-P", "-m", "mine.main", f"--workdir={tmp_path / 'run'}"]
    command += ["--config.num_steps=2", "--config.hidden=8"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for part in ("1000 held-out digits", "python -m mine.main"):
        assert part in done.stdout
