"""Interleaved timing of several libraries, with goals for their ratios.

Each round measures every case once, so other load on the machine slows all cases in the round and
hardly changes their ratio. The result is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
Cases = dict[str, Callable[[], Any]]
Goals = dict[str, list[tuple[str, str, float]]]  # by title: (a, b, maximum of a/b)


def measure(cases: Cases, rounds: int, target: float) -> dict[str, list]:
    """Measure the seconds per call for each case and round; the cases take turns."""
    counts = {}
    for name, fun in cases.items():
        fun()
        fun()
        started = time.perf_counter()
        fun()
        counts[name] = max(1, int(target / max(time.perf_counter() - started, 1e-7)))
    found: dict[str, list] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, fun in cases.items():
            n = counts[name]
            started = time.perf_counter()
            for _ in range(n):
                fun()
            found[name].append((time.perf_counter() - started) / n)
    return found


def part_of(things: Iterable[T], part: str) -> list[T]:
    """The `k`-th of every `n` things, for the part "k/n"."""
    first, step = map(int, part.split("/"))
    return list(things)[first::step]


@contextlib.contextmanager
def turn(lock: Path | None) -> Iterator[None]:
    """Hold the lock of a file, so that processes that compile at the same time do not measure at
    the same time."""
    if lock is None:
        yield
        return
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _report(title: str, found: dict[str, list], goals: list[tuple[str, str, float]]) -> Any:
    """Print and return medians and ratios."""
    medians = {name: statistics.median(ts) for name, ts in found.items()}
    print(title + ": " + ", ".join(f"{n} {1e6 * t:.2f} us" for n, t in medians.items()))
    ratios = {}
    for a, b, goal in goals:
        ratio = statistics.median(x / y for x, y in zip(found[a], found[b], strict=True))
        ratios[f"{a}/{b}"] = ratio
        print(f"  {a}/{b} = {ratio:.3f} (goal <= {goal}) {'ok' if ratio <= goal else 'MISSED'}")
    return {"median_us": {n: 1e6 * t for n, t in medians.items()}, "ratios": ratios}


def main(
    description: str | None, suites: Callable[[], dict[str, Cases]], goals: Goals,
    about: dict[str, str] | None = None,
) -> None:
    """Run a benchmark file's suites from the command line; `about` is written to the results
    file."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--target", type=float, default=0.03, help="seconds per case and round")
    parser.add_argument("--json", help="write the numbers to this file")
    args = parser.parse_args()
    results = {}
    for title, cases in suites().items():
        results[title] = _report(title, measure(cases, args.rounds, args.target), goals[title])
    if args.json:
        machine = {
            "machine": platform.machine(), "cpu": cpu_name(), "python": platform.python_version(),
            **(about or {}),
        }  # fmt: skip
        with open(args.json, "w") as f:
            json.dump({**machine, "results": results}, f, indent=1)


def cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as f:
            wanted = ("model name", "cpu part")
            lines = [x.split(":")[1].strip() for x in f if x.lower().startswith(wanted)]
        return lines[0] if lines else platform.processor()
    except OSError:
        return platform.processor()
