"""The progress bar on a terminal. Loaded only when needed, because importing `rich` is slow."""

from __future__ import annotations

from typing import Any, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from toile.training.rates import rate


class TerminalBar:
    """A progress bar drawn by rich, with a single task."""

    def __init__(
        self, label: str, unit: str, total: int | None, done: int, stream: TextIO,
        force_terminal: bool | None,
    ):
        columns = (
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(unit),
            TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
            TextColumn("{task.fields[info]}"),
        )  # fmt: skip
        console = Console(file=stream, force_terminal=force_terminal)
        self._bar = Progress(*columns, console=console, refresh_per_second=5)
        self._task = self._bar.add_task(label, total=total, completed=done, info="")

    def start(self) -> None:
        self._bar.start()

    def stop(self) -> None:
        self._bar.stop()

    def advance(self, count: int) -> None:
        self._bar.update(self._task, advance=count)

    def show(self, text: str) -> None:
        self._bar.update(self._task, info=text)

    def print(self, text: str) -> None:
        self._bar.console.print(text, markup=False, highlight=False)


class _Rate(ProgressColumn):
    """Items per second, or seconds per item if the rate is low."""

    def __init__(self, unit: str):
        super().__init__()
        self._unit = unit

    def render(self, task: Any) -> Text:
        return Text(rate(task.finished_speed or task.speed, self._unit))
