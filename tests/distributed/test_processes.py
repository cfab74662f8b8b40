"""Programs of several processes: collectives, training, and what happens when one of them fails."""

import functools
import json

import numpy as np
import pytest

import toile
from tests.conftest import TEST_ALL
from tests.distributed import models
from tests.distributed.launching import NEEDED, ROOT, start
from toile import training

pytestmark = NEEDED
STEPS = 20
SLOW = pytest.mark.slow


@pytest.mark.parametrize("ranks, devices", [
    (2, 2), pytest.param(2, 1, marks=SLOW), pytest.param(4, 1, marks=SLOW),
    pytest.param(3, 2, marks=SLOW),
])
def test_collectives_are_those_of_all_processes(ranks, devices):
    ended = start(ranks, "collect.py", ranks, TOILE_CPU_DEVICES=str(devices)).check()
    assert all(f"rank {r} agrees" in ended.out for r in range(ranks))


def test_mappings_nest():
    ended = start(2, "nest.py", TOILE_CPU_DEVICES="3").check()
    assert "rank 0 agrees" in ended.out and "rank 1 agrees" in ended.out


def final(folder):
    with np.load(folder / "final.npz") as found:
        return {name: found[name] for name in found.files}


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """Two processes that nothing happens to."""
    folder = tmp_path_factory.mktemp("whole")
    start(2, "train.py", "cnn", STEPS, folder).check()
    return final(folder)


@functools.cache
def losses_of_one(model, steps):
    """The losses of one process with the whole batches."""
    step = training.replicated(models.train_step, devices=toile.devices()[:1])
    state, losses = models.start(model), []
    for batch in models.batches(model, steps):
        state, metrics = step(state, batch)
        losses.append(float(metrics["loss"]))
    return losses


def test_two_processes_have_the_losses_of_one(whole_run):
    losses = losses_of_one("cnn", STEPS)
    assert losses[-1] < losses[0]
    np.testing.assert_allclose(whole_run["losses"], losses, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mlp", "cnn", "transformer"])
@pytest.mark.parametrize("ranks, devices", [(1, 1), (2, 1), (4, 1), (2, 2)])
def test_any_number_of_processes_has_the_losses_of_one(model, ranks, devices, tmp_path):
    steps = 200 if model == "cnn" else 50
    start(ranks, "train.py", model, steps, tmp_path, TOILE_CPU_DEVICES=str(devices)).check()
    found = final(tmp_path)["losses"]
    expected = losses_of_one(model, steps)
    np.testing.assert_allclose(found[:50], expected[:50], rtol=2e-3, atol=1e-4)
    np.testing.assert_allclose(found, expected, atol=2e-2)


def test_a_killed_run_goes_on_to_the_same_bits(whole_run, tmp_path):
    killed = start(2, "train.py", "cnn", STEPS, tmp_path, 12)
    assert killed.code != 0 and not killed.left
    assert "rank 1 (process " in killed.err and "has died" in killed.err, killed.err
    assert killed.seconds < 30
    again = start(2, "train.py", "cnn", STEPS, tmp_path).check()
    assert "rank 0 begins after step 10" in again.out and "rank 1 begins after" in again.out
    found = final(tmp_path)
    assert found.keys() == whole_run.keys()
    for name, x in whole_run.items():
        assert x.tobytes() == found[name].tobytes(), name


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_seq2seq_takes_the_same_steps_on_processes(ranks, tmp_path):
    def history(folder, count):
        start(count, "examples.seq2seq.main", f"--config={ROOT}/examples/seq2seq/configs/tiny.py",
              f"--workdir={folder}", "--config.features=16", "--config.num_steps=24",
              "--config.log_every_steps=4", "--config.eval_every_steps=12").check()
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        return [v for line in map(json.loads, lines) for k, v in line.items() if "loss" in k]

    one, many = history(tmp_path / "one", 1), history(tmp_path / "many", ranks)
    assert len(one) >= 6
    np.testing.assert_allclose(one, many, rtol=1e-3)


FAILURES = {
    # how it fails: what is said, and what is slow to test
    "killed": (["rank 1 (process ", "has died"], True),
    "never": (["rank 0 of 2 waited 3 s", "missing: rank 1"], False),
    "raises": (["this process has had enough", "failed with ValueError", "rank 1 ("], False),
    "exits": (["waits in psum over i for rank 1 (", "which has ended"], True),
    "stopped": (["rank 1 (", "has been silent for"], True),
    "hangs": (["rank 0 has waited", "in psum over i for rank 1 (", "did not arrive"], False),
    "other": (["needed the same program in all processes"], True),
}


@pytest.mark.parametrize("way", [
    pytest.param(way, marks=SLOW if slow else ()) for way, (_, slow) in FAILURES.items()
])
def test_a_failing_process_ends_all(way):
    limit = {"TOILE_COLLECTIVE_TIMEOUT": "2"} if way == "hangs" else {}
    ended = start(2, "fail.py", way, **limit)
    assert ended.code != 0
    for text in FAILURES[way][0]:
        assert text in ended.err, ended.err
    assert ended.seconds < (60 if TEST_ALL else 30)
    assert not ended.left
