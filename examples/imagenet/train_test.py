"""Tests of the ImageNet example: crops, networks, large batches, short runs, a copied folder."""

import os
import subprocess
import sys
import types
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import random, training
from toile.training import checkpoints, curves
from toile.training.devices import first_devices

from . import input_pipeline, models, report, train
from .configs import default, lamb, lars, tiny

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


@pytest.fixture(autouse=True)
def smallest_network(monkeypatch):
    """Two stages of one block each, added to the real networks."""
    build = partial(models.ResNet, stage_sizes=(1, 1), block_cls=models.ResNetBlock)
    monkeypatch.setitem(models.MODELS, "resnet6", build)


def small_config():
    """A config with few images, a small network and 8 steps."""
    config = tiny.get_config()
    config.model = "resnet6"
    config.train_examples, config.held_out, config.batch_size, config.eval_batch_size = 48, 10, 8, 4
    config.stored_size, config.image_size, config.num_filters = 48, 32, 4
    config.num_steps, config.warmup_steps = 8, 2
    config.eval_every_steps, config.log_every_steps, config.checkpoint_every_steps = 8, 4, 6
    return config


SIZES = {
    "resnet18": 11_689_512, "resnet34": 21_797_672, "resnet50": 25_557_032,
    "resnet101": 44_549_160, "resnet152": 60_192_808,
}  # fmt: skip


@pytest.mark.parametrize("name", list(SIZES))
def test_the_networks_have_the_published_sizes(name):
    model = models.MODELS[name](num_classes=1000)
    shapes = toile.eval_shape(lambda: model.init(random.key(0), jnp.zeros((1, 64, 64, 3))))
    sizes = [int(np.prod(x.shape)) for x in toile.tree.leaves(shapes["params"])]
    assert sum(sizes) == SIZES[name]


def test_evaluation_sees_every_image_once_and_padding_does_not_count():
    config = small_config()
    _, held_out = input_pipeline.loaders(config, random.key(0))
    batches = list(held_out)
    assert [int(b["mask"].sum()) for b in batches] == [4, 4, 2]
    assert batches[0]["image"].shape == (4, 32, 32, 3)
    state = train.create_state(config, random.key(1))
    result = train.evaluate(state, held_out)
    logits = np.concatenate(
        [np.asarray(train.eval_step(state, b)[1])[b["mask"]] for b in batches]
    )
    right = (logits.argmax(-1) == np.arange(10) % 10).mean()
    assert result["accuracy"] == pytest.approx(right) and result["top5"] >= result["accuracy"]


def test_crops_to_train_on_are_drawn_anew_and_resumable():
    config = small_config()
    first, _ = input_pipeline.loaders(config, random.key(0))
    again, _ = input_pipeline.loaders(config, random.key(0))
    a = [b["image"] for b in first]
    assert all((x == b["image"]).all() for x, b in zip(a, again))
    more = [b["image"] for b in first]  # the next epoch
    assert a[0].dtype == np.float32 and all((x != y).any() for x, y in zip(a, more))


def test_the_recipes_have_the_same_fields():
    fields = [set(recipe.get_config()) for recipe in (default, lamb, lars, tiny)]
    assert all(other == fields[0] for other in fields)


@pytest.mark.parametrize("recipe", [lars, lamb])
def test_large_batches_have_their_optimizers_and_rates(recipe):
    config = recipe.get_config()
    rate = train.learning_rate(config)
    assert float(rate(0)) == 0 and float(rate(config.num_steps)) == 0
    peak = config.learning_rate * 64
    assert float(rate(config.warmup_steps)) == pytest.approx(peak, rel=1e-3)
    tx = train.create_optimizer(config)
    params = {"Conv_0": {"kernel": jnp.ones((2, 2))}, "BatchNorm_0": {"scale": jnp.ones(2)}}
    updates, _ = tx.update(params, tx.init(params), params)
    assert all(np.isfinite(x).all() for x in toile.tree.leaves(updates))


def test_a_short_run_reports(tmp_path, capsys):
    config = small_config()
    state, finished = train.train_and_evaluate(config, tmp_path)
    assert finished and int(state.step) == 8
    assert list(curves.history(tmp_path, "train_loss")) == [4, 8]
    assert 0 <= report.show(config, tmp_path, state) <= 1
    text = capsys.readouterr().out
    for part in ("Summary", "training loss", "10 held-out images", "images per second"):
        assert part in text
    page = (tmp_path / "report.html").read_text()
    assert "<svg" in page and "Configuration" in page and "Summary" in page


def test_stopped_and_resumed_it_ends_with_the_same_bits(tmp_path, monkeypatch):
    config = small_config()
    whole, _ = train.train_and_evaluate(config, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(train, "StopRequests", lambda: StopAfter(7))
        _, finished = train.train_and_evaluate(config, tmp_path / "parts")
    assert not finished and checkpoints.available_steps(tmp_path / "parts") == [6, 7]
    resumed, finished = train.train_and_evaluate(config, tmp_path / "parts")
    assert finished
    for tree, other in ((whole.params, resumed.params), (whole.collections, resumed.collections)):
        for x, y in zip(toile.tree.leaves(tree), toile.tree.leaves(other)):
            assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def test_half_precision_on_two_devices_with_norms_over_both(tmp_path):
    config = small_config()
    config.precision = "mixed_bfloat16"
    state, finished = train.train_and_evaluate(config, tmp_path, devices=2)
    assert finished
    assert {x.dtype.name for x in toile.tree.leaves(state.params)} == {"float32"}
    assert all(np.isfinite(v) for v in curves.history(tmp_path, "train_loss").values())


def test_two_devices_take_the_step_of_one():
    config = small_config()
    batch = next(iter(input_pipeline.loaders(config, random.key(0))[0]))
    states = []
    for devices in (1, 2):
        step = training.replicated(train.train_step(config), devices=first_devices(devices))
        state = train.create_state(config, random.key(1), devices)
        states.append(step(state, batch)[0])
    for x, y in zip(*(toile.tree.leaves(s.collections) for s in states)):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-4, atol=1e-5)


def test_photographs_of_all_sizes_are_read_and_missing_ones_are_told(monkeypatch):
    rng = np.random.default_rng(0)
    examples = [
        {"image": rng.integers(0, 255, (40 + 3 * i, 70 - i, 3), np.uint8), "label": i % 10}
        for i in range(20)
    ]

    def data_source(name, split, download):
        assert (name, split, download) == ("imagenet2012", ["train", "validation"], False)
        return [examples, examples[:3]]

    fake = types.SimpleNamespace(data_source=data_source)
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", fake)
    config = default.get_config()
    config.batch_size, config.eval_batch_size, config.image_size = 8, 2, 32
    loader, held_out = input_pipeline.loaders(config, random.key(0))
    assert len(loader) == 2 and next(iter(loader))["image"].shape == (8, 32, 32, 3)
    assert [b["label"][b["mask"]].tolist() for b in held_out] == [[0, 1], [2]]
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(ImportError, match=r"toile\[datasets\]"):
        input_pipeline.loaders(config, random.key(0))
    config.dataset = "imagenet21k"
    with pytest.raises(ValueError, match="got 'imagenet21k'"):
        input_pipeline.loaders(config, random.key(0))
    config.model, config.optimizer = "vgg", "sam"
    with pytest.raises(ValueError, match="got 'vgg'"):
        train.create_model(config)
    with pytest.raises(ValueError, match="got 'sam'"):
        train.create_optimizer(config)


def test_a_copy_of_the_folder_runs_alone(tmp_path):
    for path in Path(__file__).parent.rglob("*.py"):
        copy = tmp_path / "mine" / path.relative_to(Path(__file__).parent)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    network = tmp_path / "mine" / "models.py"  # a change to the copy, and a small network
    network.write_text(network.read_text().replace("=(2, 2, 2, 2)", "=(1, 1)"))
    command = [sys.executable, "-P", "-m", "mine.main", f"--workdir={tmp_path / 'run'}"]
    command += ["--config.num_steps=2", "--config.num_filters=4", "--config.image_size=32"]
    command += ["--config.train_examples=130", "--config.held_out=40", "--config.stored_size=40"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for part in ("40 held-out images", "python -m mine.main"):
        assert part in done.stdout
