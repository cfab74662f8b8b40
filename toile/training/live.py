"""A plot of metrics that is updated while a notebook cell trains a model.

A loop passes numbers to a `Plot`, which draws them below the cell as SVG and updates the drawing in
place. A `Plot` is also a metric writer (`toile.metrics.writers`). Nothing is loaded from a network.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from toile.displays.markup import box, paragraph
from toile.displays.notebook import LiveDisplay, kernel_shell
from toile.engine.annotations import ArrayLike
from toile.engine.nan_notices import notice
from toile.engine.source import here
from toile.metrics.writers import MetricWriter
from toile.training import svg_curves, terminal

__all__ = ["Plot"]

MOST_POINTS = 2048  # kept for a line; an even number
PREFIXES = ("train", "eval", "test", "val", "valid", "validation")


class Plot(MetricWriter):
    """Curves of metrics, drawn while a loop runs.

    In a notebook, the curves appear below the running cell and are redrawn in place when there are
    new numbers, at most once every `every` seconds. Outside a notebook, nothing is drawn, but
    `print(plot)` draws the curves with text characters. If a curve has thousands of points,
    neighboring points are averaged. If some values are not finite, the number of such values is
    shown below the panel.

    Metrics whose names differ only in a prefix, such as `train/loss` and `eval/loss` or
    `train_loss` and `eval_loss`, share a panel. Every other metric has its own panel.

    Args:
        panels: a dict from the panels' titles to the names of their metrics. Metrics that are not
            listed are assigned to panels as described above. If `panels` is None, this applies to
            all metrics.
        log: True if all vertical axes are logarithmic, or the titles of the panels that have a
            logarithmic vertical axis.
        size: width and height of a panel, in pixels.
        every: minimum number of seconds between redraws.

    >>> from toile.training.live import Plot
    >>> plot = Plot(log=["loss"])
    >>> for step in range(100):
    ...     plot.add(step, loss=jnp.exp(-step / 20), accuracy=step / 100)
    >>> plot
    Plot(loss: 100 points, accuracy: 100 points)
    """

    def __init__(
        self, panels: Mapping[str, Sequence[str]] | None = None, *,
        log: bool | Sequence[str] = False, size: tuple[int, int] = (360, 220), every: float = 0.5,
    ):
        self._panels = {name: title for title, names in (panels or {}).items() for name in names}
        self._log = [log] if isinstance(log, str) else log
        self._size, self._every = _checked_size(size), every
        self._lines: dict[str, _Line] = {}
        self._display: LiveDisplay | None = None

    def add(self, step: int | float, /, **values: ArrayLike) -> None:
        """Add one point to the curve of each given metric.

        Arrays are copied from the device, and this method waits until they have been computed. In a
        fast loop, do not add numbers at every step.

        Args:
            step: the points' position on the horizontal axis.
            **values: one number for each metric, by name.
        """
        self.write_scalars(step, values)

    def write_scalars(self, step: int | float, scalars: Mapping[str, ArrayLike]) -> None:
        """Add one point to the curve of each given metric; names need not be Python identifiers.

        Args:
            step: the points' position on the horizontal axis.
            scalars: one number for each metric, by name.
        """
        at = _number("step", step)
        if not math.isfinite(at):
            raise ValueError(f"Plot.add: needed a finite step, got {at}{here()}")
        for name, number in {n: _number(n, v) for n, v in scalars.items()}.items():
            if name not in self._lines:
                self._lines[name] = _Line()
            self._lines[name].add(at, number)
        if kernel_shell() is not None:
            if self._display is None:
                self._display = LiveDisplay(self._drawn, self._every)
            self._display.refresh()

    def flush(self) -> None:
        """Draw the points that have not been drawn yet."""
        if self._display is not None:
            self._display.flush()

    def close(self) -> None:
        """Draw the remaining points; more points can be added afterward."""
        self.flush()

    def _title(self, name: str) -> str:
        """The panel of a metric."""
        if name in self._panels:
            return self._panels[name]
        first, _, rest = name.partition("_")
        last = rest if first in PREFIXES and rest else name
        return last.rpartition("/")[2] or last

    def _by_panel(self) -> dict[str, dict[str, _Line]]:
        found: dict[str, dict[str, _Line]] = {}
        for name, line in list(self._lines.items()):
            found.setdefault(self._title(name), {})[name] = line
        return found

    def _is_log(self, title: str) -> bool:
        return self._log if isinstance(self._log, bool) else title in self._log

    def __repr__(self) -> str:
        counts = (f"{name}: {line.count} points" for name, line in self._lines.items())
        return f"Plot({', '.join(counts)})"

    def __str__(self) -> str:
        blocks = []
        for title, lines in self._by_panel().items():
            for name, line in lines.items():
                points = line.points()
                blocks.append(terminal.curve(
                    points[:, 0].tolist(), points[:, 1].tolist(), log=self._is_log(title),
                    title=name,
                ))  # fmt: skip
        return "\n\n".join(blocks) or repr(self)

    def _repr_html_(self) -> str:
        made = [
            svg_curves.panel(
                title, {name: line.points() for name, line in lines.items()},
                {name: line.last for name, line in lines.items()}, log=self._is_log(title),
                size=self._size, note=_note(lines),
            )
            for title, lines in self._by_panel().items()
        ]  # fmt: skip
        return box(*made) if made else box(paragraph("Plot: no points yet"))

    def _drawn(self) -> dict[str, str]:
        return {"text/html": self._repr_html_(), "text/plain": repr(self)}


class _Line:
    """The points of one curve. If there are too many, pairs of neighbors are merged."""

    def __init__(self) -> None:
        self.count = 0
        self.last = math.nan
        self.lost = 0  # values that are not finite
        self.lost_at = 0.0
        self._kept: list[tuple[float, float]] = []
        self._waiting: list[tuple[float, float]] = []  # the next kept point will be their mean
        self._each = 1  # how many points a kept point averages

    def add(self, x: float, y: float) -> None:
        """Add a point."""
        self.count, self.last = self.count + 1, y
        if not math.isfinite(y):
            self.lost, self.lost_at = self.lost + 1, x
            return
        self._waiting.append((x, y))
        if len(self._waiting) == self._each:
            self._kept.append(_mean(self._waiting))
            self._waiting = []
        if len(self._kept) == MOST_POINTS:
            pairs = zip(self._kept[::2], self._kept[1::2])
            self._kept = [_mean(pair) for pair in pairs]
            self._each *= 2

    def points(self) -> np.ndarray:
        """The points in order of x: [n, 2]."""
        waiting = list(self._waiting)
        points = [*self._kept, *([_mean(waiting)] if waiting else [])]
        return np.array(sorted(points, key=lambda p: p[0]), float).reshape(-1, 2)


def _mean(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    n = len(points)
    return sum(x / n for x, _ in points), sum(y / n for _, y in points)


def _note(lines: Mapping[str, _Line]) -> str:
    """A text that says which values are not drawn."""
    parts = [
        f"{name}: {line.lost} not finite, the last at step {line.lost_at:g}"
        for name, line in lines.items() if line.lost
    ]  # fmt: skip
    return "\n".join(parts)


def _number(name: str, value: Any) -> float:
    """A scalar as a float."""
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind in "OSUMmc":
        found = f"shape {list(array.shape)}" if array.size != 1 else f"{value!r:.60}"
        raise ValueError(f"Plot.add: needed one real number for {name!r}, got {found}{here()}")
    number = float(array.reshape(()).astype(float))
    notice(number, name)
    return number


def _checked_size(size: tuple[int, int]) -> tuple[int, int]:
    width, height = size
    if width < 120 or height < 80:
        raise ValueError(f"Plot: needed a size of at least (120, 80) pixels, got {size}{here()}")
    return int(width), int(height)
