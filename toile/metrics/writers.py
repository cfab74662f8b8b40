"""Writers that send metrics to the console, CSV and JSON Lines files, and TensorBoard.

Every writer has the methods of `clu.metric_writers`, such as `write_scalars(step, {name: value})`.
If a writer cannot show some kind of data, its method for that kind does nothing. Values may be
arrays on a device; they are copied to the host when they are written. Writers are context managers.
"""

from __future__ import annotations

import csv
import functools
import json
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

import numpy as np

from toile.engine.file_reader import guarded
from toile.engine.nan_notices import notice
from toile.engine.source import here
from toile.metrics.tensorboard import SummaryWriter

__all__ = [
    "ConsoleWriter", "CsvWriter", "JsonlWriter", "MetricWriter", "MultiWriter",
    "TensorBoardWriter", "create_default_writer",
]  # fmt: skip


class MetricWriter:
    """Base class of all metric writers; its methods do nothing.

    Values may be arrays on a device; they are copied to the host when they are written. Writers are
    context managers: `close` is called at the end of the `with` block.
    """

    def write_scalars(self, step: int, scalars: Mapping[str, Any]) -> None:
        """Write numbers.

        Args:
            step: step number.
            scalars: dict that maps names to numbers.
        """

    def write_images(self, step: int, images: Mapping[str, Any]) -> None:
        """Write images.

        Args:
            step: step number.
            images: dict that maps names to arrays. An array is one image of shape `(height, width)`
                or `(height, width, channels)`, or several images of shape `(n, height, width)` or
                `(n, height, width, channels)`. Pixels are uint8, or floats from 0 to 1.
        """

    def write_audios(self, step: int, audios: Mapping[str, Any], *, sample_rate: int) -> None:
        """Write audio clips.

        Args:
            step: step number.
            audios: dict that maps names to arrays of shape `(clips, frames, channels)` with values
                from -1 to 1.
            sample_rate: number of frames per second.
        """

    def write_texts(self, step: int, texts: Mapping[str, str]) -> None:
        """Write text. Some writers show it as Markdown.

        Args:
            step: step number.
            texts: dict that maps names to texts.
        """

    def write_histograms(
        self, step: int, arrays: Mapping[str, Any], num_buckets: Mapping[str, int] | None = None
    ) -> None:
        """Write histograms of values.

        Args:
            step: step number.
            arrays: dict that maps names to arrays.
            num_buckets: dict that maps names to numbers of bins; if None, the writer chooses the
                numbers.
        """

    def write_hparams(self, hparams: Mapping[str, Any]) -> None:
        """Write the hyperparameters of the run.

        Args:
            hparams: dict that maps names to values.
        """

    def flush(self) -> None:
        """Write all buffered values."""

    def close(self) -> None:
        """Write all buffered values and close all files."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()


def _number(name: str, value: Any) -> int | float:
    """Convert a scalar to a Python number."""
    array = np.asarray(value)
    if array.size != 1:
        raise ValueError(
            f"write_scalars: needed one number for {name!r}, got shape {array.shape}{here()}"
        )
    item = array.reshape(()).item()
    if isinstance(item, (bool, int)):
        return int(item)
    notice(float(item), name)
    return float(item)


def _numbers(scalars: Mapping[str, Any]) -> dict[str, int | float]:
    return {name: _number(name, value) for name, value in scalars.items()}


class ConsoleWriter(MetricWriter):
    """A writer that prints one line per call: `step 100  loss 0.2513  accuracy 0.921`.

    Args:
        stream: text stream to print to; if None, `sys.stderr` is used.
        rate: whether to add the number of steps per second.

    >>> import sys
    >>> from toile.metrics.writers import ConsoleWriter
    >>> ConsoleWriter(sys.stdout, rate=False).write_scalars(7, {"loss": 0.25, "examples": 3000})
    step 7  loss 0.25  examples 3000
    """

    def __init__(self, stream: TextIO | None = None, rate: bool = True):
        """Print to `stream`, or to stderr if `stream` is None."""
        self._stream, self._rate = stream, rate
        self._last: tuple[int, float] | None = None

    def _print(self, text: str) -> None:
        print(text, file=self._stream if self._stream is not None else sys.stderr, flush=True)

    def write_scalars(self, step: int, scalars: Mapping[str, Any]) -> None:
        """Print all numbers on one line."""
        parts = [f"step {step}", *(f"{n} {_short(v)}" for n, v in _numbers(scalars).items())]
        now = time.monotonic()
        if self._rate and self._last is not None and step > self._last[0]:
            parts.append(f"({(step - self._last[0]) / max(now - self._last[1], 1e-9):.1f} steps/s)")
        if self._last is None or step > self._last[0]:
            self._last = (step, now)
        self._print("  ".join(parts))

    def write_texts(self, step: int, texts: Mapping[str, str]) -> None:
        """Print each text on its own line."""
        for name, text in texts.items():
            self._print(f"step {step}  {name}: {text}")

    def write_hparams(self, hparams: Mapping[str, Any]) -> None:
        """Print all hyperparameters on one line."""
        self._print("  ".join(f"{name}={value}" for name, value in hparams.items()))


def _short(value: int | float) -> str:
    """Format a number briefly."""
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def _for_json(value: Any) -> Any:
    """Return a value that JSON supports, or a string. `float` can read "nan" and "inf"."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


class JsonlWriter(MetricWriter):
    """A writer that appends one JSON object per call to a file, each on its own line.

    A line looks like `{"step": 100, "time": 1.7e9, "loss": 0.25}`. NaN and infinity are written as
    strings. When a method returns, its line has been written to the file.

    Args:
        path: path of the file. If the file exists, lines are appended. The file's folder is created
            if it does not exist.

    >>> import json, pathlib, tempfile
    >>> from toile.metrics.writers import JsonlWriter
    >>> path = pathlib.Path(tempfile.mkdtemp(), "metrics.jsonl")
    >>> with JsonlWriter(path) as writer:
    ...     writer.write_scalars(7, {"loss": 0.25})
    >>> json.loads(path.read_text())["loss"]
    0.25
    """

    def __init__(self, path: str | os.PathLike[str]):
        """Open the file for appending, and create its folder if necessary."""
        path = _with_folder(path)
        remove_unfinished_line(path)
        self._file = open(path, "a", encoding="utf-8")

    def _write(self, entry: dict[str, Any]) -> None:
        self._file.write(json.dumps(entry) + "\n")
        self._file.flush()

    def write_scalars(self, step: int, scalars: Mapping[str, Any]) -> None:
        """Write a line that contains numbers, the step and the time."""
        numbers = {n: _for_json(v) for n, v in _numbers(scalars).items()}
        self._write({"step": int(step), "time": time.time(), **numbers})

    def write_texts(self, step: int, texts: Mapping[str, str]) -> None:
        """Write a line that contains texts, the step and the time."""
        self._write({"step": int(step), "time": time.time(), **texts})

    def write_hparams(self, hparams: Mapping[str, Any]) -> None:
        """Write a line that contains the hyperparameters and the time."""
        plain = {n: _for_json(v) for n, v in hparams.items()}
        self._write({"hparams": plain, "time": time.time()})

    def flush(self) -> None:
        """Write all buffered values."""
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class CsvWriter(MetricWriter):
    """A writer of CSV files with a row for each step and a column for each name.

    Several calls may write values for the same step. The row is written when the step changes or
    when `flush` or `close` is called. When a new name occurs, the file is rewritten with an
    additional column.

    Args:
        path: path of the file. If the file exists, rows are appended. The file's folder is created
            if it does not exist.

    >>> import pathlib, tempfile
    >>> from toile.metrics.writers import CsvWriter
    >>> path = pathlib.Path(tempfile.mkdtemp(), "metrics.csv")
    >>> with CsvWriter(path) as writer:
    ...     writer.write_scalars(1, {"loss": 0.5})
    ...     writer.write_scalars(2, {"loss": 0.25})
    >>> print(path.read_text().strip())
    step,loss
    1,0.5
    2,0.25
    """

    def __init__(self, path: str | os.PathLike[str]):
        """Read the columns of an existing file, and create the folder if necessary."""
        self._path = _with_folder(path)
        self._columns = ["step"]
        self._row: dict[str, Any] = {}
        if os.path.exists(self._path):
            with self._reading(), open(self._path, newline="", encoding="utf-8") as file:
                self._columns = next(csv.reader(file), []) or ["step"]

    def write_scalars(self, step: int, scalars: Mapping[str, Any]) -> None:
        """Add numbers to the row for a step."""
        if self._row and self._row["step"] != int(step):
            self.flush()
        self._row = {**self._row, "step": int(step), **_numbers(scalars)}

    def flush(self) -> None:
        """Write the row for the current step."""
        if not self._row:
            return
        new = [name for name in self._row if name not in self._columns]
        exists = os.path.exists(self._path) and os.path.getsize(self._path) > 0
        if new or not exists:
            self._columns += new
            self._begin(self._rows() if exists else [])
        with open(self._path, "a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, self._columns, restval="").writerow(self._row)
        self._row = {}

    def _rows(self) -> list[dict[str, str]]:
        with self._reading(), open(self._path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
            if any(None in row for row in rows):
                raise ValueError("a row has more columns than the header")
            return rows

    def _reading(self) -> Any:
        hint = f" ({self._path}; move it away to start a new one)"
        return guarded("CsvWriter", "a table to continue", hint, also=(csv.Error,))

    def _begin(self, rows: list[dict[str, str]]) -> None:
        """Rewrite the file with the current columns, using a temporary file."""
        aside = f"{self._path}.tmp"
        with open(aside, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self._columns, restval="")
            writer.writeheader()
            writer.writerows(rows)
        os.replace(aside, self._path)

    def close(self) -> None:
        """Write the row for the current step."""
        self.flush()


class TensorBoardWriter(MetricWriter):
    """A writer of TensorBoard event files.

    Args:
        log_dir: folder for the event file; the folder is created if it does not exist.
        auto_flush: whether to write every value to the file immediately.
    """

    def __init__(self, log_dir: str | os.PathLike[str], auto_flush: bool = True):
        """Create `log_dir` if necessary, and open a new event file in it."""
        self._writer = SummaryWriter(log_dir, auto_flush=auto_flush)

    def write_scalars(self, step: int, scalars: Mapping[str, Any]) -> None:
        """Write numbers."""
        for name, value in _numbers(scalars).items():
            self._writer.scalar(name, value, step)

    def write_images(self, step: int, images: Mapping[str, Any]) -> None:
        """Write images."""
        for name, image in images.items():
            count = max(np.shape(image)[0], 1)
            self._writer.image(name, image, step, max_outputs=count)

    def write_audios(self, step: int, audios: Mapping[str, Any], *, sample_rate: int) -> None:
        """Write audio clips."""
        for name, clips in audios.items():
            count = max(np.shape(clips)[0], 1)
            self._writer.audio(name, clips, step, sample_rate, max_outputs=count)

    def write_texts(self, step: int, texts: Mapping[str, str]) -> None:
        """Write texts."""
        for name, text in texts.items():
            self._writer.text(name, text, step)

    def write_histograms(
        self, step: int, arrays: Mapping[str, Any], num_buckets: Mapping[str, int] | None = None
    ) -> None:
        """Write histograms."""
        for name, values in arrays.items():
            self._writer.histogram(name, values, step, (num_buckets or {}).get(name))

    def write_hparams(self, hparams: Mapping[str, Any]) -> None:
        """Write the hyperparameters."""
        self._writer.hparams(hparams)

    def flush(self) -> None:
        """Write all buffered values."""
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


def _passed_on(name: str) -> Any:
    """Return a method that calls the method of the same name on all writers."""

    @functools.wraps(getattr(MetricWriter, name))
    def method(self: MultiWriter, *args: Any, **kwargs: Any) -> None:
        for writer in self._writers:
            getattr(writer, name)(*args, **kwargs)

    return method


class MultiWriter(MetricWriter):
    """A writer that passes every call to several writers.

    Args:
        writers: the writers, in the order in which they are called.

    >>> import sys
    >>> from toile.metrics.writers import ConsoleWriter, MultiWriter
    >>> both = MultiWriter([ConsoleWriter(sys.stdout, rate=False)] * 2)
    >>> both.write_scalars(7, {"loss": 0.25})
    step 7  loss 0.25
    step 7  loss 0.25
    """

    def __init__(self, writers: Sequence[MetricWriter]):
        """Store the writers, which are called in order."""
        self._writers = tuple(writers)

    def write_scalars(self, step: int, scalars: Mapping[str, Any]) -> None:
        """Write numbers to all writers."""
        numbers = _numbers(scalars)  # fetched once
        for writer in self._writers:
            writer.write_scalars(step, numbers)

    write_images = _passed_on("write_images")
    write_audios = _passed_on("write_audios")
    write_texts = _passed_on("write_texts")
    write_histograms = _passed_on("write_histograms")
    write_hparams = _passed_on("write_hparams")
    flush = _passed_on("flush")
    close = _passed_on("close")


def create_default_writer(
    logdir: str | os.PathLike[str] | None = None, *, console: bool = True, tensorboard: bool = True,
    csv: bool = False, jsonl: bool = True,
) -> MultiWriter:
    """Create a writer that prints to the console and writes files in a folder.

    Args:
        logdir: folder for the files; if None, no files are written.
        console: whether to print to stderr.
        tensorboard: whether to write a TensorBoard event file.
        csv: whether to write `metrics.csv`.
        jsonl: whether to write `metrics.jsonl`.

    Returns:
        A `MultiWriter`.

    >>> import os, tempfile
    >>> from toile.metrics.writers import create_default_writer
    >>> folder = tempfile.mkdtemp()
    >>> with create_default_writer(folder, console=False, tensorboard=False) as writer:
    ...     writer.write_scalars(1, {"loss": 0.5})
    >>> os.listdir(folder)
    ['metrics.jsonl']
    """
    writers: list[MetricWriter] = [ConsoleWriter()] if console else []
    if logdir is not None:
        folder = os.fspath(logdir)
        writers += [TensorBoardWriter(folder)] if tensorboard else []
        writers += [JsonlWriter(os.path.join(folder, "metrics.jsonl"))] if jsonl else []
        writers += [CsvWriter(os.path.join(folder, "metrics.csv"))] if csv else []
    return MultiWriter(writers)


def _with_folder(path: str | os.PathLike[str]) -> str:
    """Create the folder of a file if necessary, and return the path."""
    folder = os.path.dirname(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    return os.fspath(path)


def remove_unfinished_line(path: str) -> None:
    """Remove an incomplete last line left behind by a killed process."""
    if not os.path.isfile(path):
        return
    with open(path, "rb+") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - (1 << 16))
            file.seek(start)
            at = file.read(end - start).rfind(b"\n")
            end = start + at + 1
            if at >= 0:
                break
        if end < os.path.getsize(path):
            file.truncate(end)
