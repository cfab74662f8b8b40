"""Compiled speed on the CPU: toile, jax with flax, and torch take turns on the same machine.

`python -m benchmarks.cpu` measures training steps, single operations and their errors, scans, call
overhead, the time until the first step, new batch sizes, and peak memory. `--list` lists the rows,
`--only` selects some of them, and `--json FILE` writes all rounds and the machine's name to a file.
A round in which other processes used more than 5% of the CPU is written to the file but is not
included in the medians.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from importlib import metadata, util
from pathlib import Path
from typing import Any

from benchmarks.children import KNOWN, ROOT, Child, Load, without_files
from benchmarks.cpu_report import judge, line, summarize
from benchmarks.cpu_rows import FRAMEWORKS, Row, column, rows
from benchmarks.timing import part_of, turn

MOST_SHARE = 0.05  # of the CPU that other processes may use in a round
Round = dict[str, Any]


def measure(row: Row, children: dict[str, Child], number: int, target: float) -> Round:
    """Measure a window of each framework in turn; each round begins with another framework."""
    found: Round = {"seconds": {}, "others": {}, "answers": {}}
    names = [f for f in row.frameworks if f in children]
    for window in row.windows:
        for i in range(len(names)):
            child = children[names[(i + number) % len(names)]]
            argument = row.arguments[number] if row.arguments else target
            with Load(child) as load:
                answer = child.ask(window=window, argument=argument)
            record(found, column(child.framework, window), answer, load)
    return found


def record(found: Round, name: str, answer: dict[str, Any], load: Load) -> None:
    """Add one child's answer to a round."""
    if "error" not in answer:
        found["seconds"][name] = answer.pop("seconds")
    found["others"][name] = load.share
    found["answers"][name] = answer


def clean(found: Round) -> bool:
    """Whether other processes used little of the CPU in this round."""
    return all(share is not None and share <= MOST_SHARE for share in found["others"].values())


def child_of(name: str, args: Any, folder: str | None = None, cache: str = "") -> Child:
    """Start the process for a framework, or for one of the checkouts that are compared."""
    framework, code = getattr(args, "checkouts", {}).get(name, (name, ROOT))
    return Child(framework, args.threads, folder, cache, args.platform, code, name)


def live(row: Row, frameworks: list[str], args: Any, facts: dict[str, Any]) -> Iterator[Round]:
    """Measure rounds in child processes that build their case once and then take turns."""
    with ExitStack() as stack:
        children = {f: stack.enter_context(closing(child_of(f, args))) for f in frameworks}
        with ThreadPoolExecutor(len(frameworks) or 1) as pool:  # compile in parallel
            built = pool.map(lambda child: child.build(row.kind, row.spec), children.values())
            facts.update(zip(frameworks, built, strict=True))
        children = {f: c for f, c in children.items() if "error" not in facts[f]}
        for name, child in children.items():
            facts[name].update(child.ask(more=1))
        if not children:
            return
        with turn(args.lock):
            if not row.arguments:
                measure(row, children, 0, args.window)  # determines the number of calls in a window
            for number in range(len(row.arguments) or 10_000):
                found = measure(row, children, number, args.window)
                for name, child in children.items():
                    facts[name].update(child.ask(memory=1))
                yield found


def start(row: Row, framework: str, args: Any, folder: str | None, found: Round) -> dict[str, Any]:
    """Measure a new process from its first import to its first step."""
    cache = "warm" if folder else row.cache
    with closing(child_of(framework, args, folder, cache)) as child:
        child.ask(ready=1)  # the interpreter has started
        with Load(child) as load:
            answer = child.build(row.kind, row.spec)
        if "error" not in answer:
            answer["parts"] = answer.pop("seconds", {})
            answer["seconds"] = answer["total"]
        record(found, framework, answer, load)
    return answer


def fresh(row: Row, frameworks: list[str], args: Any, facts: dict[str, Any]) -> Iterator[Round]:
    """Measure rounds that start a new process for each framework.

    Before the first round, each framework starts once without being measured. This start creates
    Python's bytecode and fills a warm cache. (With `--fill`, the first round of the previous row
    has filled the cache.)"""
    with tempfile.TemporaryDirectory(prefix="toile-bench-") as top:
        warm, shared = row.cache == "warm", os.path.join(args.filled, row.spec)
        folders = {f: os.path.join(shared if args.fill else top, f) for f in frameworks}
        nowhere: Round = {"seconds": {}, "others": {}, "answers": {}}
        for name in frameworks:
            if not (warm and os.path.exists(folders[name])):
                start(row, name, args, folders[name] if warm else None, nowhere)
        for number in range(10_000):
            found: Round = {"seconds": {}, "others": {}, "answers": {}}
            for i in range(len(frameworks)):
                name = frameworks[(i + number) % len(frameworks)]
                keeps = warm or args.fill and not number
                facts[name] = start(row, name, args, folders[name] if keeps else None, found)
            if not found["seconds"]:
                return
            yield found


def run(row: Row, args: Any) -> dict[str, Any]:
    """Measure all rounds of a row and evaluate them."""
    frameworks = [f for f in row.frameworks if f in args.frameworks]
    facts: dict[str, Any] = {}
    kept: list[Round] = []
    began = time.perf_counter()
    rounds = (fresh if row.cache else live)(row, frameworks, args, facts)
    with closing(rounds):
        for found in rounds:
            found["clean"] = clean(found)
            kept.append(found)
            counted = sum(r["clean"] or args.any_load for r in kept)
            if counted >= args.rounds or time.perf_counter() - began > args.limit:
                break
    counted = [r for r in kept if r["clean"] or args.any_load]
    return {**judge(row, counted, facts), "counted": len(counted), "facts": facts, "rounds": kept}


def machine() -> str:
    """The CPU's name, such as neoverse-n1."""
    names = [platform.processor(), platform.machine()]
    try:
        text = subprocess.run(["lscpu"], capture_output=True, text=True, check=True).stdout
        names = [x.split(":")[1] for x in text.splitlines() if x.startswith("Model name")] + names
    except (OSError, subprocess.CalledProcessError):
        pass
    name = next(n.strip() for n in names if n.strip())
    return "-".join(name.lower().replace("(r)", "").replace("@", " ").split())


def versions() -> dict[str, str]:
    """The versions of Python and of the measured packages."""
    found = {"python": platform.python_version()}
    for name in ("toile", "numpy", "llvmlite", "jax", "jaxlib", "flax", "torch"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    try:
        command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found["commit"] = done.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        pass
    return found


def arguments(description: str | None = __doc__, platform: str = "cpu") -> argparse.Namespace:
    """Parse the command line; if `platform` is "", an option selects the platform."""
    parser = argparse.ArgumentParser(description=description)
    if platform:
        parser.set_defaults(platform=platform)
    else:
        parser.add_argument("--platform", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--rounds", type=int, default=10, help="number of quiet rounds of each row")
    parser.add_argument("--only", default="",
                        help="rows whose titles contain one of these: a,b,c; !a: and not a")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--window", type=float, default=0.5, help="seconds of each timing")
    parser.add_argument("--limit", type=float, default=300, help="seconds for a row's rounds")
    parser.add_argument("--frameworks", default=",".join(FRAMEWORKS))
    parser.add_argument("--any-load", action="store_true", help="use rounds of a busy machine too")
    parser.add_argument("--json", help="write all rounds to this file")
    parser.add_argument("--keep", action="store_true", help="keep the other rows of that file")
    parser.add_argument("--fill", action="store_true",
                        help="let cold starts fill the caches for warm starts (slower for jax)")
    parser.add_argument("--part", default="0/1", help="k/n: the k-th of every n rows")
    parser.add_argument("--lock", type=Path,
                        help="a file whose lock is held while measuring: parts that run at the "
                             "same time compile together, measure in turn, and share one file of "
                             "results (with --any-load: the others compile)")
    parser.add_argument("--list", action="store_true", help="show the titles of the rows")
    args = parser.parse_args()
    packages = {"jax": ("jax", "flax"), "torch": ("torch",), "toile": ("toile",)}
    args.frameworks = [
        f for f in args.frameworks.split(",") if all(map(util.find_spec, packages[f]))
    ]
    if not (KNOWN or args.any_load):
        parser.error("the load of the machine can be told from /proc only (use --any-load)")
    return args


def main() -> None:
    """Measure, print the table and write the file."""
    measure_rows(rows(), arguments(), machine(), "benchmarks.cpu")


def selected(all_rows: Iterable[Row], only: str) -> list[Row]:
    """The rows that `--only` selects."""
    parts = only.split(",")
    without = [part[1:] for part in parts if part.startswith("!")]
    having = [part for part in parts if not part.startswith("!")] or [""]
    return [row for row in all_rows if any(part in row.title for part in having)
            and not any(part in row.title for part in without)]


def measure_rows(all_rows: Iterable[Row], args: Any, name: str, command: str) -> None:
    """Measure the requested rows."""
    wanted = part_of(selected(all_rows, args.only), args.part)
    if args.list:
        print("\n".join(r.title for r in wanted))
        return
    about = {
        "machine": name, "cores": os.cpu_count(), "threads": args.threads,
        "system": platform.platform(), "versions": versions(), "rows": {},
        "command": shlex.join(["python", "-m", command, *sys.argv[1:]]),
    }  # fmt: skip
    if args.keep:
        about["rows"] = _written(args.json)
    print(f"{about['machine']}, {args.threads} threads, medians in ms, ratios toile / peer")
    with tempfile.TemporaryDirectory(prefix="toile-bench-") as args.filled:
        _measure_each(wanted, args, about)
    print("\n".join(f"{key}: {value}" for key, value in about["summary"].items()))


def _measure_each(wanted: Iterable[Row], args: Any, about: dict[str, Any]) -> None:
    """Measure rows one by one, and write the file after each."""
    for row in wanted:
        result = {"when": time.strftime("%Y-%m-%d %H:%M"), **run(row, args)}
        print("\n".join(line(row, result, args.any_load)), flush=True)
        with turn(args.lock):
            if args.lock:  # another part may have written more rows
                about["rows"] |= _written(args.json)
            about["rows"][row.title] = result
            about["summary"] = summarize(about["rows"])
            if args.json:
                with open(args.json, "w") as file:
                    json.dump(without_files(about), file, indent=1)


def _written(path: str | None) -> dict[str, Any]:
    """The rows in a file of results."""
    if not (path and os.path.exists(path)):
        return {}
    with open(path) as file:
        return json.load(file)["rows"]


if __name__ == "__main__":
    main()
