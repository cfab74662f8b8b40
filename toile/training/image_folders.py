"""Images in folders, one folder for each class, as a source of examples.

Files are found when the source is created. They are read by the Loader's threads when a batch needs
them. PNG and JPEG files need Pillow, which is imported when the first such file is read; .npy files
do not need it.
"""

from __future__ import annotations

import copy
import os
import zlib
from pathlib import Path
from typing import Any, Self

import numpy as np

from toile.engine.file_reader import guarded
from toile.engine.source import here
from toile.metrics import media
from toile.training.array_files import StrPath, map_file
from toile.training.images import resampled

__all__ = ["ImageFolder", "image_folder"]

_SUFFIXES = (".png", ".jpg", ".jpeg", ".npy")
_LUMINANCE = np.array([0.299, 0.587, 0.114], np.float32)  # of ITU-R BT.601, as Pillow has it


class ImageFolder:
    """The source that `image_folder` returns: images and their labels.

    Args:
        files: paths of the images.
        labels: the class of each image, as an index into `classes`.
        classes: the names of the classes, in the order of their labels.
        size: the height and width of every image; if None, the images are not changed.
        channels: number of channels: 1 or 3.

    >>> import pathlib, tempfile
    >>> from toile.training import datasets
    >>> path = pathlib.Path(tempfile.mkdtemp())
    >>> for name in ("cat", "dog"):
    ...     (path / name).mkdir()
    ...     np.save(path / name / "0.npy", np.zeros((4, 4, 3), np.uint8))
    >>> folder = datasets.image_folder(path)
    >>> folder.classes, len(folder)
    (('cat', 'dog'), 2)
    """

    def __init__(
        self, files: list[Path], labels: np.ndarray, classes: tuple[str, ...],
        size: tuple[int, int] | None, channels: int,
    ):
        self.files, self.labels, self.classes = files, labels, classes
        self.size, self.channels = size, channels

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"image": self._image(self.files[index]), "label": self.labels[index]}

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        """Return several examples, after checking that their images can be stacked."""
        examples = [self[i] for i in indices]
        first = examples[0]["image"].shape
        for i, example in zip(indices, examples):
            if example["image"].shape != first:
                raise ValueError(
                    f"image_folder: needed images of one size, got {list(first[:2])} in "
                    f"{self.files[indices[0]]} and {list(example['image'].shape[:2])} in "
                    f"{self.files[i]} (size=(height, width) makes them equal){here()}"
                )
        return examples

    def subset(self, rows: np.ndarray) -> Self:
        """Return a source that contains some of the images."""
        chosen = copy.copy(self)
        chosen.files, chosen.labels = [self.files[i] for i in rows], self.labels[rows]
        return chosen

    def _image(self, path: Path) -> np.ndarray:
        read = _npy_pixels if path.suffix.lower() == ".npy" else _pillow_pixels
        image = _with_channels(read(path), self.channels)
        if self.size is None or self.size == image.shape[:2]:
            return image
        return resampled(image, _middle(image.shape[:2], self.size), self.size)


def image_folder(
    path: StrPath, *, size: int | tuple[int, int] | None = None, channels: int = 3
) -> ImageFolder:
    """Open a folder of images that has one subfolder for each class.

    The names of the subfolders, sorted, are the classes: `folder.classes[label]`. Nested subfolders
    are searched too. Hidden files and files that are not images are skipped. Photographs are
    rotated according to their metadata. `folder.labels` contains the labels, which are known
    without reading the images.

    Args:
        path: the folder.
        size: height and width of the images, or one number for both. Images are cropped at the
            center to this aspect ratio and then resized. If `size` is None, the images are not
            changed; they must then all have the same size.
        channels: 3 for color images, 1 for grayscale.

    Returns:
        A source for a Loader. Its batches contain `image` (uint8 [batch, height, width, channels])
        and `label` (int32 [batch]).

    Raises:
        FileNotFoundError: the folder does not exist, has no subfolders, or has a subfolder without
            images.
        ImportError: a PNG or JPEG file is read, but Pillow is not installed.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for kind, value in (("dark", 10), ("light", 200)):
    ...     (folder / kind).mkdir()
    ...     np.save(folder / kind / "0.npy", np.full((4, 6), value, np.uint8))
    >>> images = image_folder(folder, size=2)
    >>> images.classes, images[1]["image"].shape, int(images[1]["image"].max())
    (('dark', 'light'), (2, 2, 3), 200)
    """
    folder = Path(path)
    if not folder.is_dir():
        raise FileNotFoundError(f"image_folder: needed a folder, got none at {folder}{here()}")
    if channels not in (1, 3):
        raise ValueError(f"image_folder: needed channels=1 or 3, got {channels}{here()}")
    kinds = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    if not kinds:
        raise FileNotFoundError(
            f"image_folder: needed a subfolder for each class, got none in {folder}{here()}"
        )
    found = [_images_in(kind) for kind in kinds]
    empty = [kind.name for kind, files in zip(kinds, found) if not files]
    if empty:
        raise FileNotFoundError(
            f"image_folder: needed {', '.join(_SUFFIXES)} files for every class, got none in "
            f"{', '.join(empty)} of {folder}{here()}"
        )
    labels = np.repeat(np.arange(len(kinds), dtype=np.int32), [len(files) for files in found])
    return ImageFolder(
        [file for files in found for file in files], labels, tuple(kind.name for kind in kinds),
        None if size is None else _height_and_width(size), channels,
    )


def _height_and_width(size: Any) -> tuple[int, int]:
    pair = (size, size) if isinstance(size, int) else tuple(size)
    if len(pair) != 2 or not all(isinstance(n, int) and n > 0 for n in pair):
        raise ValueError(
            f"image_folder: needed a positive size or (height, width), got {size!r}{here()}"
        )
    return pair


def _images_in(folder: Path) -> list[Path]:
    """All image files under a folder, in an order that does not depend on the file system."""
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(place, n) for n in names if not n.startswith(".")]
    return sorted(p for p in found if p.suffix.lower() in _SUFFIXES)


def _middle(given: tuple[int, ...], wanted: tuple[int, int]) -> tuple[float, float, float, float]:
    """The largest centered box with the aspect ratio of `wanted`."""
    height, width = given
    scale = min(height / wanted[0], width / wanted[1])
    h, w = scale * wanted[0], scale * wanted[1]
    return (height - h) / 2, (width - w) / 2, h, w


def _npy_pixels(path: Path) -> np.ndarray:
    """The pixels of a .npy file, uint8 [height, width, 1 or more]."""
    image = map_file(path, "image_folder")
    is_unit = image.dtype.kind == "f" and image.size > 0 and image.min() >= 0 and image.max() <= 1
    shape = image.shape if image.ndim == 3 else (*image.shape, 1)
    if image.dtype not in (np.uint8, np.bool_) and not is_unit or len(shape) != 3 or 0 in shape:
        raise ValueError(
            "image_folder: needed uint8, or floats from 0 to 1, [height, width] or [height, width, "
            f"channels], got {image.dtype}{list(image.shape)} in {path}{here()}"
        )
    return media.to_bytes(np.array(image)).reshape(shape)


def _pillow_pixels(path: Path) -> np.ndarray:
    """The pixels of a PNG or JPEG file, uint8 [height, width, 1 or 3]."""
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise ImportError(
            f"image_folder: needed Pillow to read {path}, which is not installed: "
            "pip install pillow (.npy files need nothing)"
        ) from error
    damage = (OSError, zlib.error, Image.DecompressionBombError, Warning)
    with guarded("image_folder", "a PNG or JPEG image", f" ({path})", also=damage):
        with Image.open(path, formats=("PNG", "JPEG")) as file:
            image = ImageOps.exif_transpose(file)
            if image.mode.startswith("I"):  # 16 bits, which Pillow would clip
                return (np.asarray(image) >> 8).clip(0, 255).astype(np.uint8)[..., None]
            is_gray = image.mode in ("1", "L", "LA")
            pixels = np.array(image.convert("L" if is_gray else "RGB"))
    return pixels[..., None] if is_gray else pixels


def _with_channels(image: np.ndarray, channels: int) -> np.ndarray:
    """The image in grayscale or in color, without its alpha channel."""
    given = image.shape[-1]
    color = image[..., :3] if given >= 3 else image[..., :1]
    if color.shape[-1] == channels:
        return color
    if channels == 3:
        return np.repeat(color, 3, axis=-1)
    return np.rint(color @ _LUMINANCE).astype(np.uint8)[..., None]
