"""The overhead of modules in calls (compared with plain array operations) and in tracing.

Run `python -m benchmarks.modules`; `--json FILE` writes the numbers and the machine's name to a
file.
"""

from __future__ import annotations

import functools
import importlib
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import timing

LAYERS, WIDTH, BATCH = 24, 64, 32


def mlp_cases() -> timing.Cases:
    """A 24-layer MLP of width 64, run eagerly with modules, and as plain array operations."""
    import toile
    import toile.linen as nn
    import toile.numpy as jnp

    class MLP(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            for _ in range(LAYERS):
                x = nn.relu(nn.Dense(WIDTH)(x))
            return x

    x = jnp.asarray(np.random.RandomState(0).randn(BATCH, WIDTH).astype("f4"))
    variables = MLP().init(toile.random.key(0), x)
    params = variables["params"]
    weights = [(p["kernel"], p["bias"]) for p in (params[f"Dense_{i}"] for i in range(LAYERS))]

    def operations() -> Any:
        y = x
        for kernel, bias in weights:
            y = nn.relu(y @ kernel + bias)
        return y

    return {"modules": lambda: MLP().apply(variables, x), "operations": operations}


def _library(engine: str, modules: str) -> Any:
    load = importlib.import_module
    return types.SimpleNamespace(
        jax=load(engine), jnp=load(f"{engine}.numpy"), nn=load(f"{modules}.linen")
    )


def transformer(lib: Any, layers: int = 12, width: int = 256, heads: int = 4) -> Any:
    """A pre-norm language model."""
    nn, vocabulary, length = lib.nn, 8192, 128

    class LM(nn.Module):  # type: ignore[name-defined]
        @nn.compact
        def __call__(self, tokens: Any) -> Any:
            x = nn.Embed(vocabulary, width)(tokens)
            x = x + self.param("pos", nn.initializers.normal(0.02), (length, width))
            mask = nn.make_causal_mask(tokens)
            for _ in range(layers):
                x = x + nn.SelfAttention(heads, use_bias=False)(nn.LayerNorm()(x), mask)
                h = nn.gelu(nn.Dense(4 * width)(nn.LayerNorm()(x)))
                x = x + nn.Dense(width)(h)
            return nn.Dense(vocabulary)(nn.LayerNorm()(x))

    return LM()


def _train_step(lib: Any, model: Any) -> Callable[..., Any]:
    """The loss, its gradient, and a step of Adam written with tree maps."""
    jax, jnp = lib.jax, lib.jnp

    def loss(params: Any, tokens: Any) -> Any:
        logp = jax.nn.log_softmax(model.apply({"params": params}, tokens))
        return -jnp.take_along_axis(logp, tokens[..., None], axis=-1).mean()

    def step(params: Any, mu: Any, nu: Any, tokens: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, tokens)
        mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mu, grads)
        nu = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, nu, grads)
        move = lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8)
        return jax.tree.map(move, params, mu, nu), mu, nu, value

    return step


def tracing_cases() -> dict[str, timing.Cases]:
    """`make_jaxpr` of init and of a train step of a 12-layer transformer."""
    init_cases: timing.Cases = {}
    step_cases: timing.Cases = {}
    for name, lib in (("toile", _library("toile", "toile")), ("flax", _library("jax", "flax"))):
        model, jax, jnp = transformer(lib), lib.jax, lib.jnp
        tokens = jnp.zeros((8, 128), jnp.int32)
        key = jax.random.key(0)
        shapes = jax.eval_shape(model.init, key, tokens)["params"]
        step = _train_step(lib, model)
        init_cases[name] = functools.partial(_trace, jax, model.init, key, tokens)
        step_cases[name] = functools.partial(_trace, jax, step, shapes, shapes, shapes, tokens)
    return {"trace init": init_cases, "trace step": step_cases}


def _trace(jax: Any, function: Callable[..., Any], *args: Any) -> Any:
    """Trace a new function in each call, so that the trace is not found in a cache."""
    return jax.make_jaxpr(lambda *a: function(*a))(*args)


def suites() -> dict[str, timing.Cases]:
    """The cases by title."""
    return {"mlp": mlp_cases(), **tracing_cases()}


GOALS = {
    "mlp": [("modules", "operations", 2.0)],
    "trace init": [("toile", "flax", 0.5)],
    "trace step": [("toile", "flax", 0.5)],
}

if __name__ == "__main__":
    timing.main(__doc__, suites, GOALS)
