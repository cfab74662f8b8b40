"""Images for training: a generated data set, and random crops, shifts and flips.

`textured_shapes` draws ten kinds of shapes, whose colors and textures do not depend on the kind.
`shifted`, `flipped` and `cut_out` change batches of uint8 images at random; pass them to a Loader
as `augment`. The cropping functions are for single images of any size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = [
    "SHAPES", "center_crop", "cut_out", "flipped", "random_resized_crop", "resampled",
    "resized_crop", "shifted", "textured_shapes",
]

Batch = dict[str, np.ndarray]


def _polygon(u: np.ndarray, v: np.ndarray, corners: int) -> np.ndarray:
    """Whether points are inside a regular polygon with corners at distance 1."""
    angle = np.mod(np.arctan2(v, u), 2 * np.pi / corners) - np.pi / corners
    return np.hypot(u, v) * np.cos(angle) < np.cos(np.pi / corners)


def _star(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.hypot(u, v) < 0.65 + 0.35 * np.cos(5 * np.arctan2(v, u))


# The kinds, by label: what is inside, in coordinates in which the shape fills the unit disc.
SHAPES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "disc": lambda u, v: np.hypot(u, v) < 0.9,
    "square": lambda u, v: _polygon(u, v, 4),
    "triangle": lambda u, v: _polygon(u, v, 3),
    "ring": lambda u, v: np.abs(np.hypot(u, v) - 0.75) < 0.2,
    "cross": lambda u, v: (np.minimum(abs(u), abs(v)) < 0.26) & (np.maximum(abs(u), abs(v)) < 0.9),
    "star": _star,
    "bar": lambda u, v: (abs(u) < 0.95) & (abs(v) < 0.28),
    "crescent": lambda u, v: (np.hypot(u, v) < 0.95) & (np.hypot(u - 0.55, v) > 0.75),
    "half disc": lambda u, v: (np.hypot(u, v + 0.4) < 1.05) & (v > -0.4),
    "pair": lambda u, v: np.hypot(abs(u) - 0.55, v) < 0.4,
}


def _turned(x: np.ndarray, y: np.ndarray, angle: float) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates along and across a direction."""
    cos, sin = math.cos(angle), math.sin(angle)
    return cos * x + sin * y, cos * y - sin * x


def _texture(
    rng: np.random.Generator, x: np.ndarray, y: np.ndarray, base: np.ndarray
) -> np.ndarray:
    """Stripes or spots on a color, made of waves in one or two directions."""
    angle, frequency, depth = rng.uniform(0, np.pi), rng.uniform(4, 14), rng.uniform(0, 30)
    along, across = _turned(x, y, angle)
    waves = np.sin(frequency * along + rng.uniform(0, 2 * np.pi))
    if rng.random() < 0.5:
        waves *= np.sin(frequency * across + rng.uniform(0, 2 * np.pi))
    colour = (depth * rng.uniform(-1, 1, 3)).astype(np.float32)
    return base.astype(np.float32) + waves[..., None] * colour


def textured_shapes(count: int, size: int, seed: int) -> Batch:
    """Draw images of ten kinds of shapes, for examples that need no download.

    Position, size, rotation, colors, textures and noise are random. The same seed always produces
    the same images, and a larger `count` only adds images at the end.

    Args:
        count: number of images.
        size: height and width in pixels.
        seed: seed for the random numbers.

    Returns:
        A dict that contains `image`, a uint8 array of shape (count, size, size, 3), and `label`, an
        int32 array of shape (count,). A label is the index of the kind in `SHAPES`. All kinds are
        equally frequent.

    >>> from toile.training import images
    >>> batch = images.textured_shapes(4, 16, seed=0)
    >>> batch["image"].shape, batch["label"].tolist()
    ((4, 16, 16, 3), [0, 1, 2, 3])
    """
    y, x = np.mgrid[-1 : 1 : size * 1j, -1 : 1 : size * 1j].astype(np.float32)
    images = np.empty((count, size, size, 3), np.uint8)
    labels = np.arange(count) % len(SHAPES)
    kinds = list(SHAPES.values())
    for i, label in enumerate(labels):
        rng = np.random.default_rng([seed, i])
        radius, turn = rng.uniform(0.5, 0.9), rng.uniform(-0.5, 0.5)
        right, down = (rng.uniform(radius - 1, 1 - radius) for _ in range(2))
        u, v = _turned((x - right) / radius, (y - down) / radius, turn)
        around = rng.uniform(50, 100) + rng.uniform(-30, 30, 3)
        lighter = rng.uniform(60, 90) + rng.uniform(-40, 40, 3)
        ground, figure = _texture(rng, x, y, around), _texture(rng, x, y, around + lighter)
        picture = np.where(kinds[label](u, v)[..., None], figure, ground)
        noise = np.float32(rng.uniform(2, 10))
        picture += noise * rng.standard_normal(picture.shape, np.float32)
        images[i] = np.clip(picture, 0, 255)
    return {"image": images, "label": labels.astype(np.int32)}


# ------------------------------------------------------------------------ changes of whole batches


def shifted(batch: Batch, rng: np.random.Generator, most: int) -> Batch:
    """Shift each image in a batch by a random number of pixels.

    The empty space at the border is filled with a reflection of the image.

    Args:
        batch: dict that contains `image`, an array of shape (n, height, width, channels).
        rng: NumPy random generator.
        most: maximum shift along each axis, in pixels.

    Returns:
        A copy of the batch with the changed images.

    >>> import numpy as np
    >>> from toile.training import images
    >>> batch = images.textured_shapes(4, 16, seed=0)
    >>> images.shifted(batch, np.random.default_rng(0), 2)["image"].shape
    (4, 16, 16, 3)
    """
    images = batch["image"]
    count, height, width, _ = images.shape
    wide = np.pad(images, ((0, 0), (most, most), (most, most), (0, 0)), mode="reflect")
    down, right = rng.integers(0, 2 * most + 1, (2, count, 1))
    rows, columns = down + np.arange(height), right + np.arange(width)
    moved = wide[np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]
    return {**batch, "image": moved}


def flipped(batch: Batch, rng: np.random.Generator) -> Batch:
    """Mirror each image in a batch left to right with probability one half.

    Args:
        batch: dict that contains `image`, an array of shape (n, height, width, channels).
        rng: NumPy random generator.

    Returns:
        A copy of the batch with the changed images.

    >>> import numpy as np
    >>> from toile.training import images
    >>> batch = {"image": np.arange(4).reshape(2, 1, 2, 1)}
    >>> images.flipped(batch, np.random.default_rng(1))["image"].reshape(2, 2).tolist()
    [[0, 1], [2, 3]]
    """
    images = batch["image"]
    turn = rng.random(len(images)) < 0.5
    return {**batch, "image": np.where(turn[:, None, None, None], images[:, :, ::-1], images)}


def cut_out(batch: Batch, rng: np.random.Generator, size: int) -> Batch:
    """Cover a random square of each image in a batch with gray.

    The center of the square is a random pixel, so the square may extend beyond the border.

    Args:
        batch: dict that contains `image`, an array of shape (n, height, width, channels).
        rng: NumPy random generator.
        size: side length of the square, in pixels.

    Returns:
        A copy of the batch with the changed images; the pixels in each square have the value 128.

    >>> import numpy as np
    >>> from toile.training import images
    >>> batch = {"image": np.zeros((1, 6, 6, 1), np.uint8)}
    >>> cut = images.cut_out(batch, np.random.default_rng(0), 2)
    >>> int((cut["image"] == 128).sum())
    4
    """
    images = batch["image"]
    count, height, width, _ = images.shape
    middle = [rng.integers(0, n, (count, 1)) for n in (height, width)]
    places = [np.arange(n)[None] for n in (height, width)]
    low, high = -(size // 2), size - size // 2
    rows, columns = ((p - m >= low) & (p - m < high) for p, m in zip(places, middle))
    gone = rows[:, :, None, None] & columns[:, None, :, None]
    return {**batch, "image": np.where(gone, np.asarray(128, images.dtype), images)}


# ------------------------------------------------------------------- photographs of different sizes


def resized_crop(
    image: np.ndarray, box: tuple[float, float, float, float], size: int
) -> np.ndarray:
    """Cut a part out of an image, and resize the part to a square.

    Interpolation is bilinear; where one pixel of the result covers several pixels of the image,
    these pixels are averaged first. For a gray image, the three channels of the result are equal.

    Args:
        image: array of shape (height, width), or (height, width, 1 or 3).
        box: the part (top, left, height, width), in pixels; fractions are allowed.
        size: height and width of the result.

    Returns:
        A uint8 array of shape (size, size, 3).

    >>> import numpy as np
    >>> from toile.training import images
    >>> photo = np.arange(64, dtype=np.uint8).reshape(8, 8)
    >>> images.resized_crop(photo, (0, 0, 4, 4), 2)[:, :, 0].tolist()
    [[4, 6], [20, 22]]
    """
    if image.ndim == 2 or image.shape[-1] == 1:
        image = np.broadcast_to(image.reshape(*image.shape[:2], 1), (*image.shape[:2], 3))
    return resampled(image, box, (size, size))


def resampled(
    image: np.ndarray, box: tuple[float, float, float, float], shape: tuple[int, int]
) -> Any:
    """Resize a part of an image with bilinear interpolation.

    Where one pixel of the result covers several pixels of the image, these pixels are averaged
    first.

    Args:
        image: array of shape (height, width, channels).
        box: the part (top, left, height, width), in pixels; fractions are allowed.
        shape: height and width of the result.

    Returns:
        A uint8 array of shape (*shape, channels).

    >>> resampled(np.full((8, 8, 3), 7, np.uint8), (0, 0, 8, 8), (2, 4)).shape
    (2, 4, 3)
    """
    top, left, height, width = box
    t, l = int(top), int(left)
    part = image[t : int(np.ceil(top + height)), l : int(np.ceil(left + width))]
    many = [max(1, int(n / size)) for n, size in zip((height, width), shape)]
    rows, columns = (n // k * k for n, k in zip(part.shape, many))
    part = part[:rows, :columns]
    part = part.reshape(rows // many[0], many[0], columns // many[1], many[1], -1)
    small = part.mean(axis=(1, 3), dtype=np.float32)
    sides = []
    for axis, (start, extent) in enumerate(((top - t, height), (left - l, width))):
        n, k, size = small.shape[axis], many[axis], shape[axis]
        at = np.clip((start + (np.arange(size) + 0.5) * extent / size) / k - 0.5, 0, n - 1)
        low = np.minimum(at.astype(int), max(n - 2, 0))
        sides.append((low, np.minimum(low + 1, n - 1), (at - low).astype(np.float32)))
    (a, b, down), (c, d, right) = sides
    rows_of = small[a] * (1 - down[:, None, None]) + small[b] * down[:, None, None]
    out = rows_of[:, c] * (1 - right[:, None]) + rows_of[:, d] * right[:, None]
    return np.clip(np.rint(out), 0, 255).astype(np.uint8)


def random_resized_crop(
    image: np.ndarray, rng: np.random.Generator, size: int, area: tuple[float, float] = (0.08, 1.0)
) -> np.ndarray:
    """Cut a random part out of an image, and resize the part to a square.

    The aspect ratio of the part is between 3/4 and 4/3. If none of ten randomly chosen rectangles
    fits inside the image, the center square is used.

    Args:
        image: array of shape (height, width), or (height, width, 1 or 3).
        rng: NumPy random generator.
        size: height and width of the result.
        area: minimum and maximum area of the part, as fractions of the image's area.

    Returns:
        A uint8 array of shape (size, size, 3).

    >>> import numpy as np
    >>> from toile.training import images
    >>> photo = np.zeros((30, 40, 3), np.uint8)
    >>> images.random_resized_crop(photo, np.random.default_rng(0), 8).shape
    (8, 8, 3)
    """
    height, width = image.shape[:2]
    for _ in range(10):
        wanted = rng.uniform(*area) * height * width
        ratio = np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3)))
        h, w = np.sqrt(wanted / ratio), np.sqrt(wanted * ratio)
        if h <= height and w <= width:
            top, left = rng.uniform(0, height - h), rng.uniform(0, width - w)
            return resized_crop(image, (top, left, h, w), size)
    return center_crop(image, size, 1.0)


def center_crop(image: np.ndarray, size: int, share: float = 0.875) -> np.ndarray:
    """Cut a square out of the center of an image, and resize the square.

    Args:
        image: array of shape (height, width), or (height, width, 1 or 3).
        size: height and width of the result.
        share: side length of the square, as a fraction of the image's shorter side.

    Returns:
        A uint8 array of shape (size, size, 3).

    >>> import numpy as np
    >>> from toile.training import images
    >>> images.center_crop(np.zeros((30, 40, 3), np.uint8), 8).shape
    (8, 8, 3)
    """
    height, width = image.shape[:2]
    side = min(height, width) * share
    return resized_crop(image, ((height - side) / 2, (width - side) / 2, side, side), size)
