"""Child processes, one per framework, and the load that other processes put on the machine.

A child sleeps until it receives a command to measure a window (a group of timed calls), so that the
frameworks take turns on the same machine. `Load` measures how much of the CPU all other processes
use in a block of code.
"""

from __future__ import annotations

import functools
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PATIENCE_S = 900.0
KNOWN = os.path.exists("/proc/self/stat")  # whether the load can be measured
SETTLING_S = 0.02  # time for the threads of the last child to stop spinning


@functools.cache
def bytecode() -> tempfile.TemporaryDirectory[str]:
    """The folder in which children store the bytecode of all modules that they import.

    On some machines, installed packages have no bytecode, and Python would compile them again in
    every process."""
    return tempfile.TemporaryDirectory(prefix="toile-bench-bytecode-")


def environment(
    threads: int, folder: str, framework: str, cache: str, platform: str, code: Path = ROOT
) -> dict[str, str]:
    """The environment variables that set a child's threads, platform and folder for compiled
    code."""
    n = str(threads)
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC")
    found = {**os.environ, **dict.fromkeys(names, n)}
    found["PYTHONPATH"] = os.pathsep.join(filter(None, [str(code), os.environ.get("PYTHONPATH")]))
    found.pop("PYTHONDONTWRITEBYTECODE", None)
    found["PYTHONPYCACHEPREFIX"] = bytecode().name
    found["TOILE_NUM_THREADS"] = n
    found["TOILE_CACHE_DIR"] = folder
    found["JAX_PLATFORMS"] = "cpu" if platform == "cpu" else "cuda,cpu"
    found["TOILE_PLATFORM"] = found["BENCHMARK_PLATFORM"] = platform
    if cache:  # only the startup is measured
        found["BENCHMARK_START"] = "1"
    if platform == "cpu":
        found["XLA_FLAGS"] = f"--xla_cpu_multi_thread_eigen={'true' if threads > 1 else 'false'}"
    else:
        found["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # leave memory for the other processes
    if framework == "jax" and cache == "warm":
        found["JAX_COMPILATION_CACHE_DIR"] = folder
        found["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        found["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    return found


def without_files(found: Any) -> Any:
    """Results without the paths of the measured packages, which exist only on this machine."""
    if isinstance(found, dict):
        return {k: without_files(v) for k, v in found.items() if k != "file"}
    return [without_files(v) for v in found] if isinstance(found, (list, tuple)) else found


class Child:
    """A process that runs `benchmarks.cpu_child` for a framework.

    `code` can be a folder with another version of toile, and `name` the name for it in the
    results."""

    def __init__(
        self, framework: str, threads: int, folder: str | None = None, cache: str = "",
        platform: str = "cpu", code: Path = ROOT, name: str = "",
    ):
        self.framework = name or framework
        self.temporary = tempfile.TemporaryDirectory(prefix="toile-bench-")
        folder = folder or os.path.join(self.temporary.name, "kernels")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.cpu_child", framework, str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=code,
            env=environment(threads, folder, framework, cache, platform, code),
        )  # fmt: skip

    def ask(self, **command: Any) -> dict[str, Any]:
        """Send a command and wait for the answer, which contains `error` if the child has
        failed."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin and stdout
        try:
            stdin.write(json.dumps(command) + "\n")
            stdin.flush()
            if not select.select([stdout], [], [], PATIENCE_S)[0]:
                return {"error": f"no answer in {PATIENCE_S:.0f} s"}
            line = stdout.readline()
        except BrokenPipeError:
            line = ""
        return json.loads(line) if line else {"error": f"ended with {self.process.wait()}"}

    def build(self, kind: str, spec: str) -> dict[str, Any]:
        """Make the child build a case."""
        return self.ask(build=kind, spec=spec)

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe
            try:
                pipe.close()
            except BrokenPipeError:
                pass
        self.temporary.cleanup()


def cpu_seconds(without: set[int]) -> float:
    """The CPU time used by all other processes and their finished children, plus stolen time.

    When a process ends, its time is added to the time of its parent's children, so no time is lost
    from the sum. Stolen time is the time that other virtual machines took from this one."""
    tick = os.sysconf("SC_CLK_TCK")
    total = 0
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) in without:
            continue
        try:
            with open(f"/proc/{name}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue  # the process has just ended
        total += sum(int(x) for x in fields[11:15])  # user and system time, also of ended children
    with open("/proc/stat") as file:
        total += int(file.readline().split()[8])
    return total / tick


class Load:
    """Measures the load in a block: `share` is the fraction of the CPU that other processes used.

    `share` is None on systems without /proc."""

    def __init__(self, child: Child):
        self.without = {os.getpid(), child.process.pid}
        self.share: float | None = None

    def __enter__(self) -> Load:
        time.sleep(SETTLING_S)
        self.started = time.perf_counter()
        self.before = cpu_seconds(self.without) if KNOWN else 0.0
        return self

    def __exit__(self, *_: Any) -> None:
        if KNOWN:
            wall = time.perf_counter() - self.started
            used = cpu_seconds(self.without) - self.before
            self.share = max(0.0, used) / (wall * (os.cpu_count() or 1))
