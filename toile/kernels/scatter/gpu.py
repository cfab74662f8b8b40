"""Scatter: updates combined into the result, deterministically.

Windows of updates are rows: axes that the indices do not address are columns, and each row has the
number of its place, its position along the other axes. If no place can occur twice, or if integers
make the order irrelevant, every update goes directly to its place. Otherwise, if rows are few, they
are compared with each other. If they are many, narrow rows of floats are combined in ways in which
the order is irrelevant, too (`gpu_elements`), and others are sorted by place and combined by
segments, in order (`gpu_segments`). If rows are set instead of combined, the last one wins: the
greatest row number of each place is found first.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

from toile.compiler.ir.geometry import axes_of, byte_strides, collapse, in_place
from toile.compiler.ir.operands import Operand, Ref
from toile.compiler.ir.views import row_major
from toile.kernels.copy.gpu import copy, fill_launch
from toile.kernels.gather.gpu import offset_of
from toile.kernels.gather.shared import components_of
from toile.kernels.scatter import gpu_elements as atomics
from toile.kernels.scatter import gpu_segments as segments
from toile.kernels.scatter.gpu_updates import Key, Problem, Reader, Rows, arguments, key_of
from toile.kernels.scatter.shared import combined_dtype, window_sizes
from toile.kernels.sort.gpu_radix import sort_rows
from toile.targets.cuda import elements as numbers
from toile.targets.cuda.launches import THREADS, Launch, Planner
from toile.targets.cuda.text import MOST, decode, kernel_text
from toile.targets.cuda.units import widest

FEW = 1024  # rows of updates that are compared with each other


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
    elif atomics.has_extrema(p):
        plan.stage(_direct(p, "atomic"))
    elif atomics.has_sums(p):
        atomics.add(p, plan)
    else:
        _sorted(p, plan)
    return True


def _problem(
    op: Any, dtype: Any, out: Operand, indices: Operand, updates: Operand
) -> Problem | None:
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
    rows = Rows(shape, *merged)
    columns, unit = _units(dtype, columns, rows, components)
    place = collapse(sizes, [steps[d] for d in picked])
    p = Problem(
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
) -> tuple[Rows, segments.Axes]:
    """Axes that lead to other places (whose numbers are given), and those within a place."""
    rows, columns = Rows([], [], [], [], []), segments.Axes([], [], [])
    for n, update, step, index, window, pair in zip(*axes, strict=True):
        if window >= 0 and window not in places:
            _append(columns, n, step, update)
        else:
            place = places[window] if window >= 0 else places.get(pair, 0)
            _append(rows, n, update, step, index, place)
    return rows, columns


def _units(
    dtype: Any, columns: segments.Axes, rows: Rows, components: list[Any]
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


# ---------------------------------------------------------------------------------- each by itself


def _direct(p: Problem, mode: str, *own: int | Ref) -> Launch:
    return Launch.over(p.count * p.width, _direct_text(key_of(p, mode)), arguments(p, *own),
                       f"scatter_{p.combine}")


@lru_cache(maxsize=256)
def _direct_text(key: Key) -> str:
    """Each thread processes a unit; modes: "each", "atomic", "last" (only a place's last row)."""
    r = Reader(key, 2 if key.mode == "last" else 0)
    find, legal = offset_of(key.indices, r.to_out, "indices + v", not key.clips)
    steps = [("u", r.row_updates), ("b", r.row_out), ("v", r.row_indices)]
    last = more = ""
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
            more = atomics.extremum(key.combine, dtype) if numbers.is_float(dtype) else ""
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
""", r.head() + more)


def _atomic(combine: str, dtype: Any) -> str:
    """A combination of numbers at an address that other threads may change too."""
    if numbers.is_float(dtype):
        return "extremum((Piece*)(out + b) + k, x.p[k]);"
    wide = dtype.itemsize == 8
    if combine in ("add", "sub"):
        type, sign = "u64" if wide else "u32", "-" if combine == "sub" else ""
        return f"atomicAdd(({type}*)(out + b) + k, ({type}){sign}x.p[k]);"
    type = {"i": "long long" if wide else "int", "u": "u64" if wide else "u32"}[dtype.kind]
    name = "atomicMin" if combine == "min" else "atomicMax"
    return f"{name}(({type}*)(out + b) + k, ({type})x.p[k]);"


# --------------------------------------------------------------------------------------------- few


def _few(p: Problem) -> Launch:
    return Launch(_few_text(key_of(p, "few")), arguments(p), p.count, THREADS, 0,
                  f"scatter_{p.combine}")  # fmt: skip


@lru_cache(maxsize=128)
def _few_text(key: Key) -> str:
    """A block for each row: the first row of a place combines all its rows, in order.

    Its threads list these rows first, so that no thread has to look at all rows."""
    r = Reader(key, 0)
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
def _places_text(key: Key) -> str:
    """The place number of each row, and by mode its row number ("numbers") or the last row of each
    place ("last")."""
    r = Reader(key, 2)
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


def _places(p: Problem, mode: str, *own: Ref) -> Launch:
    return Launch.over(p.count, _places_text(key_of(p, mode)), arguments(p, *own),
                       "places of a scatter")


def _set_many(p: Problem, plan: Planner) -> None:
    """Find the greatest row number of each place, then write those rows."""
    places, table = plan.scratch(4 * p.count), plan.scratch(4 * p.places)
    plan.stage(fill_launch(table, 4 * p.places, b"\0\0\0\0"))
    plan.stage(_places(p, "last", places, table))
    plan.stage(_direct(p, "last", places, table))


def _sorted(p: Problem, plan: Planner) -> None:
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
