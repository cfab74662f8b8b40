"""5,000 real MNIST digits that ship with the project: 4,000 to train on, 1,000 held out.

Each half holds every digit equally often, in a fixed shuffled order. `data/README.md` says where
they come from.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

FILE = Path(__file__).parent / "data" / "mnist_5k.npz"
N_TRAIN = 4000


class Digits(NamedTuple):
    """Images as rows of 784 floats in [0, 1], and their labels 0-9."""

    images: np.ndarray  # float32[n, 784]
    labels: np.ndarray  # int32[n]


def load() -> tuple[Digits, Digits]:
    """The digits to train on and the held-out ones."""
    with np.load(FILE) as stored:
        images = stored["images"].reshape(-1, 28 * 28).astype(np.float32) / 255
        labels = stored["labels"].astype(np.int32)
    return (
        Digits(images[:N_TRAIN], labels[:N_TRAIN]),
        Digits(images[N_TRAIN:], labels[N_TRAIN:]),
    )


def batches(digits: Digits, size: int, rng: np.random.Generator):
    """One epoch of shuffled batches of exactly `size` digits (the remainder is left out)."""
    order = rng.permutation(len(digits.labels))
    for start in range(0, len(order) - size + 1, size):
        rows = order[start : start + size]
        yield Digits(digits.images[rows], digits.labels[rows])
