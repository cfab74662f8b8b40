"""The page of benchmarks: charts and tables of the results committed under benchmarks/results.

Nothing is computed here but units: medians and ratios are those of the files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tools import charts

HEAD = """# Benchmarks

Each section is made from one file under `benchmarks/results`, which the command below its heading
wrote. Shorter bars are better. The bars of a row are drawn to the scale of its longest bar, because
rows range from microseconds to seconds; the table behind each chart has every number.

Times are medians over rounds in which the libraries take turns on the same machine. A ratio is the
median over rounds of toile's time divided by the other's in the same round: below 1, toile is
faster. Ratios that miss their goal are in bold in the tables. `make bench` measures on your
machine.
"""
TITLES = {
    "cpu": "Compiled, on the CPU", "gpu": "Compiled, on a GPU", "eager": "Eager calls",
    "modules": "Modules", "optim": "Optimizers", "examples": "Steps of the examples",
    "parallel": "Several devices", "compare": "Two commits compared",
    "scaling": "Sums over threads and processes",
}  # fmt: skip
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (0.0, "ns"))


def seconds(t: float | None) -> str:
    """A time with three digits and a unit."""
    if t is None:
        return "–"
    size, unit = next(u for u in UNITS if t >= u[0])
    return f"{t / (size or 1e-9):.3g}\N{NO-BREAK SPACE}{unit}"


def page(folder: Path) -> str:
    """All files, those of one kind together."""
    names = list(TITLES)
    files = sorted(folder.glob("*.json"), key=lambda p: (_kind(p, names), p.name))
    return "\n".join([HEAD, *(section(p) for p in files)])


def _kind(path: Path, names: list[str]) -> int:
    kind = path.name.split("-")[0]
    return names.index(kind) if kind in names else len(names)


def section(path: Path) -> str:
    """The heading, the circumstances and the table of one file."""
    found = json.loads(path.read_text())
    kind, _, machine = path.stem.partition("-")
    lines = [f"## {TITLES.get(kind, kind)}: {machine or found.get('machine', '')}", ""]
    lines += [f"`{found.get('command') or f'python -m benchmarks.{kind}'}`", ""]
    lines += [circumstances(found), ""]
    lines += [f"File: `benchmarks/results/{path.name}`", ""]
    if kind == "compare":
        lines += [*ratio_charts(found), *folded(compared_table(found))]
    elif "rows" in found:
        lines += [*summary(found.get("summary", {})), ""]
        lines += [*time_charts(medians(found)), *folded(goals_table(found["rows"]))]
    elif isinstance(found.get("results"), dict):
        lines += [*time_charts(medians(found)), *folded(medians_table(found["results"]))]
    return "\n".join([*lines, ""])


def folded(table: Iterator[str]) -> Iterator[str]:
    """A table that is shown when the reader asks for it; search does not need its numbers."""
    yield '<details markdown="1" data-search-exclude><summary>Table of all rows</summary>'
    yield ""
    yield from table
    yield ""
    yield "</details>"
    yield ""


def medians(found: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Seconds by row and library; what was not measured is left out."""
    rows: dict[str, dict[str, float]] = {}
    for title, row in (found.get("rows") or found["results"]).items():
        times = row.get("median") or {k: t * 1e-6 for k, t in row.get("median_us", {}).items()}
        times = {k.replace("_", " "): t for k, t in times.items() if t is not None and " " not in k}
        if times:
            rows[title] = times
    return rows


def families(rows: Mapping[str, Any]) -> dict[str, list[str]]:
    """Titles by their first word where at least three begin with it; the others together."""
    first = {title: title.split()[0] for title in rows}
    often = {w for w in first.values() if list(first.values()).count(w) >= 3}
    found: dict[str, list[str]] = {}
    for title, word in first.items():
        found.setdefault(word if word in often else "others", []).append(title)
    return found


def time_charts(rows: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """A chart of times for each family of rows."""
    shown = {title: {k: seconds(t) for k, t in row.items()} for title, row in rows.items()}
    for family, titles in families(rows).items():
        name = f"Median times of {family}: {', '.join(titles)}"
        yield charts.bars({t: rows[t] for t in titles}, name, shown)
        yield ""


def ratio_charts(found: Mapping[str, Any]) -> Iterator[str]:
    """Of two commits, the new one's time divided by the old one's."""
    rows = {t: {"ratio": r["ratio"]} for t, r in found["rows"].items() if r["ratio"] is not None}
    shown = {t: {"ratio": f"{r['ratio']:.3f}"} for t, r in rows.items()}
    largest = max((r["ratio"] for r in rows.values()), default=1.0)
    yield f"Time of {found['new']} divided by that of {found['old']}:"
    yield ""
    for family, titles in families(rows).items():
        name = f"Ratios of {family}: {', '.join(titles)}"
        yield charts.bars({t: rows[t] for t in titles}, name, shown, largest)
        yield ""


def compared_table(found: Mapping[str, Any]) -> Iterator[str]:
    """The rows of `benchmarks.compare`; what is slower than it may be is in bold."""
    yield f"| row | {found['old']} | {found['new']} | ratio | half of the rounds |"
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
    """Machine and versions in a line."""
    facts = [str(found[k]) for k in ("machine", "cpu") if found.get(k)]
    facts += [f"{found[k]} {k}" for k in ("cores", "threads") if found.get(k)]
    versions = dict(found.get("versions", {}))
    if "python" in found:
        versions.setdefault("python", found["python"])
    return "; ".join([", ".join(facts), ", ".join(f"{k} {v}" for k, v in versions.items())])


def table(head: list[str], rows: list[list[str]]) -> Iterator[str]:
    """A table in Markdown: titles, then numbers, then words."""
    yield "| " + " | ".join(head) + " |"
    yield "| --- |" + " ---: |" * (len(head) - 2) + " --- |"
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def goals_table(rows: Mapping[str, Any]) -> Iterator[str]:
    """Rows with medians by library, and goals with their limits."""
    columns = list(dict.fromkeys(c for r in rows.values() for c in r.get("median", {})))
    shown = [c for c in columns if " " not in c]  # others are in few rows: below the table
    body = []
    for title, row in rows.items():
        median = row.get("median", {})
        goals = "; ".join(goal(g) for g in row.get("goals", ()))
        times = [seconds(median.get(c)) for c in shown]
        if not median:
            goals = f"not measured; {goals}" if goals else "not measured"
        body.append([title, *times, goals])
    yield from table(["", *shown, "ratios (goal)"], body)
    for title, row in rows.items():
        more = {c: t for c, t in row.get("median", {}).items() if c not in shown}
        if more:
            yield ""
            yield f"{title}: " + ", ".join(f"{c} {seconds(t)}" for c, t in more.items()) + "."


def goal(g: Mapping[str, Any]) -> str:
    """One ratio; what misses its goal is marked."""
    if g["value"] is None:
        return f"{g['what']}: not measured"
    text = f"{g['what']} {g['value']:.3g} (≤ {g['limit']:.3g})"
    return text if g["met"] else f"**{text}**"


def summary(found: Mapping[str, Any]) -> Iterator[str]:
    """The last lines; "which needs" is the goal of the number before it."""
    following = dict(zip(found, list(found.items())[1:]))
    for name, value in found.items():
        if name == "which needs":
            continue
        after, limit = following.get(name, ("", None))
        goal = f" (goal: at least {limit})" if after == "which needs" else ""
        if isinstance(value, (str, int, float)):
            yield f"- {name}: {value}{goal}"
        elif value:
            yield f"- {name}: {'; '.join(map(str, value))}"


def medians_table(results: Mapping[str, Any]) -> Iterator[str]:
    """Rows with medians in microseconds, and ratios."""
    columns = list(dict.fromkeys(c for r in results.values() for c in r["median_us"]))
    body = []
    for title, row in results.items():
        times = [seconds(None if (t := row["median_us"].get(c)) is None else t * 1e-6)
                 for c in columns]  # fmt: skip
        ratios = "; ".join(f"{k} {v:.3g}" for k, v in row.get("ratios", {}).items())
        body.append([title, *times, ratios])
    yield from table(["", *columns, "ratios"], body)
