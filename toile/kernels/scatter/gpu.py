"""Scatter: updates combined into the result, deterministically.

Windows of updates are rows: axes that the indices do not address are columns, and each row has the
number of its place, its position along the other axes. If no place can occur twice, or if integers
make the order irrelevant, every update goes directly to its place. Otherwise few rows are
compared with each other, and many are sorted by place and combined by segments, in order
(`gpu_segments`). If rows are set, the last one wins: the greatest row number of each place is found
first.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from toile.compiler.ir.geometry import axes_of, byte_strides, collapse, in_place
from toile.compiler.ir.operands import Operand, Ref
from toile.compiler.ir.views import row_major
from toile.kernels.copy.gpu import copy, fill_launch
from toile.kernels.gather.gpu import offset_of
from toile.kernels.gather.shared import components_of
from toile.kernels.scatter import gpu_segments as segments
from toile.kernels.scatter.shared import combined_dtype, window_sizes
from toile.kernels.sort.gpu_radix import sort_rows
from toile.targets.cuda import elements as numbers
from toile.targets.cuda.launches import THREADS, Launch, Planner
from toile.targets.cuda.text import MOST, Words, decode, divisor, divisors, kernel_text
from toile.targets.cuda.units import aligned, unit_type, widest

FEW = 1024  # rows of updates that are compared with each other


class _Rows(NamedTuple):
    """Rows of updates: axes with steps in bytes, or in place numbers."""

    shape: list[int]
    updates: list[int]
    out: list[int]
    indices: list[int]
    places: list[int]


class _Problem(NamedTuple):
    """A scatter as rows and columns."""

    combine: str
    dtype: Any
    unit: int
    rows: _Rows
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


def lower(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """Lower Scatter, all combinations and modes."""
    (x, indices, updates), (out,) = ins, outs
    dtype = combined_dtype(op, x, indices)
    p = None if dtype is None else _problem(op, dtype, out, indices, updates)
    if p is None:
        return False
    if not in_place(x, out):
        copy(out, x, plan)
    atomic = dtype.kind in "iu" and dtype.itemsize >= 4 and op.combine in (
        "add", "sub", "min", "max")  # fmt: skip
    if op.unique_indices or p.count == 1:
        plan.stage(_direct(p, "each"))
    elif atomic:
        plan.stage(_direct(p, "atomic"))
    elif p.count <= FEW:
        plan.stage(_few(p))
    elif op.combine == "set":
        _set_many(p, plan)
    else:
        _sorted(p, plan)
    return True


def _problem(
    op: Any, dtype: Any, out: Operand, indices: Operand, updates: Operand
) -> _Problem | None:
    windows, inserted, mapped, batching, index_batching = op.dimension_numbers
    axes = axes_of(windows, inserted, batching, index_batching, updates, out, indices)
    steps, each = byte_strides(out), window_sizes(op, updates.shape, len(out.shape))
    limits = [n - m for n, m in zip(out.shape, each, strict=True)]
    picked = [d for d, limit in enumerate(limits) if d in batching or (d in mapped and limit)]
    sizes = [out.shape[d] for d in picked]
    places = dict(zip(picked, row_major(sizes), strict=True))
    rows, columns = _rows_and_columns(axes, places)
    if out.dtype.kind == "c" and op.combine != "set":  # pairs of floats: one more column
        _append(columns, 2, dtype.itemsize, dtype.itemsize)
    components = [(*c, places.get(d, 0)) for c, d in zip(
        components_of(op, out, indices, each), mapped, strict=True)]
    shape, merged = collapse(rows.shape, *rows[1:])
    rows = _Rows(shape, *merged)
    columns, unit = _units(dtype, columns, rows, components)
    place = collapse(sizes, [steps[d] for d in picked])
    p = _Problem(
        op.combine, dtype, unit, rows, columns, segments.Axes(place[0], place[1][0], []),
        components, op.clips, out.ref, updates.ref, indices.ref, indices.dtype,
    )  # fmt: skip
    return p if p.count * p.width <= MOST and prod(sizes) < MOST else None


def _append(columns: Sequence[list[int]], *values: int) -> None:
    """Append an axis."""
    for column, value in zip(columns, values, strict=True):
        column.append(value)


def _rows_and_columns(
    axes: Sequence[list[int]], places: dict[int, int]
) -> tuple[_Rows, segments.Axes]:
    """Axes that lead to other places (whose numbers are given), and those within a place."""
    rows, columns = _Rows([], [], [], [], []), segments.Axes([], [], [])
    for n, update, step, index, window, pair in zip(*axes, strict=True):
        if window >= 0 and window not in places:
            _append(columns, n, step, update)
        else:
            place = places[window] if window >= 0 else places.get(pair, 0)
            _append(rows, n, update, step, index, place)
    return rows, columns


def _units(
    dtype: Any, columns: segments.Axes, rows: _Rows, components: list[Any]
) -> tuple[segments.Axes, int]:
    """Columns in units of memory: of several elements if both sides are dense."""
    order = sorted(range(len(columns.shape)), key=lambda i: -abs(columns.first[i]))
    shape, (to, source) = collapse(*([c[i] for i in order] for c in columns))
    size = unit = dtype.itemsize
    if shape and to[-1] == source[-1] == size:
        run = shape[-1] * size
        unit = widest(size, run, *to[:-1], *source[:-1], *rows.updates, *rows.out,
                      *(c[1] for c in components))  # fmt: skip
        shape[-1] = run // unit
        to[-1] = source[-1] = unit
        shape, (to, source) = collapse(shape, to, source)
    return segments.Axes(shape, to, source), unit


# ----------------------------------------------------------------------------------------- pieces


class _Key(NamedTuple):
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


def _key(p: _Problem, mode: str) -> _Key:
    dtype = p.dtype.itemsize if p.combine == "set" else p.dtype
    return _Key(mode, p.combine, dtype, p.unit, len(p.rows.shape), len(p.columns.shape),
                len(p.components), p.clips, p.index_dtype)  # fmt: skip


def _arguments(p: _Problem, *own: int | Ref) -> tuple[int | Ref, ...]:
    return (
        *own, p.out, p.updates, p.indices, p.count, p.width, divisor(p.width), p.places,
        *(v for c in p.components for v in c), *divisors(p.rows.shape), *p.rows.updates,
        *p.rows.out, *p.rows.indices, *p.rows.places,
        *divisors(p.columns.shape), *p.columns.first, *p.columns.second,
    )  # fmt: skip


class _Reader:
    """The pieces of texts, by the names of their arguments."""

    def __init__(self, key: _Key, own: int):
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
        """Statements that set `b` to the place number of a row (the number of places: none)."""
        find, legal = offset_of(self.key.indices, self.to_place, "indices + v", not self.key.clips)
        steps = [("v", self.row_indices), ("b", self.row_places)]
        line = f"Word v = 0, b = 0; {{ Index i = {number}; {decode('i', self.row_shape, steps)} }}"
        return f"{line} {find} {f'if (!({legal})) b = {self.places};' if legal else ''}"

    def column(self, number: str, to: str, source: str) -> str:
        steps = [(to, self.columns[1]), (source, self.columns[2])]
        return f"{{ Index i = {number}; {decode('i', self.columns[0], steps)} }}"


# ---------------------------------------------------------------------------------- each by itself


def _direct(p: _Problem, mode: str, *own: int | Ref) -> Launch:
    return Launch.over(p.count * p.width, _direct_text(_key(p, mode)), _arguments(p, *own),
                       f"scatter_{p.combine}")


@lru_cache(maxsize=256)
def _direct_text(key: _Key) -> str:
    """Each thread processes a unit; modes: "each", "atomic", "last" (only a place's last row)."""
    r = _Reader(key, 2 if key.mode == "last" else 0)
    find, legal = offset_of(key.indices, r.to_out, "indices + v", not key.clips)
    steps = [("u", r.row_updates), ("b", r.row_out), ("v", r.row_indices)]
    last = ""
    if key.mode == "last":
        places, table = (f"((const u32*){o})" for o in r.own)
        last = (f"  {{ const u32 at = {places}[row]; if (at == (u32){r.places} || "
                f"{table}[at] != row + 1) return; }}\n")
    if key.combine == "set":
        act = "put(out + b, take(updates + u, fits), fits);"
    else:
        dtype, lanes = key.dtype, key.unit // key.dtype.itemsize
        each = f"for (int k = 0; k < {lanes}; ++k)"
        if key.mode == "atomic":
            act = (f"const Held x = {{take(updates + u, fits)}};\n#pragma unroll\n  {each} "
                   f"{_atomic(key.combine, dtype)}")
        else:
            act = (
                "const Held x = {take(updates + u, fits)};\n  Held y = {take(out + b, fits)};\n"
                f"#pragma unroll\n  {each} y.p[k] = "
                + numbers.store(dtype, f"fold({numbers.load(dtype, 'y.p[k]')}, "
                                       f"{numbers.load(dtype, 'x.p[k]')})")
                + ";\n  put(out + b, y.u, fits);"
            )  # fmt: skip
    return kernel_text(f"""\
{r.start()}\
  Index c = block * {THREADS}u + threadIdx.x;
  const Index row = cut(c, {r.by_width});
  if (row >= count) return;
{last}\
  Word u = 0, b = 0, v = 0;
  {{ Index i = row; {decode("i", r.row_shape, steps)} }}
  {find}
  {f"if (!({legal})) return;" if legal else ""}
  {r.column("c", "b", "u")}
  {act}
""", r.head())


def _atomic(combine: str, dtype: Any) -> str:
    """A combination of integers at an address that other threads may change too."""
    wide = dtype.itemsize == 8
    if combine in ("add", "sub"):
        type, sign = "u64" if wide else "u32", "-" if combine == "sub" else ""
        return f"atomicAdd(({type}*)(out + b) + k, ({type}){sign}x.p[k]);"
    type = {"i": "long long" if wide else "int", "u": "u64" if wide else "u32"}[dtype.kind]
    name = "atomicMin" if combine == "min" else "atomicMax"
    return f"{name}(({type}*)(out + b) + k, ({type})x.p[k]);"


# --------------------------------------------------------------------------------------------- few


def _few(p: _Problem) -> Launch:
    return Launch(_few_text(_key(p, "few")), _arguments(p), p.count, THREADS, 0,
                  f"scatter_{p.combine}")  # fmt: skip


@lru_cache(maxsize=128)
def _few_text(key: _Key) -> str:
    """A block for each row: the first row of a place combines all its rows, in order.

    Its threads list these rows first, so that no thread has to look at all rows."""
    r = _Reader(key, 0)
    if key.combine == "set":
        begin = "Unit acc;"
        step, end = "acc = take(updates + u, fits);", "put(out + to, acc, fits);"
    else:
        dtype, lanes = key.dtype, key.unit // key.dtype.itemsize
        each = f"\n#pragma unroll\n    for (int k = 0; k < {lanes}; ++k) "
        begin = (f"Number acc[{lanes}]; {{ const Held h = {{take(out + to, fits)}};{each}"
                 f"acc[k] = {numbers.load(dtype, 'h.p[k]')}; }}")
        step = (f"const Held h = {{take(updates + u, fits)}};{each}"
                f"acc[k] = fold(acc[k], {numbers.load(dtype, 'h.p[k]')});")
        end = (f"Held h;{each}h.p[k] = {numbers.store(dtype, 'acc[k]')};\n"
               "    put(out + to, h.u, fits);")
    find, _ = offset_of(key.indices, r.to_out, "indices + v", not key.clips)
    steps = [("b", r.row_out), ("v", r.row_indices)]
    return kernel_text(f"""\
  __shared__ u32 places[{FEW}], same[{FEW}], votes[{THREADS // 32}];
{r.start()}\
  for (u32 j = threadIdx.x; j < count; j += {THREADS}) {{ {r.place("j")} places[j] = (u32)b; }}
  __syncthreads();
  const u32 mine = places[block];
  bool met = mine == (u32){r.places};
  for (u32 j = threadIdx.x; j < block; j += {THREADS}) met = met || places[j] == mine;
  if (__syncthreads_or(met)) return;
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  u32 found = 0;
  for (u32 j0 = block; j0 < count; j0 += {THREADS}) {{
    const u32 j = j0 + threadIdx.x;
    const u32 mask = __ballot_sync(~0u, j < count && places[j] == mine);
    if (!lane) votes[warp] = mask;
    __syncthreads();
    u32 at = found + __popc(mask & ((1u << lane) - 1));
    for (u32 n = 0; n < {THREADS // 32}; ++n) {{
      if (n < warp) at += __popc(votes[n]);
      found += __popc(votes[n]);
    }}
    if (mask >> lane & 1) same[at] = j;
    __syncthreads();
  }}
  Word v = 0, b = 0;
  {{ Index i = block; {decode("i", r.row_shape, steps)} }}
  {find}
  for (u32 c = threadIdx.x; c < width; c += {THREADS}) {{
    Word to = b, from = 0;
    {r.column("c", "to", "from")}
    {begin}
    for (u32 n = 0; n < found; ++n) {{
      Word u = from;
      {{ Index i = same[n]; {decode("i", r.row_shape, [("u", r.row_updates)])} }}
      {step}
    }}
    {end}
  }}
""", r.head())


# -------------------------------------------------------------------------------------------- many


@lru_cache(maxsize=128)
def _places_text(key: _Key) -> str:
    """The place number of each row; modes: "numbers" (and row numbers), "last" (and last rows)."""
    r = _Reader(key, 2)
    places, second = r.own
    more = (
        f"((u32*){second})[row] = row;" if key.mode == "numbers" else
        f"if (b != {r.places}) atomicMax((u32*){second} + b, row + 1);"
    )  # fmt: skip
    return kernel_text(f"""\
  const char* indices = {r.indices};
  const u32 row = block * {THREADS}u + threadIdx.x;
  if (row >= (u32){r.count}) return;
  {r.place("row")}
  ((u32*){places})[row] = (u32)b;
  {more}
""")


def _places(p: _Problem, mode: str, *own: Ref) -> Launch:
    return Launch.over(p.count, _places_text(_key(p, mode)), _arguments(p, *own),
                       "places of a scatter")


def _set_many(p: _Problem, plan: Planner) -> None:
    """Find the greatest row number of each place, then write those rows."""
    places, table = plan.scratch(4 * p.count), plan.scratch(4 * p.places)
    plan.stage(fill_launch(table, 4 * p.places, b"\0\0\0\0"))
    plan.stage(_places(p, "last", places, table))
    plan.stage(_direct(p, "last", places, table))


def _sorted(p: _Problem, plan: Planner) -> None:
    """Sort rows by place, then combine segments of equal places."""
    keys = plan.scratch(4 * p.count), plan.scratch(4 * p.count)
    order = plan.scratch(4 * p.count), plan.scratch(4 * p.count)
    plan.stage(_places(p, "numbers", keys[0], order[0]))
    found, places = sort_rows(plan, keys, order, "u32", 1, p.count, p.places.bit_length())
    assert places is not None
    segments.combine_segments(segments.Segments(
        p.combine, p.dtype, p.unit, p.count, p.places, "keys", found[0], places[0], p.out,
        p.updates, p.columns, p.place, segments.Axes(p.rows.shape, [], p.rows.updates),
    ), plan)  # fmt: skip
