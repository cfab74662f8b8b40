"""Square crops of labeled images of any size: ImageNet, Imagenette, or generated shapes.

A batch is a dict of `image` (float32 [batch, size, size, 3], centered and scaled) and `label`
(int32). Training uses random crops, resized and randomly flipped; evaluation uses center crops. The
last batch of an evaluation is padded, and its `mask` is False for the padding.
"""

import functools

import numpy as np

from toile.training import datasets, images
from toile.training.loader import Loader

# Channel statistics of ImageNet's training images, in bytes.
MEAN = np.array([0.485, 0.456, 0.406], np.float32) * 255
STD = np.array([0.229, 0.224, 0.225], np.float32) * 255

CLASSES = {"shapes": len(images.SHAPES), "imagenet2012": 1000, "imagenette": 10}


def sources(config):
    """Return the training and held-out data, as sources of examples with images of any size."""
    if config.dataset == "shapes":
        train = images.textured_shapes(config.train_examples, config.stored_size, seed=0)
        held_out = images.textured_shapes(config.held_out, config.stored_size, seed=1)
        return Images(Rows(train)), Images(Rows(held_out))
    if config.dataset in CLASSES:
        found = datasets.tfds_sources(config.dataset, ("train", "validation"))
        return tuple(map(Images, found))
    raise ValueError(f"config.dataset: needed one of {list(CLASSES)}, got {config.dataset!r}")


class Rows:
    """A source of examples from arrays."""

    def __init__(self, arrays):
        self.arrays = arrays

    def __len__(self):
        return len(self.arrays["label"])

    def __getitem__(self, i):
        return {name: values[i] for name, values in self.arrays.items()}


class Images:
    """A source whose images can be stacked although their sizes differ, because each is an
    object."""

    def __init__(self, source):
        self.source = source

    def __len__(self):
        return len(self.source)

    def __getitem__(self, i):
        example = self.source[i]
        image = np.empty((), object)
        image[()] = example["image"]
        return {"image": image, "label": np.int32(example["label"])}


def random_parts(batch, rng, size: int, area):
    """Take random crops of the images, resize them, and flip half of them."""
    crops = np.stack([images.random_resized_crop(x, rng, size, area) for x in batch["image"]])
    return images.flipped({**batch, "image": crops}, rng)


def middles(batch, size: int, share: float):
    """Take center crops of the images; padding is black."""
    nothing = np.zeros((size, size, 3), np.uint8)
    real = batch["mask"]
    crops = [
        images.center_crop(x, size, share) if r else nothing for x, r in zip(batch["image"], real)
    ]
    return scaled({**batch, "image": np.stack(crops)})


def scaled(batch):
    """Convert pixels from bytes to numbers around 0."""
    return {**batch, "image": (batch["image"].astype(np.float32) - MEAN) / STD}


def loaders(config, key) -> tuple[Loader, Loader]:
    """Return loaders of shuffled random crops for training, and of held-out center crops."""
    train, held_out = sources(config)
    size = config.image_size
    augment = functools.partial(random_parts, size=size, area=(config.smallest_area, 1.0))
    middle = functools.partial(middles, size=size, share=config.eval_share)
    options = {"threads": config.loader_threads, "prefetch": 2 * config.loader_threads}
    return (
        Loader(train, config.batch_size, key=key, augment=augment, transform=scaled, **options),
        Loader(held_out, config.eval_batch_size, last="pad", transform=middle, **options),
    )
