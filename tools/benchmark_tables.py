"""The benchmark page: charts and tables of the results in benchmarks/results.

Medians and ratios are taken from the files; only units are converted.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tools import charts

HEAD = """# Benchmarks

Each section shows one file under `benchmarks/results`, and the command that wrote this file.
Shorter bars are better. Each row has its own scale, because times range from microseconds to
seconds. The table below the charts contains all numbers. `make bench` runs the benchmarks on your
machine.

Times are medians over rounds in which the libraries take turns on the same machine. In each round,
toile's time is divided by the other library's time. The ratio is the median of these quotients; if
it is below 1, toile is faster. In the tables, ratios that miss their goal are bold.

| row | what is measured |
| --- | --- |
| `train MODEL` | one training step; sizes that are not the defaults follow the name |
| `softmax`, `layer norm`, `gelu`, `cross-entropy` | one operation with its gradient |
| `adam` | one update of the optimizer |
| `scan grad` | the gradient of a `scan` with 10,000 iterations |
| `call N leaves` | the overhead of calling a jitted function with `N` arrays |
| `tiny grad` | the gradient of a tiny network |
| `eager` | one operation outside `jit` |
| `start MODEL` | from import to first step, with an empty (`cold`) or full (`warm`) disk cache |
| `new batch MODEL` | the first call with a new batch size |
"""
TITLES = {
    "cpu": "Compiled, on the CPU", "gpu": "Compiled, on a GPU", "eager": "Eager calls",
    "modules": "Modules", "optim": "Optimizers", "examples": "Steps of the examples",
    "parallel": "Several devices", "compare": "Two commits compared",
    "scaling": "Sums over threads and processes", "operations": "Map of operations",
    "programs": "Programs of many kinds",
    "low_precision": "bfloat16 and 8-bit integers on one CPU core",
    "generation": "Generating text", "checks": "Cost of checks",
}  # fmt: skip
MORE = {  # times that are not in a library's column, and the page's wording for them
    "toile copy": "a copy of the same size takes {}",
    "toile cupy + 3 us": "the limit, CuPy's time plus 3 µs, is {}",
    "toile forward": "the forward pass takes {} in toile",
    "jax forward": "{} in jax", "torch forward": "{} in torch",
}  # fmt: skip
SUMMARY = {  # keys in the files, and the page's wording for them
    "training, geometric mean speedup over the better peer":
        "training: geometric mean of the speedups over the faster of the other libraries",
    "which needs": "goal for this mean",
}  # fmt: skip
SLOWEST = 100  # how many cells of a map are listed
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (0.0, "ns"))


def seconds(t: float | None) -> str:
    """A time with three digits and a unit."""
    if t is None:
        return "–"
    size, unit = next(u for u in UNITS if t >= u[0])
    return f"{t / (size or 1e-9):.3g}\N{NO-BREAK SPACE}{unit}"


def page(folder: Path) -> str:
    """The page, with a section for each file; the sections are grouped by kind."""
    names = list(TITLES)
    files = sorted(folder.glob("*.json"), key=lambda p: (_kind(p, names), p.name))
    return "\n".join([HEAD, *(section(p) for p in files)])


def _kind(path: Path, names: list[str]) -> int:
    kind = path.name.split("-")[0]
    return names.index(kind) if kind in names else len(names)


def section(path: Path) -> str:
    """The section for a file: a heading, facts about the run, charts and a table."""
    found = json.loads(path.read_text())
    kind, _, machine = path.stem.partition("-")
    lines = [f"## {TITLES.get(kind, kind)}: {machine or found.get('machine', '')}", ""]
    lines += [f"`{found.get('command') or f'python -m benchmarks.{kind}'}`", ""]
    lines += [circumstances(found), ""]
    lines += [f"File: `benchmarks/results/{path.name}`", ""]
    if "what" in found:
        lines += [found["what"], ""]
    if kind == "operations":
        slowest = f"Table of the {SLOWEST} slowest cells"
        lines += [*operations(found), *folded(slowest_table(found), slowest)]
    elif kind == "compare":
        lines += [*ratio_charts(found), *folded(compared_table(found))]
    elif "rows" in found:
        lines += [*summary(found.get("summary", {})), ""]
        lines += [*time_charts(medians(found)), *folded(goals_table(found["rows"]))]
    elif "steps" in found:
        lines += [*check_charts(found["steps"]), *folded(check_table(found["steps"]))]
    elif isinstance(found.get("results"), dict):
        lines += [*time_charts(medians(found)), *folded(medians_table(found["results"]))]
    return "\n".join([*lines, ""])


def folded(table: Iterator[str], title: str = "Table of all rows") -> Iterator[str]:
    """A table that is initially folded and is not in the search index."""
    yield f'<details markdown="1" data-search-exclude><summary>{title}</summary>'
    yield ""
    yield from table
    yield ""
    yield "</details>"
    yield ""


def medians(found: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """The seconds by row and library, without rows that were not measured."""
    rows: dict[str, dict[str, float]] = {}
    for title, row in (found.get("rows") or found["results"]).items():
        times = row.get("median") or {k: t * 1e-6 for k, t in row.get("median_us", {}).items()}
        times = {k.replace("_", " "): t for k, t in times.items() if t is not None and " " not in k}
        if times:
            rows[title] = times
    return rows


def families(rows: Mapping[str, Any]) -> dict[str, list[str]]:
    """Group titles by their first word if at least three share it; the others form one group."""
    first = {title: title.split()[0] for title in rows}
    often = {w for w in first.values() if list(first.values()).count(w) >= 3}
    found: dict[str, list[str]] = {}
    for title, word in first.items():
        found.setdefault(word if word in often else "other rows", []).append(title)
    return found


def time_charts(rows: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """A chart of times for each family of rows."""
    shown = {title: {k: seconds(t) for k, t in row.items()} for title, row in rows.items()}
    for family, titles in families(rows).items():
        name = f"Median times of {family}: {', '.join(titles)}"
        yield charts.bars({t: rows[t] for t in titles}, name, shown)
        yield ""


def ratio_charts(found: Mapping[str, Any]) -> Iterator[str]:
    """Charts of the new commit's times divided by the old commit's times."""
    rows = {t: {"ratio": r["ratio"]} for t, r in found["rows"].items() if r["ratio"] is not None}
    shown = {t: {"ratio": f"{r['ratio']:.3f}"} for t, r in rows.items()}
    largest = max((r["ratio"] for r in rows.values()), default=1.0)
    yield f"Times of {found['new']}, divided by the times of {found['old']}:"
    yield ""
    for family, titles in families(rows).items():
        name = f"Ratios of {family}: {', '.join(titles)}"
        yield charts.bars({t: rows[t] for t in titles}, name, shown, largest)
        yield ""


def check_charts(steps: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """A chart of how much longer each training step takes with each check."""
    shown = {t: {k: f"{r:.3f}" for k, r in row.items()} for t, row in steps.items()}
    yield "Times of training steps with a check of `toile.checks`, divided by those without it:"
    yield ""
    yield charts.bars(steps, f"Ratios of training steps: {', '.join(steps)}", shown)
    yield ""


def check_table(steps: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """The ratios of `check_charts`."""
    names = list(dict.fromkeys(name for row in steps.values() for name in row))
    body = [[step, *(f"{row[name]:.3f}" for name in names)] for step, row in steps.items()]
    yield from table(["training step", *names], body)


def operations(found: Mapping[str, Any]) -> Iterator[str]:
    """The map, with a square for each cell, and the distribution of the ratios."""
    groups: dict[str, list[float]] = {}
    for key, ratio, *_ in found["cells"]:
        groups.setdefault(key.split(" | ")[0], []).append(ratio)
    yield ("Each square represents a public function, its gradient, or its gradient for each "
           "example of a batch, at one size and in one dtype. The color shows the time of the "
           "faster of JAX and PyTorch divided by toile's time; above 1, toile is faster.")
    yield ""
    yield charts.grades()
    yield ""
    yield charts.cell_map({k: sorted(v) for k, v in groups.items()}, "Map of operations")
    yield ""
    rows = [*groups.items(), ("all", [r for v in groups.values() for r in v])]
    body = [[name, str(len(v)), f"{statistics.median(v):.2f}",
             f"{sum(r >= 0.8 for r in v) / len(v):.1%}", str(sum(r < 0.5 for r in v))]
            for name, v in rows]
    yield from table(["group", "cells", "median", "at least 0.8", "below 0.5"], body)
    yield ""


def slowest_table(found: Mapping[str, Any], count: int = SLOWEST) -> Iterator[str]:
    """The cells with the smallest ratios."""
    cells = sorted(found["cells"], key=lambda c: c[1])[:count]
    body = [[key.replace(" | ", ", "), f"{ratio:.2f}", seconds(ours * 1e-6), seconds(theirs * 1e-6),
             peer] for key, ratio, peer, ours, theirs in cells]
    yield from table(["cell", "ratio", "toile", "fastest other library", "its name"], body)


def compared_table(found: Mapping[str, Any]) -> Iterator[str]:
    """The rows of `benchmarks.compare`; ratios above the limit are bold."""
    yield f"| row | {found['old']} | {found['new']} | ratio | middle half of the rounds |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for title, row in found["rows"].items():
        if row["ratio"] is None:
            yield f"| {title} | – | – | not measured | |"
            continue
        old, new, *_ = row["median"].values()
        ratio = f"**{row['ratio']:.3f}**" if row["slower"] else f"{row['ratio']:.3f}"
        low, high = row["spread"]
        yield f"| {title} | {seconds(old)} | {seconds(new)} | {ratio} | {low:.3f} to {high:.3f} |"


def circumstances(found: Mapping[str, Any]) -> str:
    """A line with the machine and the versions."""
    facts = [str(found[k]) for k in ("machine", "cpu") if found.get(k)]
    facts += [f"{found[k]} {k.removesuffix('s') if found[k] == 1 else k}"
              for k in ("cores", "threads") if found.get(k)]  # fmt: skip
    versions = dict(found.get("versions", {}))
    if "python" in found:
        versions.setdefault("python", found["python"])
    return "; ".join([", ".join(facts), ", ".join(f"{k} {v}" for k, v in versions.items())])


def table(head: list[str], rows: list[list[str]]) -> Iterator[str]:
    """A Markdown table whose columns contain titles, then numbers, then words."""
    yield "| " + " | ".join(head) + " |"
    yield "| --- |" + " ---: |" * (len(head) - 2) + " --- |"
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def goals_table(rows: Mapping[str, Any]) -> Iterator[str]:
    """A table of medians by library, and of ratios with their goals."""
    columns = list(dict.fromkeys(c for r in rows.values() for c in r.get("median", {})))
    shown = [c for c in columns if " " not in c]  # the others are shown below the table
    body = []
    for title, row in rows.items():
        median = row.get("median", {})
        goals = "; ".join(goal(g) for g in row.get("goals", ()))
        times = [seconds(median.get(c)) for c in shown]
        if not median:
            goals = f"not measured; {goals}" if goals else "not measured"
        body.append([title, *times, goals])
    yield from table(["", *(c.replace("_", " ") for c in shown), "ratios (goal)"], body)
    yield ""
    for title, row in rows.items():
        more = {c: seconds(t) for c, t in row.get("median", {}).items() if c not in shown}
        if more:
            times = (MORE.get(c, f"{c}: {{}}").format(t) for c, t in more.items())
            yield f"- {title}: {', '.join(times)}"


def goal(g: Mapping[str, Any]) -> str:
    """A ratio with its goal, in bold if it misses the goal."""
    if g["value"] is None:
        return f"{g['what']}: not measured"
    text = f"{g['what']} {g['value']:.3g} (≤ {g['limit']:.3g})"
    return text if g["met"] else f"**{text}**"


def summary(found: Mapping[str, Any]) -> Iterator[str]:
    """The summary of a file, as a list."""
    for key, value in found.items():
        name = SUMMARY.get(key, key)
        if isinstance(value, (str, int, float)):
            yield f"- {name}: {value}"
        elif value:
            yield f"- {name}: {'; '.join(map(str, value))}"


def medians_table(results: Mapping[str, Any]) -> Iterator[str]:
    """A table of medians in microseconds, and of ratios."""
    columns = list(dict.fromkeys(c for r in results.values() for c in r["median_us"]))
    body = []
    for title, row in results.items():
        times = [seconds(None if (t := row["median_us"].get(c)) is None else t * 1e-6)
                 for c in columns]  # fmt: skip
        ratios = "; ".join(f"{k} {v:.3g}" for k, v in row.get("ratios", {}).items())
        body.append([title, *times, ratios])
    yield from table(["", *(c.replace("_", " ") for c in columns), "ratios"], body)
