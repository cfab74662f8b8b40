"""Handwritten digits: the 5,000 included ones, or all 70,000 from tensorflow-datasets.

A batch is a dict of `image` (float32 in [0, 1], [batch, 28, 28, 1]) and `label` (int32). Pixels are
bytes until they are batched. `data/README.md` says where the included digits come from.
"""

import functools
from pathlib import Path
from typing import Any

import numpy as np

from toile.training.loader import Loader

FILE = Path(__file__).parent / "data" / "mnist_5k.npz"
N_TRAIN = 4000


def sources(config) -> tuple[Any, Any]:
    """Return the training and the held-out data, each a dict of arrays or a source of examples."""
    if config.dataset == "digits":
        train, held_out = shipped_digits()
    elif config.dataset == "tfds":
        train, held_out = tfds_digits()
    else:
        raise ValueError(f"config.dataset: needed 'digits' or 'tfds', got {config.dataset!r}")
    return first(train, config.train_examples), held_out


def shipped_digits() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return 4,000 digits and 1,000 held-out digits; all digits are equally frequent in both."""
    with np.load(FILE) as stored:
        images, labels = stored["images"][..., None], stored["labels"]
    return (
        {"image": images[:N_TRAIN], "label": labels[:N_TRAIN]},
        {"image": images[N_TRAIN:], "label": labels[N_TRAIN:]},
    )


def tfds_digits() -> tuple[Any, Any]:
    """Return MNIST's 60,000 training and 10,000 test digits, downloaded if they are missing."""
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise ImportError(
            "config.dataset='tfds': needed tensorflow-datasets, which is not installed ("
            "pip install 'toile[datasets]')"
        ) from error
    train, test = tfds.data_source("mnist", split=["train", "test"])
    return train, test


def first(source: Any, count: int) -> Any:
    """The first `count` examples of a source; 0 for all of them."""
    if not count:
        return source
    if isinstance(source, dict):
        return {name: values[:count] for name, values in source.items()}
    examples = [source[i] for i in range(count)]
    return {name: np.stack([x[name] for x in examples]) for name in examples[0]}


def to_floats(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Convert pixels from bytes to [0, 1], in the loader's thread."""
    image = batch["image"].astype(np.float32) / 255
    return {**batch, "image": image, "label": batch["label"].astype(np.int32)}


def shifted(batch: dict[str, np.ndarray], rng, most: int) -> dict[str, np.ndarray]:
    """Shift each image by up to `most` pixels along both axes, at random each time."""
    images = batch["image"]
    count, height, width, _ = images.shape
    wide = np.pad(images, ((0, 0), (most, most), (most, most), (0, 0)))
    down, right = rng.integers(0, 2 * most + 1, (2, count, 1))
    rows, columns = down + np.arange(height), right + np.arange(width)
    moved = wide[np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]
    return {**batch, "image": moved}


def loaders(config, key) -> tuple[Loader, Loader]:
    """Return loaders of shuffled training batches, and of held-out digits in padded batches."""
    train, held_out = sources(config)
    augment = functools.partial(shifted, most=config.shift) if config.shift else None
    return (
        Loader(train, config.batch_size, key=key, augment=augment, transform=to_floats),
        Loader(held_out, config.eval_batch_size, last="pad", transform=to_floats),
    )
