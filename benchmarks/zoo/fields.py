"""Programs on grids: partial differential equations, written with shifted arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.zoo import Made, Program


def _spots(size: int) -> list[np.ndarray]:
    """The concentrations of two substances on a square, with spots of the second substance."""
    random = np.random.default_rng(0)
    second = (random.random((size, size)) < 0.1).astype(np.float32)
    return [1 - 0.5 * second, 0.5 * second]


def reaction_diffusion(L: Any, size: int, steps: int) -> Made:
    """Fit the rates of a reaction in two dimensions, with gradients through rolled arrays."""
    jax, jnp = L.jax, L.jnp

    def spread(u: Any) -> Any:
        ahead, behind = (sum(jnp.roll(u, k, axis) for axis in (0, 1)) for k in (1, -1))
        return ahead + behind - 4 * u

    def loss(rates: Any, u: Any, v: Any, wanted: Any) -> Any:
        for _ in range(steps):
            made = u * v * v
            u, v = (u + 0.16 * spread(u) - made + rates[0] * (1 - u),
                    v + 0.08 * spread(v) + made - rates[1] * v)
        return jnp.mean((v - wanted) ** 2)

    def step(state: Any, wanted: Any) -> Any:
        rates, u, v = state
        value, (by_rates, by_u) = jax.value_and_grad(loss, (0, 1))(rates, u, v, wanted)
        return (rates - 0.01 * by_rates, u - 0.1 * by_u, v), value

    u, v = map(jnp.asarray, _spots(size))
    rates = jnp.asarray([0.03, 0.09], jnp.float32)
    return Made(step, (rates, u, v), (jnp.asarray(_spots(size)[0]),))


def torch_reaction_diffusion(torch: Any, device: Any, size: int, steps: int) -> Callable[[], Any]:
    u, v = (torch.from_numpy(x).to(device) for x in _spots(size))
    wanted = u.clone()
    state = [torch.tensor([0.03, 0.09], device=device), u]

    def spread(u: Any) -> Any:
        ahead, behind = (sum(torch.roll(u, k, axis) for axis in (0, 1)) for k in (1, -1))
        return ahead + behind - 4 * u

    def once() -> Any:
        rates, first = (x.detach().requires_grad_() for x in state)
        a, b = first, v
        for _ in range(steps):
            made = a * b * b
            a, b = (a + 0.16 * spread(a) - made + rates[0] * (1 - a),
                    b + 0.08 * spread(b) + made - rates[1] * b)
        value = torch.mean((b - wanted) ** 2)
        by_rates, by_first = torch.autograd.grad(value, (rates, first))
        state[:] = rates.detach() - 0.01 * by_rates, first.detach() - 0.1 * by_first
        return value.detach()

    return once


PROGRAMS = (
    Program(
        "reaction and diffusion", reaction_diffusion,
        {"tiny": {"size": 16, "steps": 3}, "cpu": {"size": 256, "steps": 8},
         "gpu": {"size": 2048, "steps": 8}},
        torch_reaction_diffusion,
    ),
)  # fmt: skip
