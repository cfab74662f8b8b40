"""A training step of two examples with their default recipes, and the same with Flax and Optax.

toile runs the train step of the example itself. Both sides have parameters of the same shapes and
use the same batch. There are no goals. Run `python -m benchmarks.examples`; `--json FILE` writes
the numbers and the machine's name to a file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks import timing
from examples.mnist import input_pipeline as mnist_input
from examples.mnist import train as mnist
from examples.mnist.configs import default as mnist_config
from examples.seq2seq import input_pipeline as seq2seq_input
from examples.seq2seq import train as seq2seq
from examples.seq2seq.configs import default as seq2seq_config


def toile_step(step: Any, state: Any, batch: Any) -> Callable[[], None]:
    """The example's own step as a function that keeps the state, as a training loop does."""
    import toile

    batch = toile.device_put(batch)
    kept = [state]

    def once() -> None:
        kept[0], _ = step(kept[0], batch)
        toile.block_until_ready(kept[0].params)

    return once


def flax_step(model: Any, tx: Any, batch: dict[str, Any], loss: Callable) -> Callable[[], None]:
    """The same step in Flax; `loss(outputs, batch)` is a scalar."""
    import jax
    from flax.training.train_state import TrainState

    batch = jax.device_put(batch)
    inputs = [batch[name] for name in ("image", "question", "answer") if name in batch]
    params = jax.jit(model.init)(jax.random.key(0), *inputs)["params"]

    @jax.jit
    def step(state: Any, batch: Any) -> Any:
        def of(params: Any) -> Any:
            return loss(state.apply_fn({"params": params}, *inputs), batch)

        return state.apply_gradients(grads=jax.grad(of)(state.params))

    kept = [TrainState.create(apply_fn=model.apply, params=params, tx=tx)]

    def once() -> None:
        kept[0] = step(kept[0], batch)
        jax.block_until_ready(kept[0].params)

    return once


def mnist_cases() -> timing.Cases:
    """The CNN on a batch of 128 digits, SGD with momentum."""
    import optax
    from flax import linen as nn

    from toile import random

    config = mnist_config.get_config()
    loader, _ = mnist_input.loaders(config, random.key(0))
    batch = next(iter(loader))

    class CNN(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            for channels in config.features:
                x = nn.relu(nn.Conv(channels, (3, 3))(x))
                x = nn.avg_pool(x, (2, 2), strides=(2, 2))
            x = nn.relu(nn.Dense(config.hidden)(x.reshape((x.shape[0], -1))))
            return nn.Dense(10)(x)

    def loss(logits: Any, batch: Any) -> Any:
        each = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
        return each.mean()

    steps = config.num_epochs * len(loader)
    rate = optax.warmup_cosine_decay_schedule(
        0.0, config.learning_rate, config.warmup_steps, steps
    )
    tx = optax.sgd(rate, config.momentum)
    state = mnist.create_state(config, random.key(0), steps)
    empty = mnist.Metrics.empty()
    ours = toile_step(lambda state, batch: mnist.train_step(state, empty, batch), state, batch)
    return {"toile": ours, "flax": flax_step(CNN(), tx, batch, loss)}


def seq2seq_cases() -> timing.Cases:
    """Two LSTMs of width 512 on a batch of 128 sums, Adam."""
    import jax.numpy as jnp
    import optax
    from flax import linen as nn

    from toile import random, training
    from toile.training.devices import first_devices

    config = seq2seq_config.get_config()
    task, loader, _ = seq2seq_input.loaders(config, random.key(0))
    batch = next(iter(loader))

    class Seq2Seq(nn.Module):
        @nn.compact
        def __call__(self, question: Any, answer: Any) -> Any:
            lengths = jnp.argmax(question[..., seq2seq_input.END], axis=-1) + 1
            encoder = nn.RNN(nn.OptimizedLSTMCell(config.features), return_carry=True)
            state, _ = encoder(question, seq_lengths=lengths)
            decoder = nn.RNN(nn.OptimizedLSTMCell(config.features))
            return nn.Dense(task.size)(decoder(answer[:, :-1], initial_carry=state))

    def loss(logits: Any, batch: Any) -> Any:
        target = batch["answer"][:, 1:]
        ends = jnp.argmax(target[..., seq2seq_input.END], axis=-1)
        real = jnp.arange(target.shape[1]) <= ends[:, None]
        return jnp.where(real, optax.softmax_cross_entropy(logits, target), 0.0).mean()

    rate = optax.cosine_decay_schedule(config.learning_rate, config.num_steps)
    tx = optax.chain(optax.clip_by_global_norm(config.clip_norm), optax.adam(rate))
    state = seq2seq.create_state(config, task, random.key(0))
    flax = flax_step(Seq2Seq(), tx, batch, loss)
    step = training.replicated(seq2seq.train_step, devices=first_devices(1))
    return {"toile": toile_step(step, state, batch), "flax": flax}


def suites() -> dict[str, timing.Cases]:
    """The cases by title."""
    return {"mnist step": mnist_cases(), "seq2seq step": seq2seq_cases()}


GOALS: timing.Goals = {"mnist step": [], "seq2seq step": []}

if __name__ == "__main__":
    timing.main(__doc__, suites, GOALS)
