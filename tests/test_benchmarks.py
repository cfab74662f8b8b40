"""The CPU benchmark runs: tiny cases of toile, and one of each peer that is installed."""

from __future__ import annotations

import importlib
import json
import random
from contextlib import closing
from importlib.util import find_spec

import jax
import numpy as np
import pytest

from benchmarks import (
    checks,
    compare,
    cpu_child,
    cpu_jaxlike,
    cpu_report,
    cpu_rows,
    gpu,
    low_precision,
    operations,
    zoo,
)
from benchmarks.children import KNOWN, ROOT, Child, Load
from tests.seeds import today
from tools import benchmark_tables

CASES = [("train", "mlp:batch=4,width=8", 0.01), ("operation", "cross-entropy,2048", 0.01)]
CASES += [("scan", "covariance,5", 0.01), ("resize", "mlp:batch=8,width=8", 16)]


def test_the_cost_of_a_check_is_measured():
    found = checks.measured("mlp", {"batch": 4, "width": 8}, rounds=2)
    assert set(found) == set(checks.CHECKS) and min(found.values()) > 0


@pytest.mark.parametrize("framework", cpu_rows.FRAMEWORKS)
def test_a_child_runs_cases(framework):
    if not find_spec(framework):
        pytest.skip(f"{framework} is not installed")
    with closing(Child(framework, threads=1)) as child:
        for kind, spec, argument in CASES if framework == "toile" else CASES[:1]:
            facts = child.build(kind, spec)
            assert "error" not in facts
            assert max(facts.get("errors", [0.0])) < 1e-5
            with Load(child) as load:
                answer = child.ask(window="", argument=argument)
            assert answer["seconds"] > 0
            assert (load.share is not None) == KNOWN
        assert child.ask(ready=1) == {}
        assert child.ask(memory=1)["megabytes"] > 10
        assert "KeyError" in child.build("none", "")["error"]


def test_rows_have_titles_of_their_own():
    titles = [row.title for row in cpu_rows.rows()]
    assert len(set(titles)) == len(titles)
    assert cpu_rows.scaled("resnet50:batch=4,size=128", 0.5) == "resnet50:batch=2,size=128"


def test_goals_are_judged_by_the_better_peer():
    row = next(cpu_rows.rows())
    seconds = [{"toile": 1.0, "jax": 2.0, "torch": 3.0}, {"toile": 4.0, "jax": 2.0, "torch": 3.0}]
    rounds = [{"seconds": s, "answers": {}} for s in seconds]
    facts = {"toile": {"check": [1.0]}, "jax": {"check": [1.1]}}
    result = cpu_report.judge(row, rounds, facts)
    assert [(g["value"], g["met"]) for g in result["goals"][:1]] == [(1.25, False)]
    assert not result["goals"][1]["met"]  # losses differ by more than 1e-4
    assert cpu_report.judge(row, [], {})["goals"][0]["met"] is False  # never measured


def test_checkouts_are_compared(tmp_path, monkeypatch, capsys):
    """A row in two checkouts, the old one's toile changed so that the child can be told apart."""
    old = tmp_path / "old"
    (old / "toile").mkdir(parents=True)
    for path in (ROOT / "toile").iterdir():
        (old / "toile" / path.name).symlink_to(path)
    file = tmp_path / "compared.json"
    monkeypatch.setattr(compare, "LIMIT", 1e9)
    given = ["--old", str(old), "--rows", "cpu", "--only", "call 1 leaves", "--rounds", "3",
             "--window", "0.01", "--any-load", "--json", str(file)]
    assert compare.main(given) == 0
    found = json.loads(file.read_text())
    (row,) = found["rows"].values()
    assert found["machine"] and len(row["rounds"]) == 3 and not row["slower"]
    assert {*row["facts"]} == {"old", "new"} and "first" not in row
    low, high = row["spread"]
    assert 0 < low <= row["ratio"] <= high
    assert "call 1 leaves" in capsys.readouterr().out
    table = "\n".join(benchmark_tables.compared_table(found))
    assert "| call 1 leaves |" in table and f"{row['ratio']:.3f}" in table
    monkeypatch.setattr(compare, "measure", None)  # it has that row
    assert compare.main([*given, "--keep"]) == 0


@pytest.mark.parametrize(("first", "second", "slower"), [(1.01, None, False), (1.2, 1.02, False),
                                                         (1.2, 1.1, True)])
def test_rows_that_look_slower_are_measured_again(first, second, slower, monkeypatch):
    asked = []

    def rounds(row, args, count, facts):
        asked.append(count)
        ratio = first if len(asked) == 1 else second
        noisy = {"seconds": {"old": 1.0, "new": 9.0}, "clean": False}
        return [{"seconds": {"old": 2.0, "new": 2.0 * ratio}, "clean": True}] * count + [noisy]

    monkeypatch.setattr(compare, "rounds_of", rounds)
    args = compare.arguments(["--old", str(ROOT), "--rounds", "4", "--any-load"])
    result = compare.measure(compare.rows_of("cpu")[0], args)
    assert result["slower"] is slower
    assert asked == ([4] if second is None else [4] * (1 + compare.PAIRS))
    assert result["ratio"] == pytest.approx(first if second is None else second)
    assert ("SLOWER" in compare.line("row", result)) is slower


def test_low_precision_is_measured_beside_float32(tmp_path, monkeypatch, capsys):
    titles = [case.title for case in low_precision.cases()]
    assert len(titles) == len(set(titles)) > 30
    monkeypatch.setattr(low_precision, "one_thread", lambda: None)
    monkeypatch.setattr(low_precision, "PRODUCTS", ((16, 32, 16),))
    monkeypatch.setattr(low_precision, "BATCHES", ((2, 8, 16, 8),))
    monkeypatch.setattr(low_precision, "CONVOLUTIONS", ((1, 6, 4, 8, 3, 2),))
    file = tmp_path / "low_precision-here.json"
    given = ["--rounds", "2", "--only", "product,6 x 6 x 4", "--json", str(file)]
    assert low_precision.main(given) == 0
    results = json.loads(file.read_text())["results"]
    assert len(results) == 2 * 3 + 3 * 2
    for title, row in results.items():
        assert row["median_us"]["toile"] > 0 and row["ratios"]["toile/toile in float32"] > 0
        assert ("jax" in row["median_us"]) and title in "\n".join(benchmark_tables.section(
            file).splitlines())
    assert "int8" in capsys.readouterr().out


def test_compared_rows():
    assert len(compare.rows_of("cpu")) == len(list(cpu_rows.rows()))
    assert all(r.title.startswith("train ") for r in compare.rows_of("gpu-training"))
    assert len(compare.rows_of("gpu")) == len(list(gpu.rows()))
    with pytest.raises(SystemExit):
        compare.arguments(["--old", str(ROOT / "tests")])


def test_a_row_that_cannot_be_measured_is_said():
    facts = {"old": {"error": "KeyError: 'new kind'"}, "new": {}}
    row = {"ratio": None, "facts": facts}
    assert "old: KeyError: 'new kind'" in compare.line("row", row)
    assert "--any-load" in compare.line("row", {**row, "facts": {}})


def test_cells_of_the_map_have_names_of_their_own():
    found = [m.key for m in operations.measurements()]
    assert len(found) > 2000 and len(set(found)) == len(found)


def sampled_cells():
    """A cell of each group, another one each day."""
    rng = random.Random(today())
    small = [m for m in operations.measurements() if m.size == "small"]
    groups = sorted({m.group for m in small})
    return [m for g in groups for m in rng.sample([m for m in small if m.group == g], 1)]


@pytest.mark.cpu
@pytest.mark.filterwarnings("ignore")
def test_libraries_agree_on_cells_of_the_map():
    """What is timed is the same computation in toile and in JAX."""
    peers, wrong = operations.Peers("cpu"), []
    for m in sampled_cells():
        calls = peers.calls(m)
        got, want = (jax.tree.leaves(calls[name]()) for name in ("toile", "jax"))
        for a, b in zip(got, want, strict=True):
            a, b = np.asarray(a), np.asarray(b)
            if a.shape != b.shape or a.dtype != b.dtype:
                wrong.append((m.key, a.shape, b.shape, a.dtype, b.dtype))
            elif a.dtype.kind == "f" and "random" not in m.key and "optim" not in m.key:
                scale = np.abs(b[np.isfinite(b)]).max(initial=1e-3)
                if not np.allclose(a, b, rtol=1e-2, atol=1e-2 * scale, equal_nan=True):
                    wrong.append((m.key, a.ravel()[:4], b.ravel()[:4]))
    assert not wrong


def test_a_map_is_continued_and_summed_up(tmp_path):
    path = tmp_path / "map.jsonl"
    lines = [{"key": "a | f | forward | small | float32", "ratio": 0.4, "peer": "jax",
              "toile us": 10.0, "jax us": 4.0},
             {"key": "a | g | forward | small | float32", "ratio": 2.0, "peer": "torch",
              "toile us": 1.0, "torch us": 2.0},
             {"key": "b | h | forward | small | float32", "toile error": "TypeError: no"}]
    facts = operations.run_facts()
    runs = [{"run": facts | {"versions": facts["versions"] | {"commit": c}}} for c in ("1a", "2b")]
    lines = [runs[0], *lines[:2], runs[1], lines[2]]
    path.write_text("".join(json.dumps(x) + "\n" for x in lines))
    found = operations.read(path)
    text = operations.table(found, 1)
    assert "50.0%" in text and "0.400" in text and "failed in toile: b | h" in text
    assert "a | g" not in text  # only the slowest one is listed
    kept = operations.results(found, "cpu", operations.runs_of(path))
    assert [c[1:4] for c in kept["cells"]] == [[0.4, "jax", 10.0], [2.0, "torch", 1.0]]
    assert kept["versions"]["jax"] and kept["cores"]
    assert kept["versions"]["commit"] == "1a, 2b"  # cells of two commits are not those of one


def test_windows_of_groups():
    calls = []
    window = cpu_child.timed(lambda: calls.append(1), lambda _: None, 5)
    for target in (0.0, 1e-4):
        assert window(target)["calls"] % 5 == 0
    assert len(calls) % 5 == 0


@pytest.mark.parametrize("framework", ["toile", "torch"])
def test_a_program_restarts(framework, monkeypatch):
    """All windows measure the same steps, although later steps take longer and longer."""
    if not find_spec(framework):
        pytest.skip(f"{framework} is not installed")
    kinds = cpu_jaxlike if framework == "toile" else importlib.import_module("benchmarks.cpu_torch")
    captured = []
    monkeypatch.setattr(kinds, "timed", lambda *arguments: captured.append(arguments))
    case = kinds.program(framework, "natural gradient,tiny")
    ((once, _, group),) = captured
    assert group == zoo.programs()["natural gradient"].restarts
    results = [float(once()) for _ in range(3 * group)]
    assert results[:group] == results[group:2 * group] == results[2 * group:]
    assert len(set(results)) == group
    if framework == "toile":
        assert case.facts["check"] == [abs(results[group - 1])]  # the first step came before
