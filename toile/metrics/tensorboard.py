"""A SummaryWriter like the one in `flax.metrics.tensorboard`, but without TensorFlow.

Every method writes the same tags, tensors and plugin data as `tf.summary`, so TensorBoard can show
scalars, images, audio, histograms, text and hyperparameters.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from toile.engine.annotations import ArrayLike
from toile.engine.protobuf import double, field
from toile.engine.source import here
from toile.metrics import events, media

__all__ = ["SummaryWriter"]

_PLAIN = (bool, int, float, str, np.bool_, np.integer, np.floating, np.character)


def _flatten_dict(input_dict: Mapping[str, Any], parent_key: str = "", sep: str = ".") -> dict:
    """Flatten nested hyperparameters; values that the dashboard cannot show become text."""
    flat: dict[str, Any] = {}
    for key, value in input_dict.items():
        name = f"{parent_key}{sep}{key}" if parent_key else key
        if isinstance(value, Mapping):
            flat.update(_flatten_dict(value, name, sep))
        else:
            flat[name] = value if isinstance(value, _PLAIN) else str(value)
    return flat


class SummaryWriter:
    """A writer of TensorBoard event files that does not need TensorFlow.

    Args:
        log_dir: folder for the event file; the folder is created if it does not exist.
        auto_flush: whether to write every value to the file immediately.

    >>> import tempfile
    >>> from toile.metrics import events
    >>> from toile.metrics.tensorboard import SummaryWriter
    >>> folder = tempfile.mkdtemp()
    >>> with SummaryWriter(folder) as writer:
    ...     writer.scalar("loss", 0.25, step=7)
    >>> [(v.tag, v.step, float(v.data)) for v in events.read(folder)]
    [('loss', 7, 0.25)]
    """

    def __init__(self, log_dir: str | os.PathLike[str], auto_flush: bool = True):
        """Create `log_dir` if necessary, and open a new event file in it."""
        self._event_writer = events.EventWriter(log_dir)
        self._auto_flush = auto_flush
        self._closed = False

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; the writer cannot be used afterward."""
        if not self._closed:
            self._event_writer.close()
            self._closed = True
            del self._event_writer

    def flush(self) -> None:
        """Write all buffered values to the file."""
        self._event_writer.flush()

    def scalar(self, tag: str, value: ArrayLike, step: int) -> None:
        """Write a number.

        Args:
            tag: name of the value.
            value: the number, which is stored as float32.
            step: step number.
        """
        with np.errstate(over="ignore"):  # beyond float32 it is infinite
            number = np.asarray(value, dtype=np.float64).reshape(()).astype(np.float32)
        self._write(tag, number, step, events.metadata("scalars"))

    def image(self, tag: str, image: ArrayLike, step: int, max_outputs: int = 3) -> None:
        """Write images.

        Args:
            tag: name of the value.
            image: one image of shape `(height, width)` or `(height, width, channels)`, or several
                images of shape `(n, height, width)` or `(n, height, width, channels)`, with 1 or 3
                channels. Pixels are uint8, or floats from 0 to 1.
            step: step number.
            max_outputs: maximum number of images to write.
        """
        pixels = np.asarray(image)
        if pixels.ndim == 2:
            pixels = pixels[None, :, :, None]
        elif pixels.ndim == 3:
            pixels = pixels[None] if pixels.shape[-1] in (1, 3) else pixels[..., None]
        if pixels.ndim != 4:
            raise ValueError(f"image: needed 2, 3 or 4 axes, got shape {np.shape(image)}{here()}")
        if pixels.shape[-1] == 1:
            pixels = np.repeat(pixels, 3, axis=-1)
        shown = media.to_bytes(pixels[:max_outputs])
        sizes = [str(pixels.shape[2]), str(pixels.shape[1])]
        strings = np.array([*sizes, *(media.png(p) for p in shown)], dtype=object)
        self._write(tag, strings, step, events.metadata("images"))

    def audio(
        self, tag: str, audiodata: ArrayLike, step: int, sample_rate: int = 44100,
        max_outputs: int = 3,
    ) -> None:
        """Write audio clips.

        Args:
            tag: name of the value.
            audiodata: array of shape `(clips, frames, channels)`. Values are clipped to the range
                from -1 to 1.
            step: step number.
            sample_rate: number of frames per second.
            max_outputs: maximum number of clips to write.
        """
        clips = np.clip(np.asarray(audiodata, dtype=np.float32), -1, 1)
        if clips.ndim != 3:
            raise ValueError(
                f"audio: needed [clips, frames, channels], got shape {clips.shape}{here()}"
            )
        rows = [[media.wav(c, sample_rate), b""] for c in clips[:max_outputs]]  # sound, label
        strings = np.array(rows, dtype=object).reshape(len(rows), 2)
        content = field(2, 11)  # the encoding: WAV
        self._write(tag, strings, step, events.metadata("audio", content))

    def histogram(self, tag: str, values: ArrayLike, step: int, bins: int | None = None) -> None:
        """Write a histogram of values; NaN and infinity are left out.

        Args:
            tag: name of the value.
            values: array of numbers.
            step: step number.
            bins: number of bins; 30 by default.
        """
        buckets = _buckets(np.asarray(values), 30 if bins is None else bins)
        self._write(tag, buckets, step, events.metadata("histograms"))

    def text(self, tag: str, textdata: str | bytes, step: int) -> None:
        """Write text, which TensorBoard shows as Markdown.

        Args:
            tag: name of the value.
            textdata: the text.
            step: step number.
        """
        if not isinstance(textdata, (str, bytes)):
            raise ValueError(f"`textdata` should be of the type `str` or `bytes`.{here()}")
        self._write(tag, np.array(textdata, dtype=object), step, events.metadata("text"))

    def write(self, tag: str, tensor: Any, step: int, metadata: Any = None) -> None:
        """Write any tensor.

        Args:
            tag: name of the value.
            tensor: array of numbers or text.
            step: step number.
            metadata: a SummaryMetadata message, or the bytes of such a message, that specifies how
                to show the tensor; if None, there is no metadata.
        """
        encode = getattr(metadata, "SerializeToString", None)
        self._write(tag, tensor, step, metadata if encode is None else encode())

    def hparams(self, hparams: Mapping[str, Any]) -> None:
        """Write the hyperparameters of this run.

        Args:
            hparams: dict that maps names to values. The dict may be nested; nested names are joined
                with dots.
        """
        flat = {k: _plain(v) for k, v in _flatten_dict(hparams).items()}
        text = json.dumps(flat, sort_keys=True, separators=(",", ":"))
        group = hashlib.sha256(text.encode()).hexdigest()
        items = b"".join(
            field(1, field(1, name) + field(2, _hparam(flat[name]))) for name in sorted(flat)
        )
        session = items + field(4, group) + double(5, time.time())
        described = events.metadata("hparams", field(3, session))
        empty = np.zeros(0, np.float32)
        self._write("_hparams_/session_start_info", empty, 0, described)

    def _write(self, tag: str, value: Any, step: int, metadata: bytes | None) -> None:
        proto = events.summary(tag, events.tensor(value), metadata)
        self._event_writer.add(proto, step)
        if self._auto_flush:
            self._event_writer.flush()


def _plain(value: Any) -> Any:
    """Convert a hyperparameter to a Python bool, int, float or str."""
    plain = value.item() if isinstance(value, np.generic) else value
    return plain.decode() if isinstance(plain, bytes) else plain


def _hparam(value: bool | float | str) -> bytes:
    """Encode a hyperparameter as a google.protobuf.Value."""
    if isinstance(value, bool):
        return field(4, int(value))
    return field(3, value) if isinstance(value, str) else double(2, value)


def _buckets(values: np.ndarray, count: int) -> np.ndarray:
    """Return an array with a row (left edge, right edge, count) for each bin of a histogram.

    The last bin includes its right edge."""
    data = values.reshape(-1).astype(np.float64)
    data = data[np.isfinite(data)]
    if count <= 0 or data.size == 0:
        return np.zeros((max(count, 0), 3))
    low, high = data.min(), data.max()
    if low == high:
        counts = np.zeros(count)
        counts[-1] = data.size
        return np.stack([np.full(count, low), np.full(count, high), counts], axis=1)
    width = (high - low) / count
    index = np.minimum(np.floor((data - low) / width), count - 1).astype(np.int64)
    edges = np.linspace(low, high, count + 1)
    counts = np.bincount(index, minlength=count).astype(np.float64)
    return np.stack([edges[:-1], edges[1:], counts], axis=1)
