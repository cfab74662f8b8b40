"""Charts of the documentation, and the numbers of its first page."""

from __future__ import annotations

import json
import pathlib
import re
import xml.etree.ElementTree as ElementTree

import pytest

from tools import benchmark_tables, charts

ROOT = pathlib.Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
INDEX = (ROOT / "docs" / "index.md").read_text()
SVG = "{http://www.w3.org/2000/svg}"


def rectangles(picture: str) -> list[ElementTree.Element]:
    return [r for r in ElementTree.fromstring(picture).iter(f"{SVG}rect") if r.get("x") == "250"]


def test_bars_are_as_long_as_their_numbers():
    rows = {"a & b": {"toile": 1.0, "jax": 4.0}, "c": {"toile": 3.0, "jax": 1.5}}
    shown = {t: {k: str(v) for k, v in row.items()} for t, row in rows.items()}
    picture = charts.bars(rows, "a title", shown)
    widths = [float(r.get("width", 0)) for r in rectangles(picture)][-4:]
    assert widths[0] / widths[1] == pytest.approx(0.25, abs=1e-3)
    assert widths[3] / widths[2] == pytest.approx(0.5, abs=1e-3)
    assert "a &amp; b" in picture and ElementTree.fromstring(picture).get("aria-label") == "a title"


def test_bars_on_one_scale():
    rows = {"a": {"ratio": 1.0}, "b": {"ratio": 0.5}}
    shown = {"a": {"ratio": "1"}, "b": {"ratio": "0.5"}}
    first, second = (float(r.get("width", 0)) for r in rectangles(charts.bars(rows, "", shown, 1)))
    assert second == pytest.approx(first / 2)


def test_curve_has_a_point_for_every_evaluation():
    path = ROOT / "docs" / "mnist-run.jsonl"
    losses, accuracies = charts.run_of(path)
    root = ElementTree.fromstring(charts.curve(path))
    assert len(list(root.iter(f"{SVG}circle"))) == len(accuracies) == 12
    (line,) = root.iter(f"{SVG}polyline")
    assert len(line.get("points", "").split()) == len(losses) == 37
    assert f"{accuracies[-1][1]:.1%}" in root.get("aria-label", "")


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda p: p.stem)
def test_section_of_a_file_has_a_bar_for_every_number(path):
    found = json.loads(path.read_text())
    section = benchmark_tables.section(path)
    pictures = re.findall(r"<svg.*?</svg>", section)
    bars = [r for p in pictures for r in rectangles(p) if r.get("y") != "6"]
    if path.name.startswith("compare"):
        expected = sum(r["ratio"] is not None for r in found["rows"].values())
    else:
        expected = sum(map(len, benchmark_tables.medians(found).values()))
    assert len(bars) == expected > 0
    assert section.count("<details") == 1 and f"results/{path.name}" in section


def test_families_are_rows_with_the_same_first_word():
    rows = dict.fromkeys(["train a", "train b", "softmax", "train c", "adam"])
    assert benchmark_tables.families(rows) == {
        "train": ["train a", "train b", "train c"], "other rows": ["softmax", "adam"],
    }  # fmt: skip


@pytest.mark.parametrize("name", ["cpu-neoverse-n1", "gpu-nvidia-h200"])
def test_speeds_on_the_first_page_are_those_of_their_files(name):
    summary = json.loads((RESULTS / f"{name}.json").read_text())["summary"]
    speed = summary["training, geometric mean speedup over the better peer"]
    before = INDEX[: INDEX.index(f"results/{name}.json")]
    assert before[before.rindex("**", 0, before.rindex("**")) :].startswith(f"**{speed:.2f}×**")


def test_names_on_the_first_page_are_those_that_are_counted():
    jax = pytest.importorskip("jax")
    from tools.api_coverage import compare_all

    reports = compare_all()
    total, missing = sum(r.total for r in reports), sum(len(r.missing) for r in reports)
    shown = re.search(r"\*\*([\d,]+) of ([\d,]+)\*\*.*\n\npublic names of JAX ([\d.]+),", INDEX)
    assert shown is not None
    if jax.__version__.startswith(f"{shown[3]}."):
        numbers = [int(n.replace(",", "")) for n in shown.groups()[:2]]
        assert numbers == [total - missing, total]
