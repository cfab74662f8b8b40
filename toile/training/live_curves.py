"""Curves as SVG for notebooks: one panel with axes, a grid and a legend.

Lines have colors that stand out on white and on black pages; everything else has the color of the
page's text. A panel is a few kilobytes however many points there are.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

import numpy as np

from toile.displays.markup import PALE, escaped, paragraph

COLORS = ("#3b82f6", "#d97706", "#16a34a", "#dc2626", "#a855f7", "#0891b2", "#db2777")
DASHES = ("", "6 3", "2 3", "8 3 2 3")  # when the colors are used up
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 8, 22  # margins, in pixels

LARGEST = float(np.finfo(float).max)

Points = Mapping[str, np.ndarray]  # [n, 2] by name, finite


def panel(
    title: str, lines: Points, last: Mapping[str, float], *, log: bool, size: tuple[int, int],
    note: str = "",
) -> str:
    """A panel with its title and legend, as HTML.

    Args:
        title: name of what is drawn.
        lines: points (x, y) by label, in order of x.
        last: the number beside each label.
        log: whether the vertical axis is logarithmic; values that are not positive are left out.
        size: width and height, in pixels.
        note: text below.
    """
    usable = {name: p[p[:, 1] > 0] if log else p for name, p in lines.items()}
    head = _legend(title, last)
    foot = paragraph(f'<span style="{PALE}">{escaped(note)}</span>') if note else ""
    body = _svg(title, usable, log, size) if any(map(len, usable.values())) else (
        paragraph("no points to draw"))
    style = "display:inline-block;vertical-align:top;margin:0 1em .5em 0"
    return f'<div style="{style}">{head}{body}{foot}</div>'


def _legend(title: str, last: Mapping[str, float]) -> str:
    """The labels with their numbers; a single line may have the panel's title for a label."""
    parts = []
    for i, (name, value) in enumerate(last.items()):
        mark = f'<span style="color:{COLORS[i % len(COLORS)]}">━</span>'
        parts.append(f"{mark} {escaped(name)} <b>{value:.4g}</b>")
    more = "" if list(last) == [title] else f"<b>{escaped(title)}</b> &nbsp; "
    return paragraph(more + " &nbsp; ".join(parts))


def _svg(title: str, lines: Points, log: bool, size: tuple[int, int]) -> str:
    width, height = size
    everything = np.concatenate(list(lines.values()))
    x_range = _range(everything[:, 0], False)
    y_range = _range(everything[:, 1], log)

    def place_x(x: np.ndarray) -> np.ndarray:
        return LEFT + _share(x, x_range, False) * (width - LEFT - RIGHT)

    def place_y(y: np.ndarray) -> np.ndarray:
        return height - BOTTOM - _share(y, y_range, log) * (height - TOP - BOTTOM)

    parts = [_axes(size, x_range, y_range, log)]
    for i, points in enumerate(lines.values()):
        if len(points):
            parts.append(_line(i, place_x(points[:, 0]), place_y(points[:, 1])))
    label = html.escape(f"{title} by step", quote=True)
    return (
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{label}" font-size="11" style="max-width:100%">{"".join(parts)}</svg>'
    )


def _range(values: np.ndarray, log: bool) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    if low < high:
        return low, high
    if log:
        return low / 2 or low, min(high * 2, LARGEST)
    margin = abs(low) / 10 or 1.0
    return max(low - margin, -LARGEST), min(high + margin, LARGEST)


def _share(values: np.ndarray, limits: tuple[float, float], log: bool) -> np.ndarray:
    """Where values are between the limits, from 0 to 1."""
    low, high = (np.log(np.asarray(limits)) if log else np.asarray(limits) / 2).tolist()
    # Halves: the difference of the largest floats of both signs is not a float.
    values = np.log(values) if log else values / 2
    return (values - low) / (high - low)


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
    size: tuple[int, int], x_range: tuple[float, float], y_range: tuple[float, float], log: bool
) -> str:
    """Lines of a grid with their numbers."""
    width, height = size
    text = 'fill="currentColor" fill-opacity=".75"'
    parts, grid = [], []
    for value in ticks(*x_range, max(width // 80, 2)):
        at = LEFT + float(_share(np.array(value), x_range, False)) * (width - LEFT - RIGHT)
        grid.append(f"M{at:.1f} {TOP}V{height - BOTTOM}")
        parts.append(f'<text x="{at:.1f}" y="{height - 7}" text-anchor="middle" {text}>'
                     f"{_short(value)}</text>")  # fmt: skip
    count = max(height // 40, 2)
    for value in log_ticks(*y_range, count) if log else ticks(*y_range, count):
        at = height - BOTTOM - float(_share(np.array(value), y_range, log)) * (
            height - TOP - BOTTOM)
        grid.append(f"M{LEFT} {at:.1f}H{width - RIGHT}")
        parts.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end" {text}>'
                     f"{_short(value)}</text>")  # fmt: skip
    lines = f'<path d="{"".join(grid)}" stroke="currentColor" stroke-opacity=".18" fill="none"/>'
    corner = f"M{LEFT} {TOP}V{height - BOTTOM}H{width - RIGHT}"
    frame = f'<path d="{corner}" stroke="currentColor" stroke-opacity=".6" fill="none"/>'
    return lines + frame + "".join(parts)


def _short(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value / 1e3:.4g}k" if abs(value) < 1e6 else (
        f"{value:.3g}")


def ticks(low: float, high: float, count: int) -> Sequence[float]:
    """About `count` round numbers (1, 2 or 5 times a power of ten) between two others.

    >>> ticks(0.0, 1.0, 5), ticks(3.0, 47.0, 4)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [20.0, 40.0])
    """
    rough = high / count - low / count
    if not math.isfinite(rough) or rough <= 0:
        return [low, high]
    power = 10.0 ** math.floor(math.log10(rough))
    if power == 0.0 or not math.isfinite(power):
        return [low, high]
    step = next((m * power for m in (1, 2, 5) if m * power >= rough * 0.999), 10 * power)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    digits = max(1 - math.floor(math.log10(step)), 0)
    return [round(i * step, digits) for i in range(first, last + 1)]


def log_ticks(low: float, high: float, count: int) -> Sequence[float]:
    """Powers of ten between two positive numbers; round numbers where there are few.

    >>> log_ticks(0.05, 30.0, 5), log_ticks(2.0, 8.0, 3)
    ([0.1, 1.0, 10.0], [2.0, 4.0, 6.0, 8.0])
    """
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    if last - first < 1:
        return [t for t in ticks(low, high, count) if t > 0]
    step = max(math.ceil((last - first + 1) / max(count, 1)), 1)
    return [float(f"1e{p}") for p in range(first, last + 1, step)]
