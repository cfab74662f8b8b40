"""Charts for the documentation: bars for benchmark results, and the curve of a training run.

Bars are HTML, so that their text has the size of the page's text on wide and narrow screens. The
curve is inline SVG. The classes are defined in docs/site.css, with colors for light and dark pages;
animations are off for readers who prefer reduced motion. Every chart has a description for readers
who cannot see it.
"""

from __future__ import annotations

import html
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

WIDTH = 720  # width of the curve
COLORS = 8  # s0 to s7 in docs/site.css
# A library has the same color in all charts.
COLOR_OF = {"toile": 0, "jax": 1, "flax": 1, "optax": 1, "torch": 2, "numpy": 3}


def text(x: float, y: float, content: str, kind: str = "", anchor: str = "start") -> str:
    """A line of text in an SVG picture."""
    classes = f' class="{kind}"' if kind else ""
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f"<text {where}{classes}>{html.escape(content)}</text>"


def svg(width: float, height: float, title: str, parts: Sequence[str], kind: str) -> str:
    """An SVG picture in one line, which Markdown passes on unchanged as a block of HTML."""
    label = html.escape(title, quote=True)
    head = f'<svg class="chart {kind}" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
    return f'{head}aria-label="{label}" xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'


GRADES = (0.5, 0.8, 1.0, 1.25, 2.0, 4.0)  # boundaries between the classes g0 to g6 in docs/site.css
SQUARE, COLUMNS = 10, 66  # size of a cell in the map, and number of cells in a row


def grade(ratio: float) -> int:
    """The number of a ratio's class."""
    return sum(ratio >= g for g in GRADES)


def cell_map(groups: Mapping[str, Sequence[float]], title: str) -> str:
    """A map with a square for each ratio, in a block for each group."""
    parts, y = [], 16.0
    for name, ratios in groups.items():
        parts.append(text(0, y, name))
        y += 6
        for i, ratio in enumerate(ratios):
            x, row = SQUARE * (i % COLUMNS), i // COLUMNS
            parts.append(f'<rect x="{x}" y="{y + SQUARE * row:.0f}" class="g{grade(ratio)}"/>')
        y += SQUARE * -(-len(ratios) // COLUMNS) + 20
    return svg(SQUARE * COLUMNS, y - 14, title, parts, "map")


def grades() -> str:
    """A legend for the colors of the map, in one line of HTML."""
    ends = [f"below {GRADES[0]:g}", *(f"{a:g} to {b:g}" for a, b in itertools.pairwise(GRADES)),
            f"{GRADES[-1]:g} or more"]
    found = (f'<span class="grade g{i}"></span>{html.escape(end)}' for i, end in enumerate(ends))
    return f'<p class="grades">{" ".join(found)}</p>'


def bars(
    rows: Mapping[str, Mapping[str, float]],
    title: str,
    shown: Mapping[str, Mapping[str, str]],
    scale: float | None = None,
) -> str:
    """Horizontal bars as HTML; each row has a bar for each series.

    Args:
        rows: numbers by row and series.
        title: description of the chart for readers who cannot see it.
        shown: text beside each bar, by row and series.
        scale: the number that corresponds to a bar of full length; if None, it is the largest
            number in each row.
    """
    colors = colors_of(list(dict.fromkeys(name for row in rows.values() for name in row)))
    parts = [legend(colors)] if len(colors) > 1 else []
    for name, row in rows.items():
        largest = scale or max(row.values()) or 1.0
        lines = (f'<div class="bar s{colors[which]}" style="--share:{value / largest:.4f}">'
                 f"<span>{html.escape(shown[name][which])}</span></div>"
                 for which, value in row.items())  # fmt: skip
        cells = html.escape(name), "".join(lines)
        parts.append(f'<div class="row"><div>{"</div><div>".join(cells)}</div></div>')
    label = html.escape(title, quote=True)
    head = f'<div class="bars" role="img" aria-label="{label}" data-search-exclude="">'
    return f'{head}{"".join(parts)}</div>'


def colors_of(series: Sequence[str]) -> dict[str, int]:
    """The color number of each series: its library's color, or the next unused color."""
    taken = {COLOR_OF.get(name) for name in series}
    free = itertools.cycle(i for i in range(COLORS) if i not in taken)
    return {name: COLOR_OF[name] if name in COLOR_OF else next(free) for name in series}


def legend(colors: Mapping[str, int]) -> str:
    """A legend with a colored square and the name of each series."""
    keys = "".join(f'<span class="s{i}">{html.escape(name)}</span>' for name, i in colors.items())
    return f'<div class="legend">{keys}</div>'


# ---- the curve of a run


def run_of(path: Path) -> tuple[list[tuple[int, float]], list[tuple[int, float]]]:
    """The training loss and the held-out accuracy by step, from the JSON lines that a run wrote."""
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    losses = [(e["step"], e["train_loss"]) for e in entries if "train_loss" in e]
    return losses, [(e["step"], e["eval_accuracy"]) for e in entries if "eval_accuracy" in e]


def curve(path: Path) -> str:
    """An animated curve of a training run: the loss as a line, the held-out accuracy as points."""
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
        parts.append(text(x(step), bottom + 25, f"step {step}", "tick", "middle"))
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
    return svg(WIDTH, bottom + 34, title, parts, "run")
