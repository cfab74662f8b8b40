"""A recurrent network in plain functions that learns to write like Python's manual.

`python -m examples.autograd_classics.rnn`
"""

import numpy as np

import toile.numpy as jnp
from toile import grad, jit
from toile.training.datasets import shipped

TEXT = shipped("python_topics/topics.txt", __file__).read_text(encoding="utf-8")
LETTERS = sorted(set(TEXT))
NUMBERS = np.searchsorted(LETTERS, list(TEXT))  # the letters are sorted


def init(hidden: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Create the weights (letter to state, state to state, state to letter) and the biases."""
    rng, n = np.random.default_rng(seed), len(LETTERS)
    shapes = {"in": (n, hidden), "state": (hidden, hidden), "out": (hidden, n)}
    weights = {k: rng.normal(size=s) / np.sqrt(hidden) for k, s in shapes.items()}
    weights |= {"bias": np.zeros(hidden), "out_bias": np.zeros(n)}
    return {name: x.astype(np.float32) for name, x in weights.items()}


def advance(params, state, letters):
    """Read one letter per row; return the new state [batch, hidden] and the log-probabilities."""
    state = jnp.tanh(params["in"][letters] + state @ params["state"] + params["bias"])
    logits = state @ params["out"] + params["out_bias"]
    return state, logits - jnp.log(jnp.exp(logits).sum(axis=1, keepdims=True))


def loss(params, text):
    """Return the bits per letter: the mean of -log2 p(next letter) over text [batch, length]."""
    state, total = jnp.zeros((len(text), len(params["bias"]))), 0.0
    for now, then in zip(text.T[:-1], text.T[1:]):
        state, chances = advance(params, state, now)
        total -= chances[jnp.arange(len(then)), then].mean()
    return total / (text.shape[1] - 1) / np.log(2)


@jit
def step(params, means, squares, text, count, rate=0.005):
    """Take one step of Adam."""
    grads = grad(loss)(params, text)
    means = {k: 0.9 * m + 0.1 * grads[k] for k, m in means.items()}
    squares = {k: 0.99 * s + 0.01 * grads[k] ** 2 for k, s in squares.items()}
    by = lambda k: means[k] / (1 - 0.9**count) / (jnp.sqrt(squares[k] / (1 - 0.99**count)) + 1e-8)
    return {k: p - rate * by(k) for k, p in params.items()}, means, squares


def sample(params, length: int, start: str = "The ", seed: int = 0) -> str:
    """Sample the text that follows `start`."""
    rng, state, text = np.random.default_rng(seed), jnp.zeros((1, len(params["bias"]))), start
    for i in range(length):
        state, chances = advance(params, state, np.array([LETTERS.index(text[i])]))
        if i + 1 == len(text):  # argmax(log p + Gumbel noise) is a sample from p
            noise = rng.gumbel(size=len(LETTERS))
            text += LETTERS[int(np.argmax(1.2 * np.asarray(chances)[0] + noise))]
    return text


def main(steps: int = 1000, hidden: int = 128, batch: int = 32, length: int = 32) -> float:
    """Train on nine tenths of the text; return the bits per letter on 500 pieces of the rest."""
    train, held_out = np.split(NUMBERS, [len(NUMBERS) * 9 // 10])
    held_out = held_out[: 500 * length].reshape(500, length)
    params, rng = init(hidden), np.random.default_rng(0)
    means = squares = {name: 0 * x for name, x in params.items()}
    for i in range(1, steps + 1):
        starts = rng.integers(len(train) - length, size=batch)
        text = train[starts[:, None] + np.arange(length)]
        params, means, squares = step(params, means, squares, text, np.float32(i))
        if i % 200 == 0 or i == steps:
            bits = float(jit(loss)(params, held_out))
            print(f"step {i:4d}   held-out bits per letter {bits:.3f}")
    print(f"\n{sample(params, 300)}")
    return bits


if __name__ == "__main__":
    main()
