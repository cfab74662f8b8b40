"""The HTML page of a report: one string with the style, tables, diagrams and embedded pictures.

All text from the user is escaped, and the page's Content-Security-Policy forbids loading anything,
so a report from someone else is safe to open.
"""

from __future__ import annotations

import base64
import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from toile.engine.source import here
from toile.metrics import media
from toile.training import svg_curves

__all__ = ["Content", "Figure", "page", "pixels"]

_PARTS = ("train", "training", "eval", "test", "valid", "validation", "val")
_MOST_IMAGES, _COLUMNS = 64, 8
_WIDTH = 640  # maximum size, in pixels, to which a small picture is enlarged

_STYLE = """
:root { color-scheme: light dark; --text: #1c1c1c; --soft: #666; --rule: #ddd; --page: #fff; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e6e6; --soft: #9a9a9a; --rule: #3a3a3a; --page: #16181a; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page);
       max-width: 64rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
h3 { font-size: 1rem; margin-bottom: .3rem; }
table { border-collapse: collapse; } td, th { padding: .15rem .9rem .15rem 0; text-align: left;
       border-bottom: 1px solid var(--rule); vertical-align: top; overflow-wrap: anywhere; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
pre { overflow-x: auto; line-height: 1.25; font-size: 13px; }
figure { margin: 0 0 1rem; } figure img { image-rendering: pixelated; max-width: 100%; }
figcaption { color: var(--soft); }
svg { max-width: 100%; height: auto; margin: .4rem .8rem .4rem 0; }
"""


@dataclass(frozen=True)
class Figure:
    """A picture: its name, pixels uint8 [height, width, 1 to 4], and the text below it."""

    name: str
    pixels: np.ndarray
    caption: str


@dataclass(frozen=True)
class Content:
    """Everything that a page shows."""

    title: str
    config: Mapping[str, Any]
    series: Mapping[str, Mapping[int, float]]
    texts: Sequence[tuple[str, str]]
    figures: Sequence[Figure]
    layers: str
    checkpoints: Sequence[str]
    environment: Mapping[str, str]


def page(content: Content) -> str:
    """The HTML of the page; sections without content are left out."""
    sections = [
        ("Results", _texts(content.texts)),
        ("Metrics", _curves(content.series) + _numbers(content.series)),
        ("Pictures", "".join(map(_figure, content.figures))),
        ("Layers", f"<pre>{html.escape(content.layers)}</pre>" if content.layers else ""),
        ("Configuration", _table(("name", "value"), content.config.items())),
        ("Checkpoints", _table(("file",), ((name,) for name in content.checkpoints))),
        ("Environment", _table(("name", "value"), content.environment.items())),
    ]
    body = "".join(f"<h2>{name}</h2>\n{text}\n" for name, text in sections if text)
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    title = html.escape(content.title)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n<h1>{title}</h1>\n{body}</body>\n</html>\n"
    )


def _texts(texts: Iterable[tuple[str, str]]) -> str:
    out = []
    for name, text in texts:
        heading = f"<h3>{html.escape(name)}</h3>\n" if name else ""
        shown = html.escape(text.strip("\n"))
        out.append(f"{heading}<pre>{shown}</pre>\n")
    return "".join(out)


def panels(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Group metrics into diagrams: a dict from titles to dicts from labels to metric names.

    >>> panels(["train_loss", "eval_loss", "rate", "test/top_5"])
    {'loss': {'train': 'train_loss', 'eval': 'eval_loss'}, 'rate': {'': 'rate'}, \
'top_5': {'test': 'test/top_5'}}
    """
    found: dict[str, dict[str, str]] = {}
    for name in names:
        at = min((i for i in (name.find("_"), name.find("/")) if i > 0), default=-1)
        is_part = at > 0 and name[:at] in _PARTS and name[at + 1 :]
        title, label = (name[at + 1 :], name[:at]) if is_part else (name, "")
        found.setdefault(title, {})[label] = name
    return found


def _curves(series: Mapping[str, Mapping[int, float]]) -> str:
    return "".join(
        svg_curves.chart(title, {label: series[name] for label, name in lines.items()})
        for title, lines in panels(series).items()
    )


def _numbers(series: Mapping[str, Mapping[int, float]]) -> str:
    """A table with the last, the least and the greatest value of each metric."""
    rows = []
    for name, values in series.items():
        last = max(values)
        finite = {step: value for step, value in values.items() if math.isfinite(value)}
        ends = [(f, f(finite, key=lambda s: finite[s])) for f in (min, max)] if finite else []
        shown = [f"{finite[step]:.6g} (step {step})" for _, step in ends] or ["", ""]
        rows.append((name, f"{values[last]:.6g}", f"{last}", *shown))
    return _table(("metric", "last", "step", "least", "greatest"), rows, numbers=True)


def _figure(figure: Figure) -> str:
    height, width = figure.pixels.shape[:2]
    enlarged = width * max(1, min(8, _WIDTH // max(width, 1)))
    data = base64.b64encode(media.png(figure.pixels)).decode()
    name = html.escape(figure.name)
    caption = f"<figcaption>{html.escape(figure.caption)}</figcaption>" if figure.caption else ""
    return (f'<figure><h3>{name}</h3><img alt="{name}, {width} x {height} pixels" '
            f'width="{enlarged}" src="data:image/png;base64,{data}">{caption}</figure>\n')


def _table(header: Sequence[str], rows: Iterable[Sequence[Any]], numbers: bool = False) -> str:
    lines = []
    for row in rows:
        cells = (
            f'<td class="number">{html.escape(str(cell))}</td>' if numbers and i else
            f"<td>{html.escape(str(cell))}</td>" for i, cell in enumerate(row)
        )  # fmt: skip
        lines.append(f"<tr>{''.join(cells)}</tr>\n")
    if not lines:
        return ""
    kinds = (' class="number"' if numbers and i else "" for i in range(len(header)))
    names = "".join(f"<th{kind}>{html.escape(name)}</th>" for kind, name in zip(kinds, header))
    return f"<table>\n<tr>{names}</tr>\n{''.join(lines)}</table>\n"


def pixels(image: np.ndarray) -> tuple[np.ndarray, str]:
    """One or more images as a uint8 array [height, width, channels], and how values were scaled."""
    if image.dtype.kind not in "biuf" and image.dtype.name != "bfloat16" or not image.size:
        raise ValueError(
            f"Report.figure: needed numbers, got {image.dtype}{list(image.shape)}{here()}"
        )
    image = _one_image(image)
    if image.dtype in (np.uint8, np.bool_):
        return media.to_bytes(image), ""
    values = image.astype(np.float64)
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    if image.dtype.kind == "f" and low >= 0 and high <= 1:
        return media.to_bytes(values), ""
    span = high - low or 1.0
    return media.to_bytes((values - low) / span), f"black {low:.4g}, white {high:.4g}"


def _one_image(image: np.ndarray) -> np.ndarray:
    """The input of a figure as one image [height, width, channels]."""
    has_channels = image.ndim > 2 and image.shape[-1] <= 4
    if image.ndim not in (2, 3, 4) or image.ndim == 4 and not has_channels:
        raise ValueError(
            "Report.figure: needed [height, width], [height, width, 1 to 4], or several of one of "
            f"these, got an array of shape {list(image.shape)}{here()}"
        )
    if image.ndim - has_channels == 3:
        image = _sheet(image)
    return image if has_channels else image[..., None]


def _sheet(images: np.ndarray) -> np.ndarray:
    """Images [count, height, width(, channels)] side by side, with a thin border."""
    chosen = images[:_MOST_IMAGES]
    count = len(chosen)
    columns = min(count, _COLUMNS)
    rows = -(-count // max(columns, 1))
    sides = ((0, rows * columns - count), (0, 1), (0, 1), *[(0, 0)] * (images.ndim - 3))
    framed = np.pad(chosen, sides)
    grid = framed.reshape(rows, columns, *framed.shape[1:])
    height, width, rest = rows * framed.shape[1], columns * framed.shape[2], framed.shape[3:]
    return grid.swapaxes(1, 2).reshape(height, width, *rest)
