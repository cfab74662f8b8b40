"""Numbers and tables as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from toile.displays.nouns import plural


def duration(seconds: float) -> str:
    """Format a time in a suitable unit."""
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def aligned(head: Sequence[str], rows: Iterable[Sequence[str]], left: Iterable[int] = ()) -> str:
    """Align the columns of a table: those in `left` to the left, the others to the right."""
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


def counted(names: Iterable[str]) -> str:
    """List names in order of first occurrence, with their counts: `add ×3, exp`."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return ", ".join(n if c == 1 else f"{n} ×{c}" for n, c in counts.items())


def quantity(n: int, what: str) -> str:
    """Format a count with its noun: `1 launch`, `2 launches`."""
    return f"{n} {what if n == 1 else plural(what)}"
