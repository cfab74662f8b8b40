"""Attention of a few queries to many keys, as in decoding with a cache, in one kernel.

The time is that of reading keys and values once. A block serves the queries of all heads that share
a head of keys. A group of lanes holds a few keys and their values, computes their logits, and adds
the values to its weighted sums, which are scaled down if later keys have larger logits. In the end,
the sums of all groups are added. Of long caches, keys that no query sees are not read; several
blocks read parts, and a second kernel adds their sums.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from toile.compiler.ir.geometry import room
from toile.compiler.ir.operands import Args, Operand
from toile.kernels.contraction.gpu_tensor_cores import is_aligned
from toile.targets.cuda.launches import Launch, Planner, blocks_of
from toile.targets.cuda.scalars import HELPERS
from toile.targets.cuda.text import Words, divisor, kernel_text

MOST_QUERIES = 4  # positions; cuDNN has tiles for more
MOST_ROWS = 4  # queries of all heads that a block serves
MOST_SUMS = 512  # numbers of a block's result: each warp holds as many in shared memory
VECTOR = 16  # bytes that a lane holds of a key
THREADS = 512
LONG = 512  # keys of a part; fewer are read before it is known which are seen
BUSY = 128  # blocks that keep a large GPU busy
READS = 4  # keys that a lane reads before it uses them
# Addends of logits that give a key no weight; a query that sees no key has no such addends.
LOW = {"bfloat16": -(2.0**100), "float32": -(2.0**100), "float16": -6e4}
BYTES = {"bfloat16": 2, "float16": 2}


class _Form(NamedTuple):
    """What determines the text."""

    type: str
    table: str  # the dtype of addends; "": there are none
    depth: int
    rows: int  # queries that a block serves
    sums: bool
    parts: bool  # rows of keys are divided among blocks
    long: bool  # keys and values are read only after it is known whether a query sees them

    @property
    def numbers(self) -> int:
        """Numbers of a key that a lane holds."""
        return VECTOR // BYTES[self.type]

    @property
    def lanes(self) -> int:
        """Lanes that hold a key."""
        return self.depth // self.numbers


def fits(q: Any, k: Any, v: Any) -> bool:
    """Whether the kernel computes attention of such shapes and dtypes: of few queries in few
    blocks. Where there are more blocks, cuDNN needs less time for each."""
    kinds = {np.dtype(a.dtype).name for a in (q, k, v)}
    if len(kinds) != 1 or not kinds <= set(BYTES) or not (q.size and k.size):
        return False
    depth, size = q.shape[-1], BYTES[np.dtype(q.dtype).name]
    lanes = depth * size // VECTOR
    each = q.shape[-2] // k.shape[-2] * q.shape[-3]
    return (
        0 < depth <= MOST_SUMS
        and prod(q.shape[:-3]) * k.shape[-2] * blocks_of(each, _rows(each, depth)) <= BUSY
        and q.shape[-3] <= MOST_QUERIES and k.shape[-1] == v.shape[-1] == depth
        and q.shape[-2] % k.shape[-2] == 0
        and lanes * VECTOR == depth * size and lanes in (4, 8, 16, 32)
    )  # fmt: skip


def lower(q: Operand, k: Operand, v: Operand, table: Operand | None, out: Operand,
          stats: Operand | None, scale: float, plan: Planner) -> None:
    """Stage the attention of (batch, positions, heads, depth); `table` is added to the logits, and
    `stats` are the logarithms of the sums of exponentials."""
    k, v = _readable(k, plan), _readable(v, plan)
    q = _readable(q, plan)
    batch, t, heads, depth = q.shape
    keys, shared = k.shape[1], k.shape[2]
    each = heads // shared * t  # queries that share keys
    rows = _rows(each, depth)
    while keys <= LONG and rows > 1 and (
            batch * shared * blocks_of(each, rows // 2) <= BUSY // 2):
        rows //= 2  # more blocks, which read the same keys
    tiles = blocks_of(each, rows)
    blocks = batch * shared * tiles
    parts = max(1, min(blocks_of(keys, LONG), BUSY // blocks)) if blocks < BUSY else 1
    share = blocks_of(blocks_of(keys, parts), 32) * 32
    parts = blocks_of(keys, share)
    form = _Form(q.dtype.name, "" if table is None else table.dtype.name, depth, rows,
                 stats is not None, parts > 1, keys > LONG)
    target = plan.scratch(4 * blocks * parts * rows * (depth + 2)) if parts > 1 else out.ref
    counts = (keys, t, each, heads // shared, share, _bits(scale))
    places = (target, out.ref, (stats or out).ref)
    steps = (*out.strides[:3], *(stats.strides if stats is not None else (0, 0, 0)))
    divisors = (divisor(parts), divisor(tiles), divisor(shared), divisor(t))
    x = out if table is None else table
    table_steps = (0,) * 4 if table is None else tuple(
        0 if n == 1 else s for n, s in zip(table.shape, table.strides, strict=True))
    args: Args = (q.ref, k.ref, v.ref, x.ref, *places, *counts, *q.strides[:3], *k.strides[:3],
                  *v.strides[:3], *table_steps, *steps, *divisors)
    nbytes = k.size * k.dtype.itemsize * 2
    plan.stage(Launch(_text(form), args, blocks * parts, THREADS, 0, "attention", nbytes=nbytes))
    if parts > 1:
        more: Args = (target, out.ref, (stats or out).ref, parts, t, each, heads // shared, *steps,
                      *divisors[1:])
        plan.stage(Launch(_sum_text(form), more, blocks, THREADS, 0, "attention, sum of parts"))


def _rows(each: int, depth: int) -> int:
    """How many of the queries that share keys a block serves."""
    return max(1, min(each, MOST_ROWS, MOST_SUMS // depth))


def _bits(x: float) -> int:
    return int(np.float32(x).view(np.uint32))


def _readable(x: Operand, plan: Any) -> Operand:
    """The operand, or a copy, in which vectors can be read."""
    unit = VECTOR // x.dtype.itemsize
    whole = x.strides[-1] == 1 and is_aligned(x.ref, VECTOR) and not any(
        s % unit for n, s in zip(x.shape[:-1], x.strides[:-1], strict=True) if n > 1)
    if whole:
        return x
    target = room(plan, x.shape, x.dtype)
    plan.copy(target, x)
    return target


# `factor`: of a sum whose largest logit was `top`.
_HEAD = """\
#define NEVER (-__int_as_float(0x7f800000))
#define LOW {low}
typedef {number} Number;
typedef {table} Addend;
struct alignas(16) Vector {{ Number e[{numbers}]; }};
__device__ inline float widened(Number x) {{ return {widened}; }}
__device__ inline Number rounded(float x) {{ return {rounded}; }}
__device__ inline float addend(Addend x) {{ return {added}; }}
__device__ inline float factor(float top, float larger) {{
  return top == larger ? 1.0f : quick_exp(top - larger);
}}
"""


def _head(form: _Form) -> str:
    short = {"bfloat16": "bf16", "float16": "half"}
    names = sorted({short[x] for x in (form.type, form.table) if x in short})
    helpers = "".join(HELPERS[f"{way}_{name}"] for name in names for way in ("from", "to"))
    helpers += "".join(HELPERS[x] for x in ("quick_exp2", "quick_exp", "quick_log2", "quick_log"))

    def number(x: str) -> str:
        return "u16" if x in short else "float"

    def widened(x: str) -> str:
        return f"from_{short[x]}(x)" if x in short else "x"

    return helpers + _HEAD.format(
        low=f"{LOW[form.table]!r}f" if form.table else "NEVER",
        number=number(form.type), table=number(form.table), numbers=form.numbers,
        widened=widened(form.type), added=widened(form.table),
        rounded=f"to_{short[form.type]}(x)" if form.type in short else "x")


# The queries of a block, and where their results are stored.
_ROWS = """\
  auto place = [&](u32 r, u32& position, u32& head) {{
    Index i = tile * {rows} + r < each ? tile * {rows} + r : each - 1;
    const Index h = cut(i, {t});
    position = i; head = (u32)(shared * group + h);
  }};
"""

# A result (top, total and the weighted sum of values) is stored, or its logarithm and quotient.
_STORED = """\
      u32 position, head;
      place(r, position, head);
      if (tile * {rows} + r < each) {{
        out[(Word)batch * {by_batch} + (Word)position * {by_position} + (Word)head * {by_head} + d]
          = rounded(sum / total);
        {stats}
      }}
"""
_STATS = ("if (d == 0) stats[(Word)batch * {0} + (Word)head * {1} + (Word)position * {2}] = "
          "top + quick_log(total);")


@lru_cache(maxsize=64)
def _text(form: _Form) -> str:
    r = Words()
    q, k, v = (r.pointer("const Number") for _ in range(3))
    table, parts_at = r.pointer("const Addend"), r.pointer("float")
    out, stats = r.pointer("Number"), r.pointer("float")
    keys, _, each, per_head, share, scale = r.many(6)
    q_steps, k_steps, v_steps, t_steps, o_steps, s_steps = (r.many(n) for n in (3, 3, 3, 4, 3, 3))
    parts, tiles, shared, t = r.many(4)
    rows, lanes, numbers, depth = form.rows, form.lanes, form.numbers, form.depth
    warps, groups = THREADS // 32, THREADS // lanes
    step = READS * groups  # keys that a block reads at once
    padded = 1 << (rows - 1).bit_length()
    left = padded * numbers * lanes // 32  # sums of a thread after those of its warp are added
    count = padded * READS  # logits of a group of lanes, ordered by query
    held, copies = max(1, count // lanes), max(1, lanes // count)  # by a lane; lanes with the same
    same = READS // held * copies  # lanes with logits of the same query
    stored = _stored(form, o_steps, s_steps)
    if form.parts:
        stored = f"""\
      float* to = {parts_at} + ((Word)block * {rows} + r) * {depth + 2};
      to[2 + d] = sum;
      if (d == 0) {{ to[0] = top; to[1] = total; }}
"""
    addend = "0.0f"
    if form.table:
        addend = (f"addend({table}[(Word)batch * {t_steps[0]} + (Word)heads[r] * {t_steps[1]} + "
                  f"(Word)positions[r] * {t_steps[2]} + (Word)i * {t_steps[3]}])")
    largest = _each_bit(copies, same // 2, "{ const float other = __shfl_xor_sync(~0u, high, BIT); "
                        "high = other > high ? other : high; }")
    return kernel_text(f"""\
  __shared__ float held[{warps}][{rows * depth}], tops[{warps}][{rows}], totals[{warps}][{rows}];
  Index tile = block;
  {f"const Index tiles = cut(tile, {parts}); const u32 part = tile; tile = tiles;" if form.parts
   else "const u32 part = 0;"}
  Index group = cut(tile, {tiles});
  const Index batch = cut(group, {shared});
  const u32 keys = (u32){keys}, each = (u32){each}, shared = (u32){per_head};
  const u32 first = part * (u32){share};
  const u32 last = first + (u32){share} < keys ? first + (u32){share} : keys;
  const float scale = __int_as_float((int){scale});
  Number* out = {out};
  float* stats = {stats};
  const u32 lane = threadIdx.x % {lanes}, slot = threadIdx.x / {lanes};
  const Number* k = {k} + (Word)batch * {k_steps[0]} + (Word)group * {k_steps[2]};
  const Number* v = {v} + (Word)batch * {v_steps[0]} + (Word)group * {v_steps[2]};
  k += lane * {numbers};
  v += lane * {numbers};
{_ROWS.format(rows=rows, t=t)}\
  u32 positions[{rows}], heads[{rows}];
  Vector mine[{rows}];
#pragma unroll
  for (u32 r = 0; r < {rows}; ++r) {{
    place(r, positions[r], heads[r]);
    mine[r] = *(const Vector*)({q} + (Word)batch * {q_steps[0]} + (Word)positions[r] * {q_steps[1]}
      + (Word)heads[r] * {q_steps[2]} + lane * {numbers});
  }}
  float addends[{count}];
#pragma unroll
  for (u32 n = 0; n < {count}; ++n) addends[n] = LOW;
  auto fetch = [&](u32 start) {{
#pragma unroll
    for (u32 u = 0; u < {READS}; ++u) {{
      const u32 i = start + u * {groups} + slot;
#pragma unroll
      for (u32 r = 0; r < {rows}; ++r) addends[r * {READS} + u] = i < last ? {addend} : LOW;
    }}
  }};
  float top = NEVER, total = 0.0f, sums[{padded * numbers}] = {{}};
  fetch(first);
  for (u32 start = first; start < last; start += {step}) {{
    Vector a[{READS}], b[{READS}];
    bool seen[{READS}];
#pragma unroll
    for (u32 u = 0; u < {READS}; ++u) {{
      const u32 i = start + u * {groups} + slot;
      a[u] = b[u] = Vector{{}};
      seen[u] = false;
#pragma unroll
      for (u32 r = 0; r < {rows}; ++r) seen[u] |= !(addends[r * {READS} + u] <= LOW);
      if ({"seen[u]" if form.long else "i < last"}) {{
        a[u] = *(const Vector*)(k + (Word)i * {k_steps[1]});
        b[u] = *(const Vector*)(v + (Word)i * {v_steps[1]});
      }}
    }}
    float dots[{count}] = {{}};
#pragma unroll
    for (u32 u = 0; u < {READS}; ++u) {{
#pragma unroll
      for (u32 n = 0; n < {numbers}; ++n) {{
        if (!seen[u]) b[u].e[n] = 0;
        const float x = widened(a[u].e[n]);
#pragma unroll
        for (u32 r = 0; r < {rows}; ++r)
          dots[r * {READS} + u] = fmaf(widened(mine[r].e[n]), x, dots[r * {READS} + u]);
      }}
    }}
    {_kept("addends", count, lanes // 2)}
    {_added("dots", count, lanes // 2, 1)}
    float high = top;
#pragma unroll
    for (u32 n = 0; n < {held}; ++n) {{
      dots[n] = addends[n] <= LOW ? NEVER : fmaf(dots[n], scale, addends[n]);
      high = dots[n] > high ? dots[n] : high;
    }}
    if (start + {step} < last) fetch(start + {step});
    {largest}
    const float kept = factor(top, high);
    total *= kept;
    top = high;
#pragma unroll
    for (u32 n = 0; n < {held}; ++n) {{
      dots[n] = dots[n] == NEVER ? 0.0f : quick_exp(dots[n] - top);
      total += dots[n];
    }}
    {_gathered("dots", held, copies, lanes // 2)}
    if (start != first) {{
#pragma unroll
      for (u32 r = 0; r < {rows}; ++r) {{
        const float all = __shfl_sync(~0u, kept, threadIdx.x % 32 / {lanes} * {lanes} + r * {same});
#pragma unroll
        for (u32 n = 0; n < {numbers}; ++n) sums[r * {numbers} + n] *= all;
      }}
    }}
#pragma unroll
    for (u32 u = 0; u < {READS}; ++u)
#pragma unroll
      for (u32 n = 0; n < {numbers}; ++n) {{
        const float x = widened(b[u].e[n]);
#pragma unroll
        for (u32 r = 0; r < {rows}; ++r)
          sums[r * {numbers} + n] = fmaf(dots[r * {READS} + u], x, sums[r * {numbers} + n]);
      }}
  }}
  float high = top;
  {_each_bit(lanes, 16, "{ const float other = __shfl_xor_sync(~0u, high, BIT); "
             "high = other > high ? other : high; }")}
  const float kept = factor(top, high);
  total *= kept;
  {_each_bit(copies, same // 2, "total += __shfl_xor_sync(~0u, total, BIT);")}
  {_each_bit(lanes, 16, "total += __shfl_xor_sync(~0u, total, BIT);")}
#pragma unroll
  for (u32 r = 0; r < {rows}; ++r) {{
    const float all = __shfl_sync(~0u, kept, threadIdx.x % 32 / {lanes} * {lanes} + r * {same});
#pragma unroll
    for (u32 n = 0; n < {numbers}; ++n) sums[r * {numbers} + n] *= all;
  }}
  if (threadIdx.x % 32 < {lanes} && lane % {same} == 0 && lane / {same} < {rows}) {{
    tops[threadIdx.x / 32][lane / {same}] = high;
    totals[threadIdx.x / 32][lane / {same}] = total;
  }}
  {_added("sums", padded * numbers, 16, lanes)}
#pragma unroll
  for (u32 n = 0; n < {left}; ++n) {{
    const u32 place = threadIdx.x % 32 / {lanes} * {left} + n, r = place / {numbers};
    if (r < {rows})
      held[threadIdx.x / 32][r * {depth} + lane * {numbers} + place % {numbers}] = sums[n];
  }}
  __syncthreads();
  for (u32 e = threadIdx.x; e < {rows * depth}; e += {THREADS}) {{
      const u32 r = e / {depth}, d = e % {depth};
      float top = tops[0][r], total = 0.0f, sum = 0.0f;
#pragma unroll
      for (u32 n = 1; n < {warps}; ++n) top = tops[n][r] > top ? tops[n][r] : top;
#pragma unroll
      for (u32 n = 0; n < {warps}; ++n) {{
        const float mine = factor(tops[n][r], top);
        total = fmaf(totals[n][r], mine, total);
        sum = fmaf(held[n][e], mine, sum);
      }}
{stored}\
  }}
""", _head(form), threads=THREADS)


def _each_bit(first: int, last: int, text: str) -> str:
    """A statement for each power of two from `first` to `last`, which it calls BIT."""
    bits = [1 << n for n in range(first.bit_length() - 1, last.bit_length())]
    return "\n  ".join(text.replace("BIT", str(bit)) for bit in bits)


# While a lane has several numbers, it keeps half of them; place p keeps the p-th part.
_HALF = ("for (u32 i = 0; i < {count}; ++i) {{ const bool upper = threadIdx.x & {bit}; {text} }}")


def _added(name: str, count: int, first: int, last: int) -> str:
    """Statements that add numbers of all lanes whose places differ in the bits from `first` down to
    `last`."""
    lines, bit = [], first
    while bit >= last:
        if count > 1:
            count //= 2
            lines.append(_HALF.format(count=count, bit=bit, text=(
                f"const float given = upper ? {name}[i] : {name}[i + {count}]; "
                f"{name}[i] = (upper ? {name}[i + {count}] : {name}[i]) "
                f"+ __shfl_xor_sync(~0u, given, {bit});")))
        else:
            lines.append(f"{{ {name}[0] += __shfl_xor_sync(~0u, {name}[0], {bit}); }}")
        bit //= 2
    return _unrolled(lines)


def _kept(name: str, count: int, first: int) -> str:
    """Statements that keep those of a group's numbers whose sums `_added` leaves in a lane."""
    lines, bit = [], first
    while bit and count > 1:
        count //= 2
        lines.append(_HALF.format(count=count, bit=bit, text=(
            f"if (upper) {name}[i] = {name}[i + {count}];")))
        bit //= 2
    return _unrolled(lines)


def _gathered(name: str, count: int, bit: int, last: int) -> str:
    """Statements that give every lane the numbers that `_added` has left in others."""
    lines = []
    while bit <= last:
        lines.append(_HALF.format(count=count, bit=bit, text=(
            f"const float own = {name}[i], other = __shfl_xor_sync(~0u, own, {bit}); "
            f"{name}[i] = upper ? other : own; {name}[i + {count}] = upper ? own : other;")))
        count, bit = 2 * count, 2 * bit
    return _unrolled(lines)


def _unrolled(lines: list[str]) -> str:
    return "\n#pragma unroll\n  ".join(["", *lines]).lstrip(" ") if lines else ""


def _stored(form: _Form, by: list[str], stats_by: list[str]) -> str:
    """Statements that store a result of row r and depth d, and the logarithm of its sum."""
    return _STORED.format(rows=form.rows, by_batch=by[0], by_position=by[1], by_head=by[2],
                          stats=_STATS.format(*stats_by) if form.sums else "")


@lru_cache(maxsize=64)
def _sum_text(form: _Form) -> str:
    r = Words()
    parts_at, out, stats = r.pointer("const float"), r.pointer("Number"), r.pointer("float")
    parts, _, each, per_head = r.many(4)
    o_steps, s_steps = r.many(3), r.many(3)
    tiles, shared, t = r.many(3)
    rows, depth = form.rows, form.depth
    return kernel_text(f"""\
  Index tile = block, group = cut(tile, {tiles});
  const Index batch = cut(group, {shared});
  const u32 each = (u32){each}, shared = (u32){per_head}, parts = (u32){parts};
  Number* out = {out};
  float* stats = {stats};
{_ROWS.format(rows=rows, t=t)}\
  for (u32 e = threadIdx.x; e < {rows * depth}; e += {THREADS}) {{
      const u32 r = e / {depth}, d = e % {depth};
      const float* from = {parts_at} + ((Word)block * parts * {rows} + r) * {depth + 2};
      const Word step = {rows * (depth + 2)};
      float top = from[0], total = 0.0f, sum = 0.0f;
      for (u32 n = 1; n < parts; ++n) top = from[n * step] > top ? from[n * step] : top;
      for (u32 n = 0; n < parts; ++n) {{
        const float mine = factor(from[n * step], top);
        total = fmaf(from[n * step + 1], mine, total);
        sum = fmaf(from[n * step + 2 + d], mine, sum);
      }}
{_stored(form, o_steps, s_steps)}\
  }}
""", _head(form), threads=THREADS)
