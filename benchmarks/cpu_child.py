"""A process that builds one case with one framework and measures windows on command.

A window is a group of calls that are timed together. Commands and answers are lines of JSON: first
`{"build": kind, "spec": ...}`, then any number of `{"window": name, "argument": ...}` and
`{"memory": 1}`. The answer to `{"ready": 1}` shows that the interpreter has started. Before
`build`, only the standard library is loaded, so the time from there to the first step is the time
that a user waits.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

MOST_CALLS = 20_000


class Case(NamedTuple):
    """Windows by name, and facts known after building; `more` determines facts that take longer."""

    windows: dict[str, Callable[[Any], dict[str, Any]]]
    facts: dict[str, Any]
    more: Callable[[], dict[str, Any]] = dict


def timed(
    once: Callable[[], Any], wait: Callable[[Any], Any], group: int = 1
) -> Callable[[float], dict[str, Any]]:
    """Create a window: a fixed number of calls that take about `target` seconds together.

    Only the last call is waited for. The number is a multiple of `group`, if that many calls
    together do the same work in every framework, but single ones do not."""
    calls: list[int] = []

    def several(n: int) -> float:
        started = time.perf_counter()
        for _ in range(n - 1):
            once()
        wait(once())
        return time.perf_counter() - started

    def window(target: float) -> dict[str, Any]:
        if not calls:
            one = min(several(group) for _ in range(2)) / group
            n = min(MOST_CALLS, max(1, int(target / one)))
            if n > 4 * group:  # a single call includes the time to wake up
                some = n // 4 // group * group
                n = min(MOST_CALLS, max(1, int(target * some / several(some))))
            n = max(1, round(n / group)) * group
            calls.append(n)
            several(max(1, n // 4 // group) * group)
        (n,) = calls
        cpu = time.process_time()
        wall = several(n)
        used = time.process_time() - cpu
        return {"seconds": wall / n, "cpu": used / n, "calls": n, "wall": wall}

    return window


def build(framework: str, kind: str, spec: str, threads: int) -> Case:
    """Build the case with the given framework."""
    if framework == "torch":
        import torch

        torch.set_num_threads(threads)
        from benchmarks.cpu_torch import KINDS
    else:
        from benchmarks.cpu_jaxlike import KINDS
    return KINDS[kind](framework, spec)


def answer(
    framework: str, threads: int, held: list[Case], command: dict[str, Any]
) -> dict[str, Any]:
    """Execute a command."""
    if "build" in command:
        started = time.perf_counter()
        case = build(framework, command["build"], command["spec"], threads)
        total = time.perf_counter() - started
        held[:] = [case]
        where = getattr(sys.modules.get(framework), "__file__", None)
        return {**case.facts, "total": total, "file": where}
    if "more" in command:
        return held[0].more()
    if "ready" in command:
        return {}
    if "memory" in command:
        return {"megabytes": peak_megabytes(framework)}
    return held[0].windows[command["window"]](command["argument"])


def peak_megabytes(framework: str) -> float:
    """The peak memory of this process: on the GPU if the benchmark runs there, else on the host."""
    if os.environ.get("BENCHMARK_PLATFORM") != "gpu":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if framework == "torch":
        import torch

        return torch.cuda.max_memory_allocated() / 2**20
    if framework == "jax":
        import jax

        return jax.devices()[0].memory_stats()["peak_bytes_in_use"] / 2**20
    from benchmarks.gpu_memory import peak_bytes

    return peak_bytes() / 2**20


def main(framework: str, threads: int) -> None:
    """Answer commands until the input ends."""
    on_cpu = os.environ.get("BENCHMARK_PLATFORM") != "gpu"
    if on_cpu and hasattr(os, "sched_setaffinity"):  # libraries use all CPUs that they may use
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # redirect the output of libraries
    held: list[Case] = []
    for line in sys.stdin:
        try:
            found = answer(framework, threads, held, json.loads(line))
        except Exception as error:  # reported, so that the other frameworks continue
            found = {"error": f"{type(error).__name__}: {str(error)[:500]}"}
        answers.write(json.dumps(found) + "\n")
        answers.flush()


if __name__ == "__main__":
    from benchmarks import cpu_child  # the name under which cases import this module

    cpu_child.main(sys.argv[1], int(sys.argv[2]))
