"""The CPU benchmark runs: tiny cases of toile, and one of each peer that is installed."""

from __future__ import annotations

from contextlib import closing
from importlib.util import find_spec

import pytest

from benchmarks import cpu_report, cpu_rows
from benchmarks.children import KNOWN, Child, Load

CASES = [("train", "mlp:batch=4,width=8", 0.01), ("operation", "cross-entropy,2048", 0.01)]
CASES += [("scan", "covariance,5", 0.01), ("resize", "mlp:batch=8,width=8", 16)]


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
