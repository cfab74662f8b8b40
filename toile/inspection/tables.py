"""Numbers and tables as text and as HTML."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def amount(n: float, unit: str) -> str:
    """A number with a metric prefix: `amount(1536, "B")` is 1.54 kB."""
    for size, prefix in _PREFIXES:
        if abs(n) >= size:
            return f"{n / size:.3g} {prefix}{unit}"
    return f"{n:.3g} {unit}".strip()


def duration(seconds: float) -> str:
    """A time in a suitable unit."""
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def aligned(head: Sequence[str], rows: Iterable[Sequence[str]], left: Iterable[int] = ()) -> str:
    """Aligned columns: numbers to the right, the columns in `left` to the left."""
    lines = [list(head), *(list(r) for r in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    kept = set(left)
    out = []
    for line in lines:
        cells = (
            cell.ljust(w) if i in kept else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        out.append("  ".join(cells).rstrip())
    return "\n".join(out)


def html_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; a newline within a cell starts a new line."""
    def line(tag: str, cells: Sequence[str]) -> str:
        shown = (html.escape(c).replace("\n", "<br>") for c in cells)
        style = "text-align: left; vertical-align: top"
        return "<tr>" + "".join(f'<{tag} style="{style}">{c}</{tag}>' for c in shown) + "</tr>"

    body = "".join(line("td", r) for r in rows)
    return f"<table><thead>{line('th', head)}</thead><tbody>{body}</tbody></table>"


def counted(names: Iterable[str]) -> str:
    """Names in order of first occurrence, with counts: `add ×3, exp`."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return ", ".join(n if c == 1 else f"{n} ×{c}" for n, c in counts.items())


def plural(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"
