"""Small labeled images: generated textured shapes, or CIFAR-10.

A batch is a dict of `image` (float32 [batch, 32, 32, 3], centered and scaled) and `label` (int32).
Images are bytes until they are batched; shifts, flips and cutout work on bytes.
"""

from typing import Any

import numpy as np

from toile.training import datasets, images
from toile.training.loader import Loader

# Channel statistics of CIFAR-10's training images, in bytes; generated images are close enough.
MEAN = np.array([125.3, 123.0, 113.9], np.float32)
STD = np.array([63.0, 62.1, 66.7], np.float32)


def sources(config) -> tuple[Any, Any]:
    """Return the training and the held-out data, each a dict of arrays or a source of examples."""
    if config.dataset == "shapes":
        # With two seeds, held-out images do not depend on the number of training images.
        return (
            images.textured_shapes(config.train_examples, 32, seed=0),
            images.textured_shapes(config.held_out, 32, seed=1),
        )
    if config.dataset == "tfds":
        train, test = datasets.tfds_sources("cifar10", ("train", "test"))
        return Examples(train), Examples(test)
    raise ValueError(f"config.dataset: needed 'shapes' or 'tfds', got {config.dataset!r}")


class Examples:
    """A source of examples with only the image and the label."""

    def __init__(self, source):
        self.source = source

    def __len__(self):
        return len(self.source)

    def __getitem__(self, i):
        example = self.source[i]
        return {"image": example["image"], "label": example["label"]}


def scaled(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Convert pixels from bytes to numbers around 0, in the loader's thread."""
    image = (batch["image"].astype(np.float32) - MEAN) / STD
    return {**batch, "image": image, "label": batch["label"].astype(np.int32)}


def loaders(config, key) -> tuple[Loader, Loader]:
    """Return loaders of shuffled, augmented training images, and of padded held-out batches."""
    train, held_out = sources(config)

    def augment(batch, rng):
        if config.shift:
            batch = images.shifted(batch, rng, config.shift)
        if config.flip:
            batch = images.flipped(batch, rng)
        return images.cut_out(batch, rng, config.cut_out) if config.cut_out else batch

    return (
        Loader(train, config.batch_size, key=key, augment=augment, transform=scaled),
        Loader(held_out, config.eval_batch_size, last="pad", transform=scaled),
    )
