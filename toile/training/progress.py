"""Progress bars for loops, with rates and remaining time, on terminals and in notebooks.

On a terminal, `rich` draws the bar; in a notebook, the bar is HTML. If output goes to a file or a
pipe, nothing is drawn.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TextIO

import numpy as np

from toile.displays.notebook import kernel_shell
from toile.engine.locks import loading
from toile.engine.nan_notices import notice
from toile.engine.source import here

__all__ = ["Progress", "is_drawing", "progress"]

_drawn: list[Progress] = []


def progress(
    iterable: Iterable[Any] | None = None, total: int | None = None, *, label: str = "",
    unit: str = "step", start: int = 0, stream: TextIO | None = None, enabled: bool | None = None,
) -> Progress:
    """Iterate over items and draw a progress bar on a terminal or in a notebook.

    Args:
        iterable: the items to iterate over; if None, calls to `advance` move the bar.
        total: number of items, if the iterable has no length; None if the number is not known.
        label: text before the bar.
        unit: singular name of an item, such as "batch", from which the unit of the rate
            ("batches/s") is formed.
        start: number of items that were already done, for instance when a run is resumed.
        stream: stream to draw on; if None, the bar is drawn below the cell in a notebook, and on
            stderr elsewhere.
        enabled: whether to draw the bar; if None, it is drawn only in a notebook or if `stream` is
            a terminal.

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
    """A loop with a progress bar, as returned by `progress`.

    Args:
        iterable: the items to iterate over; if None, calls to `advance` move the bar.
        total: number of items, if the iterable has no length; None if the number is not known.
        label: text before the bar.
        unit: singular name of an item, such as "batch", from which the unit of the rate
            ("batches/s") is formed.
        start: number of items that were already done.
        stream: stream to draw on; if None, the bar is drawn below the cell in a notebook, and on
            stderr elsewhere.
        enabled: whether to draw the bar; if None, it is drawn only in a notebook or if `stream` is
            a terminal.

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
        self._in_notebook = stream is None and kernel_shell() is not None
        drawable = self._in_notebook or _is_terminal(self._stream)
        self.enabled = drawable if enabled is None else enabled
        self._bar: Bar | None = None

    def __enter__(self) -> Progress:
        if self.enabled and self._bar is None:
            self._bar = _notebook_bar(self) if self._in_notebook else _terminal_bar(self)
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
            raise TypeError(f"progress: needed total=, got an iterable without a length{here()}")
        return self.total

    def __iter__(self) -> Iterator[Any]:
        if self._iterable is None:
            raise TypeError(
                f"progress: needed an iterable, got none (use `with` and `advance`){here()}"
            )
        with self:
            for item in self._iterable:
                yield item
                self.advance()

    def advance(self, count: int = 1) -> None:
        """Record that more items are done.

        Args:
            count: number of items.
        """
        self.done += count
        if self._bar is not None:
            self._bar.advance(count)

    def show(self, **values: Any) -> None:
        """Show numbers or text beside the bar.

        Args:
            **values: values to show, by name. Arrays are copied from the device only if a bar is
                drawn.
        """
        if self._bar is not None:
            text = "  ".join(f"{name} {_text(name, value)}" for name, value in values.items())
            self._bar.show(text)

    def print(self, text: str) -> None:
        """Print a line above the bar (in a notebook, below the bar).

        The line is printed even if no bar is drawn.

        Args:
            text: the line.
        """
        if self._bar is not None:
            self._bar.print(text)
        else:
            print(text, file=self._stream)


def is_drawing() -> bool:
    """Return whether a progress bar is currently being drawn.

    Use this function to avoid drawing a second bar, which would overwrite the first.

    Returns:
        True if a bar is being drawn, otherwise False.

    >>> from toile.training.progress import is_drawing
    >>> is_drawing()
    False
    """
    return bool(_drawn)


def _is_terminal(stream: Any) -> bool:
    check = getattr(stream, "isatty", None)
    return bool(check is not None and check())


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    number = np.asarray(value).item()
    notice(number, name)
    return f"{number:.4g}"


class Bar(Protocol):
    """The interface of objects that draw a progress bar."""

    def start(self) -> None:
        """Draw the bar for the first time."""

    def stop(self) -> None:
        """Draw the bar for the last time."""

    def advance(self, count: int) -> None:
        """Record that more items are done."""

    def show(self, text: str) -> None:
        """Show text beside the bar."""

    def print(self, text: str) -> None:
        """Print a line that stays on the screen."""


def _notebook_bar(loop: Progress) -> Bar:
    with loading:
        from toile.training.notebook_bar import NotebookBar

    return NotebookBar(loop.label, loop.unit, loop.total, loop.done)


def _terminal_bar(loop: Progress) -> Bar:
    with loading:
        from toile.training.terminal_bar import TerminalBar

    force = True if loop.enabled else None
    return TerminalBar(loop.label, loop.unit, loop.total, loop.done, loop._stream, force)
