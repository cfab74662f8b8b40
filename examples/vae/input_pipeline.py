"""Digits of black and white pixels: the 5,000 that ship with the project, or binarized_mnist.

A batch is a dict of `image`, float32 [batch, 28, 28, 1] of zeros and ones. A gray pixel of the
shipped digits is white with its brightness as the chance: drawn anew in each epoch where the
network is trained on them, drawn once where they are held out.
"""

from typing import Any

import numpy as np

from toile.training import datasets
from toile.training.loader import Loader

N_TRAIN = 4000


def shipped_digits() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """4,000 digits in gray to train on and 1,000 binarized ones that are held out."""
    with np.load(datasets.shipped("mnist_5k.npz", __file__)) as stored:
        images = stored["images"][..., None]
    held_out = {"image": images[N_TRAIN:]}
    return {"image": images[:N_TRAIN]}, binarized(held_out, np.random.default_rng(0))


def binarized(batch: dict[str, np.ndarray], rng) -> dict[str, np.ndarray]:
    """Each pixel 255 or 0, drawn with its brightness as the chance of 255."""
    images = batch["image"]
    lit = rng.random(images.shape, np.float32) < images.astype(np.float32) / 255
    return {**batch, "image": np.where(lit, 255, 0).astype(np.uint8)}


def to_floats(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Lit pixels are 1, the others 0; runs in the loader's thread."""
    return {**batch, "image": (batch["image"] > 0).astype(np.float32)}


def loaders(config, key) -> tuple[Loader, Loader]:
    """Shuffled batches to train on, and the held-out digits in order, the last batch padded."""
    train: Any
    if config.dataset == "digits":
        train, held_out = shipped_digits()
        augment = binarized
    elif config.dataset == "tfds":
        train, held_out = datasets.tfds_sources("binarized_mnist", ["train", "test"])
        augment = None  # they are binarized already, once and for all
    else:
        raise ValueError(f"config.dataset: needed 'digits' or 'tfds', got {config.dataset!r}")
    return (
        Loader(train, config.batch_size, key=key, augment=augment, transform=to_floats),
        Loader(held_out, config.eval_batch_size, last="pad", transform=to_floats),
    )
