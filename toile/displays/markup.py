"""Pieces of HTML: text, tables, folds. Sizes are limited, and what is left out is counted.

Styles are written into the elements, because notebooks drop style sheets, and no color is fixed:
text and lines have the color of the page, paler text is transparent.
"""

from __future__ import annotations

import html
from collections.abc import Container, Iterable, Sequence

from toile.displays.nouns import plural

MOST_ROWS = 100  # of a table
MOST_CHARACTERS = 300  # of a cell

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
PALE = "opacity:.75"
TABLE = "border-collapse:collapse;text-align:right"


def amount(n: float, unit: str) -> str:
    """A number with a metric prefix: `amount(1536, "B")` is 1.54 kB."""
    for size, prefix in _PREFIXES:
        if abs(n) >= size:
            return f"{n / size:.3g} {prefix}{unit}"
    return f"{n:.3g} {unit}".strip()


def quantity(n: int, what: str) -> str:
    """A count with its noun: `1 row`, `1,200 rows`."""
    return f"{n:,} {what if n == 1 else plural(what)}"


def clipped(text: str, most: int = MOST_CHARACTERS) -> str:
    """The beginning of a long text, with the number of characters that are missing."""
    if len(text) <= most:
        return text
    return f"{text[:most]} … ({quantity(len(text) - most, 'more character')})"


def escaped(text: str) -> str:
    """Text as HTML; line breaks and the spaces that lines begin with are kept."""
    lines = text.split("\n")
    spaces = (len(line) - len(line.lstrip(" ")) for line in lines)
    return "<br>".join("&nbsp;" * n + html.escape(line[n:]) for n, line in zip(spaces, lines))


def pale(text: str) -> str:
    """Less important text."""
    return f'<span style="{PALE}">{escaped(text)}</span>'


def bold(text: str) -> str:
    """More important text."""
    return f"<b>{escaped(text)}</b>"


def code(text: str) -> str:
    """Text in the font of code."""
    return f"<code>{escaped(text)}</code>"


def paragraph(inner: str) -> str:
    """A line of HTML by itself."""
    return f'<div style="margin:.3em 0">{inner}</div>'


def fold(title: str, inner: str, is_open: bool = False) -> str:
    """HTML that a click on its title shows or hides; the title alone if there is nothing else."""
    if not inner:
        return paragraph(title)
    opened = " open" if is_open else ""
    style = "cursor:pointer;margin:.2em 0"
    body = f'<div style="margin-left:1.3em">{inner}</div>'
    return f'<details{opened}><summary style="{style}">{title}</summary>{body}</details>'


def box(*parts: str) -> str:
    """A whole display, which scrolls sideways where the page is too narrow."""
    return f'<div style="overflow-x:auto;line-height:1.4">{"".join(parts)}</div>'


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, left: Container[int] = (),
    foot: Sequence[str] = (), most: int = MOST_ROWS, what: str = "row",
) -> str:
    """A table of texts.

    Args:
        head: titles of the columns.
        rows: texts of the cells; a newline starts a new line.
        left: numbers of the columns that are aligned to the left.
        foot: texts of a last line.
        most: how many rows are shown; a line below counts the others.
        what: name of a row in that line.
    """

    def line(tag: str, cells: Sequence[str]) -> str:
        made = []
        for i, cell in enumerate(cells):
            side = "left" if i in left else "right" if tag == "th" else ""
            style = f' style="text-align:{side}"' if side else ""
            text = escaped(clipped(cell))
            shown = text if i in left else text.replace(" ", "&nbsp;")  # numbers with their units
            made.append(f"<{tag}{style}>{shown}</{tag}>")
        return f'<tr style="vertical-align:top">{"".join(made)}</tr>'

    rows = list(rows)
    body = "".join(line("td", row) for row in rows[:most])
    top = f"<thead>{line('th', head)}</thead>" if any(head) else ""
    end = f"<tfoot>{line('th', foot)}</tfoot>" if foot else ""
    made = f'<table style="{TABLE}">{top}<tbody>{body}</tbody>{end}</table>'
    return made + left_out(len(rows) - most, what)


def left_out(count: int, what: str) -> str:
    """A line that says how many are not shown; nothing if all are."""
    return paragraph(pale(f"… and {quantity(count, f'more {what}')}")) if count > 0 else ""
