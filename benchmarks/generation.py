"""Tokens per second, and the time to the first token, of a Llama with 150 million parameters.

    python -m benchmarks.generation --batches 1 32 --tokens 16 --json results.json
    python -m benchmarks.generation --platform gpu --size 1B --tokens 64 --json results.json

toile, transformers (as it is, and with a static cache and `torch.compile`), JAX and llama.cpp
generate tokens in processes of their own, which take turns: each round measures one window of each.
Frameworks that are not installed are left out. A window is
the time for the prompts and the first token, and then the time for each further token. The CPU time
of all threads is measured, too: on a machine with other load, it varies much less.
The first windows are a warm-up: compiled programs and CUDA graphs settle in them.
The bandwidth of the memory is measured in the same rounds: all threads search a large array for
its maximum; on a GPU, a large array is copied. With `--add`, results are added to those in the file
of earlier runs with the same options, so that a table can be measured in parts. The parameters are
random. `--dtypes` and `--frameworks` select rows.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import select
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from importlib import metadata
from typing import Any

from benchmarks import gpu
from benchmarks.children import PATIENCE_S, ROOT, SETTLING_S, environment, without_files
from benchmarks.timing import cpu_name

DTYPES = ("float32", "bfloat16", "int8", "int4")
# Frameworks, and the dtypes in which they are measured.
FRAMEWORKS = {
    "memory": DTYPES, "toile": DTYPES, "transformers": DTYPES[:2],
    "transformers compiled": DTYPES[:2], "jax": DTYPES[:2], "llama.cpp": DTYPES,
}  # fmt: skip
WARM_UP = 4  # windows before those that count; their times are stored as "cold"
PACKAGES = ("numpy", "torch", "transformers", "jax", "llama-cpp-python")
TINY = {"vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 128}  # fmt: skip
BILLION = {"hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 8,
           "intermediate_size": 8192}  # fmt: skip
SIZES: dict[str, dict[str, int]] = {"tiny": TINY, "150M": {}, "1B": BILLION}


class Child:
    """A process that runs `benchmarks.generation_child` for a framework."""

    def __init__(
        self, framework: str, dtype: str, size: str, threads: int, folder: str, platform: str
    ):
        command = [sys.executable, "-m", "benchmarks.generation_child", framework, dtype,
                   json.dumps(SIZES[size])]
        self.framework = framework
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
            env=environment(threads, folder, framework, "", platform), stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def answer(self) -> dict[str, Any]:
        """Wait for a line; the answer contains `error` if the child has failed."""
        stdout = self.process.stdout
        assert stdout
        while select.select([stdout], [], [], PATIENCE_S)[0]:
            line = stdout.readline()
            if not line:
                return {"error": f"ended with {self.process.wait()}"}
            if line.startswith("{"):  # libraries may print other lines
                return json.loads(line)
        return {"error": f"no answer in {PATIENCE_S:.0f} s"}

    def ask(self, batch: int, prompt: int, tokens: int) -> dict[str, Any]:
        """Measure one window."""
        assert self.process.stdin
        try:
            command = {"batch": batch, "prompt": prompt, "tokens": tokens}
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return {"error": f"ended with {self.process.wait()}"}
        return self.answer()

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe
            pipe.close()


def measure(dtype: str, args: argparse.Namespace, folder: str) -> dict[str, Any]:
    """All rounds of all frameworks for one dtype."""
    found: dict[str, Any] = {}
    with ExitStack() as stack:
        started = [
            stack.enter_context(closing(
                Child(name, dtype, args.size, args.threads, folder, args.platform)))
            for name in args.frameworks if dtype in FRAMEWORKS[name]
        ]  # fmt: skip
        for child in started:
            found[child.framework] = child.answer()
        children = [child for child in started if "error" not in found[child.framework]]
        for batch in args.batches:
            windows = rounds(children, batch, args)
            for name, window in windows.items():
                found[name][f"batch {batch}"] = window
            for name in windows:
                print(line(dtype, batch, name, found), flush=True)
    for name, one in found.items():
        if "error" in one:
            print(f"{dtype:9} {name}: {one['error']}", flush=True)
    return found


def rounds(children: list[Child], batch: int, args: argparse.Namespace) -> dict[str, Any]:
    """The windows of each framework for one batch size; the first ones are a warm-up."""
    windows: dict[str, Any] = {child.framework: {"prompt": args.prompt} for child in children}
    for number in range(args.rounds + args.warm_up):
        for i in range(len(children)):
            child = children[(i + number) % len(children)]
            window = windows[child.framework]
            if "error" in window:
                continue
            time.sleep(SETTLING_S)
            tokens = 0 if child.framework == "memory" else args.tokens
            got = child.ask(batch, args.prompt, tokens)
            if "error" in got:
                window["error"] = got["error"]
            elif number < args.warm_up:
                window.setdefault("cold", []).append(got["first"])
            else:
                for key, value in got.items():
                    window.setdefault(key, []).append(value)
    return windows


def line(dtype: str, batch: int, framework: str, found: dict[str, Any]) -> str:
    """A row of the printed table."""
    window = found[framework][f"batch {batch}"]
    start = f"{dtype:9} batch {batch:2}  {framework:22}"
    if "error" in window:
        return start + window["error"]
    median, least = ({k: f(v) for k, v in window.items() if isinstance(v, list)}
                     for f in (statistics.median, min))
    size = found[framework]["bytes"]
    if framework == "memory":
        return start + (f"{size / median['first'] / 1e9:.1f} GB/s (CPU time: "
                        f"{size / median['first_cpu'] / 1e9:.1f})")
    row = start
    for key, name in (("first", "first token"), ("step", "step")):
        cpu = f"{key}_cpu"
        row += (f"{name} {1e3 * median[key]:.1f} ms (least {1e3 * least[key]:.1f}; CPU time "
                f"{1e3 * median[cpu]:.1f}, least {1e3 * least[cpu]:.1f})  ")
    row += f"{batch / median['step']:.1f} tokens/s"
    for key, rate in bandwidths(found).items():
        if batch == 1:
            row += f", {size / median[key] / rate:.0%} of the bandwidth"
            row += " in CPU time" * key.endswith("cpu")
    return row


def bandwidths(found: dict[str, Any]) -> dict[str, float]:
    """The bytes per second that a read of the memory reaches, in time and in CPU time."""
    memory = found.get("memory", {})
    window = memory.get("batch 1", {})
    return {step: memory["bytes"] / statistics.median(window[first])
            for step, first in (("step", "first"), ("step_cpu", "first_cpu")) if first in window}


def medians(found: dict[str, Any], suffix: str = "_cpu") -> dict[str, Any]:
    """The medians of CPU times in microseconds, by row and framework; with "" as the suffix, those
    of elapsed times."""
    rows: dict[str, Any] = {}
    for dtype, frameworks in found.items():
        for framework, one in frameworks.items():
            for batch, window in one.items():
                if framework == "memory" or not batch.startswith("batch") or "error" in window:
                    continue
                for name, title in (("first", "first token"), ("step", "further token")):
                    key = name + suffix
                    row = rows.setdefault(f"{dtype}, {batch}, {title}", {"median_us": {}})
                    row["median_us"][framework.replace(" ", "_")] = 1e6 * statistics.median(
                        window[key])
    return rows


def versions() -> dict[str, str]:
    """The versions of the installed packages."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def earlier(file: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """The results in a file, which must have been measured with the same options."""
    if file is None or not os.path.exists(file):
        return {}
    with open(file, encoding="utf-8") as opened:
        old = json.load(opened)
    other = [k for k in options if k != "dtypes" and old.get(k) != without_files(options[k])]
    if other:
        raise SystemExit(f"{file} was measured with other {', '.join(other)}")
    return old["dtypes"]


def merge(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Replace the batch sizes that were measured again."""
    for framework, one in new.items():
        old[framework] = one if "error" in one else {**old.get(framework, {}), **one}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--platform", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--size", choices=SIZES, default="150M")
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--frameworks", nargs="+", choices=FRAMEWORKS, default=list(FRAMEWORKS))
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--prompt", type=int, default=128, help="tokens of a prompt")
    parser.add_argument("--tokens", type=int, default=16, help="further tokens of a window")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--warm-up", type=int, default=WARM_UP, help="windows before the rounds")
    parser.add_argument("--json", help="file for all rounds")
    parser.add_argument("--add", action="store_true", help="keep the other results in the file")
    args = parser.parse_args()
    found: dict[str, Any] = {
        "machine": platform.machine(), "cpu": cpu_name(), "threads": args.threads,
        **({"gpu": gpu.machine()} if args.platform == "gpu" else {}), "size": args.size,
        "versions": versions(), "tokens": args.tokens, "dtypes": {},
    }  # fmt: skip
    if args.add:
        found["dtypes"] = earlier(args.json, found)
    with tempfile.TemporaryDirectory(prefix="toile-bench-") as folder:
        for dtype in args.dtypes:
            merge(found["dtypes"].setdefault(dtype, {}), measure(dtype, args, folder))
            found["results"] = medians(found["dtypes"], "_cpu" if args.platform == "cpu" else "")
            if args.json:
                with open(args.json, "w", encoding="utf-8") as file:
                    json.dump(without_files(found), file, indent=1)


if __name__ == "__main__":
    main()
