"""Read the metrics that a run has written, and draw them with matplotlib.

`history` reads `metrics.jsonl`, which the writer from `writers.create_default_writer` writes.
`picture` draws curves and saves them as a PNG file; nothing else in this module needs matplotlib.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from toile.engine.file_reader import guarded

__all__ = ["entries", "history", "picture"]


def history(workdir: str | os.PathLike[str], name: str) -> dict[int, float]:
    """Read the values that a run wrote for a metric.

    Args:
        workdir: folder of the run. It must contain the file `metrics.jsonl`, written by a writer
            from `toile.metrics.writers.create_default_writer`.
        name: name of the metric.

    Returns:
        A dict from steps to values. If a step was repeated after an interruption, its last value is
        used.

    Raises:
        toile.errors.UnreadableFileError: a line is not JSON. An unfinished last line is ignored.

    >>> import tempfile
    >>> from toile.metrics import writers
    >>> from toile.training import curves
    >>> folder = tempfile.mkdtemp()
    >>> with writers.create_default_writer(folder, console=False) as writer:
    ...     writer.write_scalars(1, {"loss": 0.5})
    ...     writer.write_scalars(2, {"loss": 0.25})
    >>> curves.history(folder, "loss")
    {1: 0.5, 2: 0.25}
    """
    path = Path(workdir) / "metrics.jsonl"
    found = {}
    for number, entry in entries(path):
        with guarded("history", "lines of metrics in JSON", f" (line {number} of {path})"):
            if name in entry:
                found[int(entry["step"])] = float(entry[name])
    return found


def entries(path: str | os.PathLike[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read the objects in a JSON Lines file.

    An incomplete last line is ignored, because the writer may have been stopped while writing it.

    Args:
        path: path of the file.

    Yields:
        Pairs (line number, object); lines are counted from 1.

    Raises:
        toile.errors.UnreadableFileError: a complete line is not a JSON object.

    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp(), "metrics.jsonl")
    >>> _ = file.write_text('{"step": 1, "loss": 0.5}\\n{"step": 2, "lo')
    >>> list(entries(file))
    [(1, {'step': 1, 'loss': 0.5})]
    """
    lines = Path(path).read_bytes().split(b"\n")
    if not _is_json(lines[-1]):
        lines.pop()  # empty, or where the writer was stopped
    for number, line in enumerate(lines, start=1):
        with guarded("entries", "an object in JSON", f" (line {number} of {os.fspath(path)})"):
            entry = json.loads(line)
            if not isinstance(entry, dict):
                raise TypeError(f"a {type(entry).__name__}")
        yield number, entry


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def picture(
    path: str | os.PathLike[str], panels: Mapping[str, Mapping[str, Mapping[int, float]]]
) -> bool:
    """Draw curves with matplotlib, and save them as a PNG file.

    Args:
        path: path of the file.
        panels: a dict from the panels' titles to their lines. The lines of a panel are a dict from
            labels to curves. A curve is a dict from steps to values, like the one that `history`
            returns.

    Returns:
        True if the file was written, False if matplotlib is not installed.

    >>> from toile.training import curves
    >>> curves.picture("curve.png", {"loss": {"run": {1: 0.5, 2: 0.25}}})  # doctest: +SKIP
    True
    """
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    wide = 4.2 * len(panels)
    figure, axes = pyplot.subplots(1, len(panels), figsize=(wide, 3.0), squeeze=False)
    for axis, (title, lines) in zip(axes[0], panels.items()):
        for label, values in lines.items():
            axis.plot(list(values), list(values.values()), label=label, linewidth=1.4)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("step", fontsize=9)
        axis.tick_params(labelsize=8)
        axis.grid(alpha=0.3)
        if len(lines) > 1:
            axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    pyplot.close(figure)
    return True


def main(arguments: list[str]) -> None:
    """Draw the curves that the command line specifies.

    `python -m toile.training.curves curve.png METRIC[,METRIC...] LABEL=WORKDIR ...`

    Args:
        arguments: the command-line arguments.

    >>> from toile.training import curves
    >>> curves.main(["curve.png", "loss", "small=runs/1", "large=runs/2"])  # doctest: +SKIP
    """
    path, metrics, *runs = arguments
    folders = dict(run.split("=", 1) for run in runs)
    picture(path, {
        metric: {label: history(folder, metric) for label, folder in folders.items()}
        for metric in metrics.split(",")
    })  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
