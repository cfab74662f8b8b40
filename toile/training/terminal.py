"""Curves and small pictures drawn with characters, for training runs in a terminal.

No plotting library and no colors are used, so the text can be pasted into a README.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from toile.engine.source import here

__all__ = ["curve", "picture", "side_by_side"]

# The dot of a braille character at (row, column) of its 4 x 2 cell, as a bit.
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_HALVES = " ▄▀█"  # by 2 * upper + lower


def curve(
    xs: Sequence[float], ys: Sequence[float], *, width: int = 60, height: int = 8,
    log: bool = False, title: str = "",
) -> str:
    """Draw a curve through points, using text characters.

    Points that fall into the same column are averaged. NaN and infinity are left out.

    Args:
        xs: horizontal coordinates.
        ys: vertical coordinates.
        width: width in characters.
        height: height in lines.
        log: whether the vertical axis is logarithmic; if True, values that are not positive are
            left out.
        title: line above the curve; "" means no title.

    Returns:
        The text of the plot, including the limits of both axes.

    >>> from toile.training.terminal import curve
    >>> print(curve(range(1, 101), [1 / x for x in range(1, 101)], width=30, height=4))
        1 ┤⢹
          │⢸
          │⠘⡆
     0.01 ┤ ⠙⠲⠤⠤⠤⠤⣄⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀
           1                          100
    """
    x, y = np.asarray(xs, float), np.asarray(ys, float)
    usable = np.isfinite(x) & np.isfinite(y) & (y > 0 if log else True)
    x, y = x[usable], y[usable]
    if not len(x):
        return f"{title}\n(no points)" if title else "(no points)"
    grid = _grid(x, np.log(y) if log else y, 2 * width, 4 * height)
    top, bottom = f"{y.max():.3g}", f"{y.min():.3g}"
    margin = max(len(top), len(bottom), 4) + 1
    lines = [title] if title else []
    for row in range(height):
        label = top if row == 0 else bottom if row == height - 1 else ""
        cells = "".join(_cell(grid[4 * row : 4 * row + 4, 2 * c : 2 * c + 2]) for c in range(width))
        lines.append(f"{label:>{margin}} {'┤' if label else '│'}{cells.rstrip()}")
    first, last = f"{x.min():.6g}", f"{x.max():.6g}"
    lines.append(" " * (margin + 2) + first + last.rjust(width - len(first)))
    return "\n".join(lines)


def _grid(xs: np.ndarray, ys: np.ndarray, columns: int, rows: int) -> np.ndarray:
    """Which dots are set: those at the mean of each column, joined to the preceding column."""

    def place(values: np.ndarray, count: int) -> np.ndarray:
        span = values.max() - values.min()
        return (values - values.min()) / (span if span > 0 else 1.0) * (count - 1)

    at = place(xs, columns).round().astype(int)
    sums, counts = np.zeros(columns), np.zeros(columns)
    np.add.at(sums, at, ys)
    np.add.at(counts, at, 1)
    there = np.flatnonzero(counts)
    means = sums[there] / counts[there]
    grid = np.zeros((rows, columns), bool)
    everywhere = np.interp(np.arange(there[0], there[-1] + 1), there, means)
    levels = rows - 1 - place(everywhere, rows).round().astype(int)
    before = levels[0]
    for column, level in enumerate(levels, there[0]):
        low, high = sorted((before, level))
        grid[low : high + 1, column] = True
        before = level
    return grid


def _cell(dots: np.ndarray) -> str:
    """The braille character of 4 x 2 dots."""
    bits = sum(_DOTS[r][c] for r in range(4) for c in range(2) if dots[r, c])
    return chr(0x2800 + bits) if bits else " "


def picture(image: np.ndarray, threshold: float = 0.5) -> str:
    """Draw a grayscale image as text, with two rows of pixels in each line.

    Args:
        image: array of shape (height, width).
        threshold: value above which a pixel is drawn.

    Returns:
        The text.

    Raises:
        ValueError: the image does not have two axes.

    >>> import numpy as np
    >>> from toile.training.terminal import picture
    >>> print(picture(np.eye(4)))
    ▀▄
      ▀▄
    """
    image = np.asarray(image)
    if image.ndim != 2:
        raise ValueError(
            f"picture: needed an image [height, width], got {list(image.shape)}{here()}"
        )
    lit = np.zeros((2 * math.ceil(image.shape[0] / 2), image.shape[1]), bool)
    lit[: image.shape[0]] = image > threshold
    pairs = 2 * lit[::2] + lit[1::2]
    return "\n".join("".join(_HALVES[n] for n in row).rstrip() for row in pairs)


def side_by_side(blocks: Sequence[str], gap: int = 2, width: int | None = None) -> str:
    """Place blocks of text side by side.

    Args:
        blocks: texts of one or more lines.
        gap: number of spaces between blocks.
        width: width of each block; if None, it is the length of the block's longest line.

    Returns:
        The text.

    >>> from toile.training.terminal import side_by_side
    >>> print(side_by_side(["a\\nbb", "c"]))
    a   c
    bb
    """
    split = [block.split("\n") for block in blocks]
    widths = [width or max(map(len, lines)) for lines in split]
    height = max((len(lines) for lines in split), default=0)
    rows = []
    for row in range(height):
        cells = [(b[row] if row < len(b) else "").ljust(w) for b, w in zip(split, widths)]
        rows.append((" " * gap).join(cells).rstrip())
    return "\n".join(rows)
