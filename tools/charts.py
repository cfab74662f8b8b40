"""Charts as inline SVG: bars of benchmark results, and the curve of a training run.

Colors and motion are in docs/site.css, so that charts follow the reader's light or dark scheme and
stand still where less motion is asked for. Every chart has a title and a description for readers
who do not see it; `docs/site.css` has the classes that are used here.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

WIDTH = 720
LABELS = 250  # the part of the width that row titles take
VALUES = 76  # the part right of the longest bar
BAR, GAP, ROW_GAP = 11, 2, 11


def text(x: float, y: float, content: str, kind: str = "", anchor: str = "start") -> str:
    """One line of text."""
    classes = f' class="{kind}"' if kind else ""
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f"<text {where}{classes}>{html.escape(content)}</text>"


def svg(width: float, height: float, title: str, parts: Sequence[str], kind: str) -> str:
    """The picture, in one line: Markdown takes a block of HTML as it is."""
    label = html.escape(title, quote=True)
    head = f'<svg class="chart {kind}" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
    return f'{head}aria-label="{label}" xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'


def shortened(title: str, letters: int = 40) -> str:
    """A title that fits beside its bars."""
    return title if len(title) <= letters else f"{title[: letters - 1]}…"


def bars(
    rows: Mapping[str, Mapping[str, float]],
    title: str,
    shown: Mapping[str, Mapping[str, str]],
    scale: float | None = None,
) -> str:
    """Horizontal bars: for each row one per series.

    Args:
        rows: numbers by row and series.
        title: what the chart shows, for readers who do not see it.
        shown: the text beside each bar, by row and series.
        scale: the number that the longest possible bar stands for; None takes the largest number
            of each row.
    """
    series = list(dict.fromkeys(name for row in rows.values() for name in row))
    parts = [legend(series)] if len(series) > 1 else []
    y = 34.0 if len(series) > 1 else 8.0
    for name, row in rows.items():
        height = len(row) * (BAR + GAP)
        middle = y + height / 2 + 4
        parts.append(f"<g><title>{html.escape(name)}</title>")
        parts.append(text(LABELS - 10, middle, shortened(name), "row", "end"))
        largest = scale or max(row.values()) or 1.0
        for i, (which, value) in enumerate(row.items()):
            length = max(1.5, (WIDTH - LABELS - VALUES) * value / largest)
            top = y + i * (BAR + GAP)
            parts.append(f'<rect x="{LABELS}" y="{top:.1f}" width="{length:.1f}" height="{BAR}" '
                         f'rx="2" class="s{series.index(which)}"/>')  # fmt: skip
            parts.append(text(LABELS + length + 6, top + BAR - 1.5, shown[name][which], "value"))
        parts.append("</g>")
        y += height + ROW_GAP
    return svg(WIDTH, y, title, parts, "bars")


def legend(series: Sequence[str]) -> str:
    """A colored square and a name for each series."""
    parts, x = [], float(LABELS)
    for i, name in enumerate(series):
        parts.append(f'<rect x="{x:.1f}" y="6" width="11" height="11" rx="2" class="s{i}"/>')
        parts.append(text(x + 16, 16, name, "key"))
        x += 34 + 7.2 * len(name)
    return "".join(parts)


# ---- the curve of a run


def run_of(path: Path) -> tuple[list[tuple[int, float]], list[tuple[int, float]]]:
    """Training loss and held-out accuracy by step, from the JSON lines that a run wrote."""
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    losses = [(e["step"], e["train_loss"]) for e in entries if "train_loss" in e]
    return losses, [(e["step"], e["eval_accuracy"]) for e in entries if "eval_accuracy" in e]


def curve(path: Path) -> str:
    """A training run that draws itself: loss as a line, held-out accuracy as points."""
    losses, accuracies = run_of(path)
    left, right, top, bottom = 46.0, 60.0, 34.0, 214.0
    last = max(step for step, _ in [*losses, *accuracies])
    most = math.ceil(max(loss for _, loss in losses) * 2) / 2

    def x(step: float) -> float:
        return left + (WIDTH - left - right) * step / last

    def y(share: float) -> float:
        return bottom - (bottom - top) * share

    parts = [text(left, 18, "training loss", "key s0"),
             text(WIDTH - right, 18, "accuracy on held-out digits", "key s1", "end")]  # fmt: skip
    for share in (0.0, 0.5, 1.0):
        parts.append(f'<path class="grid" d="M{left} {y(share):.1f}H{WIDTH - right}"/>')
        parts.append(text(left - 8, y(share) + 4, f"{share * most:.3g}", "tick", "end"))
        parts.append(text(WIDTH - right + 8, y(share) + 4, f"{share:.0%}", "tick"))
    for step in (0, last // 2, last):
        parts.append(text(x(step), bottom + 20, f"step {step}", "tick", "middle"))
    points = " ".join(f"{x(s):.1f},{y(loss / most):.1f}" for s, loss in losses)
    parts.append(f'<polyline class="line s0" pathLength="1" points="{points}"/>')
    for step, accuracy in accuracies:
        delay = f"--at:{step / last:.3f}"
        parts.append(f'<circle class="point s1" style="{delay}" cx="{x(step):.1f}" '
                     f'cy="{y(accuracy):.1f}" r="4"/>')  # fmt: skip
    step, accuracy = accuracies[-1]
    parts.append(text(x(step) - 4, y(accuracy) + 22, f"{accuracy:.1%}", "result", "end"))
    title = (f"Training on MNIST: the loss falls from {losses[0][1]:.2f} to {losses[-1][1]:.2f} in "
             f"{last} steps, and {accuracy:.1%} of held-out digits are recognized.")  # fmt: skip
    return svg(WIDTH, bottom + 30, title, parts, "run")
