"""Measure the cost of an all-reduce, and predict data-parallel steps on 8, 64 and 1024 devices.

The following times are measured: the sum over 2 devices of one process and over 2 processes
(started by mpirun), for sizes from 4 bytes to 16 MB; one message; and a training step of the
network of examples/mnist on one device. From these times and from assumed properties of the
computer network, `predict` computes the time of a step on many machines. `python -m
benchmarks.scaling --json FILE` writes all numbers to a file.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import toile
from benchmarks import parallel
from benchmarks.timing import cpu_name
from toile import lax, training
from toile.parallel import processes

SIZES = [4, 1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 22, 1 << 24]
DEVICES = (1, 8, 64, 1024)
PER_MACHINE = 8


@dataclasses.dataclass(frozen=True)
class Line:
    """A cost of `start + per_byte * bytes` seconds."""

    start: float
    per_byte: float

    def __call__(self, size: float) -> float:
        return self.start + self.per_byte * size


@dataclasses.dataclass(frozen=True)
class Network:
    """A connection between machines: its latency in seconds, and its bandwidth in bytes per
    second."""

    latency: float
    bandwidth: float


@dataclasses.dataclass(frozen=True)
class Work:
    """A training step: its time on one device in seconds, and the size of its gradients in
    bytes."""

    seconds: float
    gradient: int


# Assumed: typical latencies of each kind of network, and 80% of its nominal bandwidth.
NETWORKS = {
    "10 Gb/s Ethernet": Network(50e-6, 1.0e9),
    "100 Gb/s Ethernet": Network(20e-6, 10e9),
    "400 Gb/s InfiniBand": Network(3e-6, 40e9),
}


def alone(fun: Callable[[], Any], seconds: float = 4.0) -> float:
    """The minimum processor time of a call in one thread, which is its time on an idle core."""
    fun()
    found, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(found) < 5:
        began = time.process_time()
        fun()
        found.append(time.process_time() - began)
    return min(found)


def sums() -> dict[int, float]:
    """The seconds of an all-reduce by size: a mapped sum, minus a mapped function without a sum."""
    count = toile.local_device_count()
    add = toile.pmap(lambda x: x + 1, "i")
    total = toile.pmap(lambda x: lax.psum(x, "i"), "i")
    found = {}
    for size in SIZES:
        x = np.ones((count, size // 4), np.float32)
        placed = add(x)  # divided among the devices, as gradients are
        without = least(lambda p=placed: add(p), size)
        found[size] = max(least(lambda p=placed: total(p), size) - without, 0.0)
    return found


def least(fun: Callable[[], Any], size: int) -> float:
    """The minimum time of a call; the number of calls is the same in all processes.

    Other load on the machine can only increase the time of a call."""
    rounds = 1000 if size <= 1 << 14 else 200 if size <= 1 << 20 else 40
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        fun()
        times.append(time.perf_counter() - began)
    return min(times)


def per_message(count: int = 64) -> float:
    """The seconds that this process needs to send one message and receive one message."""
    world = processes.joined()
    other, tag = 1 - world.rank, 9
    values = [np.zeros(1, np.int64) for _ in range(2 * count)]
    times = []
    for _ in range(100):
        world.barrier("per_message")
        began = time.perf_counter()
        with world.lock:
            requests = [world.data.Irecv([v, world.mpi.INT64_T], other, tag)
                        for v in values[:count]]
            requests += [world.data.Isend([v, world.mpi.INT64_T], other, tag)
                         for v in values[count:]]
            world.mpi.Request.Waitall(requests)
        times.append(time.perf_counter() - began)
    return min(times) / count


def child() -> None:
    """Run the part for processes started by mpirun; the first process prints the results."""
    toile.distributed.initialize(initialization_timeout=60)
    found = {"sums": sums(), "message": per_message()}
    if toile.process_index() == 0:
        print(json.dumps(found))


def over_processes() -> dict[str, Any] | None:
    """The measurements between two processes on this machine; None if mpirun is not installed."""
    beside = Path(sys.executable).parent / "mpiexec"
    launcher = str(beside) if beside.exists() else shutil.which("mpiexec")
    if launcher is None:
        return None
    command = [launcher, "-n", "2", sys.executable, "-m", "benchmarks.scaling", "--child"]
    environment = {**os.environ, "TOILE_CPU_DEVICES": "1"}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    if ended.returncode:
        raise RuntimeError(f"mpirun ended with status {ended.returncode}:\n{ended.stderr}")
    return json.loads(ended.stdout)


def fitted(times: dict[int, float]) -> Line:
    """A line through the costs of the smallest and the largest sizes."""
    sizes = sorted(times)
    start = min(times[n] for n in sizes[:2])
    return Line(start, max(times[sizes[-1]] - start, 0.0) / sizes[-1])


def measured_work() -> Work:
    """The training step of the MNIST network with 128 images, on one single-threaded device."""
    step = training.replicated(parallel.train_step, devices=toile.local_devices()[:1])
    once = parallel.training_with(step, 1)
    model = parallel.CNN()
    shapes = toile.eval_shape(model.init, toile.random.key(0), np.zeros((1, 28, 28, 1), "float32"))
    return Work(alone(once), sum(4 * x.size for x in toile.tree.leaves(shapes)))


def predict(
    work: Work, devices: int, local: Line, between: Line, message: float, network: Network,
    per_machine: int = PER_MACHINE,
) -> float:
    """The predicted seconds of a step in which every device has a batch of the same size.

    The model assumes that communication does not overlap with computation, that all devices are
    equally fast, and that the network serves all machines at its full rate. Within a machine, k
    devices sum their gradients. The cost is that measured for 2 devices, with the cost per byte
    multiplied by k/2, as if memory bandwidth were the limit.

    Between P machines, each machine sends a part of size 1/P to each of the others and receives
    their parts; the sums are then sent in the same way. Each of these two exchanges costs P-1
    messages at the measured time, one latency, and (P-1)/P of the bytes. The time per byte is that
    of the network or that measured between two processes, whichever is larger."""
    within = min(devices, per_machine)
    machines = -(-devices // per_machine)
    total = work.seconds
    if within > 1:
        total += local.start + local.per_byte * work.gradient * within / 2
    if machines > 1:
        per_byte = max(1 / network.bandwidth, between.per_byte)  # 2 processes: S bytes in all
        share = (machines - 1) / machines * work.gradient * per_byte
        total += 2 * ((machines - 1) * message + share + network.latency)
    return total


def table(
    work: Work, local: Line, between: Line, message: float
) -> dict[str, dict[str, dict[str, float]]]:
    """The step times and efficiencies by network and number of devices."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name, network in NETWORKS.items():
        found[name] = {}
        for n in DEVICES:
            seconds = predict(work, n, local, between, message, network)
            found[name][str(n)] = {"step_ms": 1e3 * seconds, "efficiency": work.seconds / seconds}
    return found


def show(title: str, work: Work, found: dict[str, Any]) -> None:
    """Print predictions as a table with bars of efficiency."""
    print(f"\n{title}: {1e3 * work.seconds:.1f} ms per step, {work.gradient / 1e6:.1f} MB of "
          "gradients")
    for name, rows in found.items():
        for n, row in rows.items():
            bar = "#" * round(40 * row["efficiency"])
            print(f"  {name:20} {n:>5} devices {row['step_ms']:9.2f} ms  "
                  f"{row['efficiency']:6.1%} {bar}")


def rows(results: dict[str, Any], costs: dict[int, float]) -> dict[str, Any]:
    """All times in seconds, for the benchmark page of the documentation."""
    found: dict[str, Any] = {}
    for size, seconds in results["over_threads"].items():
        found[f"sum of {size} bytes"] = {
            "median": {"2_threads": seconds, "2_processes": costs.get(size)}
        }
    for title, prediction in results["predictions"].items():
        for network, steps in prediction["steps"].items():
            times = {f"{n}_devices": row["step_ms"] / 1e3 for n, row in steps.items()}
            found[f"step of {title}, {network} (predicted)"] = {"median": times}
    return found


def machine() -> dict[str, Any]:
    """Facts about the machine."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {"machine": platform.machine(), "cpu": cpu_name(), "cores": os.cpu_count(),
            "python": platform.python_version(), "load": load}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, predict, print and save the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the numbers to this file")
    parser.add_argument("--child", action="store_true", help="for internal use with mpirun")
    parser.add_argument("--gradient-megabytes", type=float, default=102.4,
                        help="gradient size of another network (default: 25.6 million parameters)")
    parser.add_argument("--step-milliseconds", type=float, default=500.0,
                        help="step time of another network on one device")
    options = parser.parse_args(arguments)
    if options.child:
        child()
        return
    results: dict[str, Any] = machine()
    toile.config.update("jax_num_cpu_devices", 2)
    results["over_threads"] = sums()
    found = results["over_processes"] = over_processes()
    # Without mpirun, only the network's cost is used, and a message is assumed to take 5 us.
    costs = {int(k): v for k, v in found["sums"].items()} if found else {}
    local, between = fitted(results["over_threads"]), fitted(costs) if costs else Line(0.0, 0.0)
    message = found["message"] if found else 5e-6
    for title, times in ("2 devices of a process", results["over_threads"]), ("2 processes", costs):
        print(f"sum over {title}:")
        for size, seconds in times.items():
            print(f"  {size:>9} bytes {1e6 * seconds:10.1f} us")
    print(f"one message: {1e6 * message:.1f} us")
    works = {
        "the network of examples/mnist, 128 images per device (measured)": measured_work(),
        "a larger network (hypothetical)": Work(options.step_milliseconds / 1e3,
                                                int(options.gradient_megabytes * 1e6)),
    }
    results["networks"] = {k: dataclasses.asdict(v) for k, v in NETWORKS.items()}
    results["predictions"] = {}
    for title, work in works.items():
        steps = table(work, local, between, message)
        show(title, work, steps)
        results["predictions"][title] = {"work": dataclasses.asdict(work), "steps": steps}
    results["rows"] = rows(results, costs)
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
