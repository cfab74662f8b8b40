"""Functions that print values in traced code, step through it, and show the shardings of arrays."""

from __future__ import annotations

import builtins
import importlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from toile.api.callbacks import debug_breakpoint as breakpoint
from toile.api.callbacks import debug_callback as callback
from toile.api.callbacks import debug_log as log
from toile.api.callbacks import debug_print as print
from toile.api.devices import sharding_of
from toile.api.stepping import step
from toile.control.callbacks import DebugEffect, OrderedDebugEffect
from toile.engine.annotations import Array, PyTree
from toile.engine.shardings import Sharding
from toile.engine.source import here
from toile.engine.trees import tree_map

_ColorMap = Callable[[float], Sequence[float]]
_TALL = 10  # lines for a whole array with two axes
_ASPECT = 2.5  # height of a character divided by its width


class _Cell(NamedTuple):
    """One part of an array in the table: which devices hold it, and its size in characters."""

    text: str
    width: int
    height: int

    @property
    def padding(self) -> tuple[int, int, int, int]:
        """The number of blanks above, right of, below and left of the text."""
        left, odd = divmod(self.width - len(self.text) - 2, 2)
        top, odd_line = divmod(self.height - 2, 2)
        return max(top, 0), max(left + odd, 0), max(top + odd_line, 0), max(left, 0)


def visualize_sharding(
    shape: Sequence[int], sharding: Sharding, *, use_color: bool = True, scale: float = 1.0,
    min_width: int = 9, max_width: int = 80, color_map: _ColorMap | None = None,
) -> None:
    """Print which devices hold which parts of an array with one or two axes.

    Args:
        shape: shape of the array.
        sharding: how the array is divided.
        use_color: whether to use color. Color requires the package `rich`, a terminal that supports
            color, and either a `color_map` or the package matplotlib.
        scale: factor by which the printed table is enlarged.
        min_width: minimum width of each part in the table, in characters.
        max_width: maximum width of the table, in characters.
        color_map: function that maps a number in [0, 1] to a color (red, green, blue) with
            components in [0, 1]. If `color_map` is None, one of matplotlib's color maps is used; if
            matplotlib is not installed, the table has no color.

    Raises:
        ValueError: the shape does not have one or two axes.

    >>> sharding = toile.sharding.SingleDeviceSharding(toile.devices("cpu")[0])
    >>> toile.debug.visualize_sharding((8,), sharding)
    ┌───────┐
    │ CPU 0 │
    └───────┘
    """
    if len(shape) not in (1, 2):
        raise ValueError(
            "`visualize_sharding` only works for shapes with 1 and 2 dimensions: got "
            f"{tuple(shape)} (reshape, or look at the sharding itself){here()}"
        )
    rows = _cells(tuple(shape), sharding, scale, min_width, max_width)
    if importlib.util.find_spec("rich"):
        _print_with_rich(rows, use_color, max_width, color_map)
    else:
        builtins.print(_plain_table(rows))


def _cells(
    shape: tuple[int, ...], sharding: Any, scale: float, min_width: int, max_width: int
) -> list[list[_Cell]]:
    """The parts of an array, arranged as a table."""
    tall = int(_TALL * scale)
    wide = int(tall * (shape[1] if len(shape) == 2 else 1) / shape[0])
    platform = next(iter(sharding.device_set)).platform.upper()
    holders: dict[tuple[int, int], list[int]] = {}
    sizes: dict[tuple[int, int], tuple[int, int]] = {}
    for device, index in sharding.devices_indices_map(shape).items():
        spans = [s.indices(n)[:2] for s, n in zip(index, shape, strict=True)]
        place = [start // max(stop - start, 1) for start, stop in spans]
        shares = [(stop - start) / n for (start, stop), n in zip(spans, shape, strict=True)]
        row, column = (0, *place)[-2:]
        height = int(shares[0] * tall) if len(shape) == 2 else 1
        width = min(max(int(shares[-1] * wide * _ASPECT), min_width), max_width)
        holders.setdefault((row, column), []).append(device.id)
        sizes[row, column] = width, height
    rows, columns = (max(places) + 1 for places in zip(*holders, strict=True))
    return [
        [_Cell(f"{platform} {','.join(map(str, sorted(holders[i, j])))}", *sizes[i, j])
         for j in range(columns)]
        for i in range(rows)
    ]


def _plain_table(rows: list[list[_Cell]]) -> str:
    """The table drawn with lines, as wide as needed."""
    widths = [
        max(len(c.text) + c.padding[1] + c.padding[3] for c in column)
        for column in zip(*rows, strict=True)
    ]
    bars = ["─" * w for w in widths]
    lines = [f"┌{'┬'.join(bars)}┐"]
    for i, row in enumerate(rows):
        if i:
            lines.append(f"├{'┼'.join(bars)}┤")
        above, below = (max(c.padding[k] for c in row) for k in (0, 2))
        blank = f"│{'│'.join(' ' * w for w in widths)}│"
        texts = "│".join(_centered(c.text, w) for c, w in zip(row, widths, strict=True))
        lines += [blank] * above + [f"│{texts}│"] + [blank] * below
    return "\n".join([*lines, f"└{'┴'.join(bars)}┘"])


def _centered(text: str, width: int) -> str:
    """A centered text; an odd blank goes to its right."""
    return (" " * ((width - len(text)) // 2) + text).ljust(width)


def _print_with_rich(
    rows: list[list[_Cell]], use_color: bool, max_width: int, color_map: _ColorMap | None
) -> None:
    """Print the table with `rich`, which fits it into `max_width` and detects the terminal's
    colors."""
    align, box, console, padding, style, table = (
        importlib.import_module(f"rich.{name}")
        for name in ("align", "box", "console", "padding", "style", "table")
    )
    screen = console.Console(width=max_width)
    if use_color and screen.color_system is not None:
        color_map = color_map or _default_colors()
    else:
        color_map = None
    plain = color_map is None
    made = table.Table(show_header=False, show_lines=plain, padding=0, highlight=plain,
                       pad_edge=False, box=box.SQUARE if plain else None)
    colors = _colors(color_map, len(rows) * len(rows[0]))
    for row in rows:
        shown = []
        for cell in row:
            back, front = next(colors)
            room = tuple([n + (not plain) for n in cell.padding])
            text = align.Align(cell.text, "center", vertical="middle")
            shown.append(padding.Padding(text, room, style=style.Style(bgcolor=back, color=front)))
        made.add_row(*shown)
    screen.print(made, end="\n\n")


def _default_colors() -> _ColorMap | None:
    """A matplotlib color map; None if matplotlib is not installed."""
    if not importlib.util.find_spec("matplotlib"):
        return None
    found: _ColorMap = importlib.import_module("matplotlib").colormaps["tab20b"]
    return found


def _colors(color_map: _ColorMap | None, count: int) -> Iterator[tuple[str | None, str | None]]:
    """Background and text colors for each cell; neighbors are far apart in the map."""
    at = 0
    for _ in range(count):
        if color_map is None:
            yield None, None
            continue
        r, g, b = (int(c * 255) for c in tuple(color_map(np.linspace(0, 1, count)[at]))[:3])
        light = r * 0.299 + g * 0.587 + b * 0.114 > 186
        yield f"#{r:02X}{g:02X}{b:02X}", "#000000" if light else "#ffffff"
        at = (at + count // 2 + (count % 2 == 0)) % count


def inspect_array_sharding(value: PyTree, *, callback: Callable[[Sharding], None]) -> None:
    """Call a function with the sharding of each array in a tree.

    For traced values, the function is called during tracing.

    Args:
        value: array or tree of arrays.
        callback: function that is called with each sharding.

    >>> found = []
    >>> toile.debug.inspect_array_sharding({"w": jnp.ones(3)}, callback=found.append)
    >>> found[0].num_devices
    1
    """
    tree_map(lambda x: callback(sharding_of(x)), value)


def visualize_array_sharding(arr: Array, **kwargs: object) -> None:
    """Print which devices hold which parts of an array with one or two axes.

    Args:
        arr: array.
        kwargs: options of `visualize_sharding`, such as `scale`.

    >>> x = toile.device_put(jnp.ones(8), toile.devices("cpu")[0])
    >>> toile.debug.visualize_array_sharding(x)
    ┌───────┐
    │ CPU 0 │
    └───────┘
    """
    options: dict[str, Any] = {**kwargs}
    inspect_array_sharding(arr, callback=lambda s: visualize_sharding(arr.shape, s, **options))


__all__ = [
    "DebugEffect", "OrderedDebugEffect", "breakpoint", "callback", "inspect_array_sharding", "log",
    "print", "step", "visualize_array_sharding", "visualize_sharding",
]
