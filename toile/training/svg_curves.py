"""Curves as SVG text: axes, a grid and lines, without scripts, fonts or matplotlib.

`chart` returns a picture that contains its title, for reports; `panel` returns HTML with a legend
above the drawing, for notebooks. Both draw with `_drawing`. The colors of the lines are readable on
both white and black pages; everything else has the color of the page's text. The SVG text of a
curve is a few kilobytes long, no matter how many points the curve has.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

import numpy as np

from toile.displays.markup import escaped, pale, paragraph

__all__ = ["chart", "log_ticks", "panel", "ticks"]

COLORS = ("#3b82f6", "#d97706", "#16a34a", "#dc2626", "#a855f7", "#0891b2", "#db2777")
DASHES = ("", "6 3", "2 3", "8 3 2 3")  # when the colors are used up
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 8, 22  # margins, in pixels
WIDTH, HEIGHT, TITLE = 420, 240, 18  # of a chart; its title has a line of its own

_GAP = "\N{NO-BREAK SPACE} "  # two ordinary spaces would be drawn as one
_MARK = "display:inline-block;width:.9em;height:.2em;vertical-align:middle"
_LARGEST = float(np.finfo(float).max)

Points = Mapping[str, np.ndarray]  # [n, 2] by label: finite, in order of x
Limits = tuple[float, float]


def chart(title: str, lines: Mapping[str, Mapping[int, float]]) -> str:
    """Draw labeled curves as an SVG picture.

    The vertical axis is logarithmic if all values are positive and the largest is more than 50
    times the smallest. Values that are not finite are left out and counted beside the title.

    Args:
        title: text above the picture.
        lines: a dict from labels to curves; a curve is a dict from steps to values.

    Returns:
        The text of an <svg> element.

    >>> text = chart("loss", {"train": {1: 2.0, 2: 1.0}, "eval": {2: math.inf}})
    >>> text.startswith("<svg"), text.count("<polyline"), "1 not finite" in text
    (True, 1, True)
    """
    drawn: dict[str, np.ndarray] = {}
    left_out = 0
    for label, series in lines.items():
        points = np.array(sorted(series.items()), float).reshape(-1, 2)
        finite = np.isfinite(points[:, 1])
        left_out += int((~finite).sum())
        if finite.any():
            drawn[label] = points[finite]
    note = f" ({left_out} not finite)" if left_out else ""
    values = np.concatenate([p[:, 1] for p in drawn.values()]) if drawn else np.zeros(1)
    log = bool(values.min() > 0 and values.max() / 50 > values.min())
    heading = (f'<text x="{LEFT}" y="14" font-size="13" fill="currentColor">'
               f"{html.escape(title + note)}</text>{_keys(list(drawn))}")  # fmt: skip
    return _drawing(title, drawn, log=log, size=(WIDTH, HEIGHT), heading=heading)


def panel(
    title: str, lines: Points, last: Mapping[str, float], *, log: bool, size: tuple[int, int],
    note: str = "",
) -> str:
    """Draw curves with a title and a legend, as HTML.

    Args:
        title: text above the drawing.
        lines: a dict from labels to lists of points (x, y), sorted by x.
        last: a dict from labels to the numbers that are shown beside them.
        log: whether the vertical axis is logarithmic; if True, values that are not positive are
            left out.
        size: width and height, in pixels.
        note: text below the drawing.
    """
    usable = {name: p[p[:, 1] > 0] if log else p for name, p in lines.items()}
    foot = paragraph(pale(note)) if note else ""
    body = _drawing(title, usable, log=log, size=size) if any(map(len, usable.values())) else (
        paragraph("no points to draw"))
    style = "display:inline-block;vertical-align:top;margin:0 1em .5em 0"
    return f'<div style="{style}">{_legend(title, last)}{body}{foot}</div>'


def _legend(title: str, last: Mapping[str, float]) -> str:
    """The labels with their numbers; a single line may use the title of the panel as its label."""
    parts = []
    for i, (name, value) in enumerate(last.items()):
        mark = f'<span style="{_MARK};background:{COLORS[i % len(COLORS)]}"></span>'
        parts.append(f"{mark} {escaped(name)} <b>{value:.4g}</b>")
    more = "" if list(last) == [title] else f"<b>{escaped(title)}</b> &nbsp; "
    return paragraph(more + " &nbsp; ".join(parts))


def _keys(labels: Sequence[str]) -> str:
    """The labels with the colors of their lines, at the right of a chart's title."""
    parts = [f'<tspan fill="{COLORS[i % len(COLORS)]}">━</tspan> {html.escape(label)}'
             for i, label in enumerate(labels) if label]  # fmt: skip
    where = f'x="{WIDTH - RIGHT}" y="14" text-anchor="end" fill="currentColor"'
    return f"<text {where}>{_GAP.join(parts)}</text>" if parts else ""


def _drawing(
    title: str, lines: Points, *, log: bool, size: tuple[int, int], heading: str = ""
) -> str:
    """Axes and lines as an <svg> element; `heading` is put above them."""
    width, height = size
    parts = [heading]
    if lines:
        parts += _diagram(lines, log, (LEFT, width - RIGHT),
                          (height - BOTTOM, TOP + (TITLE if heading else 0)))  # fmt: skip
    else:
        parts.append(f'<text x="{LEFT}" y="{height // 2}" fill="currentColor">no points</text>')
    label = html.escape(f"{title} by step", quote=True)
    return (
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{label}" font-size="11" style="max-width:100%">{"".join(parts)}</svg>'
    )


def _diagram(lines: Points, log: bool, across: Limits, up: Limits) -> list[str]:
    """The axes and lines, drawn between the pixel positions `across` and `up`."""
    everything = np.concatenate(list(lines.values()))
    x_limits, y_limits = _limits(everything[:, 0], False), _limits(everything[:, 1], log)
    single = float(everything[0, 0]) if np.ptp(everything[:, 0]) == 0 else None
    x_ticks = ticks(*x_limits, max(int(across[1] + RIGHT) // 80, 2)) if single is None else [single]
    count = max(int(up[0] + BOTTOM) // 40, 2)
    y_ticks = log_ticks(*y_limits, count) if log else ticks(*y_limits, count)
    parts = [_axes(across, up, {v: float(_placed(v, x_limits, across)) for v in x_ticks},
                   {v: float(_placed(v, y_limits, up, log)) for v in y_ticks})]  # fmt: skip
    for i, points in enumerate(lines.values()):
        if len(points):
            parts.append(_line(i, _placed(points[:, 0], x_limits, across),
                               _placed(points[:, 1], y_limits, up, log)))  # fmt: skip
    return parts


def _limits(values: np.ndarray, log: bool) -> Limits:
    """The least and the greatest value; if they are equal, two numbers around them."""
    low, high = float(values.min()), float(values.max())
    if low < high:
        return low, high
    if log:
        return low / 2 or low, min(high * 2, _LARGEST)
    margin = abs(low) / 10 or 1.0
    return max(low - margin, -_LARGEST), min(high + margin, _LARGEST)


def _placed(
    values: np.ndarray | float, limits: Limits, places: Limits, log: bool = False
) -> np.ndarray:
    """The positions at which values are drawn: `limits` are mapped to `places`."""
    low, high = (np.log(np.asarray(limits)) if log else np.asarray(limits) / 2).tolist()
    # Halves: the difference of the largest floats of both signs is not a float.
    values = np.log(values) if log else np.asarray(values) / 2
    share = (values - low) / (high - low)
    return places[0] + share * (places[1] - places[0])


def _line(number: int, x: np.ndarray, y: np.ndarray) -> str:
    """A polyline through the means of the pixel columns."""
    columns, where = np.unique(np.round(x).astype(int), return_inverse=True)
    means = np.bincount(where, y) / np.bincount(where)
    color = COLORS[number % len(COLORS)]
    if len(columns) == 1:
        return f'<circle cx="{columns[0]}" cy="{means[0]:.1f}" r="2.5" fill="{color}"/>'
    points = " ".join(f"{c},{m:.1f}" for c, m in zip(columns.tolist(), means.tolist()))
    dash = DASHES[number // len(COLORS) % len(DASHES)]
    style = f' stroke-dasharray="{dash}"' if dash else ""
    return (f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.5" '
            f'stroke-linejoin="round"{style}/>')  # fmt: skip


def _axes(
    across: Limits, up: Limits, x_ticks: Mapping[float, float], y_ticks: Mapping[float, float]
) -> str:
    """The lines of a grid, labeled with their numbers."""
    (left, right), (bottom, top) = across, up
    text = 'fill="currentColor" fill-opacity=".75"'
    parts, grid = [], []
    for value, at in x_ticks.items():
        grid.append(f"M{at:.1f} {top}V{bottom}")
        parts.append(f'<text x="{at:.1f}" y="{bottom + 15}" text-anchor="middle" {text}>'
                     f"{_short(value)}</text>")  # fmt: skip
    for value, at in y_ticks.items():
        grid.append(f"M{left} {at:.1f}H{right}")
        parts.append(f'<text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end" {text}>'
                     f"{_short(value)}</text>")  # fmt: skip
    lines = f'<path d="{"".join(grid)}" stroke="currentColor" stroke-opacity=".18" fill="none"/>'
    corner = f"M{left} {top}V{bottom}H{right}"
    frame = f'<path d="{corner}" stroke="currentColor" stroke-opacity=".6" fill="none"/>'
    return lines + frame + "".join(parts)


def _short(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value / 1e3:.4g}k" if abs(value) < 1e6 else (
        f"{value:.3g}")


def ticks(low: float, high: float, count: int = 5) -> Sequence[float]:
    """About `count` round numbers (1, 2 or 5 times a power of ten) between `low` and `high`.

    >>> ticks(0.0, 1.0), ticks(3.0, 47.0, 4)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [20.0, 40.0])
    """
    rough = high / count - low / count
    power = 10.0 ** math.floor(math.log10(rough)) if 0 < rough < math.inf else 0.0
    if not 0 < power < 1e308:
        return [low, high]
    step = next((m * power for m in (1, 2, 5) if m * power >= rough * 0.999), 10 * power)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    digits = max(1 - math.floor(math.log10(step)), 0)
    return [round(i * step, digits) for i in range(first, last + 1)]


def log_ticks(low: float, high: float, count: int = 5) -> Sequence[float]:
    """Powers of ten between two positive numbers; other round numbers if there are too few powers.

    >>> log_ticks(0.05, 30.0), log_ticks(2.0, 8.0, 3)
    ([0.1, 1.0, 10.0], [2.0, 4.0, 6.0, 8.0])
    """
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    if last - first < 1:
        return [t for t in ticks(low, high, count) if t > 0]
    step = max(math.ceil((last - first + 1) / max(count, 1)), 1)
    return [float(f"1e{p}") for p in range(first, last + 1, step)]
