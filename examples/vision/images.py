"""From an image file to the array that a model reads: size, crop and normalization.

A folder contains the settings in `preprocessor_config.json`.
"""

import json
from pathlib import Path

import numpy as np

import toile

METHODS = {0: "nearest", 1: "lanczos3", 2: "linear", 3: "cubic"}  # by the numbers of Pillow
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
CLIP = {
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}  # fmt: skip
# by the start of the name of the processor; the folder's own settings replace these
DEFAULTS = {
    "ViT": {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 2, "size": 224},
    "ConvNext": {**IMAGENET, "resample": 3, "size": 384, "crop_pct": 224 / 256},
    "CLIP": {**CLIP, "resample": 3, "size": 224, "crop_size": 224, "do_center_crop": True},
}


def settings_of(c: dict) -> dict:
    """Complete the contents of preprocessor_config.json with the defaults of its processor."""
    name = c.get("image_processor_type") or c.get("feature_extractor_type") or "unnamed"
    kinds = [kind for kind in DEFAULTS if name.startswith(kind)]
    if not kinds:
        raise ValueError(
            f"needed a processor of {', '.join(DEFAULTS)} in preprocessor_config.json, got {name!r}"
        )
    given = {key: value for key, value in c.items() if value is not None}
    return {**DEFAULTS[kinds[0]], **given, "kind": kinds[0]}


def load_settings(folder) -> dict:
    """Read the settings in a folder."""
    return settings_of(json.loads((Path(folder) / "preprocessor_config.json").read_text()))


def read(path) -> np.ndarray:
    """Read an image [height, width, 3] of uint8; files other than .npy need Pillow."""
    if str(path).endswith(".npy"):
        return np.load(path)
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(f"needed Pillow to read {path}: pip install pillow") from error
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def prepare(image: np.ndarray, settings: dict) -> np.ndarray:
    """Return the array [height, width, 3] of float32 that a model reads."""
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise ValueError(
            f"needed an image [height, width, 3] of uint8, got {image.dtype} {list(image.shape)} "
            "(values from 0 to 255; repeat the channel of a gray image three times)"
        )
    if settings.get("do_resize", True):
        image = _resized(image, settings)
    if settings.get("do_center_crop"):
        image = _cropped(image, *_shape(settings["crop_size"]))
    x = image.astype(np.float32)
    if settings.get("do_rescale", True):
        x = x * np.float32(settings.get("rescale_factor", 1 / 255))
    if settings.get("do_normalize", True):
        x = (x - np.float32(settings["image_mean"])) / np.float32(settings["image_std"])
    return x


def _shape(size) -> tuple[int, int]:
    """Return the height and the width of a size in the settings; both are equal in old files."""
    return (size["height"], size["width"]) if isinstance(size, dict) else (size, size)


def _resized(image, settings):
    """Resize an image as its processor does."""
    size, kind, method = settings["size"], settings["kind"], METHODS[settings["resample"]]
    if kind == "ViT" or (isinstance(size, dict) and "height" in size):
        return _scaled(image, _shape(size), method)
    shortest = size["shortest_edge"] if isinstance(size, dict) else size
    if kind == "CLIP":
        return _scaled(image, _with_shortest(image, shortest), method)
    if shortest >= 384:  # ConvNeXt keeps the whole of large images, but not their proportions
        return _scaled(image, (shortest, shortest), method)
    larger = _with_shortest(image, int(shortest / settings["crop_pct"]))
    return _cropped(_scaled(image, larger, method), shortest, shortest)


def _with_shortest(image, length: int) -> tuple[int, int]:
    """Return the height and the width, of which the smaller is `length`, with the proportions."""
    height, width = image.shape[:2]
    if height <= width:
        return length, int(length * width / height)
    return int(length * height / width), length


def _scaled(image, shape, method):
    """Resample an image and round it to uint8, which Pillow does after each of two passes."""
    x = np.asarray(toile.image.resize(image.astype(np.float32), (*shape, 3), method))
    return np.clip(np.floor(x + 0.5), 0, 255).astype(np.uint8)


def _cropped(image, height: int, width: int):
    """Return the center of an image."""
    if image.shape[0] < height or image.shape[1] < width:
        raise ValueError(
            f"needed an image of at least {height} x {width} to crop, got "
            f"{image.shape[0]} x {image.shape[1]} (increase size in preprocessor_config.json)"
        )
    top, left = (image.shape[0] - height) // 2, (image.shape[1] - width) // 2
    return image[top : top + height, left : left + width]
