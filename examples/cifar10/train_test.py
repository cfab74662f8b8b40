"""Tests of the CIFAR-10 example: images, networks, mixup, averages, runs, a copied folder."""

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


def small_config():
    """A config with few images, a small network and 12 steps."""
    config = tiny.get_config()
    config.train_examples, config.held_out = 160, 30
    config.batch_size, config.eval_batch_size = 16, 16
    config.blocks, config.features, config.num_steps, config.warmup_steps = (1, 1), 8, 12, 2
    config.eval_every_steps, config.log_every_steps, config.checkpoint_every_steps = 12, 4, 8
    return config


def size_of(model):
    shapes = toile.eval_shape(lambda: model.init(random.key(0), jnp.zeros((1, 32, 32, 3))))
    return sum(int(np.prod(x.shape)) for x in toile.tree.leaves(shapes["params"]))


def test_the_networks_have_the_published_sizes():
    assert size_of(models.ResNet()) == 11_173_962
    assert round(size_of(models.WideResNet()) / 1e6, 1) == 36.5
    with pytest.raises(ValueError, match="6 n \\+ 4, got 20"):
        size_of(models.WideResNet(depth=20))


@pytest.mark.parametrize("model", [models.ResNet((1, 1), 4), models.WideResNet(10, 1, 0.3)])
def test_a_network_normalizes_by_the_batch_in_training_only(model):
    images = random.normal(random.key(0), (3, 32, 32, 3))
    variables = model.init(random.key(1), images)
    alone = model.apply(variables, images[:1])
    np.testing.assert_allclose(model.apply(variables, images)[:1], alone, rtol=1e-3, atol=1e-4)
    _, changed = model.apply(
        variables, images, train=True, mutable=["batch_stats"], rngs={"dropout": random.key(2)}
    )
    before, after = (toile.tree.leaves(v["batch_stats"]) for v in (variables, changed))
    assert all((x != y).any() for x, y in zip(before, after))


def test_batches_are_centred_and_the_last_one_is_masked():
    config = small_config()
    config.cut_out = 8
    loader, held_out = input_pipeline.loaders(config, random.key(0))
    batch = next(iter(loader))
    assert batch["image"].shape == (16, 32, 32, 3) and batch["image"].dtype == np.float32
    assert abs(batch["image"].mean()) < 0.7 and batch["label"].dtype == np.int32
    assert sum(int(b["mask"].sum()) for b in held_out) == 30


def test_mixup_blends_images_and_labels_alike():
    config = small_config()
    images, labels = jnp.arange(4.0)[:, None], jnp.eye(4)
    x, y = train.mixed(config, random.key(3), images, labels)
    share = float(y[0, 0])
    assert 0 <= share <= 1 and float(y.sum()) == pytest.approx(4)
    np.testing.assert_allclose(x[:, 0], share * np.arange(4) + (1 - share) * np.arange(4)[::-1])
    config.mixup = 0.0
    assert train.mixed(config, random.key(3), images, labels)[0] is images


def test_parameters_are_averaged():
    config = small_config()
    config.ema_decay = 0.5
    loader, _ = input_pipeline.loaders(config, random.key(0))
    step, state = toile.jit(train.train_step(config)), train.create_state(config, random.key(1))
    seen, expected = [], np.zeros((), np.float32)
    for number, batch in zip(range(4), loader):
        state, _ = step(state, batch)
        kernel = np.asarray(state.params["Dense_0"]["kernel"])
        forget = max(0.5, 1 / (number + 1))
        expected = forget * kernel + (1 - forget) * expected
        seen.append(kernel)
    np.testing.assert_allclose(state.average["Dense_0"]["kernel"], expected, rtol=1e-5, atol=1e-6)
    assert (seen[0] != seen[-1]).any()


def test_the_recipes_have_the_same_fields():
    assert set(default.get_config()) == set(tiny.get_config())


def test_a_short_run_learns_and_reports(tmp_path, capsys):
    config = small_config()
    config.mixup, config.num_steps, config.eval_every_steps = 0.0, 40, 40
    state, finished = train.train_and_evaluate(config, tmp_path)
    assert finished and int(state.step) == 40
    losses = list(curves.history(tmp_path, "train_loss").values())
    assert len(losses) == 10 and losses[-1] < losses[0]
    assert 0 <= report.show(config, tmp_path, state) <= 1
    text = capsys.readouterr().out
    for part in ("Summary", "training loss", "half disc", "30 held-out images"):
        assert part in text
    page = (tmp_path / "report.html").read_text()
    assert "<svg" in page and "Configuration" in page and "Summary" in page


def test_stopped_and_resumed_it_ends_with_the_same_bits(tmp_path, monkeypatch):
    config = small_config()
    whole, _ = train.train_and_evaluate(config, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(train, "StopRequests", lambda: StopAfter(10))
        _, finished = train.train_and_evaluate(config, tmp_path / "parts")
    assert not finished and checkpoints.available_steps(tmp_path / "parts") == [8, 10]
    resumed, finished = train.train_and_evaluate(config, tmp_path / "parts")
    assert finished
    for tree, other in ((whole.average, resumed.average), (whole.collections, resumed.collections)):
        for x, y in zip(toile.tree.leaves(tree), toile.tree.leaves(other)):
            assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def test_half_precision_and_two_devices_learn_with_weights_in_float32(tmp_path):
    config = small_config()
    config.precision, config.model = "mixed_bfloat16", "wide_resnet"
    state, finished = train.train_and_evaluate(config, tmp_path, devices=2)
    assert finished
    assert {x.dtype.name for x in toile.tree.leaves(state.params)} == {"float32"}
    assert all(np.isfinite(v) for v in curves.history(tmp_path, "train_loss").values())


def test_cifar_is_read_and_a_missing_one_is_told(monkeypatch):
    examples = [
        {"id": b"a", "image": np.full((32, 32, 3), i, np.uint8), "label": i % 10} for i in range(20)
    ]

    def data_source(name, split, download):
        assert (name, split, download) == ("cifar10", ["train", "test"], False)
        return [examples, examples[:3]]

    fake = types.SimpleNamespace(data_source=data_source)
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", fake)
    config = default.get_config()
    config.batch_size, config.eval_batch_size = 8, 2
    loader, held_out = input_pipeline.loaders(config, random.key(0))
    assert len(loader) == 2 and next(iter(loader))["image"].shape == (8, 32, 32, 3)
    assert [b["label"][b["mask"]].tolist() for b in held_out] == [[0, 1], [2]]
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(ImportError, match=r"toile\[datasets\]"):
        input_pipeline.loaders(config, random.key(0))
    config.dataset = "cifar100"
    with pytest.raises(ValueError, match="'shapes' or 'tfds', got 'cifar100'"):
        input_pipeline.loaders(config, random.key(0))
    config.model = "vgg"
    with pytest.raises(ValueError, match="got 'vgg'"):
        train.create_model(config)


def test_a_copy_of_the_folder_runs_alone(tmp_path):
    for path in Path(__file__).parent.rglob("*.py"):
        copy = tmp_path / "mine" / path.relative_to(Path(__file__).parent)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    command = [sys.executable, "-P", "-m", "mine.main", f"--workdir={tmp_path / 'run'}"]
    command += ["--config.num_steps=2", "--config.blocks=(1,)", "--config.features=4"]
    command += ["--config.train_examples=130", "--config.held_out=40"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for part in ("40 held-out images", "python -m mine.main"):
        assert part in done.stdout
