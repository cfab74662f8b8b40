"""Sweeps: a training function is called with many configurations, each in its own process.

When the run of a point ends, its result is appended to `results.jsonl` in the sweep's folder. After
an interruption, the same call continues the sweep: finished points are not run again. If a point
fails, its error is recorded, and the other points continue.
`python -m toile.training.sweep FOLDER METRIC` prints the table of results.
"""

from __future__ import annotations

import collections
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Any

from toile.engine.file_reader import guarded
from toile.engine.source import here
from toile.engine.suggestions import did_you_mean
from toile.metrics.writers import remove_unfinished_line
from toile.training import config_entries, curves, sweep_points
from toile.training.progress import progress
from toile.training.sweep_points import grid, integers, log_uniform, random_points, uniform
from toile.training.sweep_processes import Run, check_function

__all__ = [
    "Result", "grid", "integers", "log_uniform", "random_points", "read", "run", "table", "uniform",
]


@dataclass(frozen=True)
class Result:
    """The result for one point of a sweep.

    Args:
        point: the values of the point, by dotted name.
        metrics: the final metrics of the run; empty if the run failed.
        error: reason why the run failed; "" if the run did not fail.
        seconds: duration of the run, in seconds.
        workdir: the folder of the run, which contains `log.txt`.

    >>> Result({"rate": 0.1}, {"loss": 2.5}).is_finished
    True
    """

    point: dict[str, Any]
    metrics: dict[str, float]
    error: str = ""
    seconds: float = 0.0
    workdir: str = ""

    @property
    def is_finished(self) -> bool:
        """Whether the run ended without an error."""
        return not self.error


def run(
    train: Callable[..., Any], config: object, points: Sequence[Mapping[str, Any]],
    folder: str | os.PathLike[str], *, workers: int = 1, retry_failed: bool = True,
    environments: Sequence[Mapping[str, str]] = (),
) -> list[Result]:
    """Run a training function with many configurations, and collect its metrics.

    Each call runs in a new process, which imports the module that contains the function. A script
    must therefore call `run` under `if __name__ == "__main__":`. The CPU cores are divided equally
    among the processes, unless `TOILE_NUM_THREADS` is set. The output of a run is written to
    `log.txt` in the run's folder. Ctrl-C ends the sweep and its runs; the runs are given time to
    save their state first.

    Args:
        train: a function `f(config, folder)` that writes to the folder. The run's metrics are the
            numbers in the mapping that the function returns and, if the function wrote
            `metrics.jsonl` in its folder, the last values in that file. If the folder contains a
            checkpoint, the function should continue from the checkpoint.
        config: the base configuration: a dict, a dataclass or a ConfigDict.
        points: the changes to `config` in each run: dicts from dotted names to values, such as
            those that `grid` and `random_points` return.
        folder: folder for the results and for the runs' folders.
        workers: number of runs that are executed at the same time.
        retry_failed: whether to rerun points that failed before.
        environments: a list that contains a dict of environment variables for each worker, such as
            `[{"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "1"}]`.

    Returns:
        A list that contains one result for each point, in the order of `points`.

    Raises:
        ValueError: a point names an entry that the configuration does not have, another process
            cannot import the function, or the folder contains results for a different function or
            configuration.

    >>> try:
    ...     run(lambda config, folder: None, {"rate": 1}, [{"rate": 2}], "runs/none")
    ... except ValueError as error:
    ...     print(str(error).split(",")[0])
    sweep.run: needed a function that another process can import
    """
    name = check_function(train)
    if workers < 1 or environments and len(environments) != workers:
        raise ValueError(
            "sweep.run: needed workers >= 1, and environments for each of them or none, got "
            f"workers={workers} and {len(environments)} environments{here()}"
        )
    wanted = sweep_points.checked(points)
    configs = {
        sweep_points.point_key(point): config_entries.changed(config, point) for point in wanted
    }
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    _begin(place / "results.jsonl", name, config)
    before = _by_key(_results(place / "results.jsonl"))
    left = [p for p in wanted if not _is_done(before.get(sweep_points.point_key(p)), retry_failed)]
    share = {"TOILE_NUM_THREADS": str(max(1, _cores() // workers))}
    shared = {} if "TOILE_NUM_THREADS" in os.environ else share
    slots = [shared | dict(e) for e in environments or [{}] * workers]
    done = len(wanted) - len(left)
    with progress(total=len(wanted), start=done, label="sweep", unit="run") as bar:
        for result in _ended(train, configs, left, place, slots):
            _append(place / "results.jsonl", result)
            before[sweep_points.point_key(result.point)] = result
            bar.advance()
    return [before[sweep_points.point_key(point)] for point in wanted]


def _ended(
    train: Callable[..., Any], configs: Mapping[str, Any], points: Iterable[dict[str, Any]],
    folder: Path, slots: list[dict[str, str]],
) -> Iterable[Result]:
    """Yield the result of each point when its run ends; no process remains at the end."""
    waiting, free = collections.deque(points), list(reversed(slots))
    running: dict[Any, tuple[Run, dict[str, Any], Path, dict[str, str], float]] = {}
    try:
        while waiting or running:
            while waiting and free:
                point, slot = waiting.popleft(), free.pop()
                place = folder / sweep_points.folder_name(point)
                started = Run(train, configs[sweep_points.point_key(point)], place, slot)
                running[started.pipe] = started, point, place, slot, time.monotonic()
            for pipe in connection.wait(list(running)):
                ended, point, place, slot, began = running.pop(pipe)
                free.append(slot)
                metrics, error = ended.result()
                seconds = round(time.monotonic() - began, 2)
                yield Result(point, metrics, error, seconds, str(place))
    finally:
        for one, *_ in running.values():
            one.ask_to_stop()
        for one, *_ in running.values():
            one.stop()


def _cores() -> int:
    can_ask = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if can_ask else os.cpu_count() or 1


def _is_done(result: Result | None, retry_failed: bool) -> bool:
    return result is not None and (result.is_finished or not retry_failed)


def _by_key(results: Iterable[Result]) -> dict[str, Result]:
    """The last result of each point."""
    return {sweep_points.point_key(result.point): result for result in results}


# ---- the file of results


def _begin(path: Path, function: str, config: Any) -> None:
    """Write the first line, or compare an existing one with this sweep."""
    plain = {
        name: value if isinstance(value, (bool, int, float, str, type(None))) else repr(value)
        for name, value in config_entries.flat(config).items()
    }
    remove_unfinished_line(os.fspath(path))
    first = next(curves.entries(path), (1, {}))[1] if path.is_file() else {}
    if not first:
        path.write_text(json.dumps({"function": function, "config": plain}) + "\n")
        return
    with guarded("sweep.run", "the results of a sweep", f" (line 1 of {path})"):
        known, module = dict(first["config"]), str(first["function"])
    both = plain.keys() | known.keys()
    other = [n for n in both if json.dumps(plain.get(n)) != json.dumps(known.get(n))]
    if other or module.partition(":")[2] != function.partition(":")[2]:
        what = ", ".join(f"{n}={known.get(n)!r} (now {plain.get(n)!r})" for n in sorted(other))
        raise ValueError(
            f"sweep.run: needed a folder for {function} with this configuration, got one with "
            f"results of {module}{' with ' if what else ''}{what} (use another folder)"
            f"{here()}"
        )


def _append(path: Path, result: Result) -> None:
    entry = {
        "point": result.point, "status": "finished" if result.is_finished else "failed",
        # JSON has no NaN and no infinity; their names are strings that float() reads.
        "metrics": {n: v if math.isfinite(v) else str(v) for n, v in result.metrics.items()},
        "error": result.error, "seconds": result.seconds,
        "workdir": result.workdir,
    }  # fmt: skip
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _results(path: Path) -> list[Result]:
    found = []
    for number, entry in curves.entries(path):
        with guarded("sweep.read", "the results of a sweep", f" (line {number} of {path})"):
            if number > 1:
                metrics = {str(n): float(v) for n, v in entry["metrics"].items()}
                found.append(Result(
                    dict(entry["point"]), metrics, str(entry["error"]), float(entry["seconds"]),
                    str(entry["workdir"]),
                ))  # fmt: skip
    return found


def read(folder: str | os.PathLike[str]) -> list[Result]:
    """Read a sweep's results so far; if a point was rerun, only its last result is returned.

    Args:
        folder: the folder that was passed to `run`.

    Returns:
        A list of results, in the order in which the runs ended.

    Raises:
        FileNotFoundError: there are no results in the folder.

    `run` writes one line about the sweep, and one line for each point:

    >>> import json, pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> sweep = {"function": "train:main", "config": {"rate": 1.0}}
    >>> point = {"point": {"rate": 0.1}, "metrics": {"loss": 2.5}, "error": "", "seconds": 7.5,
    ...          "workdir": "runs/rate=0.1"}
    >>> with open(folder / "results.jsonl", "w") as file:
    ...     print(json.dumps(sweep), json.dumps(point), sep="\\n", file=file)
    >>> read(folder)[0].metrics
    {'loss': 2.5}
    """
    path = Path(folder) / "results.jsonl"
    if not path.is_file():
        raise FileNotFoundError(f"sweep.read: needed results, got no file {path}{here()}")
    return list(_by_key(_results(path)).values())


def table(results: Sequence[Result], by: str, *, largest: bool = False) -> str:
    """Format results as a table, sorted by a metric.

    Failed points come last and are shown with their errors.

    Args:
        results: results that `run` or `read` returned.
        by: name of the metric.
        largest: whether the largest value comes first; if False, the smallest value comes first.

    Returns:
        Text that contains one line for each point.

    Raises:
        ValueError: no run has a metric with this name.

    >>> results = [Result({"rate": r}, {"loss": r * r}, seconds=1.5) for r in (0.5, 0.25)]
    >>> print(table([*results, Result({"rate": 9}, {}, "ValueError: diverged")], "loss"))
    rate  loss    seconds
    0.25  0.0625      1.5
     0.5  0.25        1.5
       9                0  ValueError: diverged
    """
    known = {name: None for result in results for name in result.metrics}
    if known and by not in known:
        raise ValueError(
            f"sweep.table: needed one of the metrics {', '.join(known)}, got {by!r}"
            f"{did_you_mean(by, known)}{here()}"
        )

    def place(result: Result) -> tuple[int, float]:
        value = result.metrics.get(by, math.nan)
        if math.isnan(value):
            return 1 + bool(result.error), 0.0
        return 0, -value if largest else value

    names = list({name: None for result in results for name in result.point})
    rows = [[*names, by, "seconds", ""]]
    for result in sorted(results, key=place):
        shown = f"{result.metrics[by]:.6g}" if by in result.metrics else ""
        values = [str(result.point.get(name, "")) for name in names]
        rows.append([*values, shown, f"{result.seconds:g}", result.error])
    return _aligned(rows, left=(len(names), len(names) + 2))


def _aligned(rows: list[list[str]], left: tuple[int, ...]) -> str:
    """Rows of text as aligned columns; the columns in `left` are aligned to the left."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """`python -m toile.training.sweep FOLDER METRIC [--largest]` prints the table of results."""
    names = [a for a in arguments if a != "--largest"]
    if len(names) != 2:
        print("needed the folder of a sweep and a metric, and --largest if larger is better",
              file=sys.stderr)  # fmt: skip
        return 2
    try:
        print(table(read(names[0]), names[1], largest="--largest" in arguments))
    except (OSError, ValueError) as error:
        print(str(error).splitlines()[0], file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
