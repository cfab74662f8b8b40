"""Updates of a scatter as rows and columns, and the pieces of texts that address them."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from toile.compiler.ir.operands import Ref
from toile.kernels.gather.gpu import offset_of
from toile.kernels.scatter import gpu_segments as segments
from toile.targets.cuda import elements as numbers
from toile.targets.cuda.text import Words, decode, divisor, divisors
from toile.targets.cuda.units import aligned, unit_type


class Rows(NamedTuple):
    """Rows of updates: axes with steps in bytes, or in place numbers."""

    shape: list[int]
    updates: list[int]
    out: list[int]
    indices: list[int]
    places: list[int]


class Problem(NamedTuple):
    """A scatter as rows and columns."""

    combine: str
    dtype: Any
    unit: int
    rows: Rows
    columns: segments.Axes
    place: segments.Axes  # axes over which places are numbered
    components: list[tuple[int, int, int, int]]  # offset in vector; step in out; limit; in places
    clips: bool
    out: Ref
    updates: Ref
    indices: Ref
    index_dtype: Any

    @property
    def count(self) -> int:
        return prod(self.rows.shape)

    @property
    def places(self) -> int:
        return prod(self.place.shape)

    @property
    def width(self) -> int:
        return prod(self.columns.shape)


class Key(NamedTuple):
    """What determines the texts."""

    mode: str
    combine: str
    dtype: Any  # of numbers; for sets, only its size matters
    unit: int
    rows: int
    columns: int
    components: int
    clips: bool
    indices: Any


def key_of(p: Problem, mode: str) -> Key:
    dtype = p.dtype.itemsize if p.combine == "set" else p.dtype
    return Key(mode, p.combine, dtype, p.unit, len(p.rows.shape), len(p.columns.shape),
                len(p.components), p.clips, p.index_dtype)  # fmt: skip


def arguments(p: Problem, *own: int | Ref) -> tuple[int | Ref, ...]:
    return (
        *own, p.out, p.updates, p.indices, p.count, p.width, divisor(p.width), p.places,
        *(v for c in p.components for v in c), *divisors(p.rows.shape), *p.rows.updates,
        *p.rows.out, *p.rows.indices, *p.rows.places,
        *divisors(p.columns.shape), *p.columns.first, *p.columns.second,
    )  # fmt: skip


class Reader:
    """Writes pieces of texts; its attributes are the expressions of their arguments."""

    def __init__(self, key: Key, own: int):
        r = Words()
        self.key, self.own = key, r.many(own)
        self.out, self.updates = r.pointer(), r.pointer("const char")
        self.indices = r.pointer("const char")
        self.count, self.width, self.by_width, self.places = r.many(4)
        components = [r.many(4) for _ in range(key.components)]
        n, m = key.rows, key.columns
        self.row_shape = r.many(n)
        self.row_updates, self.row_out, self.row_indices, self.row_places = (
            r.many(n) for _ in range(4)
        )
        self.columns = r.many(m), r.many(m), r.many(m)
        self.to_out = [(c[0], c[1], c[2]) for c in components]
        self.to_place = [(c[0], c[3], c[2]) for c in components]

    def head(self) -> str:
        key = self.key
        if key.combine == "set":
            return unit_type(key.unit, key.dtype)
        return (
            numbers.conversions(key.dtype)
            + unit_type(key.unit, key.dtype.itemsize, numbers.memory_type(key.dtype))
            + f"typedef {numbers.work_type(key.dtype)} Number;\n"
            + numbers.combine_function(key.combine, key.dtype, name="fold")
        )

    def start(self) -> str:
        fits = aligned(self.key.unit, "out", "updates")
        return (
            f"  char* out = {self.out};\n  const char *updates = {self.updates}, "
            f"*indices = {self.indices};\n  const bool fits = {fits};\n"
            f"  const u32 count = (u32){self.count}, width = (u32){self.width};\n"
        )

    def place(self, number: str) -> str:
        """Statements that set `b` to the place number of a row (to the number of places if it has
        none)."""
        find, legal = offset_of(self.key.indices, self.to_place, "indices + v", not self.key.clips)
        steps = [("v", self.row_indices), ("b", self.row_places)]
        line = f"Word v = 0, b = 0; {{ Index i = {number}; {decode('i', self.row_shape, steps)} }}"
        return f"{line} {find} {f'if (!({legal})) b = {self.places};' if legal else ''}"

    def column(self, number: str, to: str, source: str) -> str:
        steps = [(to, self.columns[1]), (source, self.columns[2])]
        return f"{{ Index i = {number}; {decode('i', self.columns[0], steps)} }}"
