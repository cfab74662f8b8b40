"""The time that each of the checks of `toile.checks` adds to a training step.

`python -m benchmarks.checks` measures the steps of `STEPS` on the default device and prints a
table; `--only mlp` measures some of them, `--json FILE` keeps the ratios with the machine's name.
Steps with and without a check alternate in windows of equal length. On a CPU, processor times are
compared, because other programs affect them less than elapsed times; on a GPU, elapsed times.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import toile
import toile.numpy as jnp
from benchmarks import gpu
from benchmarks.cpu import versions
from benchmarks.timing import cpu_name
from benchmarks.workloads import build, library

CHECKS = ("index", "nan", "keys", "shapes")
ROUNDS, WINDOW_S = 12, 0.1
STEPS: dict[str, dict[str, dict[str, Any]]] = {
    "cpu": {"mlp": {}, "cnn": {}, "transformer": {"batch": 4}, "lstm": {"batch": 16},
            "gnn": {"nodes": 2048, "edges": 16384}, "gather": {}},
    "gpu": {"mlp": {}, "cnn": {}, "transformer": {"batch": 16},
            "transformer 12 x 1024": {"d": 1024, "layers": 12, "heads": 16, "dtype": "bfloat16"},
            "lstm": {"batch": 64}, "gnn": {"nodes": 65536, "edges": 1048576}, "gather": {}},
}  # fmt: skip
Step = Callable[[Any], tuple[Any, Any]]


def gather_step() -> tuple[Step, Any]:
    """Updates of a table from single elements that are read at a million places."""
    table = jnp.zeros(1 << 16)
    places = toile.random.randint(toile.random.key(0), (1 << 20,), 0, table.size)

    def loss(table: Any) -> Any:
        return ((table[places] - 1) ** 2).mean()

    def step(table: Any) -> tuple[Any, Any]:
        value, grad = toile.value_and_grad(loss)(table)
        return table - 0.1 * grad, value

    return step, table


def made(name: str, sizes: dict[str, Any]) -> tuple[Step, Any]:
    """A compiled training step as a function of its state, and the first state."""
    if name == "gather":
        step, state = gather_step()
        return toile.jit(step), state
    full, state, batch = build(library("toile"), name.split()[0], **sizes)
    compiled = toile.jit(full)
    return lambda state: compiled(state, batch), state


def window(step: Step, state: Any, count: int, clock: Callable[[], float]) -> tuple[float, Any]:
    """The time of `count` steps, and the state after them. The first steps after a check has been
    switched on or off are not measured: they find the compiled function again."""
    for _ in range(4):
        state, loss = step(state)
    loss.block_until_ready()
    start = clock()
    for _ in range(count):
        state, loss = step(state)
    loss.block_until_ready()
    return clock() - start, state


def measured(name: str, sizes: dict[str, Any], rounds: int = ROUNDS) -> dict[str, float]:
    """For each check, the time of a step with it divided by the time without any check."""
    clock = time.process_time if toile.default_backend() == "cpu" else time.perf_counter
    steps: dict[str, Step] = {}
    for check in (*CHECKS, ""):
        with toile.checks(check or None):
            steps[check], state = made(name, sizes)
            window(steps[check], state, 1, clock)  # compiles
    for check, step in steps.items():  # on a GPU, the first calls record graphs
        with toile.checks(check or None):
            _, state = window(step, state, 10, clock)
    seconds, state = window(steps[""], state, 10, time.perf_counter)
    count = max(3, round(10 * WINDOW_S / seconds))
    times: dict[str, list[float]] = {check: [] for check in steps}
    for _ in range(rounds):
        for check, step in steps.items():
            with toile.checks(check or None):
                seconds, state = window(step, state, count, clock)
            times[check].append(seconds)
    plain = times.pop("")
    return {check: statistics.median(a / b for a, b in zip(found, plain, strict=True))
            for check, found in times.items()}


def main() -> None:
    """Measure, print the table, keep the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="names of steps, with commas between them")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path, help="write the results file")
    given = parser.parse_args()
    device = toile.default_backend()
    names = given.only.split(",") if given.only else list(STEPS[device])
    found = {}
    print(f"{'':22}" + "".join(f"{check:>9}" for check in CHECKS))
    for name in names:
        found[name] = measured(name, STEPS[device][name], given.rounds)
        print(f"{name:22}" + "".join(f"{found[name][check] - 1:9.1%}" for check in CHECKS))
    if given.json:
        machine = cpu_name() if device == "cpu" else gpu.machine()
        given.json.write_text(json.dumps({"device": device, "machine": machine,
                                          "versions": versions(), "steps": found,
                                          "what": "time with a check / time without"}, indent=1))


if __name__ == "__main__":
    main()
