"""One step of Adam over many tensors: toile.optim, optax on jax, and torch's fused Adam.

The tensors are the 48 tensors of a 12-layer transformer of width 64, and 1,000 tensors of 64
numbers each. Steps run eagerly and jitted, and the libraries take turns. There are no goals. Run
`python -m benchmarks.optim`; `--json FILE` writes the numbers and the machine's name to a file.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import timing

WIDTH = 64
SHAPES = {
    "48 tensors": 12 * [(WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)],
    "1,000 tensors": 1000 * [(WIDTH,)],
}


def arrays(shapes: list[tuple[int, ...]], seed: int) -> dict[str, np.ndarray]:
    """One random tensor for each shape."""
    random = np.random.RandomState(seed)
    return {f"w{i}": random.normal(size=s).astype("f4") for i, s in enumerate(shapes)}


def step_of(engine: str, optim: str, shapes: list[tuple[int, ...]], jitted: bool) -> Callable:
    """A step as a function that keeps parameters and state, as a training loop does."""
    jax, opt = importlib.import_module(engine), importlib.import_module(optim)
    jnp = importlib.import_module(f"{engine}.numpy")
    params, grads = (jax.tree.map(jnp.asarray, arrays(shapes, seed)) for seed in (0, 1))
    tx = opt.adam(1e-3)

    def step(params: Any, state: Any, grads: Any) -> Any:
        updates, state = tx.update(grads, state, params)
        return opt.apply_updates(params, updates), state

    run = jax.jit(step, donate_argnums=(0, 1)) if jitted else step
    kept = [params, tx.init(params)]

    def once() -> None:
        kept[:] = run(*kept, grads)
        jax.block_until_ready(kept[0])

    return once


def torch_step(shapes: list[tuple[int, ...]]) -> Callable:
    """The same step with torch's fused Adam, which works in place."""
    import torch

    values, slopes = (arrays(shapes, seed).values() for seed in (0, 1))
    params = [torch.nn.Parameter(torch.from_numpy(x)) for x in values]
    for p, g in zip(params, slopes, strict=True):
        p.grad = torch.from_numpy(g)
    return torch.optim.Adam(params, lr=1e-3, fused=True).step


def suites() -> dict[str, timing.Cases]:
    """The cases by title."""
    found: dict[str, timing.Cases] = {}
    for title, shapes in SHAPES.items():
        for jitted in (False, True):
            found[f"adam, {title}, {'jit' if jitted else 'eager'}"] = {
                "toile": step_of("toile", "toile.optim", shapes, jitted),
                "optax": step_of("jax", "optax", shapes, jitted),
                "torch": torch_step(shapes),
            }
    return found


GOALS: timing.Goals = {
    f"adam, {title}, {mode}": [] for title in SHAPES for mode in ("eager", "jit")
}

if __name__ == "__main__":
    timing.main(__doc__, suites, GOALS)
