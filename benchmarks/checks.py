"""The time that `toile.checks("nan")` adds to a training step.

`python -m benchmarks.checks batch=2,seq=32` prints this time for a transformer. Steps with and
without the check alternate. Processor times are compared, because other programs affect them less
than elapsed times.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

import toile
from benchmarks.workloads import build, library

ROUNDS = 20


def measured(name: str, sizes: dict[str, int], rounds: int = ROUNDS) -> float:
    """Return the processor time of a step with the check, divided by the time without it."""
    step, state, batch = build(library("toile"), name, **sizes)
    compiled = toile.jit(step, donate_argnums=0)

    def timed(state: Any) -> tuple[float, Any]:
        start = time.process_time()
        state, loss = compiled(state, batch)
        loss.block_until_ready()
        return time.process_time() - start, state

    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(rounds + 3):  # the first rounds trace and compile
        for checked in times:
            with toile.checks("nan" if checked else None):
                seconds, state = timed(state)
            times[checked].append(seconds)
    return statistics.median(times[True][3:]) / statistics.median(times[False][3:])


def main(arguments: list[str]) -> None:
    given = dict(pair.split("=") for a in arguments for pair in a.split(","))
    name = given.pop("name", "transformer")
    ratio = measured(name, {key: int(value) for key, value in given.items()})
    print(f"{name}: {ratio - 1:+.1%} with checks('nan')")


if __name__ == "__main__":
    main(sys.argv[1:])
