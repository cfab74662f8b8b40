"""Encode arrays as PNG images and WAV sound, using only NumPy and the standard library."""

from __future__ import annotations

import io
import struct
import wave
import zlib

import numpy as np

from toile.engine.source import here

__all__ = ["png", "to_bytes", "wav"]

_COLOR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}  # channels -> gray, gray+alpha, RGB, RGBA


def to_bytes(image: np.ndarray) -> np.ndarray:
    """Convert pixels to uint8.

    Floats are scaled from the range 0 to 1 to the range 0 to 255; values below 0 or above 1 are
    clipped. Booleans become 0 and 255. For wider integers, only the 8 most significant bits are
    kept.

    Args:
        image: array of pixels.

    Returns:
        A uint8 array of the same shape.

    >>> to_bytes(np.array([0.0, 0.5, 1.0, 2.0])).tolist()
    [0, 127, 255, 255]
    """
    if image.dtype == np.uint8:
        return image
    if image.dtype == np.bool_:
        return image.astype(np.uint8) * np.uint8(255)
    if np.issubdtype(image.dtype, np.integer):  # only the top byte of the range counts
        info = np.iinfo(image.dtype)
        shift = info.bits - 8 - (info.min < 0)
        top = image >> shift if shift > 0 else image << -shift
        return np.clip(top, 0, 255).astype(np.uint8)
    values = np.nan_to_num(image.astype(np.float64), nan=0.0, posinf=1.0, neginf=0.0)
    return np.clip(np.floor(values * 255.5), 0, 255).astype(np.uint8)


def png(image: np.ndarray) -> bytes:
    """Encode an image as the bytes of a PNG file.

    Args:
        image: uint8 array of shape `(height, width, channels)`, with 1 to 4 channels.

    Returns:
        The bytes.

    Raises:
        ValueError: the image does not have this shape and dtype.
    """
    height, width, channels = image.shape
    if channels not in _COLOR_TYPES or image.dtype != np.uint8:
        raise ValueError(
            f"png: needed uint8[height, width, 1 to 4], got {image.dtype}{list(image.shape)}"
            f"{here()}"
        )
    # Each row is preceded by the number of its filter: 0, none.
    rows = np.concatenate(
        [np.zeros((height, 1), np.uint8), image.reshape(height, width * channels)], axis=1
    )
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[channels], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    check = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)


def wav(samples: np.ndarray, sample_rate: int) -> bytes:
    """Encode audio samples as the bytes of a WAV file with 16 bits per sample.

    Args:
        samples: array of shape `(frames, channels)` with values from -1 to 1. Values outside this
            range are clipped.
        sample_rate: number of frames per second.

    Returns:
        The bytes.
    """
    scaled = np.clip(np.round(samples * 32768.0), -32768, 32767).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(samples.shape[1])
        out.setsampwidth(2)
        out.setframerate(int(sample_rate))
        out.writeframes(scaled.tobytes())
    return file.getvalue()
