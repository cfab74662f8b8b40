"""Eager speed: one small add, the gradient of a small MLP, and Adam over 48 tensors.

Each round measures every library once, in turn, so other load on the machine slows all of them. The
table shows the median over the rounds, and the ratios. Run `python -m benchmarks.eager`; `--json
FILE` writes the numbers and the machine's name to a file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import timing

WIDTH, LAYERS, BATCH, TENSORS = 64, 4, 32, 48


def add_cases() -> dict[str, Callable[[], Any]]:
    """The sum of two 8 x 8 arrays."""
    import jax.numpy as jnp
    import torch

    import toile.numpy as tnp

    x = np.random.RandomState(0).rand(8, 8).astype("f4")
    t, j, p = tnp.asarray(x), jnp.asarray(x), torch.tensor(x)
    return {
        "numpy": lambda: x + x,
        "toile": lambda: t + t,
        "jax": lambda: j + j,
        "torch": lambda: p + p,
    }


def _mlp_data() -> tuple[list[Any], Any]:
    r = np.random.RandomState(0)
    weights = [(r.randn(WIDTH, WIDTH) / 8).astype("f4") for _ in range(LAYERS)]
    biases = [np.zeros(WIDTH, "f4") for _ in range(LAYERS)]
    return [*weights, *biases], r.randn(BATCH, WIDTH).astype("f4")


def _loss(xp: Any, params: Any, x: Any) -> Any:
    for i in range(LAYERS):
        x = xp.tanh(x @ params[i] + params[LAYERS + i])
    return (x * x).mean()


def mlp_cases() -> dict[str, Callable[[], Any]]:
    """The gradient of an MLP with four layers of width 64."""
    import jax
    import jax.numpy as jnp
    import torch

    import toile
    import toile.numpy as tnp

    params, x = _mlp_data()
    t_params, t_x = [tnp.asarray(p) for p in params], tnp.asarray(x)
    j_params, j_x = [jnp.asarray(p) for p in params], jnp.asarray(x)
    p_params = [torch.tensor(p, requires_grad=True) for p in params]
    p_x = torch.tensor(x)
    t_grad = toile.grad(lambda p: _loss(tnp, p, t_x))
    j_grad = jax.grad(lambda p: _loss(jnp, p, j_x))
    return {
        "toile": lambda: t_grad(t_params),
        "jax": lambda: jax.block_until_ready(j_grad(j_params)),
        "torch": lambda: torch.autograd.grad(_loss(torch, p_params, p_x), p_params),
    }


def _adam(xp: Any, params: Any, grads: Any, mu: Any, nu: Any, t: int) -> Any:
    c1, c2 = 1 - 0.9**t, 1 - 0.999**t
    out = []
    for p, g, m, v in zip(params, grads, mu, nu, strict=True):
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g * g
        out.append((p - 1e-3 * (m / c1) / (xp.sqrt(v / c2) + 1e-8), m, v))
    return out


def adam_cases() -> dict[str, Callable[[], Any]]:
    """A step of Adam, written out, over 48 tensors of 8 x 8."""
    import jax
    import jax.numpy as jnp
    import torch

    import toile.numpy as tnp

    r = np.random.RandomState(0)
    raw = [r.rand(8, 8).astype("f4") for _ in range(TENSORS)]

    def case(xp: Any, make: Callable[[Any], Any]) -> Callable[[], Any]:
        ps, gs, ms, vs = ([make(x) for x in raw] for _ in range(4))
        return lambda: _adam(xp, ps, gs, ms, vs, 3)

    jax_step = case(jnp, jnp.asarray)
    return {
        "toile": case(tnp, tnp.asarray),
        "jax": lambda: jax.block_until_ready(jax_step()),
        "torch": case(torch, torch.tensor),
    }


GOALS = {
    "add 8x8": [("toile", "numpy", 3.0), ("toile", "torch", 1.0), ("toile", "jax", 1.0)],
    "mlp grad": [("toile", "torch", 1.5), ("toile", "jax", 0.2)],
    "adam 48": [("toile", "jax", 0.2)],
}


def suites() -> dict[str, dict[str, Callable[[], Any]]]:
    """The cases by title."""
    import torch

    torch.set_num_threads(1)
    return {"add 8x8": add_cases(), "mlp grad": mlp_cases(), "adam 48": adam_cases()}


if __name__ == "__main__":
    timing.main(__doc__, suites, GOALS)
