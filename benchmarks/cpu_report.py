"""Compute medians and ratios from rounds, and whether goals are met.

A ratio is the median, over all rounds, of toile's time divided by another library's time in the
same round. A temporary slowdown of the machine hardly changes this median.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.cpu_rows import ERROR_FACTOR, MEAN_SPEEDUP, Row, column

PEERS = ("jax", "torch")
LOSS_TOLERANCES = (1e-4, 1e-3, 1e-2)  # for the first, second and third loss; differences grow
NARROW = 2.0**-8 / LOSS_TOLERANCES[0]  # factor for bfloat16: one unit in the last place
ROUNDING = 2.0**-24  # error of rounding: half a unit in the last place of 1


def ratio(rounds: Sequence[dict[str, Any]], a: str, b: str) -> float | None:
    """The median of a/b over the rounds that contain both."""
    seconds = [r["seconds"] for r in rounds]
    found = [s[a] / s[b] for s in seconds if a in s and b in s]
    return statistics.median(found) if found else None


def goal(what: str, value: float | None, limit: float) -> dict[str, Any]:
    """A goal and whether it is met; a goal that could not be measured is not met."""
    return {"what": what, "value": value, "limit": limit, "met": _met(value, limit)}


def _met(value: float | None, limit: float) -> bool:
    return value is not None and value <= limit


def judge(row: Row, rounds: Sequence[dict[str, Any]], facts: dict[str, Any]) -> dict[str, Any]:
    """Medians and goals of a row."""
    columns = [column(f, w) for w in row.windows for f in row.frameworks]
    taken = {c: [r["seconds"][c] for r in rounds if c in r["seconds"]] for c in columns}
    median = {c: statistics.median(times) for c, times in taken.items() if times}
    answers = {c: [r["answers"].get(c, {}) for r in rounds] for c in median}
    used = {c: [a["cpu"] for a in found if "cpu" in a] for c, found in answers.items()}
    cpu = {c: statistics.median(times) for c, times in used.items() if times}
    peers = [p for p in PEERS if p in median]
    best = min(peers, key=lambda p: median[p]) if peers else "jax"
    goals = []
    for against, limit in row.goals:
        peer = best if against == "best" else against
        goals.append(goal(f"toile / {peer}", ratio(rounds, "toile", peer), limit))
    goals += list(_facts(row, rounds, facts, best))
    return {"median": median, "cpu": cpu, "best": best, "goals": goals}


def _facts(
    row: Row, rounds: Sequence[dict[str, Any]], facts: dict[str, Any], best: str
) -> Iterator[dict[str, Any]]:
    """The goals for results, memory and kernels."""
    ours, jax = facts.get("toile", {}), facts.get("jax", {})
    if "check" in ours and "check" in jax:
        pairs = zip(ours["check"], jax["check"], LOSS_TOLERANCES[: row.losses], strict=False)
        room = NARROW if "bfloat16" in row.spec else 1.0
        worst = max(abs(a - b) / max(abs(b), 1e-30) / most / room for a, b, most in pairs)
        yield goal("difference from jax / tolerance", worst, 1.0)
    if "errors" in ours and "errors" in facts.get(best, {}):
        pairs = zip(ours["errors"], facts[best]["errors"], strict=True)
        worst = max(a / max(b, ROUNDING) for a, b in pairs)
        yield goal(f"error / {best}'s", worst, ERROR_FACTOR)
    if row.memory and "megabytes" in ours and "megabytes" in jax:
        yield goal("memory / jax's", ours["megabytes"] / jax["megabytes"], row.memory)
    if row.kind == "resize":
        made = [r["answers"]["toile"].get("kernels") for r in rounds if "toile" in r["answers"]]
        yield goal("kernels compiled", max((k for k in made if k is not None), default=None), 0)


def line(row: Row, result: dict[str, Any], busy: bool) -> Iterator[str]:
    """The lines for a row of the table, and the errors of frameworks that failed."""
    times = (f"{c} {1e3 * t:.4g}" for c, t in result["median"].items())
    yield f"{row.title:32} {' | '.join(times)}  ({result['counted']} rounds)"
    if busy and result["cpu"]:  # other load affects CPU time less than elapsed time
        times = (f"{c} {1e3 * t:.4g}" for c, t in result["cpu"].items())
        yield f"{'    CPU time':32} {' | '.join(times)}"
    for each in result["goals"]:
        value = "not measured" if each["value"] is None else f"{each['value']:.3g}"
        verdict = "ok" if each["met"] else "MISSED"
        yield f"    {each['what']} = {value} (at most {each['limit']:.3g}) {verdict}"
    for name, known in result["facts"].items():
        if "error" in known:
            yield f"    {name}: {known['error']}"


def summarize(rows: dict[str, Any]) -> dict[str, Any]:
    """The geometric mean of the training rows, and the goals that are missed."""
    ratios = [r["goals"][0]["value"] for title, r in rows.items() if title.startswith("train ")]
    known = [x for x in ratios if x is not None]
    missed = [
        f"{title}: {g['what']}" for title, r in rows.items() for g in r["goals"] if not g["met"]
    ]
    count = sum(len(r["goals"]) for r in rows.values())
    found: dict[str, Any] = {"goals": f"{count - len(missed)} of {count} met"}
    if known:
        speedup = math.exp(-statistics.mean(map(math.log, known)))
        found["training, geometric mean speedup over the better peer"] = round(speedup, 3)
        found["which needs"] = MEAN_SPEEDUP
    return {**found, "missed": missed}
