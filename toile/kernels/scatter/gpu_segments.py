"""Rows combined by segments: each row of a result with the rows that sorted edges assign to it.

A group of threads, one for each unit of a row's columns, processes a segment from its first edge to
its last, in registers. Segments longer than a limit are divided: edges are cut into chunks of that
length, each chunk combines its part of a long segment (at most one begins and one continues in
it), and the group of the chunk where the segment begins joins the parts in order. The order of
combinations depends on the edges only: results are the same every time.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from toile.compiler.ir.operands import Ref
from toile.targets.cuda import elements as numbers
from toile.targets.cuda.launches import THREADS, Launch, Planner, blocks_of
from toile.targets.cuda.text import Words, decode, divisors, kernel_text
from toile.targets.cuda.units import aligned, unit_type

# The most edges of a segment that one group combines: fewer only if there are few edges in all,
# because the parts of one segment are joined one after the other.
LIMIT, FEW_LIMIT, FEW_EDGES = 256, 64, 1 << 16
AT_ONCE = 8  # terms that a thread reads before it combines them


class Axes(NamedTuple):
    """Some axes with steps in bytes: `first` in the result, `second` in the terms."""

    shape: list[int]
    first: list[int]
    second: list[int]


class Segments(NamedTuple):
    """Segments of edges, rows of terms and of the result."""

    combine: str
    dtype: Any
    unit: int  # bytes that a thread moves at once
    edges: int
    rows: int  # of the result that segments may belong to
    # "ends": the end of each row's edges; "few ends": the same, and rows without edges are not
    # written; "keys": the row of each edge
    sorted_by: str
    segments: Ref  # int32: those ends or keys
    order: Ref  # int32: the number of each edge's row of terms
    out: Ref
    terms: Ref
    columns: Axes  # of a row, in units
    place: Axes  # `first`: steps of a row's number in the result
    term: Axes  # `second`: steps of a term's number
    weights: tuple[Ref, Ref] | None = None  # the numbers of the edges, in order; their weights
    start: Ref | None = None  # rows that sums start from, laid out as the result
    begins: str = "out"  # what combinations start from: "out", "start", "zero"
    heads: int = 1  # weights of an edge, each for an equal share of a row


class _Key(NamedTuple):
    """What determines the texts."""

    combine: str
    dtype: Any
    unit: int
    group: int
    sorted_by: str
    weighted: bool
    begins: str
    columns: int
    place: int
    term: int
    limit: int


def combine_segments(s: Segments, plan: Planner) -> None:
    """Add the stages: short segments and parts of long ones, then the long ones."""
    width = prod(s.columns.shape)
    group = min(THREADS, 1 << (width - 1).bit_length())
    work = 8 if numbers.work_type(s.dtype) in ("double", "i64", "u64") else 4
    lanes = s.unit // s.dtype.itemsize
    limit = FEW_LIMIT if s.edges <= FEW_EDGES else LIMIT
    chunks = blocks_of(s.edges, limit)
    long = chunks > 1
    parts: Ref | int = plan.scratch(2 * chunks * width * lanes * work) if long else 0
    key = _Key(
        s.combine, s.dtype, s.unit, group, s.sorted_by, s.weights is not None, s.begins,
        len(s.columns.shape), len(s.place.shape), len(s.term.shape), limit,
    )  # fmt: skip
    args = (
        s.out, s.terms, s.segments, s.order, *(s.weights or (0, 0)),
        s.out if s.start is None else s.start, parts, s.edges, s.rows, width,
        *divisors(s.columns.shape), *s.columns.first, *s.columns.second,
        *divisors(s.place.shape), *s.place.first, *divisors(s.term.shape), *s.term.second,
        s.heads, width // s.heads,
    )  # fmt: skip
    units = s.rows if s.sorted_by == "ends" else s.edges

    def launch(role: str, count: int) -> Launch:
        return Launch.over(count, _text(key, role), args, f"sums of rows: {role}",
                           THREADS // group)

    short = launch("short", units)
    if not long:
        plan.stage(short)
        return
    plan.stage(short, launch("parts", chunks))
    plan.stage(launch("long", chunks))


_FIND = {
    "ends": """\
__device__ inline bool locate(const int* ends, u32 edges, u32 rows, u32 e, u32& row, u32& begin,
                              u32& end) {
  u32 low = 0, high = rows;  // the first row that ends after e
  while (low < high) {
    const u32 middle = (low + high) >> 1;
    if ((u32)ends[middle] > e) high = middle; else low = middle + 1;
  }
  if (low >= rows) return false;
  row = low; begin = low ? ends[low - 1] : 0; end = ends[low];
  return true;
}
""",
    "keys": """\
__device__ inline bool locate(const int* keys, u32 edges, u32 rows, u32 e, u32& row, u32& begin,
                              u32& end) {
  row = keys[e];
  if (row >= rows) return false;
  u32 low = 0, high = e;
  while (low < high) {
    const u32 middle = (low + high) >> 1;
    if ((u32)keys[middle] < row) low = middle + 1; else high = middle;
  }
  begin = low;
  low = e + 1; high = edges;
  while (low < high) {
    const u32 middle = (low + high) >> 1;
    if ((u32)keys[middle] <= row) low = middle + 1; else high = middle;
  }
  end = low;
  return true;
}
""",
}

_FIND["few ends"] = _FIND["ends"]

# The segment of a group, if it is short.
_SHORT = {
    "ends": """\
  if (unit >= rows) return;
  row = unit; begin = unit ? segments[unit - 1] : 0; end = segments[unit];
  if (end - begin > LIMIT) return;
""",
    "few ends": """\
  if (unit >= edges || !locate(segments, edges, rows, unit, row, begin, end)) return;
  if (begin != unit || end - begin > LIMIT) return;
""",
    "keys": """\
  if (unit >= edges) return;
  row = segments[unit]; begin = unit;
  if (row >= rows || (unit && (u32)segments[unit - 1] == row)) return;
  if (unit + LIMIT < edges && (u32)segments[unit + LIMIT] == row) return;
  end = unit + 1;
  while (end < edges && (u32)segments[end] == row) ++end;
""",
}


def _head(key: _Key) -> str:
    """Types, `fold` of a term, `join` of parts, and `locate`: the segment of an edge."""
    dtype, join = key.dtype, "add" if key.combine == "sub" else key.combine
    return f"""\
{numbers.conversions(dtype)}\
{unit_type(key.unit, dtype.itemsize, numbers.memory_type(dtype))}\
typedef {numbers.work_type(dtype)} Number;
{numbers.combine_function(key.combine, dtype, name="fold")}\
{numbers.combine_function(join, dtype, name="join")}\
const u32 LIMIT = {key.limit}u;
{_FIND[key.sorted_by]}"""


@lru_cache(maxsize=256)
def _text(key: _Key, role: str) -> str:
    r = Words()
    out, terms = r.pointer(), r.pointer("const char")
    segments, order, numbers_, weights = (r.pointer("const int") for _ in range(4))
    start, parts = r.pointer("const char"), r.pointer("Number")
    edges, rows, width = r.many(3)
    columns = r.many(key.columns), r.many(key.columns), r.many(key.columns)
    place, term = (r.many(key.place), r.many(key.place)), (r.many(key.term), r.many(key.term))
    heads, of_head = r.many(2)
    lanes = key.unit // key.dtype.itemsize
    body = {"short": _short, "parts": _parts, "long": _long}[role]
    return kernel_text(f"""\
  char* out = {out};
  const char *terms = {terms}, *start = {start};
  const int *segments = {segments}, *order = {order}, *edge_numbers = {numbers_};
  const int* weights = {weights};
  Number* parts = {parts};
  const u32 edges = (u32){edges}, rows = (u32){rows}, width = (u32){width};
  const bool fits = {aligned(key.unit, "out", "terms", "start")};
  const u32 unit = block * {THREADS // key.group}u + threadIdx.x / {key.group};
  const u32 first = threadIdx.x % {key.group};
  u32 row, begin, end, head = 0;
  const u32 heads = (u32){heads}, of_head = (u32){of_head};
{_functions(key, lanes, columns, place, term)}{body(key, lanes)}""", _head(key))


def _functions(key: _Key, lanes: int, columns: Any, place: Any, term: Any) -> str:
    """What all roles do with a unit of a row: begin, sum a range of edges, finish."""
    dtype, number = key.dtype, numbers.work_type(key.dtype)
    fold = "acc[k] = fold(acc[k], x);"
    if key.weighted:
        fma = {"float": "fmaf(weight, x, acc[k])", "double": "fma(weight, x, acc[k])"}
        fold = f"acc[k] = {fma.get(number, 'fold(acc[k], (Number)(weight * x))')};"
    weight = numbers.load(dtype, "((const Piece*)weights)[edge_numbers[e] * (Word)heads + head]")
    weigh = f"const Number weight = {weight};" if key.weighted else ""
    begin = {
        "out": "const Held h = {take(out + to, fits)};",
        "start": "const Held h = {take(start + to, fits)};",
        "zero": "",
    }[key.begins]
    first = "0" if key.begins == "zero" else numbers.load(dtype, "h.p[k]")
    return f"""\
  auto sum = [&](Number* acc, u32 low, u32 high, Word column) {{
#pragma unroll {AT_ONCE}
    for (u32 e = low; e < high; ++e) {{
      Index i = order[e];
      Word b = column;
      {decode("i", term[0], [("b", term[1])])}
      const Held h = {{take(terms + b, fits)}};
      {weigh}
#pragma unroll
      for (int k = 0; k < {lanes}; ++k) {{
        const Number x = {numbers.load(dtype, "h.p[k]")};
        {fold}
      }}
    }}
  }};
  auto offset = [&](u32 number) {{
    Index i = number;
    Word a = 0;
    {decode("i", place[0], [("a", place[1])])}
    return a;
  }};
  auto columns = [&](u32 c, Word& to, Word& from) {{
    {"head = c / of_head;" if key.weighted else ""}
    Index i = c;
    {decode("i", columns[0], [("to", columns[1]), ("from", columns[2])])}
  }};
  auto initial = [&](Number* acc, Word to) {{
    {begin}
#pragma unroll
    for (int k = 0; k < {lanes}; ++k) acc[k] = {first};
  }};
  auto finish = [&](const Number* acc, Word to) {{
    Held h;
#pragma unroll
    for (int k = 0; k < {lanes}; ++k) h.p[k] = {numbers.store(dtype, "acc[k]")};
    put(out + to, h.u, fits);
  }};
"""


def _short(key: _Key, lanes: int) -> str:
    return f"""\
{_SHORT[key.sorted_by]}\
  const Word place = offset(row);
  for (u32 c = first; c < width; c += {key.group}) {{
    Word to = place, from = 0;
    columns(c, to, from);
    Number acc[{lanes}];
    initial(acc, to);
    sum(acc, begin, end, from);
    finish(acc, to);
  }}
"""


def _chunk() -> str:
    return """\
  const u32 low = unit * LIMIT;
  if (low >= edges) return;
  const u32 high = low + LIMIT < edges ? low + LIMIT : edges;
"""


def _parts(key: _Key, lanes: int) -> str:
    join = "add" if key.combine == "sub" else key.combine
    neutral = numbers.neutral(join, key.dtype)
    save = f"""\
    for (u32 c = first; c < width; c += {key.group}) {{
      Word to = 0, from = 0;
      columns(c, to, from);
      Number acc[{lanes}];
#pragma unroll
      for (int k = 0; k < {lanes}; ++k) acc[k] = {neutral};
      sum(acc, %s, %s, from);
#pragma unroll
      for (int k = 0; k < {lanes}; ++k)
        parts[((Word)(2 * unit + %s) * width + c) * {lanes} + k] = acc[k];
    }}
"""
    return f"""\
{_chunk()}\
  if (locate(segments, edges, rows, low, row, begin, end) && begin < low && end - begin > LIMIT) {{
    const u32 stop = end < high ? end : high;
{save % ("low", "stop", "0")}  }}
  if (locate(segments, edges, rows, high - 1, row, begin, end) && begin >= low &&
      end - begin > LIMIT) {{
{save % ("begin", "high", "1")}  }}
"""


def _long(key: _Key, lanes: int) -> str:
    return f"""\
{_chunk()}\
  if (!locate(segments, edges, rows, high - 1, row, begin, end) || begin < low ||
      end - begin <= LIMIT) return;
  const Word place = offset(row);
  const u32 last = (end - 1) / LIMIT;
  for (u32 c = first; c < width; c += {key.group}) {{
    Word to = place, from = 0;
    columns(c, to, from);
    Number acc[{lanes}];
    initial(acc, to);
#pragma unroll {AT_ONCE}
    for (u32 chunk = unit; chunk <= last; ++chunk) {{
      const Word at = ((Word)(2 * chunk + (chunk == unit)) * width + c) * {lanes};
#pragma unroll
      for (int k = 0; k < {lanes}; ++k) acc[k] = join(acc[k], parts[at + k]);
    }}
    finish(acc, to);
  }}
"""
