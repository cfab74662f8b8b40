"""Gradients of while loops compared with gradients of scans with the same body, on the CPU.

    python -m benchmarks.while_gradients

prints both times in microseconds and their ratio, for each body and number of iterations.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import toile
import toile.numpy as jnp
from toile import lax

REPEATS = 9
Step = Callable[[Any, Any], Any]


def bodies() -> dict[str, tuple[Step, Any, Any, tuple[int, ...]]]:
    """The bodies `step(x, w)`, their operands, and the numbers of iterations."""
    rng = np.random.default_rng(0)
    matrix = lambda n: jnp.asarray(rng.normal(size=(n, n)) / n**0.5, "float32")
    product: Step = lambda x, w: jnp.tanh(x @ w)
    short, long = (10, 100, 1000), (10, 100, 1000, 10_000)
    return {
        "1 number": (lambda x, w: 0.999 * x + 1e-3 * jnp.sin(w * x), 1.0, 1.1, long),
        "16 numbers": (product, jnp.ones(16), matrix(16), long),
        "1,024 numbers": (lambda x, w: jnp.sin(w * x), jnp.ones(1024), jnp.ones(1024), long),
        "64 x 256 numbers": (product, jnp.ones((64, 256)), matrix(256), short),
    }


def of_while(step: Step) -> Callable[..., Any]:
    """The gradient of a while loop of `n` steps, where `n` is traced."""
    def f(x: Any, w: Any, n: Any) -> Any:
        body = lambda c: (c[0] + 1, step(c[1], w))
        return lax.while_loop(lambda c: c[0] < n, body, (0, x))[1].sum()

    return toile.jit(toile.grad(f))


def of_scan(step: Step, n: int) -> Callable[..., Any]:
    f = lambda x, w: lax.scan(lambda c, _: (step(c, w), None), x, None, n)[0].sum()
    return toile.jit(toile.grad(f))


def seconds(f: Callable[..., Any], *args: Any) -> float:
    start = time.perf_counter()
    f(*args).block_until_ready()
    return time.perf_counter() - start


def main() -> None:
    for name, (step, x, w, counts) in bodies().items():
        loop = of_while(step)
        for n in counts:
            scan = of_scan(step, n)
            seconds(loop, x, w, n), seconds(scan, x, w)
            pairs = [(seconds(loop, x, w, n), seconds(scan, x, w)) for _ in range(REPEATS)]
            a, b = (min(times) * 1e6 for times in zip(*pairs, strict=True))
            print(f"{name:18} {n:6,} iterations: while {a:9.0f} µs, scan {b:9.0f} µs, {a / b:.1f}")


if __name__ == "__main__":
    main()
