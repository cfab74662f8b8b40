"""Training steps written once, with the names of JAX and Flax, for toile and for JAX.

`library("toile")` and `library("jax")` return the namespaces with these names, and `build(lib,
"mlp", batch=64)` returns a step, its initial state and a batch. Both libraries use the same data,
the same keys and therefore the same initial parameters, so their losses agree from the first step.
"""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np


def library(name: str) -> Any:
    """A namespace with `jax`, `jnp` and `nn`, from toile or from jax and flax."""
    load = importlib.import_module
    modules = "flax.linen" if name == "jax" else f"{name}.linen"
    return types.SimpleNamespace(jax=load(name), jnp=load(f"{name}.numpy"), nn=load(modules))


class Optimizer(NamedTuple):
    """Pure functions: `init(params)` and `update(params, grads, state)`."""

    init: Callable[..., Any]
    update: Callable[..., Any]


class Workload(NamedTuple):
    """A model, the batch it is trained on, and the optimizer."""

    model: Any
    batch: tuple[Any, Any]
    optimizer: Optimizer
    statistics: bool = False  # whether the model keeps batch statistics


def cross_entropy(lib: Any, logits: Any, labels: Any) -> Any:
    """The mean cross-entropy over examples, computed from logits."""
    logp = lib.jax.nn.log_softmax(logits.astype(lib.jnp.float32))
    return -lib.jnp.take_along_axis(logp, labels[..., None], axis=-1).mean()


def momentum(lib: Any, rate: float = 0.1, decay: float = 0.9) -> Optimizer:
    """Gradient descent with momentum."""
    tree_map = lib.jax.tree_util.tree_map

    def update(params: Any, grads: Any, velocity: Any) -> Any:
        velocity = tree_map(lambda v, g: decay * v + g, velocity, grads)
        return tree_map(lambda p, v: p - rate * v, params, velocity), velocity

    return Optimizer(lambda params: tree_map(lib.jnp.zeros_like, params), update)


def adam(
    lib: Any, rate: float = 1e-3, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8
) -> Optimizer:
    """Adam; the state is (step, mean, mean of squares)."""
    jnp, tree_map = lib.jnp, lib.jax.tree_util.tree_map

    def init(params: Any) -> Any:
        mu, nu = tree_map(jnp.zeros_like, params), tree_map(jnp.zeros_like, params)
        return jnp.zeros((), jnp.int32), mu, nu

    def update(params: Any, grads: Any, state: Any) -> Any:
        step, mu, nu = state
        step = step + 1
        t = step.astype(jnp.float32)
        mu = tree_map(lambda m, g: b1 * m + (1 - b1) * g, mu, grads)
        nu = tree_map(lambda v, g: b2 * v + (1 - b2) * g * g, nu, grads)
        c1, c2 = 1 - b1**t, 1 - b2**t
        move = lambda p, m, v: p - rate * (m / c1) / (jnp.sqrt(v / c2) + eps)
        return tree_map(move, params, mu, nu), (step, mu, nu)

    return Optimizer(init, update)


def _images(lib: Any, shape: tuple[int, ...], classes: int) -> tuple[Any, Any]:
    random = np.random.RandomState(0)
    x = random.rand(*shape).astype("f4")
    return lib.jnp.asarray(x), lib.jnp.asarray(random.randint(0, classes, shape[0]))


def _tokens(lib: Any, shape: tuple[int, int], vocabulary: int) -> tuple[Any, Any]:
    random = np.random.RandomState(0)
    x, y = (random.randint(0, vocabulary, shape) for _ in range(2))
    return lib.jnp.asarray(x), lib.jnp.asarray(y)


def mlp(lib: Any, batch: int = 128, width: int = 512) -> Workload:
    """Three dense layers on 784 inputs."""
    nn = lib.nn

    class MLP(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.relu(nn.Dense(width)(x))
            x = nn.relu(nn.Dense(width)(x))
            return nn.Dense(10)(x)

    return Workload(MLP(), _images(lib, (batch, 784), 10), momentum(lib))


def cnn(lib: Any, batch: int = 128) -> Workload:
    """Two convolutions and two dense layers on 28x28 images."""
    nn = lib.nn

    class CNN(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            for channels in (32, 64):
                x = nn.relu(nn.Conv(channels, (3, 3))(x))
                x = nn.avg_pool(x, (2, 2), strides=(2, 2))
            x = nn.relu(nn.Dense(256)(x.reshape((x.shape[0], -1))))
            return nn.Dense(10)(x)

    return Workload(CNN(), _images(lib, (batch, 28, 28, 1), 10), momentum(lib))


def resnet50(lib: Any, batch: int = 8, size: int = 224, dtype: str = "float32") -> Workload:
    """Bottleneck blocks with batch norm, 1,000 classes."""
    nn, jnp = lib.nn, lib.jnp
    dt = getattr(jnp, dtype)
    conv = partial(nn.Conv, use_bias=False, dtype=dt)
    norm = partial(nn.BatchNorm, use_running_average=False, momentum=0.9, epsilon=1e-5, dtype=dt)

    class Block(nn.Module):
        channels: int
        strides: tuple

        @nn.compact
        def __call__(self, x: Any) -> Any:
            y = nn.relu(norm()(conv(self.channels, (1, 1))(x)))
            y = nn.relu(norm()(conv(self.channels, (3, 3), self.strides)(y)))
            y = norm()(conv(self.channels * 4, (1, 1))(y))
            if x.shape != y.shape:
                x = norm()(conv(self.channels * 4, (1, 1), self.strides)(x))
            return nn.relu(x + y)

    class ResNet(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = conv(64, (7, 7), (2, 2), padding=[(3, 3), (3, 3)])(x)
            x = nn.max_pool(nn.relu(norm()(x)), (3, 3), strides=(2, 2), padding="SAME")
            for i, blocks in enumerate((3, 4, 6, 3)):
                for j in range(blocks):
                    x = Block(64 * 2**i, (2, 2) if i > 0 and j == 0 else (1, 1))(x)
            return nn.Dense(1000, dtype=jnp.float32)(jnp.mean(x, axis=(1, 2)))

    x, y = _images(lib, (batch, size, size, 3), 1000)
    return Workload(ResNet(), (x.astype(dt), y), momentum(lib), statistics=True)


def transformer(
    lib: Any, batch: int = 8, seq: int = 128, d: int = 256, layers: int = 4, heads: int = 4,
    vocab: int = 8192, dtype: str = "float32",
) -> Workload:  # fmt: skip
    """A pre-norm language model."""
    nn, jnp = lib.nn, lib.jnp
    dt = getattr(jnp, dtype)

    class LM(nn.Module):
        @nn.compact
        def __call__(self, tokens: Any) -> Any:
            x = nn.Embed(vocab, d, dtype=dt)(tokens)
            x = x + self.param("pos", nn.initializers.normal(0.02), (seq, d)).astype(dt)
            mask = nn.make_causal_mask(tokens)
            for _ in range(layers):
                h = nn.LayerNorm(dtype=dt)(x)
                x = x + nn.SelfAttention(heads, dtype=dt, use_bias=False)(h, mask)
                h = nn.LayerNorm(dtype=dt)(x)
                h = nn.gelu(nn.Dense(4 * d, dtype=dt)(h))
                x = x + nn.Dense(d, dtype=dt)(h)
            return nn.Dense(vocab, dtype=dt)(nn.LayerNorm(dtype=dt)(x))

    return Workload(LM(), _tokens(lib, (batch, seq), vocab), adam(lib))


def lstm(
    lib: Any, batch: int = 32, seq: int = 64, hidden: int = 256, vocab: int = 2048
) -> Workload:
    """A language model of two LSTM layers."""
    nn = lib.nn

    class LM(nn.Module):
        @nn.compact
        def __call__(self, tokens: Any) -> Any:
            x = nn.Embed(vocab, hidden)(tokens)
            for _ in range(2):
                x = nn.RNN(nn.OptimizedLSTMCell(hidden))(x)
            return nn.Dense(vocab)(x)

    return Workload(LM(), _tokens(lib, (batch, seq), vocab), adam(lib))


def gnn(lib: Any, nodes: int = 4096, edges: int = 32768, d: int = 128, layers: int = 3) -> Workload:
    """Sums over the neighbors in a fixed random graph."""
    nn, jnp, jax = lib.nn, lib.jnp, lib.jax
    random = np.random.RandomState(0)
    source, target = (jnp.asarray(random.randint(0, nodes, edges)) for _ in range(2))

    class GNN(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            for _ in range(layers):
                h = nn.Dense(d)(x)
                received = jax.ops.segment_sum(h[source], target, nodes)
                x = nn.relu(nn.LayerNorm()(received + h))
            return nn.Dense(16)(x)

    x = jnp.asarray(random.randn(nodes, d).astype("f4"))
    return Workload(GNN(), (x, jnp.asarray(random.randint(0, 16, nodes))), adam(lib))


WORKLOADS: dict[str, Callable[..., Workload]] = {
    f.__name__: f for f in (mlp, cnn, resnet50, transformer, lstm, gnn)
}


def build(lib: Any, name: str, **sizes: Any) -> tuple[Callable[..., Any], Any, Any]:
    """Return (step, state, batch) for a workload; `step(state, batch)` is not jitted."""
    model, batch, optimizer, statistics = WORKLOADS[name](lib, **sizes)
    jax = lib.jax
    variables = jax.jit(model.init)(jax.random.PRNGKey(0), batch[0])

    def step(state: Any, batch: Any) -> Any:
        params, stats, opt = state
        x, y = batch

        def loss(params: Any) -> Any:
            if not statistics:
                return cross_entropy(lib, model.apply({"params": params}, x), y), stats
            seen = {"params": params, "batch_stats": stats}
            logits, changed = model.apply(seen, x, mutable=["batch_stats"])
            return cross_entropy(lib, logits, y), changed["batch_stats"]

        (value, stats), grads = jax.value_and_grad(loss, has_aux=True)(params)
        params, opt = optimizer.update(params, grads, opt)
        return (params, stats, opt), value

    params = variables["params"]
    stats = variables["batch_stats"] if statistics else {}
    return step, (params, stats, optimizer.init(params)), batch
