"""Summaries of modules as HTML, with one row for each call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toile.displays.markup import bold, box, fold, pale, paragraph, quantity, table
from toile.linen.summary import UNNAMED_METHODS, cell_text, represent_tree
from toile.typing import SizeBytes, bytes_text

if TYPE_CHECKING:
    from toile.linen.summary import Row, Table

MOST_CALLS = 200  # rows


def table_html(summary: Table) -> str:
    """The table of `tabulate` as HTML, with the requested columns."""
    costs = [c for c in ("flops", "vjp_flops") if any(getattr(row, c) >= 0 for row in summary)]
    head = ["path", "module", "inputs", "outputs", *costs, *summary.collections]
    left = {i for i, title in enumerate(head) if title not in costs}
    rows = [_cells(row, costs, summary) for row in summary]
    totals = [summary.total(col) for col in summary.collections]
    foot = ["", "", "", *([""] * len(costs)), "total", *map(_size, totals)]
    name = type(summary.module).__name__
    whole = sum(totals, SizeBytes(0, 0))
    title = bold(name) + " " + pale(
        f"{quantity(len(summary), 'call')}; {quantity(whole.size, 'element')} in all variables, "
        f"{bytes_text(whole.bytes)}"
    )
    made = table(head, rows, left=left, foot=foot, most=MOST_CALLS, what="call")
    return box(fold(title, made, is_open=True)) if rows else box(paragraph(title))


def _cells(row: Row, costs: list[str], summary: Table) -> list[str]:
    method = "" if row.method in UNNAMED_METHODS else f" ({row.method})"
    cells = ["/".join(row.path), type(row.module_copy).__name__ + method]
    cells += [cell_text(row.inputs), cell_text(row.outputs)]
    cells += [f"{getattr(row, cost):,}" for cost in costs]
    for col in summary.collections:
        text = cell_text(represent_tree(row.module_variables.get(col, {})))
        cells.append("\n".join(x for x in (text, _size(row.counted_size(col))) if x))
    return cells


def _size(size: SizeBytes) -> str:
    return f"{size.size:,} ({bytes_text(size.bytes)})" if size else ""
