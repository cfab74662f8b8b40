"""Compare the speed of two checkouts of toile, which take turns on the same machine.

`python -m benchmarks.compare --old ../before --rows cpu` measures each row of `benchmarks.cpu` with
the toile in `--old` and with the toile in this checkout. `--rows gpu` selects the rows of
`benchmarks.gpu`, and `--rows gpu-training` only the training rows among them. Both sides run the
same benchmark code, in the order old, new, new, old and so on. The ratio new/old of a row is the
median over the rounds. A row with a ratio above 1.03 is measured again in three pairs of new
processes, and the second ratio replaces the first.

All rounds are saved, with the machine's name, in a file under benchmarks/results. With `--keep`,
only rows that are not in that file are measured; together with `--minutes`, this splits a table
into several runs.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks import cpu, gpu
from benchmarks.children import KNOWN, ROOT, without_files
from benchmarks.cpu_rows import Row, column
from benchmarks.cpu_rows import rows as cpu_rows

SIDES = ("old", "new")
LIMIT = 1.03  # maximum ratio new/old of a row
PAIRS = 3  # pairs of processes that measure a row again; memory addresses differ in each


def rows_of(table: str) -> list[Row]:
    """The rows of a table, measured only with toile."""
    every = cpu_rows() if table == "cpu" else (
        r for r in gpu.rows() if table == "gpu" or r.title.startswith("train "))
    return [dataclasses.replace(r, frameworks=SIDES, goals=()) for r in every
            if "toile" in r.frameworks]


@contextlib.contextmanager
def checkouts(old: Path) -> Iterator[dict[str, tuple[str, Path]]]:
    """For each side, the framework and a folder with that side's toile and this benchmark code."""
    with tempfile.TemporaryDirectory(prefix="toile-bench-") as top:
        found = {}
        for side, source in zip(SIDES, (old, ROOT), strict=True):
            folder = Path(top) / side
            folder.mkdir()
            (folder / "toile").symlink_to(source / "toile")
            (folder / "benchmarks").symlink_to(ROOT / "benchmarks")
            found[side] = ("toile", folder)
        yield found


def commit(folder: Path) -> str:
    """The commit of a checkout; "unknown" for a folder that is not the root of a git repository."""
    if not (folder / ".git").exists():
        return "unknown"
    try:
        command = ["git", "-C", str(folder), "describe", "--always", "--dirty"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


# ---- measuring


def rounds_of(row: Row, args: argparse.Namespace, count: int, facts: dict[str, Any]) -> list[Any]:
    """Measure rounds until `count` of them are quiet (little other load), or time runs out.

    All rounds run in one pair of processes, except that each start needs new processes."""
    kept: list[Any] = []
    quiet, began = 0, None
    with closing((cpu.fresh if row.cache else cpu.live)(row, list(SIDES), args, facts)) as found:
        for one in found:
            one["clean"] = args.any_load or cpu.clean(one)
            kept.append(one)
            quiet += one["clean"]
            began = began or time.perf_counter()  # not counting the time to start and to compile
            if quiet >= count or time.perf_counter() - began > args.limit:
                break
    for side in SIDES:
        file, folder = facts.get(side, {}).pop("file", None), args.checkouts[side][1]
        assert file is None or Path(file).is_relative_to(folder), f"{side} has measured {file}"
    return kept


def ratios(row: Row, rounds: Sequence[Any]) -> list[float]:
    """The ratio new/old in each quiet round, for the first window of the row."""
    old, new = (column(side, row.windows[0]) for side in SIDES)
    seconds = [r["seconds"] for r in rounds if r["clean"]]
    return [s[new] / s[old] for s in seconds if old in s and new in s]


def summary(row: Row, rounds: Sequence[Any]) -> dict[str, Any]:
    """The ratio of a row, the quartiles of the rounds' ratios, and the medians of both sides."""
    found = ratios(row, rounds)
    if not found:
        return {"ratio": None, "spread": None, "median": {}}
    cuts = statistics.quantiles(found, n=4, method="inclusive") if len(found) > 1 else found * 3
    quiet = [r["seconds"] for r in rounds if r["clean"]]
    names = [column(side, w) for w in row.windows for side in SIDES]
    taken = {n: [s[n] for s in quiet if n in s] for n in names}
    return {"ratio": statistics.median(found), "spread": [cuts[0], cuts[2]],
            "median": {n: statistics.median(ts) for n, ts in taken.items() if ts}}


def measure(row: Row, args: argparse.Namespace) -> dict[str, Any]:
    """Measure a row once, and again if it appears to be slower."""
    facts: dict[str, Any] = {}
    rounds = rounds_of(row, args, args.rounds, facts)
    result = {"when": time.strftime("%Y-%m-%d %H:%M"), **summary(row, rounds), "rounds": rounds}
    if is_slower(result):
        again = [r for _ in range(PAIRS) for r in rounds_of(row, args, args.rounds, facts)]
        result = {**result, "first": result["ratio"], **summary(row, again), "again": again}
    return {**result, "slower": is_slower(result), "facts": facts}


def is_slower(result: dict[str, Any]) -> bool:
    """Whether the ratio of a row exceeds the limit."""
    return result["ratio"] is not None and result["ratio"] > LIMIT


def line(title: str, result: dict[str, Any]) -> str:
    """The line for a row in the printed table."""
    if result["ratio"] is None:
        errors = {s: f["error"] for s, f in result["facts"].items() if "error" in f}
        said = ", ".join(f"{s}: {e}" for s, e in errors.items()) or (
            "no round without other load (--any-load counts all)")
        return f"{title:<42} not measured: {said}"
    low, high = result["spread"]
    times = " -> ".join(f"{1e3 * t:.4g}" for t in list(result["median"].values())[:2])
    first = f", first {result['first']:.3f}" if "first" in result else ""
    mark = "  SLOWER" if result["slower"] else ""
    return f"{title:<42} {times:>20} ms  {result['ratio']:.3f} ({low:.3f}..{high:.3f}{first}){mark}"


# ---- the command line


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", type=Path, required=True, help="a checkout of toile")
    parser.add_argument("--rows", choices=("cpu", "gpu", "gpu-training"), default="cpu")
    parser.add_argument("--only", default="", help="rows whose titles contain one of these: a,b,c")
    parser.add_argument("--rounds", type=int, default=8, help="quiet rounds of each row")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--window", type=float, default=0.25, help="seconds of each timing")
    parser.add_argument("--limit", type=float, default=25, help="seconds for a row's rounds")
    parser.add_argument("--minutes", type=float, default=1e9, help="start no row after this time")
    parser.add_argument("--any-load", action="store_true", help="use rounds of a busy machine too")
    parser.add_argument("--keep", action="store_true", help="measure only missing rows")
    parser.add_argument("--json", type=Path, help="results file, outside benchmarks/results")
    args = parser.parse_args(given)
    args.old = args.old.resolve()
    if not (args.old / "toile" / "__init__.py").exists():
        parser.error(f"--old: needed a checkout of toile, got {args.old}, which has no "
                     "toile/__init__.py (git worktree add PATH COMMIT makes one)")
    if not (KNOWN or args.any_load):
        parser.error("the load of the machine can be told from /proc only (use --any-load)")
    args.platform, args.fill, args.filled = args.rows.partition("-")[0], False, ""
    args.lock = None
    return args


def main(given: Sequence[str] | None = None) -> int:
    """Measure, print the table and write the file; return 1 if a row is slower or not measured."""
    args = arguments(given)
    name = (gpu if args.platform == "gpu" else cpu).machine()
    file = args.json or ROOT / "benchmarks" / "results" / f"compare-{args.rows}-{name}.json"
    about: dict[str, Any] = {
        "machine": name, "cores": os.cpu_count(), "threads": args.threads,
        "system": platform.platform(), "versions": cpu.versions(), "limit": LIMIT,
        "old": commit(args.old), "new": commit(ROOT), "rows": {},
    }  # fmt: skip
    if args.keep and file.exists():
        before = json.loads(file.read_text())
        if any(before[k] != about[k] for k in ("machine", "old", "new")):
            sys.exit(f"{file}: needed rows of {about['old']} and {about['new']} on {name}, has "
                     f"those of {before['old']} and {before['new']} on {before['machine']} "
                     "(without --keep it begins anew)")
        about["rows"] = {t: r for t, r in before["rows"].items() if r["ratio"] is not None}
    wanted = [r for r in rows_of(args.rows) if r.title not in about["rows"]
              and any(part in r.title for part in args.only.split(","))]
    print(f"{name}, {args.threads} threads, medians in ms, {about['new']} / {about['old']}")
    measure_all(wanted, args, about, file)
    slower = [title for title, r in about["rows"].items() if r["slower"]]
    missing = [r.title for r in wanted if about["rows"].get(r.title, {}).get("ratio") is None]
    print(f"{len(about['rows'])} rows, {len(slower)} of them more than {LIMIT} times as long"
          + "".join(f"\n  slower: {t}" for t in slower)
          + "".join(f"\n  not measured: {t}" for t in missing) + f"\n{file}")
    return 1 if slower or missing else 0


def measure_all(
    wanted: Sequence[Row], args: argparse.Namespace, about: dict[str, Any], file: Path
) -> None:
    """Measure rows one by one, and write the file after each."""
    began = time.perf_counter()
    with checkouts(args.old) as args.checkouts:
        for row in wanted:
            if time.perf_counter() - began > 60 * args.minutes:
                break
            about["rows"][row.title] = result = measure(row, args)
            print(line(row.title, result), flush=True)
            file.write_text(json.dumps(without_files(about), indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
