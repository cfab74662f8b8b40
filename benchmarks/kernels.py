"""The kernels that one step of a program launches on an NVIDIA GPU, with their times.

`python -m benchmarks.kernels recommender` runs a program of `benchmarks/zoo` in toile and in JAX
and lists the kernels of a step, those that take longest first. Kernels inside of CUDA graphs are
listed, too. PyTorch must be installed: its profiler reads the times from CUPTI.
"""

from __future__ import annotations

import argparse
import collections
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import zoo
from benchmarks.operation_cells import library
from benchmarks.timing import turn

STEPS = 3  # per profile


class Kernel(NamedTuple):
    """A kernel, or a copy, of a step: microseconds of all its launches together."""

    name: str
    launches: float
    microseconds: float


def compiled(name: str, L: Any, size: str = "gpu") -> Callable[[], Any]:
    """A function that runs a step of a program, which keeps its state between calls."""
    program = zoo.programs()[name]
    made = program.make(L, **program.sizes[size])
    step = L.jax.jit(made.step, donate_argnums=0)
    held = [L.jax.device_put(made.state)]
    batch = [L.jax.device_put(x) for x in made.batch]

    def run() -> Any:
        held[0], out = step(held[0], *batch)
        return out

    return run


def kernels_of(events: Iterable[Any], steps: int = STEPS) -> list[Kernel]:
    """The kernels in the events of a profile, summed up by name and divided by the steps."""
    found: dict[str, list[float]] = collections.defaultdict(list)
    for event in events:
        if "CUDA" in str(event.device_type()):
            found[event.name()].append(event.duration_ns() / 1e3)
    kernels = (Kernel(name, len(times) / steps, sum(times) / steps)
               for name, times in found.items())
    return sorted(kernels, key=lambda k: -k.microseconds)


def measured(name: str, L: Any, lock: Path | None = None) -> tuple[float, list[Kernel]]:
    """Milliseconds of a step, and its kernels."""
    run, wait = compiled(name, L), L.jax.block_until_ready
    for _ in range(8):
        out = run()
    wait(out)
    with turn(lock):
        return _timed(run, wait)


def _timed(
    run: Callable[[], Any], wait: Callable[[Any], Any]
) -> tuple[float, list[Kernel]]:
    import torch

    start = time.perf_counter()
    for _ in range(10):
        out = run()
    wait(out)
    milliseconds = (time.perf_counter() - start) * 100
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(STEPS):
            out = run()
        wait(out)
    return milliseconds, kernels_of(profile.profiler.kineto_results.events())


def table(title: str, milliseconds: float, kernels: list[Kernel], most: int) -> str:
    """The kernels of a step, one in each line."""
    total = sum(k.microseconds for k in kernels)
    launches = sum(k.launches for k in kernels)
    rows = [f"{title}: {milliseconds:.3f} ms, {launches:.0f} kernels of {total / 1e3:.3f} ms"]
    for k in kernels[:most]:
        short = re.sub(r"\s+", " ", k.name)[:100]
        rows.append(f"  {k.microseconds:9.1f} us {k.launches:7.1f} x  {short}")
    return "\n".join(rows)


def main(given: list[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="+",
                        help="names; python -m benchmarks.programs --list shows them")
    parser.add_argument("--libraries", default="toile,jax", help="names with commas between them")
    parser.add_argument("--most", type=int, default=30, help="how many kernels to list")
    parser.add_argument("--lock", type=Path, help="a file whose lock is held while measuring")
    args = parser.parse_args(given)
    for name in args.programs:
        for each in args.libraries.split(","):
            found = measured(name, library(each), args.lock)
            print(table(f"{name}, {each}", *found, args.most), flush=True)


if __name__ == "__main__":
    main()
