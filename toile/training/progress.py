"""Progress bars for loops, with rates and the time that is left, drawn on terminals only.

On a terminal `rich` draws the bar; where output goes to a file or a pipe nothing is printed and
nothing is loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

import numpy as np

__all__ = ["Progress", "is_drawing", "progress"]

_drawn: list[Progress] = []


def progress(
    iterable: Iterable[Any] | None = None, total: int | None = None, *, label: str = "",
    unit: str = "step", start: int = 0, stream: TextIO | None = None, enabled: bool | None = None,
) -> Progress:
    """The items of an iterable, with a bar.

    `total` is its length where it has none; `start` is how many were done before (a resumed run).
    Bars are drawn on `stream` (stderr unless given) if it is a terminal, or as `enabled` says::

        >>> bar = progress(range(3), label="train")
        >>> for x in bar:
        ...     bar.show(loss=1.0 / (x + 1))
        >>> bar.done
        3
    """
    return Progress(
        iterable, total, label=label, unit=unit, start=start, stream=stream, enabled=enabled
    )


class Progress:
    """A loop with a bar; also a context manager, with `advance` for loops of other forms."""

    def __init__(
        self, iterable: Iterable[Any] | None, total: int | None, *, label: str, unit: str,
        start: int, stream: TextIO | None, enabled: bool | None,
    ):
        self._iterable, self.label, self.unit, self.done = iterable, label, unit, start
        size = getattr(iterable, "__len__", None)
        self.total = total if total is not None or size is None else start + size()
        self._stream = sys.stderr if stream is None else stream
        self.enabled = _is_terminal(self._stream) if enabled is None else enabled
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        if self.enabled and self._bar is None:
            self._bar, self._task = _bar(self)
            self._bar.start()
            _drawn.append(self)
        return self

    def __exit__(self, *exc: Any) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
            _drawn.remove(self)

    def __len__(self) -> int:
        if self.total is None:
            raise TypeError("progress: needed total=, got an iterable without a length")
        return self.total

    def __iter__(self) -> Iterator[Any]:
        if self._iterable is None:
            raise TypeError("progress: needed an iterable, got none (use `with` and `advance`)")
        with self:
            for item in self._iterable:
                yield item
                self.advance()

    def advance(self, count: int = 1) -> None:
        """So many more are done."""
        self.done += count
        if self._bar is not None:
            self._bar.update(self._task, advance=count)

    def show(self, **values: Any) -> None:
        """Numbers or text next to the bar; arrays are only fetched if there is one."""
        if self._bar is not None:
            text = "  ".join(f"{name} {_text(value)}" for name, value in values.items())
            self._bar.update(self._task, info=text)

    def print(self, text: str) -> None:
        """A line above the bar, or just a line where there is none."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=self._stream)


def is_drawing() -> bool:
    """Whether a bar is on the screen now; a second one would be drawn over it."""
    return bool(_drawn)


def _is_terminal(stream: Any) -> bool:
    check = getattr(stream, "isatty", None)
    return bool(check is not None and check())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else f"{np.asarray(value).item():.4g}"


def _bar(loop: Progress) -> tuple[Any, Any]:
    """A bar of rich, and its only task."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        ProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as RichProgress
    from rich.text import Text

    class Rate(ProgressColumn):
        """Items per second, or seconds per item where they are slow."""

        def render(self, task: Any) -> Text:
            return Text(rate(task.finished_speed or task.speed, loop.unit))

    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Rate(),
        TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
        TextColumn("{task.fields[info]}"),
    )  # fmt: skip
    console = Console(file=loop._stream, force_terminal=True if loop.enabled else None)
    bar = RichProgress(*columns, console=console, refresh_per_second=5)
    task = bar.add_task(loop.label, total=loop.total, completed=loop.done, info="")
    return bar, task


def rate(per_second: float | None, unit: str) -> str:
    """A speed as text.

    >>> rate(12.34, "step"), rate(0.5, "epoch"), rate(None, "step")
    ('12.3 steps/s', '2.0 s/epoch', '')
    """
    if not per_second:
        return ""
    if per_second < 1:
        return f"{1 / per_second:.1f} s/{unit}"
    return f"{per_second:.1f} {unit}s/s"
