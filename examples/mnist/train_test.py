"""The MNIST example learns: two epochs on a quarter of the digits, and its gradient is right."""

import numpy as np

import toile
from examples.mnist import input_pipeline, train


def test_the_digits_are_balanced_and_whole():
    digits, held_out = input_pipeline.load()
    assert digits.images.shape == (4000, 784) and held_out.images.shape == (1000, 784)
    assert digits.images.dtype == np.float32 and 0 <= digits.images.min() < digits.images.max() <= 1
    assert np.bincount(digits.labels).tolist() == [400] * 10
    assert np.bincount(held_out.labels).tolist() == [100] * 10


def test_a_short_training_learns(capsys):
    digits, held_out = input_pipeline.load()
    quarter = input_pipeline.Digits(digits.images[:1000], digits.labels[:1000])
    config = train.Config(epochs=2, hidden=(32,))
    _, score = train.train_and_evaluate(config, (quarter, held_out))
    assert score > 0.6  # chance is 0.1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:4]] == ["1", "2"]
    assert "held-out accuracy" in lines[-1]


def test_the_gradient_is_the_slope_of_the_loss():
    digits, _ = input_pipeline.load()
    images, labels = digits.images[:8], digits.labels[:8]
    params = train.init(toile.random.key(1), (784, 16, 10))
    direction = train.init(toile.random.key(2), (784, 16, 10))
    grads = toile.grad(train.loss_fn)(params, images, labels)
    pairs = zip(toile.tree.leaves(grads), toile.tree.leaves(direction), strict=True)
    slope = sum(float((g * d).sum()) for g, d in pairs)

    def loss_at(t):
        moved = toile.tree.map(lambda p, d: p + t * d, params, direction)
        return float(train.loss_fn(moved, images, labels))

    assert abs((loss_at(1e-2) - loss_at(-1e-2)) / 2e-2 - slope) < 1e-2 * max(1, abs(slope))
