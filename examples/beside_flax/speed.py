"""Compare examples with Flax on one machine: speed, fraction of peak FLOP/s, and memory.

`python -m examples.beside_flax.speed` takes `configs/default.py` of cifar10, imagenet, lm1b and t5
with random batches of the right shapes. Each side runs in its own process. The Flax processes
compile at the same time, because compiling takes longest; then the processes run their steps one
after the other. (The toile processes compile only then.) `--config=tiny` selects runs that are
small enough for a CPU, and `--json FILE` saves the numbers.
"""

import argparse
import functools
import json
import os
import resource
import select
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import toile

from .__main__ import example

NAMES = ("cifar10", "imagenet", "lm1b", "t5")
# FLOP/s of dense bfloat16 products with float32 sums, from NVIDIA's data sheets.
PEAKS = {"H100": 989.4e12, "H200": 989.4e12, "A100": 312e12}
SECONDS = 2.0  # duration of the timing
WARM = 12  # warmup steps
# The key data for both sides.
RNGS = {name: np.array([0, i], np.uint32) for i, name in enumerate(("dropout", "mixup"))}


def filled(shapes, tree_map_with_path):
    """Quickly make weights that are the same for both sides; matrices have unit gain."""
    noise = np.random.default_rng(0).standard_normal(1 << 16, np.float32)

    def fill(path, x):
        name = path[-1].key
        if name in ("scale", "var"):
            return np.ones(x.shape, np.float32)
        if name in ("bias", "mean"):
            return np.zeros(x.shape, np.float32)
        gain = 1.0 if name == "embedding" else np.prod(x.shape[:-1]) ** -0.5
        return np.resize(noise * np.float32(gain), x.shape)

    return tree_map_with_path(fill, shapes)


def forward_flops(jaxpr) -> float:
    """Count the FLOPs of matrix products and convolutions, including every loop iteration."""
    total = 0.0
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "dot_general":
            (contracted, _), _ = eqn.params["dimension_numbers"]
            shape = eqn.invars[0].aval.shape
            total += 2 * eqn.outvars[0].aval.size * np.prod([shape[i] for i in contracted])
        elif eqn.primitive.name == "conv_general_dilated":
            kernel = eqn.invars[1].aval
            features = kernel.shape[eqn.params["dimension_numbers"].rhs_spec[0]]
            total += 2 * eqn.outvars[0].aval.size * kernel.size / features
        times = eqn.params.get("length", 1) if eqn.primitive.name == "scan" else 1
        for inner in eqn.params.values():
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                total += times * forward_flops(inner)
    return total


def timed(step, state, batch, wait) -> dict:
    """Measure the seconds per step after warmup, and the first losses."""
    losses = []
    for _ in range(3):
        state, seen = step(state, batch)
        losses.append(float(seen.compute()["loss"] if hasattr(seen, "compute") else seen))
    for _ in range(WARM - len(losses)):
        state, seen = step(state, batch)
    wait(seen)
    once = time.perf_counter()
    state, seen = step(state, batch)
    wait(seen)
    count = max(3, int(SECONDS / (time.perf_counter() - once)))
    began = time.perf_counter()
    for _ in range(count):
        state, seen = step(state, batch)
    wait(seen)
    return {"seconds": (time.perf_counter() - began) / count, "steps": count, "losses": losses}


def run_toile(chosen, batch) -> dict:
    """Measure the example's own step."""
    print("ready", flush=True)
    sys.stdin.readline()
    if toile.default_backend() == "gpu":
        memory = watched()
    side = chosen.ours()
    state, side = side.state, side._replace(state=None)  # the step donates or releases it
    variables = filled({"params": state.params, **getattr(state, "collections", {})},
                       toile.tree_util.tree_map_with_path)  # fmt: skip
    new = toile.device_put(variables)
    state = state.replace(params=new.pop("params"), opt_state=state.tx.init(state.params))
    if new:
        state = state.replace(collections=new)
    if hasattr(state, "rngs"):
        keys = {name: toile.random.wrap_key_data(RNGS[name]) for name in state.rngs}
        state = state.replace(rngs=keys)
    if hasattr(state, "average"):
        state = state.replace(average=toile.tree.map(toile.numpy.copy, state.params))
    found = timed(side.step, state, toile.device_put(batch), toile.block_until_ready)
    used = memory.peak if toile.default_backend() == "gpu" else host_bytes()
    return {**found, "bytes": used}


def watched():
    """Return an object whose attribute `peak` is the peak GPU memory in bytes from now on."""
    import cupy

    class Watch(cupy.cuda.MemoryHook):
        name = "peak"
        used = peak = 0

        def malloc_postprocess(self, **kwargs):
            self.used += kwargs["mem_size"]
            self.peak = max(self.peak, self.used)

        def free_postprocess(self, **kwargs):
            self.used -= kwargs["mem_size"]

    made = Watch()
    made.__enter__()
    return made


def run_flax(chosen, batch) -> dict:
    """Measure the step in Flax, compiled from shapes so that no arrays occupy the device."""
    import jax

    model, inputs, key = chosen.model(), chosen.inputs(batch), jax.random.key(0)
    shapes = jax.eval_shape(model.init, {"params": key, "dropout": key}, *inputs)
    forward = jax.make_jaxpr(functools.partial(model.apply, mutable=["batch_stats"]))
    flops = 3 * forward_flops(forward(shapes, *inputs).jaxpr)
    began, tx = time.perf_counter(), chosen.optimizer()
    of_state = jax.eval_shape(functools.partial(chosen.flax_state, tx), shapes, RNGS)
    step = chosen.flax_step(tx).lower(of_state, batch).compile()
    compiled = time.perf_counter() - began
    print("ready", flush=True)
    sys.stdin.readline()
    variables = jax.device_put(filled(shapes, jax.tree_util.tree_map_with_path))
    state = chosen.flax_state(tx, variables, RNGS)
    found = timed(step, state, jax.device_put(batch), jax.block_until_ready)
    used = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use", host_bytes())
    return {**found, "bytes": used, "flops": flops, "compiled": compiled}


def host_bytes() -> int:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


RUN = {"toile": run_toile, "flax": run_flax}


def child(side: str, name: str, config: str) -> None:
    """Measure one side of one example: print `ready`, wait for a line of input, print the
    result."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # redirect the output of libraries
    sys.stdout = answers
    chosen = example(name, config)
    batch = chosen.random_batch()
    found = RUN[side](chosen, batch)
    first = next(iter(batch.values()))
    count = first.size if chosen.unit == "tokens" else len(first)
    print(json.dumps({**found, "unit": chosen.unit, "count": count}), flush=True)


def start(side: str, name: str, config: str) -> subprocess.Popen:
    """Start a process that runs `child`; in the one for Flax, toile does not use the GPU."""
    env = dict(os.environ)
    if side == "flax":
        env["TOILE_PLATFORM"] = "cpu"
        env["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        if toile.default_backend() == "gpu":
            env["JAX_PLATFORMS"] = "cuda,cpu"
    command = [sys.executable, "-m", __spec__.name, "--child", side, name, f"--config={config}"]
    return subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def wait_for(process: subprocess.Popen, deadline: float) -> None:
    """Wait until a process is ready or has failed; kill one that takes too long."""
    assert process.stdout
    left = max(0.0, deadline - time.monotonic())
    if select.select([process.stdout], [], [], left)[0]:
        process.stdout.readline()
    else:
        process.kill()


def answer(process: subprocess.Popen) -> dict:
    """Tell a process that is ready to run, and return its result."""
    assert process.stdin and process.stdout
    try:
        process.stdin.write("go\n")
        process.stdin.flush()
        line = process.stdout.readline()
    except BrokenPipeError:
        line = ""
    process.wait()
    return json.loads(line) if line else {"error": f"exited with status {process.returncode}"}


def measure(names, config: str, patience: float) -> dict[str, dict[str, dict]]:
    """Return the results of each side of each example; `patience` limits the compile time."""
    found: dict[str, dict[str, dict]] = {name: {} for name in names}
    processes = {(name, side): start(side, name, config) for name in names for side in RUN}
    deadline = time.monotonic() + patience
    for process in processes.values():
        wait_for(process, deadline)
    for (name, side), process in processes.items():
        found[name][side] = answer(process)
        print(json.dumps({name: {side: found[name][side]}}), flush=True)
    return found


def device() -> str:
    """Return the name of the GPU, or say that there is none."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "CPU"


def table(found: dict, gpu: str) -> str:
    """Format a Markdown table with a row per example and side."""
    peak = next((p for name, p in PEAKS.items() if name in gpu), None)
    lines = ["| example | | per second | share of peak FLOP/s | peak memory | step |"]
    lines += ["|---|---|---|---|---|---|"]
    for name, sides in found.items():
        flops = sides.get("flax", {}).get("flops")
        for side in ("toile", "flax"):
            one = sides.get(side, {"error": "not run"})
            if "error" in one:
                lines.append(f"| {name} | {side} | {one['error']} | | | |")
                continue
            share = f"{flops / one['seconds'] / peak:.1%}" if peak and flops else ""
            rate = f"{one['count'] / one['seconds']:,.0f} {one['unit']}"
            lines.append(f"| {name} | {side} | {rate} | {share} | {one['bytes'] / 2**30:.2f} GiB "
                         f"| {1000 * one['seconds']:.2f} ms |")  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    """Measure, print the table and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("examples", nargs="*", default=[], help=f"from {', '.join(NAMES)}")
    parser.add_argument("--config", default="default")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--patience", type=float, default=900.0, help="seconds for compilation")
    parser.add_argument("--child", nargs=2, metavar=("SIDE", "NAME"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        side, name = args.child
        return child(side, name, args.config)
    found, gpu = measure(args.examples or NAMES, args.config, args.patience), device()
    print(table(found, gpu))
    if args.json:
        args.json.write_text(json.dumps({"machine": gpu, "config": args.config, "rows": found}))
    return None


if __name__ == "__main__":
    main()
