"""Sweeps: points, configurations of every kind, failures, interruption, and the table."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.training import sweep_runs
from toile.errors import UnreadableFileError
from toile.training import config_entries, sweep
from toile.training.sweep import Result

ml_collections = pytest.importorskip("ml_collections")


@dataclasses.dataclass(frozen=True)
class Model:
    width: int = 8
    depth: int = 2


@dataclasses.dataclass(frozen=True)
class Settings:
    seed: int = 0
    model: Model = Model()


CONFIGS = {
    "dict": {"seed": 0, "model": {"width": 8, "depth": 2}},
    "dataclass": Settings(),
    "ConfigDict": ml_collections.ConfigDict({"seed": 0, "model": {"width": 8, "depth": 2}}),
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_entries_of_every_kind_of_config(kind):
    config = CONFIGS[kind]
    assert config_entries.flat(config) == {"seed": 0, "model.width": 8, "model.depth": 2}
    new = config_entries.changed(config, {"model.width": 16, "seed": 1})
    assert type(new) is type(config)
    assert config_entries.flat(new) == {"seed": 1, "model.width": 16, "model.depth": 2}
    assert config_entries.flat(config)["model.width"] == 8
    with pytest.raises(ValueError, match=r"got 'model.widht' \(did you mean 'model.width'\?\)"):
        config_entries.changed(config, {"model.widht": 16})


def test_a_number_is_no_config():
    with pytest.raises(TypeError, match="needed a mapping, a dataclass or a ConfigDict, got int"):
        config_entries.flat(3)


def test_a_grid_has_all_combinations():
    points = sweep.grid({"a": [1, 2, 3], "b": ["x", "y"]})
    assert len(points) == 6 and points[1] == {"a": 1, "b": "y"}
    assert sweep.grid({}) == [{}]


def test_random_points_stay_inside_and_do_not_depend_on_the_count():
    rates = {"rate": sweep.log_uniform(1e-4, 1e-1)}
    space = {**rates, "width": sweep.integers(2, 5), "kind": ["a", "b"]}
    space["drop"] = sweep.uniform(0, 1)
    points = sweep.random_points(space, 200)
    assert points[:5] == sweep.random_points(space, 5) != sweep.random_points(space, 5, seed=1)
    assert {p["width"] for p in points} == {2, 3, 4, 5}
    assert {p["kind"] for p in points} == {"a", "b"}
    assert all(1e-4 <= p["rate"] <= 1e-1 and 0 <= p["drop"] <= 1 for p in points)
    assert 50 < sum(p["rate"] < 10**-2.5 for p in points) < 150  # half of them, by logarithms
    assert [p["rate"] for p in points] == [p["rate"] for p in sweep.random_points(rates, 200)]


@pytest.mark.parametrize(("call", "message"), [
    (lambda: sweep.grid({"a": []}), "a list of values for 'a', got []"),
    (lambda: sweep.grid({"a": "text"}), "a list of values for 'a', got 'text'"),
    (lambda: sweep.grid({"a": 3}), "a list of values for 'a', got 3"),
    (lambda: sweep.grid({"a": [object()]}), "for 'a', got a object"),
    (lambda: sweep.uniform(1, 1), "needed low < high, got 1 and 1"),
    (lambda: sweep.log_uniform(0, 1), "needed low > 0, got 0"),
    (lambda: sweep.random_points({"a": [1]}, 0), "needed count >= 1, got 0"),
])  # fmt: skip
def test_wrong_points_are_told(call, message):
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    assert message in str(caught.value).splitlines()[0]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A sweep with failures, and its results."""
    folder = tmp_path_factory.mktemp("sweep")
    points = sweep.grid({"rate": [5, 13, 14, 4, 15]})
    environments = [{"SLOT": "0"}, {"SLOT": "1"}]
    results = sweep.run(
        sweep_runs.parabola, {"rate": 1, "seed": 0}, points, folder, workers=2,
        environments=environments,
    )  # fmt: skip
    return folder, points, results


def calls(folder):
    return sorted(map(int, (folder / "calls.txt").read_text().split()))


def test_results_are_in_the_order_of_points_and_failures_are_recorded(whole):
    folder, points, results = whole
    assert [r.point for r in results] == points
    assert [r.is_finished for r in results] == [True, False, False, True, True]
    assert results[0].metrics["loss"] == 4 and results[0].metrics["slot"] in (0, 1)
    assert "model" not in results[0].metrics  # a text is no metric
    assert results[1].error == "RuntimeError: diverged"
    assert "SIGKILL" in results[2].error
    assert results[4].metrics["loss"] != results[4].metrics["loss"]
    (log,) = folder.glob("rate=13-*/log.txt")
    assert "in the second step" in log.read_text()
    for line in (folder / "results.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)  # plain JSON, without NaN
    assert "SLOT" not in os.environ


def test_what_has_finished_is_not_run_again(whole):
    folder, points, results = whole
    config = {"rate": 1, "seed": 0}
    before = calls(folder)
    again = sweep.run(sweep_runs.parabola, config, points, folder, retry_failed=False)
    assert [r.error for r in again] == [r.error for r in results] and calls(folder) == before
    with open(folder / "results.jsonl", "a") as file:
        file.write('{"point": {"rate": 4}, "stat')  # killed while it wrote
    more = [{"rate": 13}, {"rate": 5}]
    one = sweep.run(sweep_runs.parabola, config, more, folder, environments=[{"SLOT": "7"}])
    assert calls(folder) == sorted([*before, 13]) and [bool(r.error) for r in one] == [True, False]
    assert len(sweep.read(folder)) == 5


def test_results_of_another_config_are_refused(whole):
    folder, points, _ = whole
    with pytest.raises(ValueError, match=r"seed=0 \(now 1\) \(use another folder\)"):
        sweep.run(sweep_runs.parabola, {"rate": 1, "seed": 1}, points, folder)
    with pytest.raises(ValueError, match="results of tests.training.sweep_runs:parabola"):
        sweep.run(sweep_runs.waits, {"rate": 1, "seed": 0}, points, folder)


def test_the_table_is_sorted_and_ends_with_failures(whole, capsys):
    folder, _, results = whole
    lines = sweep.table(results, "loss").splitlines()
    assert [line.split()[0] for line in lines] == ["rate", "4", "5", "15", "13", "14"]
    assert "RuntimeError: diverged" in lines[4]
    assert [x.split()[0] for x in sweep.table(results, "loss", largest=True).splitlines()[1:3]] == [
        "5", "4",
    ]  # fmt: skip
    assert sweep.main([str(folder), "loss"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == lines[1]
    assert sweep.main([str(folder), "sloth"]) == 1
    assert "(did you mean 'slot'?)" in capsys.readouterr().err
    assert sweep.main([str(folder / "none"), "loss"]) == 1 and sweep.main([]) == 2
    assert sweep.table([], "loss").split() == ["loss", "seconds"]


@pytest.mark.parametrize("damage", [b"\xff\n", b"[]\n", b'{"point": 3}\n'])
def test_a_damaged_file_of_results(tmp_path, damage):
    (tmp_path / "results.jsonl").write_bytes(b'{"function": "f", "config": {}}\n' + damage)
    with pytest.raises(UnreadableFileError, match="line 2 of"):
        sweep.read(tmp_path)


def test_metrics_may_come_from_a_file_and_settings_be_a_dataclass(tmp_path):
    (result,) = sweep.run(
        sweep_runs.writes_metrics, Settings(), [{"model.width": 6}, {"model.width": 6}], tmp_path
    )
    assert result.metrics == {"eval_loss": 3.0}
    assert result == sweep.read(tmp_path)[0]


def test_functions_that_no_other_process_finds_are_refused(tmp_path):
    def local(config, folder):
        pass

    for function in (local, lambda config, folder: None, 3):
        with pytest.raises(ValueError, match="that another process can import"):
            sweep.run(function, {"rate": 1}, [{"rate": 2}], tmp_path / "x")
    with pytest.raises(ValueError, match="needed workers >= 1"):
        sweep.run(sweep_runs.parabola, {"rate": 1}, [{"rate": 2}], tmp_path / "x", workers=0)
    with pytest.raises(ValueError, match="did you mean 'rate'"):
        sweep.run(sweep_runs.parabola, {"rate": 1}, [{"rat": 2}], tmp_path / "x")
    assert not (tmp_path / "x").exists()


WAITING = """
import signal, sys
from tests.training import sweep_runs
from toile.training import sweep

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
    sweep.run(sweep_runs.waits, {"rate": 1}, [{"rate": 2}], sys.argv[1])
"""


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_runs_end_with_the_sweep_and_may_save(ending, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(WAITING)
    env = {**os.environ, "PYTHONPATH": os.getcwd()}
    command = [sys.executable, str(script), str(tmp_path / "sweep")]
    process = subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)
    (folder,) = wait_for(lambda: list(tmp_path.glob("sweep/rate=2-*/running")))
    process.send_signal(ending)
    process.wait(20)
    wait_for((folder.parent / "stopped").exists)
    assert sweep.read(tmp_path / "sweep") == []  # it has not finished: the next call runs it


def wait_for(found):
    end = time.monotonic() + 20
    while not (value := found()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return value


def test_a_result_knows_whether_it_finished():
    assert Result({}, {}).is_finished and not Result({}, {}, "ValueError").is_finished
