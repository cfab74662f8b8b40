"""Arrays as HTML: the dtype, the shape, the device, and a table of the first and last values.

If a large array is on another device, only the values in the table are copied from it. No values
are shown for tracers, for deleted arrays, or for arrays that are divided among processes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from toile.displays.markup import (
    PALE,
    TABLE,
    amount,
    bold,
    box,
    clipped,
    code,
    escaped,
    pale,
    paragraph,
    quantity,
)
from toile.engine import dtypes
from toile.engine.arrays import ConcreteArray, KeyArray
from toile.engine.platform_registry import platform_of
from toile.engine.sharded import Sharded
from toile.engine.trace import Array, current

EDGE = 4  # rows and columns at each end
MOST_FETCHED = 1 << 20  # bytes of an array that is fetched as a whole
MOST_JOINED = 1 << 24  # bytes of an array whose parts are joined


def array_html(x: Array) -> str:
    """Return the HTML of an array. For a tracer, only the type is shown."""
    if not isinstance(x, ConcreteArray):
        return box(code(f"{type(x).__name__}<{x.aval.str_short()}>"))
    where = "" if x.is_deleted() else f"on {_place(x)}, {amount(x.size * x.dtype.itemsize, 'B')}"
    head = f"{bold('Array')} {escaped(_form(x))} {pale(where)}"
    reason = _without_values(x)
    if reason:
        return box(paragraph(head), paragraph(pale(reason)))
    with current(None):  # inside a traced function too
        return box(paragraph(head), _values(x))


def _form(x: ConcreteArray) -> str:
    if x.is_deleted() and isinstance(x, KeyArray):  # its shape is gone too
        return dtypes.name_of(x.dtype)
    weak = ", weak type" if x.weak_type else ""
    return f"{dtypes.name_of(x.dtype)}{list(x.shape)}{weak}"


def _place(x: ConcreteArray) -> str:
    places = x.devices()
    if len(places) == 1:
        return str(next(iter(places)))
    how = getattr(x.sharding, "spec", x.sharding)
    return f"{quantity(len(places), 'device')} ({clipped(str(how), 100)})"


def _without_values(x: ConcreteArray) -> str:
    """Return the reason why no values are shown, or an empty string if they are shown."""
    if x.is_deleted():
        return "deleted: its buffer was freed or donated"
    if not x.is_fully_addressable:
        return "values are not shown: other processes have a part of them"
    if isinstance(x, Sharded) and x.nbytes > MOST_JOINED:
        return "values are not shown: the array is large, and divided over devices"
    if not x.size:
        return "no elements"
    return ""


def _values(x: ConcreteArray) -> str:
    """Return the HTML of a scalar, a vector, or the first matrix of an array of higher rank."""
    data: Any = _words(x) if isinstance(x, KeyArray) else x
    if _is_quickly_read(data):
        data = np.asarray(data)
    if not data.ndim:
        return paragraph(code(_text(np.asarray(data)[()])))
    *leading, rows, columns = (1, *data.shape) if data.ndim == 1 else data.shape
    first = (0,) * len(leading)
    vector = data.ndim == 1
    parts = [
        [np.asarray(data[(b,) if vector else (*first, a, b)]).reshape(_length(a), _length(b))
         for b in _ends(columns)] for a in _ends(rows)
    ]  # fmt: skip
    made = _table(np.block(parts), _shown(rows), _shown(columns), vector)
    count = int(np.prod(leading))
    if leading and count > 1:
        name = ", ".join([*("0" for _ in leading), ":", ":"])
        return paragraph(pale(f"[{name}], the first of {count:,} matrices")) + made
    return made


def _words(keys: KeyArray) -> np.ndarray:
    """Return the integers that the keys consist of, along an additional last axis."""
    owner = platform_of(keys._data)
    return np.asarray(keys._data if owner is None else owner.get(keys._data))


def _is_quickly_read(data: Any) -> bool:
    return isinstance(getattr(data, "_data", data), np.ndarray) or data.nbytes <= MOST_FETCHED


def _ends(n: int) -> list[slice]:
    """Return the slices of an axis of length `n` that are shown."""
    return [slice(0, n)] if n <= 2 * EDGE + 1 else [slice(0, EDGE), slice(n - EDGE, n)]


def _length(part: slice) -> int:
    return int(part.stop - part.start)


def _shown(n: int) -> list[int | None]:
    """Return the indices that are shown, with None in place of those that are cut out."""
    first, *last = _ends(n)
    found: list[int | None] = list(range(first.start, first.stop))
    return found + [None, *range(last[0].start, last[0].stop)] if last else found


def _table(
    values: np.ndarray, rows: list[int | None], columns: list[int | None], vector: bool
) -> str:
    """Return an HTML table with indices in its margins and dots in place of values cut out."""
    top = f"<tr>{'' if vector else '<th></th>'}{''.join(map(_margin, columns))}</tr>"
    lines = []
    here = iter(values)
    for r in rows:
        row = iter(() if r is None else next(here))
        cells = ("…" if r is None or c is None else escaped(_text(next(row))) for c in columns)
        start = "" if vector else _margin(r)
        lines.append(f"<tr>{start}{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    body = "".join(lines)
    return f'<table style="{TABLE}"><thead>{top}</thead><tbody>{body}</tbody></table>'


def _margin(i: int | None) -> str:
    return f'<th style="text-align:right;{PALE}">{"…" if i is None else i}</th>'


def _text(value: Any) -> str:
    """Format a number briefly."""
    dtype = value.dtype
    if dtype == dtypes.float0:
        return "float0"
    if dtypes.issubdtype(dtype, np.complexfloating):
        return f"{complex(value):.5g}"
    if dtypes.issubdtype(dtype, np.floating):
        return f"{float(value):.5g}"
    return str(bool(value) if dtype.kind == "b" else int(value))
