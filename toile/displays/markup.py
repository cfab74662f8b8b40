"""Pieces of HTML: text, tables, folds. Sizes are limited; a line shows how much is left out.

Styles are written into the elements, because notebooks drop style sheets. No color is fixed: text
and lines have the color of the page, and paler text is partly transparent.
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
    """Format a number with a metric prefix: `amount(1536, "B")` returns `1.54 kB`."""
    for size, prefix in _PREFIXES:
        if abs(n) >= size:
            return f"{n / size:.3g} {prefix}{unit}"
    return f"{n:.3g} {unit}".strip()


def quantity(n: int, what: str) -> str:
    """Format a count with its noun: `1 row`, `1,200 rows`."""
    return f"{n:,} {what if n == 1 else plural(what)}"


def clipped(text: str, most: int = MOST_CHARACTERS) -> str:
    """Shorten a long text and append the number of characters that are missing."""
    if len(text) <= most:
        return text
    return f"{text[:most]} … ({quantity(len(text) - most, 'more character')})"


def escaped(text: str) -> str:
    """Escape text for HTML. Line breaks and the indentation of lines are kept."""
    lines = text.split("\n")
    spaces = (len(line) - len(line.lstrip(" ")) for line in lines)
    return "<br>".join("&nbsp;" * n + html.escape(line[n:]) for n, line in zip(spaces, lines))


def pale(text: str) -> str:
    """Return the HTML of less important text, which is shown paler."""
    return f'<span style="{PALE}">{escaped(text)}</span>'


def bold(text: str) -> str:
    """Return the HTML of important text, which is shown in bold."""
    return f"<b>{escaped(text)}</b>"


def code(text: str) -> str:
    """Return the HTML of text in a monospaced font."""
    return f"<code>{escaped(text)}</code>"


def paragraph(inner: str) -> str:
    """Return HTML that is shown on a line of its own."""
    return f'<div style="margin:.3em 0">{inner}</div>'


def fold(title: str, inner: str, is_open: bool = False) -> str:
    """Return HTML that a click on its title shows or hides; only the title if `inner` is empty."""
    if not inner:
        return paragraph(title)
    opened = " open" if is_open else ""
    style = "cursor:pointer;margin:.2em 0"
    body = f'<div style="margin-left:1.3em">{inner}</div>'
    return f'<details{opened}><summary style="{style}">{title}</summary>{body}</details>'


def box(*parts: str) -> str:
    """Wrap a whole display, so that it scrolls sideways if the page is too narrow."""
    return f'<div style="overflow-x:auto;line-height:1.4">{"".join(parts)}</div>'


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, left: Container[int] = (),
    foot: Sequence[str] = (), most: int = MOST_ROWS, what: str = "row",
) -> str:
    """Return an HTML table whose cells contain text.

    Args:
        head: titles of the columns.
        rows: texts of the cells, row by row. A newline in a text starts a new line in its cell.
        left: indices of the columns that are aligned to the left.
        foot: texts of the last row, which is formatted like the titles.
        most: maximum number of rows. A line below the table shows how many rows are left out.
        what: noun for a row, used in that line.
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
    """Return a line with the number of items that are not shown; empty if all are shown."""
    return paragraph(pale(f"… and {quantity(count, f'more {what}')}")) if count > 0 else ""
