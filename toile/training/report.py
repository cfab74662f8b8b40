"""Reports on training runs, each a single HTML file that needs no other files.

A training loop fills a `Report`, or `Report.read` fills it from the files that the writers in
`toile.metrics` have written. The page contains no scripts and loads nothing: it can be mailed,
archived, and opened without a network. `python -m toile.training.report WORKDIR` writes
WORKDIR/report.html.
"""

from __future__ import annotations

import csv
import importlib.metadata
import math
import os
import platform
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from toile.api.devices import local_devices
from toile.engine.file_reader import guarded
from toile.engine.source import here
from toile.metrics import events
from toile.training import checkpoints, config_entries, curves, html_pages, terminal
from toile.version import __version__

__all__ = ["Report"]

_PACKAGES = ("numpy", "scipy", "llvmlite", "ml_dtypes", "cupy-cuda12x", "cupy-cuda13x")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")  # colors of a terminal


class Report:
    """A report on a training run, which is written to a single HTML file.

    Args:
        title: the heading of the page.
        echo: whether to print tables, texts and curves when they are added. True prints them to
            standard output; pass a stream to print them to that stream.

    >>> import tempfile
    >>> report = Report("Regression")
    >>> report.config({"learning_rate": 0.1, "layers": {"width": 32}})
    >>> for step in range(1, 4):
    ...     report.metrics(step, {"train_loss": 1 / step})
    >>> report.figure("weights", np.eye(8))
    >>> path = report.write(f"{tempfile.mkdtemp()}/report.html")
    >>> text = path.read_text()
    >>> all(part in text for part in ("Regression", "layers.width", "<svg", "data:image/png"))
    True
    """

    def __init__(self, title: str = "Run", *, echo: bool | TextIO = False):
        self.title = title
        self._stream = sys.stdout if echo is True else echo or None
        self._config: dict[str, Any] = {}
        self._series: dict[str, dict[int, float]] = {}
        self._texts: list[tuple[str, str]] = []
        self._figures: list[html_pages.Figure] = []
        self._layers = ""
        self._checkpoints: list[str] = []

    @classmethod
    def of(
        cls, workdir: str | os.PathLike[str], config: Any = None, *, title: str = "",
        echo: bool | TextIO = False,
    ) -> Report:
        """Create a report on a finished run from the files in its folder, using `read`.

        Args:
            workdir: the folder of the run.
            config: the configuration of the run; if None, the configuration that `write_hparams`
                wrote is used.
            title: the heading; "" means the name of the folder.
            echo: as for `Report`.

        Returns:
            A report, to which more content can be added before it is written.
        """
        report = cls(title or Path(workdir).name, echo=echo)
        report.read(workdir)
        if config is not None:
            report._config = config_entries.flat(config)
        return report

    # ---- what a loop adds

    def config(self, config: Any) -> None:
        """Add the configuration.

        Args:
            config: a mapping, a dataclass or an ml_collections.ConfigDict, which may be nested. If
                the method is called again, new entries replace existing entries with the same name.
        """
        self._config |= config_entries.flat(config)

    def metrics(self, step: int, values: Mapping[str, Any]) -> None:
        """Add the metrics for a step.

        The curves of metrics such as `train_loss` and `eval_loss` share a diagram.

        Args:
            step: the step number.
            values: numbers, or arrays of one element, by name.
        """
        for name, value in values.items():
            array = np.asarray(value)
            if array.size != 1:
                raise ValueError(
                    f"Report.metrics: needed one number for {name!r}, got shape {array.shape}"
                    f"{here()}"
                )
            self._series.setdefault(name, {})[int(step)] = float(array.reshape(()).item())

    def figure(self, name: str, image: Any, caption: str = "") -> None:
        """Add a picture, which is embedded as a PNG.

        Floats from 0 to 1, uint8 values and booleans are shown unchanged. Other numbers are scaled
        so that the smallest number is black and the largest is white. Several images are placed
        side by side.

        Args:
            name: heading of the picture.
            image: an array of shape [height, width], [height, width, 1 to 4], [count, height,
                width] or [count, height, width, 1 to 4]. An array with three axes is a single image
                if its last axis has 1 to 4 elements.
            caption: text below the picture.
        """
        pixels, scale = html_pages.pixels(np.asarray(image))
        text = f"{caption} ({scale})" if caption and scale else caption or scale
        self._figures.append(html_pages.Figure(name, pixels, text))

    def text(self, name: str, text: str) -> None:
        """Add text, which is shown with its line breaks.

        Args:
            name: heading of the text; "" means no heading.
            text: the text.
        """
        self._texts.append((name, _ANSI.sub("", text)))
        self._print(f"\n{name}:\n{text}" if name else text)

    def layers(self, model: Any, *args: Any, width: int = 100, **kwargs: Any) -> None:
        """Add a table of a model's layers.

        Args:
            model: the text of a table, or a module whose `tabulate` method creates the table.
            args: arguments for `tabulate`: keys and inputs.
            width: the width of the table in characters.
            kwargs: keyword arguments for `tabulate`, such as `depth`.
        """
        if isinstance(model, str):
            table = model
        else:
            colors = self._stream is not None and self._stream.isatty()
            style = {"width": width, "force_terminal": colors}  # no colors in a file
            table = model.tabulate(*args, console_kwargs=style, **kwargs)
        self._layers = _ANSI.sub("", table).strip("\n")
        self._print(table)

    def checkpoints(self, folder: str | os.PathLike[str]) -> None:
        """Add the names and sizes of the checkpoints in a folder.

        Args:
            folder: the folder that contains the checkpoints.
        """
        steps = checkpoints.available_steps(folder) if os.path.isdir(folder) else []
        paths = [os.path.join(os.fspath(folder), f"checkpoint_{step}") for step in steps]
        self._checkpoints = [f"{p} ({_size(p)})" for p in paths]
        newest = checkpoints.latest_checkpoint(folder)
        self._print(f"checkpoint: {newest}")

    def curve(self, name: str, title: str = "", *, log: bool = False) -> None:
        """Print the curve of a metric, drawn with text characters, if `echo` is set.

        Args:
            name: name of the metric.
            title: text above the curve; "" means the name of the metric.
            log: whether the vertical axis is logarithmic.
        """
        series = self._series.get(name, {})
        lines = terminal.curve(list(series), list(series.values()), log=log, title=title or name)
        self._print(lines)

    def picture(
        self, path: str | os.PathLike[str], panels: Mapping[str, Mapping[str, str]]
    ) -> bool:
        """Draw curves with matplotlib, and save them as a PNG file, for instance for a README.

        Args:
            path: path of the file.
            panels: a dict that maps each panel's title to a dict from labels to names of metrics.

        Returns:
            True if the file was written, False if matplotlib is not installed.
        """
        return curves.picture(path, {
            title: {label: self._series.get(name, {}) for label, name in lines.items()}
            for title, lines in panels.items()
        })  # fmt: skip

    # ---- what writers left

    def read(self, workdir: str | os.PathLike[str]) -> None:
        """Add the metrics, texts and hyperparameters that a run wrote to its folder.

        `metrics.jsonl` is read if it exists, otherwise `metrics.csv`, otherwise TensorBoard's event
        files.

        Args:
            workdir: the folder of the run.

        Raises:
            FileNotFoundError: the folder contains none of these files.
            UnreadableFileError: the file is damaged.
        """
        folder = Path(workdir)
        if (folder / "metrics.jsonl").is_file():
            self._read_jsonl(folder / "metrics.jsonl")
        elif (folder / "metrics.csv").is_file():
            self._read_csv(folder / "metrics.csv")
        elif list(folder.glob("*tfevents*")):
            for value in events.read(folder):
                if value.plugin == "scalars" and value.data is not None and value.data.size == 1:
                    self.metrics(value.step, {value.tag: value.data})
        else:
            raise FileNotFoundError(
                "Report.read: needed metrics.jsonl, metrics.csv or TensorBoard's event files, got "
                f"none in {folder}{here()}"
            )

    def _read_jsonl(self, path: Path) -> None:
        texts: dict[str, str] = {}
        for number, entry in curves.entries(path):
            with guarded("Report.read", "lines of metrics", f" (line {number} of {path})"):
                if "hparams" in entry:
                    self._config |= config_entries.flat(entry["hparams"])
                    continue
                step = int(entry["step"])
                for name, value in entry.items():
                    if name in ("step", "time"):
                        continue
                    if is_number(value):
                        self._series.setdefault(name, {})[step] = float(value)
                    else:
                        texts[name] = f"{value}"
        self._texts += texts.items()  # the last one of each name

    def _read_csv(self, path: Path) -> None:
        where = f" ({path})"
        with guarded("Report.read", "a table of metrics", where, also=(csv.Error,)):
            with open(path, newline="", encoding="utf-8") as file:
                for row in csv.DictReader(file):
                    step = int(row.pop("step"))
                    self.metrics(step, {n: float(v) for n, v in row.items() if v})

    # ---- the page

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file.

        An existing file is replaced atomically.

        Args:
            path: path of the file; its folder is created if it does not exist.

        Returns:
            The path of the file.
        """
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.with_name(f"{target.name}.tmp")
        aside.write_text(self.html(), encoding="utf-8")
        aside.replace(target)
        self._print(f"report: {target}")
        return target

    def html(self) -> str:
        """Return the page as HTML text."""
        return html_pages.page(html_pages.Content(
            self.title, self._config, self._series, self._texts, self._figures, self._layers,
            self._checkpoints, environment(),
        ))  # fmt: skip

    def _print(self, text: str) -> None:
        if self._stream is not None:
            print(text, file=self._stream)


def is_number(value: Any) -> bool:
    """Whether a value in a line belongs to a metric; "nan" and "inf" are stored as text."""
    return isinstance(value, (int, float)) or value in ("nan", "inf", "-inf")


def environment() -> dict[str, str]:
    """The versions, devices and settings of this process."""
    found = {"toile": __version__, "Python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    devices = local_devices()
    found["devices"] = f"{len(devices)} x {devices[0].device_kind} ({devices[0].platform})"
    found["machine"] = f"{platform.system()}, {platform.machine()}, {os.cpu_count()} cores"
    settings = (f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith("TOILE_"))
    found["settings"] = " ".join(settings) or "none"
    found["written"] = time.strftime("%Y-%m-%d %H:%M:%S")
    return found


def _size(path: str) -> str:
    if os.path.isdir(path):
        total = sum(p.stat().st_size for p in Path(path).rglob("*") if p.is_file())
    else:
        total = os.path.getsize(path)
    power = min(int(math.log(max(total, 1), 1024)), 3)
    return f"{total / 1024**power:.1f} {('bytes', 'KiB', 'MiB', 'GiB')[power]}"


def main(arguments: list[str]) -> int:
    """`python -m toile.training.report WORKDIR [FILE]` writes a report on a run."""
    if not 1 <= len(arguments) <= 2:
        print("needed the folder of a run, and optionally a file to write", file=sys.stderr)
        return 2
    try:
        report = Report.of(arguments[0])
    except (OSError, ValueError) as error:
        print(str(error).splitlines()[0], file=sys.stderr)
        return 1
    report.checkpoints(arguments[0])
    print(report.write(arguments[1] if arguments[1:] else Path(arguments[0], "report.html")))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
