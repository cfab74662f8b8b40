"""Curves as SVG text that a page can contain: no script, no fonts, no matplotlib.

Colors are classes of the page's style (`line0` to `line5`), so that a page can have a dark form.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

import numpy as np

__all__ = ["chart", "ticks"]

WIDTH, HEIGHT = 420, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 26, 26
_MOST_POINTS = 400  # of a line; more than pixels are averaged
COLORS = 6

Series = Mapping[int, float]


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers from `low` to `high`, about `count` of them.

    >>> ticks(0, 1)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    >>> ticks(3, 3)
    [3.0]
    """
    span = high - low
    if not span > 0 or not math.isfinite(span):
        return [float(low)]
    power = 10.0 ** math.floor(math.log10(span / count))
    step = next(k * power for k in (1, 2, 5, 10) if k * power >= span / count * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(n * step, 12) for n in range(first, last + 1)] or [float(low)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten between two exponents, or round numbers where there are fewer than two."""
    powers = [10.0**n for n in range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)]
    if len(powers) < 2:
        return [x for x in ticks(10**low, 10**high) if x > 0]
    return powers[:: max(1, len(powers) // 5)]


def chart(title: str, lines: Mapping[str, Series]) -> str:
    """A diagram of lines by label, each a value by step.

    The vertical axis is logarithmic where all values are positive and the largest is more than 50
    times the smallest. Values that are not finite are left out, and counted under the title.

    Args:
        title: shown above.
        lines: the values of each line by step.

    Returns:
        The text of an <svg> element.

    >>> text = chart("loss", {"train": {1: 2.0, 2: 1.0}, "eval": {2: math.inf}})
    >>> text.startswith("<svg"), text.count("<polyline"), "1 not finite" in text
    (True, 1, True)
    """
    drawn, left_out = {}, 0
    for label, series in lines.items():
        x, y = np.array(list(series), float), np.array(list(series.values()), float)
        finite = np.isfinite(y)
        left_out += int((~finite).sum())
        if finite.any():
            drawn[label] = (x[finite], y[finite])
    note = f" ({left_out} not finite)" if left_out else ""
    parts = [f'<text class="title" x="{_LEFT}" y="15">{html.escape(title + note)}</text>']
    if drawn:
        parts += _diagram(drawn)
    else:
        parts.append(f'<text x="{_LEFT}" y="{HEIGHT / 2:.0f}">no points</text>')
    start = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">'
    return start + "".join(parts) + "</svg>"


def _diagram(drawn: dict[str, tuple[np.ndarray, np.ndarray]]) -> list[str]:
    xs = np.concatenate([x for x, _ in drawn.values()])
    ys = np.concatenate([y for _, y in drawn.values()])
    is_log = ys.min() > 0 and ys.max() > 50 * ys.min()
    scale = np.log10 if is_log else np.asarray
    low, high = float(scale(ys.min())), float(scale(ys.max()))
    first, last = float(xs.min()), float(xs.max())

    def across(x: float | np.ndarray) -> float | np.ndarray:
        share = (x - first) / (last - first) if last > first else 0.5
        return _LEFT + share * (WIDTH - _LEFT - _RIGHT)

    def down(y: float | np.ndarray) -> float | np.ndarray:
        span = high - low if high > low and math.isfinite(high - low) else 0.0
        share = (scale(y) / span - low / span) if span else 0.5
        return HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)

    parts = []
    for level in _log_ticks(low, high) if is_log else ticks(low, high):
        place = down(level)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" '
                     f'y1="{place:.1f}" y2="{place:.1f}"/>')  # fmt: skip
        parts.append(_label(level, _LEFT - 6, float(place) + 4, "end"))
    for step in ticks(first, last, 4):
        parts.append(_label(step, float(across(step)), HEIGHT - 8, "middle"))
    for number, (x, y) in enumerate(drawn.values()):
        means = _thinned(x, y)
        points = [f"{across(a):.1f},{down(b):.1f}" for a, b in means]
        parts.append(_line(points, f"line{number % COLORS}"))
    return parts + _legend(list(drawn))


def _thinned(x: np.ndarray, y: np.ndarray) -> list[tuple[float, float]]:
    """The points in order of steps; where there are more than can be seen, means of neighbors."""
    order = np.argsort(x, kind="stable")
    parts = np.array_split(order, _MOST_POINTS) if len(order) > _MOST_POINTS else [order[:, None]]
    if len(parts) == 1:
        return list(zip(x[order].tolist(), y[order].tolist()))
    return [(float(x[part].mean()), float(y[part].mean())) for part in parts]


def _line(points: Sequence[str], kind: str) -> str:
    if len(points) > 1:
        return f'<polyline class="{kind}" points="{" ".join(points)}"/>'
    x, y = points[0].split(",")
    return f'<circle class="{kind}" cx="{x}" cy="{y}" r="3"/>'


def _legend(labels: list[str]) -> list[str]:
    """The labels in the colors of their lines, at the right of the title."""
    parts = [f'<tspan class="line{number % COLORS}"> {html.escape(label)}</tspan>'
             for number, label in enumerate(labels) if label]  # fmt: skip
    return [f'<text text-anchor="end" x="{WIDTH - _RIGHT}" y="15">{"  ".join(parts)}</text>']


def _label(value: float, x: float, y: float, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{value:.6g}</text>'
