"""The cases of `benchmarks.cpu` for toile and for jax with flax, written with JAX's names.

Each function here builds a `Case` in a child process. A case has functions that measure one window,
and facts that are known once it is built.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import fused_operations, gpu_memory, operation_cells, workloads, zoo
from benchmarks.cpu_child import Case, timed
from benchmarks.cpu_rows import parse

SIDE = 3  # side of the state of a scan
LEAF = 64  # floats in each leaf of the calls that measure overhead
WIDTH, BATCH = 16, 8  # sizes of the tiny network


def train(name: str, spec: str) -> Case:
    """Training steps of a workload with a donated state; the check is the first three losses."""
    started = time.perf_counter()
    lib = workloads.library(name)
    measured = os.environ.get("BENCHMARK_PLATFORM") == "gpu" and "BENCHMARK_START" not in os.environ
    if name == "toile" and measured:
        gpu_memory.watch()  # imports CuPy, so it is not used when the startup is measured
    imported = time.perf_counter()
    workload, sizes = parse(spec)
    step, state, batch = workloads.build(lib, workload, **sizes)
    step = lib.jax.jit(step, donate_argnums=0)
    lib.jax.block_until_ready(state)
    built = time.perf_counter()
    state, loss = step(state, batch)
    losses = [float(loss)]
    seconds = {"import": imported - started, "init": built - imported}
    seconds["first"] = time.perf_counter() - built
    kept = [state]

    def once() -> Any:
        kept[0], loss = step(kept[0], batch)
        return loss

    def more() -> dict[str, Any]:
        losses.extend(float(once()) for _ in range(2))
        return {"check": losses}

    return Case({"": timed(once, float)}, {"check": losses, "seconds": seconds}, more)


def program(name: str, spec: str) -> Case:
    """Steps of a program of `benchmarks.zoo`; the check is its first results.

    The state is donated, unless steps begin with the initial state again."""
    started = time.perf_counter()
    measured = os.environ.get("BENCHMARK_PLATFORM") == "gpu" and "BENCHMARK_START" not in os.environ
    if name == "toile" and measured:
        gpu_memory.watch()
    lib = operation_cells.library(name)
    imported = time.perf_counter()
    title, size = spec.split(",")
    found = zoo.programs()[title]
    step, state, batch = found.make(lib, **found.sizes[size])
    step = lib.jax.jit(step, donate_argnums=() if found.restarts else 0)
    lib.jax.block_until_ready(state)
    built = time.perf_counter()
    kept, steps = [*step(state, *batch)], itertools.count(1)
    seconds = {"import": imported - started, "init": built - imported}
    results = [_total(kept[1])]
    seconds["first"] = time.perf_counter() - built

    def once() -> Any:
        begins = found.restarts and next(steps) % found.restarts == 0
        kept[:] = step(state if begins else kept[0], *batch)
        return kept[1]

    def more() -> dict[str, Any]:
        results.extend(_total(once()) for _ in range(2))
        return {"check": results}

    windows = {"": timed(once, lib.jax.block_until_ready, found.restarts or 1)}
    return Case(windows, {"check": results, "seconds": seconds}, more)


def _total(result: Any) -> float:
    """The sum of the absolute values of a program's results."""
    return float(np.abs(np.asarray(result).astype("f8")).sum())


def operation(name: str, spec: str) -> Case:
    """An operation forward and backward; the fact is its error against float64."""
    lib = workloads.library(name)
    jax, jnp = lib.jax, lib.jnp
    title, elements = spec.split(",")
    raw = fused_operations.inputs(title, int(elements))
    function = fused_operations.jaxlike(lib, title)
    arrays = [jnp.asarray(a) for a in raw]
    if title != "adam":
        jitted = jax.jit(function)
        once = lambda: jitted(*arrays)
        errors = fused_operations.errors(title, raw, once())
        return Case({"": timed(once, jax.block_until_ready)}, {"errors": errors})
    jitted = jax.jit(function, donate_argnums=(0, 2, 3))
    step = jnp.asarray(fused_operations.STEP - 1, jnp.int32)
    grads = arrays[1]
    kept = [*jitted(*arrays, step)]
    errors = fused_operations.errors(title, raw, kept)

    def update() -> Any:
        p, mu, nu = kept
        kept[:] = jitted(p, grads, mu, nu, step)
        return kept[0]

    return Case({"": timed(update, jax.block_until_ready)}, {"errors": errors})


def scan(name: str, spec: str) -> Case:
    """A scan over a small matrix, with `spec` = body,steps: the forward pass, and the gradient."""
    lib = workloads.library(name)
    jax, jnp = lib.jax, lib.jnp
    body, steps = spec.split(",")
    jax.config.update("jax_enable_x64", SCAN_TYPES[body] == "f8")
    start, weight, xs = (jnp.asarray(a) for a in scan_inputs(body, int(steps)))

    def final(weight: Any, state: Any, xs: Any) -> Any:
        one = lambda state, x: (scan_body(jnp, body, weight, state, x), None)
        return jax.lax.scan(one, state, xs)[0].sum()

    forward, grad = jax.jit(final), jax.jit(jax.grad(final))
    windows = {
        "": timed(lambda: grad(weight, start, xs), jax.block_until_ready),
        "forward": timed(lambda: forward(weight, start, xs), jax.block_until_ready),
    }
    value, slope = forward(weight, start, xs), grad(weight, start, xs)
    return Case(windows, {"check": [float(value), float(jnp.abs(slope).sum())]})


SCAN_TYPES = {"covariance": "f8", "tanh": "f4"}


def scan_inputs(body: str, steps: int) -> list[np.ndarray]:
    """The first state, a weight for which the state stays bounded, and an input for each step."""
    random = np.random.RandomState(0)
    rotation, _ = np.linalg.qr(random.standard_normal((SIDE, SIDE)))
    weight = {"covariance": 0.99, "tanh": 1.2}[body] * rotation
    state, xs = np.eye(SIDE), 0.01 * random.standard_normal((steps, SIDE, SIDE))
    return [a.astype(SCAN_TYPES[body]) for a in (state, weight, xs)]


def scan_body(xp: Any, body: str, weight: Any, state: Any, x: Any) -> Any:
    """One step: the covariance of a linear system, or a recurrent network."""
    if body == "covariance":
        return weight @ state @ weight.T + x
    return xp.tanh(state @ weight + x)


def call(name: str, spec: str) -> Case:
    """A jitted call that does little work, with `spec` leaves as input and as many new outputs."""
    lib = workloads.library(name)
    leaves = [lib.jnp.full((LEAF,), i, "float32") for i in range(int(spec))]
    function = lib.jax.jit(lambda xs: [x + 1 for x in xs])
    return Case({"": timed(lambda: function(leaves), lib.jax.block_until_ready)}, {})


def tiny_inputs() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The parameters of the tiny network, and a batch."""
    random = np.random.RandomState(0)
    normal = lambda *s: (random.standard_normal(s) / 4).astype("f4")
    params = {"w1": normal(WIDTH, WIDTH), "b1": normal(WIDTH), "w2": normal(WIDTH, WIDTH)}
    return {**params, "b2": normal(WIDTH)}, normal(BATCH, WIDTH)


def tiny_loss(xp: Any, params: dict[str, Any], x: Any) -> Any:
    """Two dense layers and a mean of squares."""
    h = xp.tanh(x @ params["w1"] + params["b1"])
    return ((h @ params["w2"] + params["b2"]) ** 2).mean()


def tiny(name: str, spec: str) -> Case:
    """The gradient of a network so small that the call overhead dominates."""
    lib = workloads.library(name)
    jax, jnp = lib.jax, lib.jnp
    params, x = jax.tree_util.tree_map(jnp.asarray, tiny_inputs())
    grad = jax.jit(jax.grad(lambda params, x: tiny_loss(jnp, params, x)))
    check = [float(jnp.abs(g).sum()) for g in grad(params, x).values()]
    window = timed(lambda: grad(params, x), jax.block_until_ready)
    return Case({"": window}, {"check": check})


def resize(name: str, spec: str) -> Case:
    """The extra time of the first call at a new batch size, and the number of compiled kernels."""
    lib = workloads.library(name)
    workload, sizes = parse(spec)
    step, state, batch = workloads.build(lib, workload, **sizes)
    step = lib.jax.jit(step, donate_argnums=0)
    kept = [step(state, batch)[0]]

    def once(batch: Any) -> float:
        started = time.perf_counter()
        kept[0], loss = step(kept[0], batch)
        float(loss)
        return time.perf_counter() - started

    warnings.simplefilter("ignore")  # retracing is intended here

    def window(size: int) -> dict[str, Any]:
        batch = workloads.WORKLOADS[workload](lib, **{**sizes, "batch": size}).batch
        lib.jax.block_until_ready(batch)
        before, started = kernels(), time.perf_counter()
        first = once(batch)
        made = kernels() - before
        later = min(once(batch) for _ in range(3))
        wall = time.perf_counter() - started
        found = {"seconds": max(first - later, 1e-6), "first": first, "later": later}
        return {**found, "kernels": made, "wall": wall}

    return Case({"": window}, {})


def kernels() -> int:
    """The number of kernels that toile has compiled in this process; 0 for other frameworks."""
    native = sys.modules.get("toile.targets.llvm.native")
    return native.compiled() if native is not None else 0


MOVED = {"softmax": 4, "layer norm": 4, "gelu tanh": 4, "gelu erf": 4, "cross-entropy": 2,
         "adam": 7}  # number of arrays that an operation and its gradient must read or write


def bandwidth(name: str, spec: str) -> Case:
    """An operation forward and backward on a GPU, and a copy of as many bytes."""
    import cupy

    lib = workloads.library(name)
    jax, jnp = lib.jax, lib.jnp
    title, text = spec.split(",")
    few = 1 << 20
    times = int(text) // few
    tiled = lambda a: jnp.tile(a, (times, *[1] * (a.ndim - 1)))
    raw = fused_operations.inputs(title, few)
    by_row = lambda a: a.ndim == 2 or a.dtype.kind == "i"  # not by column
    arrays = [tiled(jnp.asarray(a)) if by_row(a) else jnp.asarray(a) for a in raw]
    half = MOVED[title] * arrays[0].nbytes // 2
    function = fused_operations.jaxlike(lib, title)
    if title == "adam":
        step = jnp.asarray(fused_operations.STEP - 1, jnp.int32)
        jitted = jax.jit(function, donate_argnums=(0, 2, 3))
        kept = [arrays[0], *arrays[2:]]

        def once() -> Any:
            kept[:] = jitted(kept[0], arrays[1], *kept[1:], step)
            return kept[0]
    else:
        jitted = jax.jit(function)
        once = lambda: jitted(*arrays)
    jax.block_until_ready(once())
    source, target = (cupy.zeros(half, cupy.uint8) for _ in range(2))
    copy = lambda: cupy.copyto(target, source)
    windows = {"": timed(once, jax.block_until_ready),
               "copy": timed(copy, lambda _: cupy.cuda.Device().synchronize())}
    return Case(windows, {"gigabytes": 2 * half / 1e9})


ALLOWED = 3e-6  # seconds by which an operation outside jit may be slower than CuPy's


def eager(name: str, spec: str) -> Case:
    """An operation outside jit on 64 x 64 numbers, and CuPy's time plus the allowance."""
    import cupy

    lib = workloads.library(name)
    jnp = lib.jnp
    raw = np.linspace(0.1, 1, 4096, dtype=np.float32).reshape(64, 64)
    x, y, z = jnp.asarray(raw), jnp.asarray(raw + 1), cupy.asarray(raw)
    ours, theirs = {
        "add": (lambda: x + y, lambda: z + z), "add 1.5": (lambda: x + 1.5, lambda: z + 1.5),
        "exp": (lambda: jnp.exp(x), lambda: cupy.exp(z)),
        "sum": (lambda: jnp.sum(x, axis=1), lambda: cupy.sum(z, axis=1)),
        "matmul": (lambda: x @ y, lambda: z @ z),
    }[spec]
    window = timed(theirs, lambda _: cupy.cuda.Device().synchronize())

    def allowed(target: float) -> dict[str, Any]:
        found = window(target)
        return {**found, "seconds": found["seconds"] + ALLOWED, "cupy": found["seconds"]}

    return Case({"": timed(ours, lib.jax.block_until_ready), "cupy + 3 us": allowed}, {})


KINDS: dict[str, Callable[[str, str], Case]] = {
    "train": train, "operation": operation, "scan": scan, "call": call, "tiny": tiny,
    "resize": resize, "bandwidth": bandwidth, "eager": eager, "program": program,
}  # fmt: skip
