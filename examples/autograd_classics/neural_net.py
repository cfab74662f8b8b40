"""A neural network in plain functions that separates three spirals, using only `toile.grad`.

`python -m examples.autograd_classics.neural_net`
"""

import numpy as np

import toile.numpy as jnp
from toile import grad, jit

CLASSES = 3


def spirals(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return points [count, 2] on three spiral arms, and the number of each point's arm."""
    rng = np.random.default_rng(seed)
    arm = rng.integers(CLASSES, size=count)
    along = rng.uniform(0.1, 1.0, count)
    angle = 2 * np.pi * (arm / CLASSES + 1.2 * along) + rng.normal(0, 0.12, count)
    points = along[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return points.astype(np.float32), arm


def init(sizes: list[int], seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Create the weights and biases of each layer."""
    rng = np.random.default_rng(seed)
    scaled = lambda m, n: (rng.normal(size=(m, n)) / np.sqrt(m)).astype(np.float32)
    return [(scaled(m, n), np.zeros(n, np.float32)) for m, n in zip(sizes[:-1], sizes[1:])]


def log_probabilities(params, x):
    """Return the log-probability of each class; tanh is applied between the layers."""
    for weights, bias in params[:-1]:
        x = jnp.tanh(x @ weights + bias)
    weights, bias = params[-1]
    logits = x @ weights + bias
    return logits - jnp.log(jnp.exp(logits).sum(axis=1, keepdims=True))


def loss(params, x, labels):
    """Return the mean cross-entropy."""
    return -log_probabilities(params, x)[jnp.arange(len(x)), labels].mean()


@jit
def step(params, velocity, x, labels, rate=0.3, momentum=0.9):
    """Take one step of gradient descent with momentum."""
    grads = grad(loss)(params, x, labels)
    velocity = [(momentum * v - rate * g, momentum * w - rate * h)
                for (v, w), (g, h) in zip(velocity, grads)]  # fmt: skip
    return [(p + v, q + w) for (p, q), (v, w) in zip(params, velocity)], velocity


def main(steps: int = 600) -> float:
    """Train on 600 points, and return the accuracy on 600 others."""
    x, labels = spirals(600)
    others, their_labels = spirals(600, seed=1)
    params = init([2, 32, 32, CLASSES])
    velocity = [(0 * w, 0 * b) for w, b in params]
    for i in range(1, steps + 1):
        params, velocity = step(params, velocity, x, labels)
        if i % 100 == 0 or i == steps:
            right = (log_probabilities(params, others).argmax(axis=1) == their_labels).mean()
            print(f"step {i:4d}   loss {loss(params, x, labels):.4f}   right {right:.1%}")
    return float(right)


if __name__ == "__main__":
    main()
