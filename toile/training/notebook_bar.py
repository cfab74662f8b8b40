"""The progress bar in a notebook: HTML output with the same contents as the bar on a terminal."""

from __future__ import annotations

import collections
import time

from toile.displays.markup import escaped
from toile.displays.notebook import LiveDisplay
from toile.training.rates import clock, rate

TICK = 1.0  # seconds after which the clock is updated if nothing else happens
WINDOW = 30.0  # seconds over which the speed is measured


class NotebookBar:
    """A progress bar below the running cell, with text beside the bar."""

    def __init__(self, label: str, unit: str, total: int | None, done: int):
        self._label, self._unit, self._total, self._done = label, unit, total, done
        self._info = ""
        self._begun = time.monotonic()
        self._first = done
        self._ended: float | None = None
        self._advanced = self._begun
        self._samples = collections.deque([(self._begun, done)])
        self._display = LiveDisplay(self._drawn, tick=TICK)

    def start(self) -> None:
        self._display.refresh()

    def stop(self) -> None:
        self._ended = time.monotonic()
        self._display.refresh()
        self._display.close()

    def advance(self, count: int) -> None:
        self._done, self._advanced = self._done + count, time.monotonic()
        self._display.refresh()

    def show(self, text: str) -> None:
        self._info = text
        self._display.refresh()

    def print(self, text: str) -> None:
        print(text)

    def _speed(self, now: float) -> float | None:
        """Items per second in the last half minute, or in the whole loop once it has ended."""
        samples = self._samples
        if self._ended is not None:
            seconds, count = self._ended - self._begun, self._done - self._first
            return count / seconds if seconds > 0 else None
        if self._done != samples[-1][1]:
            samples.append((self._advanced, self._done))
        while len(samples) > 2 and samples[1][0] < now - WINDOW:
            samples.popleft()
        (start, before), (end, after) = samples[0], samples[-1]
        return (after - before) / (end - start) if end > start else None

    def _texts(self) -> list[str]:
        now = time.monotonic() if self._ended is None else self._ended
        speed = self._speed(now)
        total = self._total
        texts = [f"{self._done}/{'?' if total is None else total}", rate(speed, self._unit),
                 clock(now - self._begun)]
        if total is not None:
            rest = max(total - self._done, 0)
            texts.append(f"left {clock(rest / speed if speed else None if rest else 0.0)}")
        return [*texts, self._info]

    def _drawn(self) -> dict[str, str]:
        texts = [text for text in self._texts() if text]
        label = [self._label] if self._label else []
        parts = [*map(_span, label), self._track(), *map(_span, texts)]
        style = ("display:flex;flex-wrap:wrap;gap:0 1em;align-items:center;"
                 "font-variant-numeric:tabular-nums")
        return {"text/html": f'<div style="{style}">{"".join(parts)}</div>',
                "text/plain": "  ".join([*label, *texts])}  # fmt: skip

    def _track(self) -> str:
        """The bar itself, which shows the completed fraction; empty without a total."""
        if not self._total:
            return ""
        done = 100 * min(max(self._done / self._total, 0.0), 1.0)
        filled = f"display:block;width:{done:.1f}%;height:100%;background:currentColor"
        outer = ("flex:0 1 16em;min-width:6em;height:.6em;border:1px solid;border-radius:.3em;"
                 "overflow:hidden;opacity:.7")
        return f'<span style="{outer}"><span style="{filled}"></span></span>'


def _span(text: str) -> str:
    return f'<span style="white-space:nowrap">{escaped(text)}</span>'
