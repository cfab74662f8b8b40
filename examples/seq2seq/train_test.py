"""Tests of the seq2seq example: sums as text, the network, runs, and a copied folder."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import toile
from toile import random, training
from toile.training import checkpoints
from toile.training.devices import first_devices

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
    """A config with sums of one-digit numbers, a small network and 16 steps."""
    config = tiny.get_config()
    config.max_digits, config.smallest, config.held_out, config.features = 1, 0, 5, 16
    config.batch_size, config.eval_batch_size, config.num_steps = 10, 4, 16
    config.learning_rate, config.warmup_steps = 0.03, 2
    config.eval_every_steps, config.log_every_steps, config.checkpoint_every_steps = 8, 4, 5
    return config


def test_texts_come_back_and_the_longest_sum_fits():
    task = input_pipeline.Additions(max_digits=3)
    rows = task.encode("=365", task.answer_length)
    assert rows.shape == (6, 14) and (rows.sum(axis=1) == 1).all()
    assert task.decode(rows[1:]) == "365"
    longest = task.batch({"a": np.array([99]), "b": np.array([999])})
    assert task.decode(longest["question"][0]) == "999+99"  # backward
    assert task.decode(longest["answer"][0]) == "=1098"
    assert models.lengths(longest["answer"]).tolist() == [6]


@pytest.mark.parametrize(("digits", "sums"), [(1, 55), (2, 5050), (3, 95_050)])
def test_every_sum_is_there_once_and_held_out_ones_are_not_trained_on(digits, sums):
    config = default.get_config()
    config.max_digits, config.held_out, config.batch_size = digits, 5, 10
    config.both_orders = False
    task, loader, held_out = input_pipeline.loaders(config, random.key(0))
    pairs = task.all_pairs()
    assert len(pairs) == len(np.unique(pairs, axis=0)) == sums
    assert loader.examples + held_out.examples == sums
    if digits == 1:
        trained = {(a, b) for x in loader for a, b in zip(x["a"].tolist(), x["b"].tolist())}
        asked = {
            (a, b)
            for x in held_out
            for a, b, real in zip(x["a"].tolist(), x["b"].tolist(), x["mask"])
            if real
        }
        assert len(asked) == 5 and len(trained) == 50 and not asked & trained


def test_in_both_orders_held_out_sums_are_not_trained_on_in_either():
    config = default.get_config()
    config.max_digits, config.held_out, config.batch_size, config.both_orders = 1, 5, 1, True
    _, loader, held_out = input_pipeline.loaders(config, random.key(0))
    pairs = lambda x: zip(x["a"].tolist(), x["b"].tolist())
    trained = [pair for x in loader for pair in pairs(x)]
    asked = {pair for x in held_out for pair, real in zip(pairs(x), x["mask"]) if real}
    assert len(asked) == 5 and len(set(trained)) == len(trained) == loader.examples
    assert not set(trained) & {order for a, b in asked for order in ((a, b), (b, a))}
    assert {(b, a) for a, b in trained} == set(trained)


def test_without_teacher_the_answer_is_not_looked_at():
    task = input_pipeline.Additions(max_digits=2)
    one = task.batch({"a": np.array([7, 12]), "b": np.array([25, 30])})
    other = task.batch({"a": np.array([1, 2]), "b": np.array([3, 4])})
    model = models.Seq2Seq(features=8)
    variables = model.init(random.key(0), one["question"], one["answer"])

    def logits(answer, teacher_force):
        return np.asarray(model.apply(variables, one["question"], answer, teacher_force)[0])

    assert logits(one["answer"], True).shape == (2, task.answer_length - 1, task.size)
    assert (logits(one["answer"], False) == logits(other["answer"], False)).all()
    assert (logits(one["answer"], True) != logits(other["answer"], True)).any()


def test_padding_of_the_question_changes_nothing():
    task = input_pipeline.Additions(max_digits=2)
    batch = task.batch({"a": np.array([3]), "b": np.array([4])})
    model = models.Seq2Seq(features=8)
    variables = model.init(random.key(0), batch["question"], batch["answer"])
    short = batch["question"][:, :4]  # "4+3" and END
    whole, cut = (model.apply(variables, q, batch["answer"])[0] for q in (batch["question"], short))
    np.testing.assert_allclose(whole, cut, rtol=1e-6)


def test_the_loss_counts_real_tokens_only():
    task = input_pipeline.Additions(max_digits=2)
    answer = task.batch({"a": np.array([3, 50]), "b": np.array([4, 60])})["answer"]
    target = answer[:, 1:]
    perfect = np.where(target == 1, 50.0, 0.0).astype(np.float32)
    perfect[0, 2:] = np.eye(task.size)[5] * 50  # nonsense after "7" and END
    loss, seen = train.measure(perfect, answer, None)
    assert float(loss) < 1e-6 and float(seen.compute()["accuracy"]) == 1
    wrong = perfect.copy()
    wrong[1, 0] = np.eye(task.size)[5] * 50
    loss, seen = train.measure(wrong, answer, None)
    assert float(loss) == pytest.approx(50 / 4 / 2) and float(seen.compute()["accuracy"]) == 0.5


def test_the_recipes_have_the_same_fields():
    assert set(default.get_config()) == set(tiny.get_config())


def test_a_short_run_learns_and_reports(tmp_path, capsys):
    config = small_config()
    state, finished = train.train_and_evaluate(config, tmp_path)
    assert finished and int(state.step) == 16
    losses = list(report.history(tmp_path, "train_loss").values())
    assert len(losses) == 4 and losses[-1] < 0.9 * losses[0]
    accuracy = report.show(config, tmp_path, state)
    assert 0 <= accuracy <= 1
    text = capsys.readouterr().out
    for part in ("Seq2Seq Summary", "training loss", "5 held-out sums", "checkpoint_16", " = "):
        assert part in text
    page = (tmp_path / "report.html").read_text()
    assert "<svg" in page and "Configuration" in page and "Summary" in page


def test_stopped_and_resumed_it_ends_with_the_same_bits(tmp_path, monkeypatch):
    config = small_config()
    whole, _ = train.train_and_evaluate(config, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(train, "StopRequests", lambda: StopAfter(7))  # in the second epoch
        _, finished = train.train_and_evaluate(config, tmp_path / "parts")
    assert not finished and checkpoints.available_steps(tmp_path / "parts") == [5, 7]
    resumed, finished = train.train_and_evaluate(config, tmp_path / "parts")
    assert finished
    for x, y in zip(toile.tree.leaves(whole), toile.tree.leaves(resumed), strict=True):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def test_two_devices_in_half_precision_take_about_the_step_of_one():
    config = small_config()
    task, loader, _ = input_pipeline.loaders(config, random.key(0))
    batch = next(iter(loader))
    before, losses = toile.config.read("jax_num_cpu_devices"), []
    try:
        for devices, config.precision in ((1, "float32"), (2, "mixed_bfloat16")):
            step = training.replicated(train.train_step, devices=first_devices(devices))
            state, seen = step(train.create_state(config, task, random.key(1)), batch)
            losses.append(float(seen.compute()["loss"]))
            assert len(state.step.devices()) == devices
            assert {x.dtype.name for x in toile.tree.leaves(state.params)} == {"float32"}
    finally:
        toile.config.update("jax_num_cpu_devices", before)
    assert losses[0] == pytest.approx(losses[1], rel=0.01)


def test_half_precision_is_that_of_every_product():
    config = small_config()
    config.precision = "mixed_bfloat16"
    task, loader, _ = input_pipeline.loaders(config, random.key(0))
    batch = next(iter(loader))
    state = train.create_state(config, task, random.key(1))
    text = str(toile.make_jaxpr(train.train_step)(state, batch))
    products = [line for line in text.splitlines() if "DotGeneral" in line or "dot_general" in line]
    assert products and not [line for line in products if "bf16" not in line]


def test_a_copy_of_the_folder_runs_alone(tmp_path):
    for path in Path(__file__).parent.rglob("*.py"):
        copy = tmp_path / "mine" / path.relative_to(Path(__file__).parent)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    command = [sys.executable, "-P", "-m", "mine.main", f"--workdir={tmp_path / 'run'}"]
    command += ["--config=mine/configs/tiny.py", "--config.num_steps=2", "--config.features=16"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for part in ("held-out sums", "python -m mine.main"):
        assert part in done.stdout
