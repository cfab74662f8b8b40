"""A multilayer perceptron and Adam, written with `toile.value_and_grad` and `toile.jit` directly.

Parameters are a list of (weights, biases), the optimizer's state two trees like it. Nothing is
hidden: what a layer library and an optimizer library would do is the forty lines below.
"""

import time
from typing import NamedTuple

import numpy as np

import toile
import toile.numpy as jnp
from examples.mnist.input_pipeline import Digits, batches, load


class Config(NamedTuple):
    """What can be chosen from the command line."""

    epochs: int = 10
    batch_size: int = 64
    learning_rate: float = 1e-3
    hidden: tuple[int, ...] = (256, 128)
    seed: int = 0


def init(key, sizes):
    """He-normal weights and zero biases for each pair of neighbouring layer sizes."""
    weights = toile.nn.initializers.he_normal()
    keys = toile.random.split(key, len(sizes) - 1)
    return [
        (weights(k, (n_in, n_out)), jnp.zeros(n_out))
        for k, n_in, n_out in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def predict(params, images):
    """Logits of the ten digits, float32[n, 10]."""
    x = images
    for w, b in params[:-1]:
        x = toile.nn.relu(x @ w + b)
    w, b = params[-1]
    return x @ w + b


def loss_fn(params, images, labels):
    """Mean cross-entropy of the true labels."""
    log_p = toile.nn.log_softmax(predict(params, images))
    return -jnp.mean(jnp.sum(log_p * toile.nn.one_hot(labels, 10), axis=-1))


def adam(params, grads, state, rate, b1=0.9, b2=0.999, eps=1e-8):
    """One step of Adam: p - rate * m̂ / (sqrt(v̂) + eps), with bias-corrected moments m̂, v̂."""
    step, m, v = state
    step = step + 1
    m = toile.tree.map(lambda m, g: b1 * m + (1 - b1) * g, m, grads)
    v = toile.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, v, grads)
    m_scale, v_scale = 1 / (1 - b1**step), 1 / (1 - b2**step)
    params = toile.tree.map(
        lambda p, m, v: p - rate * m * m_scale / (jnp.sqrt(v * v_scale) + eps), params, m, v
    )
    return params, (step, m, v)


@toile.jit
def train_step(params, state, images, labels, rate):
    """New parameters and optimizer state after one batch, and the batch's loss."""
    loss, grads = toile.value_and_grad(loss_fn)(params, images, labels)
    params, state = adam(params, grads, state, rate)
    return params, state, loss


@toile.jit
def accuracy(params, images, labels):
    """The fraction of images whose most likely digit is the true one."""
    return jnp.mean(jnp.argmax(predict(params, images), axis=-1) == labels)


def evaluate(params, digits: Digits) -> float:
    """Accuracy on `digits` as a Python float."""
    return float(accuracy(params, digits.images, digits.labels))


def train_and_evaluate(config: Config, data: tuple[Digits, Digits] | None = None):
    """Train, printing one line per epoch; the parameters and the held-out accuracy."""
    train, held_out = load() if data is None else data
    rng = np.random.default_rng(config.seed)
    sizes = (train.images.shape[1], *config.hidden, 10)
    params = init(toile.random.key(config.seed), sizes)
    zeros = toile.tree.map(jnp.zeros_like, params)
    state = (jnp.zeros((), jnp.float32), zeros, zeros)

    print(f"{len(train.labels)} digits to train on, {len(held_out.labels)} held out; ", end="")
    print(f"layers {'-'.join(map(str, sizes))}")
    print("epoch   train loss   held-out accuracy   seconds")
    for epoch in range(1, config.epochs + 1):
        start = time.perf_counter()
        losses = []
        for images, labels in batches(train, config.batch_size, rng):
            params, state, loss = train_step(params, state, images, labels, config.learning_rate)
            losses.append(loss)
        mean, score = np.mean([float(x) for x in losses]), evaluate(params, held_out)
        seconds = time.perf_counter() - start
        print(f"{epoch:5d}   {mean:10.4f}   {score:17.1%}   {seconds:7.2f}", flush=True)
    score = evaluate(params, held_out)
    print(f"held-out accuracy: {score:.1%}")
    return params, score
