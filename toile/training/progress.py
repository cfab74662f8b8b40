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
    """Iterate with a progress bar, which is drawn on terminals only.

    Args:
        iterable: what to iterate over; None for a bar that `advance` moves.
        total: number of items, where the iterable has no length; None if it is not known.
        label: text before the bar.
        unit: what an item is called, for the rate.
        start: number of items that were done before, as in a run that is resumed.
        stream: where to draw; None is stderr.
        enabled: whether to draw; None draws if `stream` is a terminal.

    Returns:
        An iterable over the items, which is also a context manager.

    >>> from toile.training.progress import progress
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
    """A loop with a progress bar; made by `progress`.

    Args:
        iterable: what to iterate over; None for a bar that `advance` moves.
        total: number of items, where the iterable has no length; None if it is not known.
        label: text before the bar.
        unit: what an item is called, for the rate.
        start: number of items that were done before.
        stream: where to draw; None is stderr.
        enabled: whether to draw; None draws if `stream` is a terminal.

    >>> from toile.training.progress import progress
    >>> with progress(total=10) as bar:
    ...     bar.advance(4)
    >>> bar.done, bar.total
    (4, 10)
    """

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
        """Count more items as done.

        Args:
            count: how many.
        """
        self.done += count
        if self._bar is not None:
            self._bar.update(self._task, advance=count)

    def show(self, **values: Any) -> None:
        """Show numbers or text beside the bar.

        Args:
            **values: what to show, by name; arrays are copied from the device only if there is a
                bar.
        """
        if self._bar is not None:
            text = "  ".join(f"{name} {_text(value)}" for name, value in values.items())
            self._bar.update(self._task, info=text)

    def print(self, text: str) -> None:
        """Print a line above the bar, or a line where there is no bar.

        Args:
            text: the line.
        """
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=self._stream)


def is_drawing() -> bool:
    """Tell whether a bar is on the screen now; a second one would be drawn over it.

    Returns:
        True if there is.

    >>> from toile.training.progress import is_drawing
    >>> is_drawing()
    False
    """
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
    """Write a speed as text.

    Args:
        per_second: items per second; None if it is not known.
        unit: what an item is called.

    Returns:
        Items per second, or seconds per item for slow ones; "" if it is not known.

    >>> from toile.training.progress import rate
    >>> rate(12.34, "step"), rate(0.5, "epoch"), rate(None, "step")
    ('12.3 steps/s', '2.0 s/epoch', '')
    """
    if not per_second:
        return ""
    if per_second < 1:
        return f"{1 / per_second:.1f} s/{unit}"
    return f"{per_second:.1f} {unit}s/s"
