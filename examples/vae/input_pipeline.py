"""Digits with black and white pixels: the 5,000 included ones, or binarized_mnist.

A batch is a dict of `image`, float32 [batch, 28, 28, 1] of zeros and ones. Pixels of the included
digits become white at random, with their brightness as the probability. Training digits are
binarized in each epoch, and held-out digits only once.
"""

from typing import Any

import numpy as np

from toile.training import datasets
from toile.training.loader import Loader

N_TRAIN = 4000


def shipped_digits() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return 4,000 gray digits for training and 1,000 binarized ones that are held out."""
    with np.load(datasets.shipped("mnist_5k.npz", __file__)) as stored:
        images = stored["images"][..., None]
    held_out = {"image": images[N_TRAIN:]}
    return {"image": images[:N_TRAIN]}, binarized(held_out, np.random.default_rng(0))


def binarized(batch: dict[str, np.ndarray], rng) -> dict[str, np.ndarray]:
    """Set each pixel to 255 or 0 at random, with its brightness as the probability of 255."""
    images = batch["image"]
    lit = rng.random(images.shape, np.float32) < images.astype(np.float32) / 255
    return {**batch, "image": np.where(lit, 255, 0).astype(np.uint8)}


def to_floats(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Convert white pixels to 1 and the others to 0, in the loader's thread."""
    return {**batch, "image": (batch["image"] > 0).astype(np.float32)}


def loaders(config, key) -> tuple[Loader, Loader]:
    """Return loaders of shuffled training batches, and of held-out digits in padded batches."""
    train: Any
    if config.dataset == "digits":
        train, held_out = shipped_digits()
        augment = binarized
    elif config.dataset == "tfds":
        train, held_out = datasets.tfds_sources("binarized_mnist", ["train", "test"])
        augment = None  # they are already binarized
    else:
        raise ValueError(f"config.dataset: needed 'digits' or 'tfds', got {config.dataset!r}")
    return (
        Loader(train, config.batch_size, key=key, augment=augment, transform=to_floats),
        Loader(held_out, config.eval_batch_size, last="pad", transform=to_floats),
    )
