"""Charts of the documentation, and the numbers of its first page."""

from __future__ import annotations

import json
import pathlib
import re
import xml.etree.ElementTree as ElementTree

import pytest

from benchmarks import children
from tools import benchmark_tables, charts

ROOT = pathlib.Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
INDEX = (ROOT / "docs" / "index.md").read_text()
SVG = "{http://www.w3.org/2000/svg}"


def bars_of(picture: str) -> list[ElementTree.Element]:
    found = ElementTree.fromstring(picture).iter("div")
    return [e for e in found if e.get("class", "").startswith("bar ")]


def share(bar: ElementTree.Element) -> float:
    """The length of a bar, as a part of the longest possible one."""
    return float(bar.get("style", "").removeprefix("--share:"))


def test_bars_are_as_long_as_their_numbers():
    rows = {"a & b": {"toile": 1.0, "jax": 4.0}, "c": {"toile": 3.0, "jax": 1.5}}
    shown = {t: {k: str(v) for k, v in row.items()} for t, row in rows.items()}
    picture = charts.bars(rows, "a title", shown)
    assert [share(bar) for bar in bars_of(picture)] == [0.25, 1, 1, 0.5]
    assert "a &amp; b" in picture and ElementTree.fromstring(picture).get("aria-label") == "a title"


def test_bars_on_one_scale():
    rows = {"a": {"ratio": 1.0}, "b": {"ratio": 0.5}}
    shown = {"a": {"ratio": "1"}, "b": {"ratio": "0.5"}}
    first, second = map(share, bars_of(charts.bars(rows, "", shown, 1)))
    assert (first, second) == (1, 0.5)


def test_a_library_has_the_same_color_in_all_charts():
    assert charts.colors_of(["toile", "jax", "torch"]) == {"toile": 0, "jax": 1, "torch": 2}
    assert charts.colors_of(["modules", "toile", "flax"]) == {"modules": 2, "toile": 0, "flax": 1}
    style = (ROOT / "docs" / "site.css").read_text()
    many = charts.colors_of([f"{n} devices" for n in range(6)])
    assert sorted(many.values()) == list(range(6))
    assert all(style.count(f"--chart-{i}:") == 2 and f".s{i} " in style for i in many.values())


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
    pictures = re.findall(r'^<div class="bars".*</div>$', section, re.M)
    bars = [bar for picture in pictures for bar in bars_of(picture)]
    if path.name.startswith("operations"):
        squares = re.findall(r'<rect [^>]*class="g\d"/>', section)
        assert len(squares) == len(found["cells"]) > 1000 and section.count("<details") == 1
        return
    if path.name.startswith("compare"):
        expected = sum(r["ratio"] is not None for r in found["rows"].values())
    elif path.name.startswith("checks"):
        expected = sum(map(len, found["steps"].values()))
    else:
        expected = sum(map(len, benchmark_tables.medians(found).values()))
    assert len(bars) == expected > 0
    assert section.count("<details") == 1 and f"results/{path.name}" in section


def test_results_name_no_folder_of_the_machine():
    """Nor does a file that the benchmarks write from now on."""
    for path in RESULTS.glob("*.json"):
        assert not re.search(r'"/(?!/)\w+/', path.read_text()), path.name
    made = {"rows": [{"facts": {"toile": {"file": "/home/x/toile/__init__.py", "total": 1.0}}}]}
    assert children.without_files(made) == {"rows": [{"facts": {"toile": {"total": 1.0}}}]}


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
    shown = re.search(r"\*\*([\d,]+) of ([\d,]+)\*\*.*\n\npublic names of JAX ([\d.]+) ", INDEX)
    assert shown is not None
    if jax.__version__.startswith(f"{shown[3]}."):
        numbers = [int(n.replace(",", "")) for n in shown.groups()[:2]]
        assert numbers == [total - missing, total]
