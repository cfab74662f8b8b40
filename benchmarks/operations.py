"""A map of operations: every function of `operation_cells` in toile, JAX and PyTorch.

Each cell of the map is a function, its gradient, or its gradient for each example of a batch, with
one size and one dtype. The libraries take turns in one process. The ratio of a cell is the time of
the faster other library divided by toile's time, so 2 means that toile is twice as fast; it is the
median over several rounds.

`python -m benchmarks.operations --device cpu --minutes 9 --out map.jsonl` measures as many cells as
possible in nine minutes and appends a line for each. The same command continues where it stopped.
On a GPU, compiling takes longer than measuring. Therefore, several processes can divide the map
with `--part 0/8` to `--part 7/8`, each with its own file, and `--lock turn` makes them measure one
at a time. `--table map.jsonl` prints the distribution of the ratios and the slowest cells. With
`--json FILE`, it also writes the results file, from which the documentation draws the map.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.cpu import versions
from benchmarks.operation_cells import DTYPES, GROUPS, library, made
from benchmarks.timing import cpu_name, part_of, turn

BATCH = 8  # batch size for gradients per example
SIZES = {"cpu": {"small": 1 << 12, "large": 1 << 20}, "gpu": {"small": 1 << 12, "large": 1 << 24}}
WINDOW_S, ROUNDS = 0.01, 5
PAUSE_S = 0.02  # before each window on a CPU: threads of other libraries may still be spinning
SLOW_S = 2.0  # a call that takes longer is measured once
PATIENCE_S = 120.0  # seconds for one cell, including compilation in all libraries


class Measurement(NamedTuple):
    """A measurement of a function in one mode, with one size and one dtype."""

    group: str
    cell: Any
    mode: str
    size: str
    dtype: str

    @property
    def key(self) -> str:
        """The name of the measurement, unique in a map."""
        return f"{self.group} | {self.cell.name} | {self.mode} | {self.size} | {self.dtype}"


def measurements() -> Iterator[Measurement]:
    """All measurements, in the order in which they are made."""
    for size in ("small", "large"):
        for group, cells in GROUPS.items():
            for cell in cells():
                for letter in cell.dtypes:
                    for mode in cell.modes if letter in "fh" else ("forward",):
                        yield Measurement(group, cell, mode, size, DTYPES[letter])


# ----------------------------------------------------------------------------------- functions


def _scalar(L: Any, value: Any) -> Any:
    """Half the sum of the squares of a result, so that cotangents are not constants, which a
    compiler could fold."""
    jnp = L.jnp
    total = 0.0
    for leaf in L.jax.tree_util.tree_leaves(value):
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            real = jnp.real(leaf).astype(jnp.float32)
            total = total + jnp.sum(real * real)
    return total / 2


def function(L: Any, m: Measurement, args: list[Any]) -> Callable[..., Any]:
    """The function that a measurement calls."""
    fun, floats = m.cell.fun, [i for i, a in enumerate(args) if L.jnp.issubdtype(
        a.dtype, L.jnp.floating)]

    def loss(*xs: Any) -> Any:
        return _scalar(L, fun(L, *xs))

    return {
        "forward": lambda *xs: fun(L, *xs),
        "gradient": lambda *xs: L.jax.grad(loss, floats)(*xs),
        "per example": lambda *xs: L.jax.vmap(L.jax.grad(loss, floats))(*xs),
    }[m.mode]


def compiled(L: Any, m: Measurement, args: list[Any]) -> Callable[[], Any]:
    """A function that calls the jitted function of a measurement."""
    jitted = L.jax.jit(function(L, m, args))
    return lambda: jitted(*args)


def in_torch(torch: Any, m: Measurement, args: list[Any]) -> Callable[[], Any]:
    """A function that calls PyTorch's function eagerly, as most PyTorch users do."""
    fun = m.cell.torch
    if m.mode == "forward":
        return lambda: fun(torch, *args)
    floats = [a.requires_grad_() for a in args if a.is_floating_point()]

    def gradient() -> Any:
        out = fun(torch, *args)
        outs = [o for o in (out if isinstance(out, tuple) else (out,)) if o.is_floating_point()]
        return torch.autograd.grad(sum((o.float() ** 2).sum() for o in outs) / 2, floats)

    return gradient


def arguments(m: Measurement, device: str) -> list[Any]:
    """The arguments of a measurement, as NumPy arrays."""
    n = max(64, SIZES[device][m.size] // m.cell.shrink)
    batch = BATCH if m.mode == "per example" else 0
    return [made(kind, n, m.dtype, batch, i) for i, kind in enumerate(m.cell.args)]


# ----------------------------------------------------------------------------------- measuring


class Peers:
    """The libraries, and how to give them arrays and wait for them."""

    def __init__(self, device: str):
        self.device = device
        self.libraries = {name: library(name) for name in ("toile", "jax")}
        try:
            import torch
        except ImportError:
            torch = None
        self.torch = torch
        if torch is not None and device == "gpu" and not torch.cuda.is_available():
            self.torch = None

    def calls(self, m: Measurement) -> dict[str, Callable[[], Any]]:
        """For each library, a function that runs the measurement once."""
        arrays, found = arguments(m, self.device), {}
        for name, L in self.libraries.items():
            args = [L.jax.device_put(a, L.jax.devices()[0]) for a in arrays]
            found[name] = compiled(L, m, args)
        if self.torch is not None and m.cell.torch is not None and m.mode != "per example":
            where = "cuda" if self.device == "gpu" else "cpu"
            found["torch"] = in_torch(self.torch, m, [self._tensor(a, where) for a in arrays])
        return found

    def _tensor(self, a: Any, where: str) -> Any:
        torch = self.torch
        if a.dtype.name == "bfloat16":
            return torch.from_numpy(a.astype("float32")).to(torch.bfloat16).to(where)
        return torch.from_numpy(a).to(where)

    def wait(self, name: str, out: Any) -> None:
        """Wait for the result of a call."""
        if name in self.libraries:
            self.libraries[name].jax.block_until_ready(out)
        elif self.device == "gpu":
            self.torch.cuda.synchronize()


def measured(peers: Peers, m: Measurement, lock: Path | None = None) -> dict[str, Any]:
    """Measure the median times in microseconds, and the ratio to the faster other library."""
    line: dict[str, Any] = {"key": m.key}
    calls = {}
    for name, call in peers.calls(m).items():
        try:
            for _ in range(3):
                peers.wait(name, call())
            calls[name] = call
        except Exception as error:
            line[f"{name} error"] = f"{type(error).__name__}: {error}"[:200]
    if "toile" not in calls or len(calls) < 2:
        return line
    with turn(lock):
        times = _times(peers, calls)
    rivals = [name for name in calls if name != "toile"]
    ratios = {name: statistics.median(b / a for a, b in zip(times["toile"], times[name],
                                                            strict=True)) for name in rivals}
    line |= {f"{name} us": round(1e6 * statistics.median(t), 2) for name, t in times.items()}
    line |= {"ratio": round(min(ratios.values()), 3), "peer": min(ratios, key=ratios.get)}
    return line


def _times(peers: Peers, calls: dict[str, Callable[[], Any]]) -> dict[str, list[float]]:
    """The seconds per call with each library, one number for each round."""
    counts, times = {}, {name: list[float]() for name in calls}
    for name, call in calls.items():
        started = time.perf_counter()
        peers.wait(name, call())
        once = time.perf_counter() - started
        counts[name] = 1 if once > SLOW_S else max(1, round(WINDOW_S / max(once, 1e-6)))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            if peers.device == "cpu" and counts[name] > 1:
                time.sleep(PAUSE_S)
                counts[name] = _calls_of_window(peers, name, call)
            times[name].append(_window(peers, name, call, counts[name]))
    return times


def _calls_of_window(peers: Peers, name: str, call: Callable[[], Any]) -> int:
    """Count the calls that fit into a window. They also warm up the CPU after a pause."""
    count, ends = 0, time.perf_counter() + WINDOW_S
    while time.perf_counter() < ends:
        peers.wait(name, call())
        count += 1
    return count


def _window(peers: Peers, name: str, call: Callable[[], Any], count: int) -> float:
    """The mean time of `count` calls in seconds."""
    started = time.perf_counter()
    for _ in range(count):
        out = call()
    peers.wait(name, out)
    return (time.perf_counter() - started) / count


# ----------------------------------------------------------------------------------- reading


def read(path: Path, first: int = 0) -> dict[str, dict[str, Any]]:
    """The lines of a map from line `first` on, by key; the last line of each key is used."""
    lines = path.read_text().splitlines()[first:] if path.exists() else []
    return {line["key"]: line for line in map(json.loads, lines) if "key" in line}


def table(found: dict[str, dict[str, Any]], slowest: int) -> str:
    """The distribution of the ratios by group, and the slowest cells."""
    done = {k: x for k, x in found.items() if "ratio" in x}
    rows = [f"{'':16}{'cells':>7}{'median':>8}{'>= 0.8':>8}{'< 0.5':>7}"]
    groups = sorted({k.split(" | ")[0] for k in done})
    for group in [*groups, ""]:
        ratios = [x["ratio"] for k, x in done.items() if k.startswith(f"{group} | ") or not group]
        if ratios:
            good = sum(r >= 0.8 for r in ratios) / len(ratios)
            rows.append(f"{group or 'all':16}{len(ratios):7}{statistics.median(ratios):8.2f}"
                        f"{good:8.1%}{sum(r < 0.5 for r in ratios):7}")
    for key, x in sorted(done.items(), key=lambda kx: kx[1]["ratio"])[:slowest]:
        rows.append(f"{x['ratio']:7.3f}  {x['toile us']:>10} us  {x['peer']:5} "
                    f"{x[x['peer'] + ' us']:>10} us  {key}")
    failed = [(k, x["toile error"]) for k, x in found.items() if "toile error" in x]
    rows += [f"failed in toile: {k}: {text[:100]}" for k, text in failed]
    return "\n".join(rows)


def run_facts() -> dict[str, Any]:
    """The machine and the versions of this process; every run writes them into its map."""
    return {"machine": platform.machine(), "cpu": cpu_name(), "cores": os.cpu_count(),
            "versions": versions()}


def runs_of(path: Path) -> list[dict[str, Any]]:
    """The machines and versions of all runs that contributed to a map."""
    lines = map(json.loads, path.read_text().splitlines())
    return [line["run"] for line in lines if "run" in line]


def results(
    found: dict[str, dict[str, Any]], device: str, runs: list[dict[str, Any]]
) -> dict[str, Any]:
    """The contents of the results file: the machine, the versions and the cells.

    A cell is a list: its key, the ratio, the faster other library, and both times in microseconds.
    The commits of all runs are listed."""
    facts = runs[-1]
    commits = dict.fromkeys(str(run["versions"].get("commit")) for run in runs)
    cells = [[k, x["ratio"], x["peer"], x["toile us"], x[x["peer"] + " us"]]
             for k, x in found.items() if "ratio" in x]
    named = facts["versions"] | {"commit": ", ".join(commits)}
    return {**facts, "device": device, "versions": named, "cells": cells}


def _now(out: Path) -> Path:
    """The file that contains the key of the cell that is being measured."""
    return out.with_suffix(".now")


def watch(out: Path, minutes: float) -> None:
    """Measure in a child process, which is restarted if a cell takes too long.

    Some calls in some libraries never return. For such a cell, an error is written to the map."""
    ends = time.monotonic() + 60 * minutes
    before = len(out.read_text().splitlines()) if out.exists() else 0
    code = 0
    while (left := ends - time.monotonic()) > 0:
        command = [sys.executable, "-m", "benchmarks.operations", *sys.argv[1:], "--child",
                   str(before), "--minutes", str(left / 60)]
        child = subprocess.Popen(command)
        now, since = "", time.monotonic()
        while child.poll() is None:
            time.sleep(0.5)
            cell = _now(out).read_text() if _now(out).exists() else ""
            if cell != now:
                now, since = cell, time.monotonic()
            elif now and time.monotonic() - since > PATIENCE_S:
                child.kill()
                child.wait()
                with out.open("a") as file:
                    line = {"key": now, "error": f"no answer in {PATIENCE_S:.0f} s"}
                    file.write(json.dumps(line) + "\n")
                _now(out).write_text("")
                break
        else:
            code = child.returncode
            break
    _now(out).unlink(missing_ok=True)
    sys.exit(code)


def main() -> None:
    """Measure the cells that are missing from a map, or print a map."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--out", type=Path, default=Path("map.jsonl"))
    parser.add_argument("--only", help="regular expression: measure these cells again")
    parser.add_argument("--part", default="0/1", help="k/n: the k-th of every n cells")
    parser.add_argument("--lock", type=Path,
                        help="a file whose lock is held while measuring: parts that run at the "
                             "same time compile together and measure in turn")
    parser.add_argument("--table", type=Path, help="print a map")
    parser.add_argument("--slowest", type=int, default=60)
    parser.add_argument("--json", type=Path, help="with --table: write the results file")
    # For the child process: the number of lines in the file before the run. With --only, cells in
    # these lines are measured again.
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.table:
        found = read(given.table)
        print(table(found, given.slowest))
        if given.json:
            kept = results(found, given.device, runs_of(given.table))
            lines = json.dumps(kept).replace("], [", "],\n[")
            given.json.write_text(lines + "\n")
        return
    if given.child is None:
        watch(given.out, given.minutes)
        return
    os.environ["TOILE_PLATFORM"] = given.device
    os.environ["JAX_PLATFORMS"] = "cpu" if given.device == "cpu" else "cuda,cpu"
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    peers = Peers(given.device)
    known = read(given.out, given.child if given.only else 0)
    wanted = [m for m in part_of(measurements(), given.part)
              if m.key not in known and re.search(given.only or "", m.key)]
    ends = time.monotonic() + 60 * given.minutes
    done = 0
    with given.out.open("a") as file:
        file.write(json.dumps({"run": run_facts()}) + "\n")
        for m in wanted:
            if time.monotonic() > ends:
                break
            _now(given.out).write_text(m.key)
            line = measured(peers, m, given.lock)
            file.write(json.dumps(line) + "\n")
            file.flush()
            done += 1
            if given.only:
                print(json.dumps(line))
    _now(given.out).write_text("")
    print(f"{done} cells measured, {len(wanted) - done} left", file=sys.stderr)


if __name__ == "__main__":
    main()
