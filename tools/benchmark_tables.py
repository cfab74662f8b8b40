"""The page of benchmark tables, made of the results that are committed under benchmarks/results.

Nothing is computed here but units: medians and ratios are those of the files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

HEAD = """# Benchmarks

These tables are made from the files under `benchmarks/results`, which the command above each table
wrote. Times are medians over rounds in which the libraries take turns on the same machine. A ratio
is the median over rounds of toile's time by the other's in the same round: below 1, toile is the
faster. What misses its goal is in bold, and listed below its table. `make bench` measures on your
machine.
"""
TITLES = {
    "cpu": "Compiled, on the CPU", "gpu": "Compiled, on a GPU", "eager": "Eager calls",
    "modules": "Modules", "optim": "Optimizers", "examples": "Steps of the examples",
    "parallel": "Several devices", "compare": "Two commits in turns",
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
    if kind == "compare":
        lines += list(compared_table(found))
    elif "rows" in found:
        lines += list(goals_table(found["rows"]))
        lines += ["", *summary(found.get("summary", {}))]
    elif isinstance(found.get("results"), dict):
        lines += list(medians_table(found["results"]))
    return "\n".join([*lines, ""])


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
    """The last lines."""
    for name, value in found.items():
        if isinstance(value, (str, int, float)):
            yield f"- {name}: {value}"
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
