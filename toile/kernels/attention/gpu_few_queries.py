"""Attention of a few queries to many keys, as in decoding with a cache, in one kernel.

The time is that of reading keys and values once. A block serves the queries of all heads that share
a head of keys. It computes the logits of up to 512 keys, then their weights, and then the weighted
sums of values, which are scaled down if later keys have larger logits. Some neighboring lanes hold
one key or value. Keys that no query sees are not read. Of long caches, several blocks read parts,
and a second kernel adds their sums.
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
MOST_ROWS = 4  # queries of all heads that a block serves: a power of two
MOST_SUMS = 512  # numbers of a block's result: each warp holds as many in shared memory
VECTOR = 16  # bytes that a lane holds of a key
THREADS = 512
LONG = 512  # keys whose logits a block holds, and keys of a part
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
    tiles = blocks_of(each, rows)
    blocks = batch * shared * tiles
    parts = max(1, min(blocks_of(keys, LONG), BUSY // blocks)) if blocks < BUSY else 1
    share = blocks_of(blocks_of(keys, parts), 32) * 32
    parts = blocks_of(keys, share)
    form = _Form(q.dtype.name, "" if table is None else table.dtype.name, depth, rows,
                 stats is not None, parts > 1)
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
    stored = _stored(form, o_steps, s_steps)
    if form.parts:
        stored = f"""\
      float* to = {parts_at} + ((Word)block * {rows} + r) * {depth + 2};
      to[2 + d] = sum;
      if (d == 0) {{ to[0] = tops[r]; to[1] = totals[r]; }}
"""
    addend = "0.0f"
    if form.table:
        addend = (f"addend({table}[(Word)batch * {t_steps[0]} + (Word)head * {t_steps[1]} + "
                  f"(Word)position * {t_steps[2]} + (Word)(start + i) * {t_steps[3]}])")
    return kernel_text(f"""\
  __shared__ float tops[{rows}], totals[{rows}], factors[{rows}];
  __shared__ float room[{max(rows * (LONG + depth), warps * rows * depth)}];
  __shared__ bool seen[{LONG}];
  float *logits = room, *queries = room + {rows * LONG}, *held = room;
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
  for (u32 e = threadIdx.x; e < {rows * depth}; e += {THREADS}) {{
    u32 position, head;
    place(e / {depth}, position, head);
    queries[e] = widened({q}[(Word)batch * {q_steps[0]} + (Word)position * {q_steps[1]}
      + (Word)head * {q_steps[2]} + e % {depth}]);
  }}
  if (threadIdx.x < {rows}) {{
    tops[threadIdx.x] = NEVER;
    totals[threadIdx.x] = 0.0f;
  }}
  float sums[{padded * numbers}] = {{}};
  for (u32 start = first; start < last; start += {LONG}) {{
    const u32 count = last - start < {LONG} ? last - start : {LONG};
    for (u32 i = threadIdx.x; i < count; i += {THREADS}) {{
      bool any = false;
#pragma unroll
      for (u32 r = 0; r < {rows}; ++r) {{
        u32 position, head;
        place(r, position, head);
        const float x = {addend};
        const bool is_seen = x > LOW;
        logits[r * {LONG} + i] = is_seen ? x : NEVER;
        any |= is_seen;
      }}
      seen[i] = any;
    }}
    __syncthreads();
    auto fetch = [&](Vector* to, const Number* from, Word by, u32 base) {{
#pragma unroll
      for (u32 u = 0; u < {READS}; ++u) {{
        const u32 i = base + u * {groups} + slot;
        to[u] = Vector{{}};
        if (i < count && seen[i]) to[u] = *(const Vector*)(from + (Word)(start + i) * by);
      }}
    }};
    Vector a[{READS}];
    {{
      float mine[{rows}][{numbers}];
#pragma unroll
      for (u32 r = 0; r < {rows}; ++r)
#pragma unroll
        for (u32 i = 0; i < {numbers}; ++i)
          mine[r][i] = queries[r * {depth} + lane * {numbers} + i];
      for (u32 base = 0; base < count; base += {step}) {{
        fetch(a, k, {k_steps[1]}, base);
#pragma unroll
        for (u32 u = 0; u < {READS}; ++u) {{
          const u32 i = base + u * {groups} + slot;
          float dots[{padded}] = {{}};
#pragma unroll
          for (u32 n = 0; n < {numbers}; ++n) {{
            const float x = widened(a[u].e[n]);
#pragma unroll
            for (u32 r = 0; r < {rows}; ++r) dots[r] = fmaf(mine[r][n], x, dots[r]);
          }}
          {_added("dots", padded, lanes // 2, 1)}
          const u32 r = lane / {lanes // padded};
          float* logit = logits + r * {LONG} + i;
          if (lane % {lanes // padded} == 0 && r < {rows} && i < count && *logit != NEVER)
            *logit = fmaf(dots[0], scale, *logit);
        }}
      }}
    }}
    fetch(a, v, {v_steps[1]}, 0);
    __syncthreads();
    for (u32 r = threadIdx.x / 32; r < {rows}; r += {warps}) {{
      float *row = logits + r * {LONG}, top = tops[r], total = 0.0f;
      for (u32 i = threadIdx.x % 32; i < count; i += 32) top = row[i] > top ? row[i] : top;
#pragma unroll
      for (u32 d = 16; d; d /= 2) {{
        const float other = __shfl_xor_sync(~0u, top, d);
        top = other > top ? other : top;
      }}
      for (u32 i = threadIdx.x % 32; i < count; i += 32) {{
        const float weight = row[i] == NEVER ? 0.0f : quick_exp(row[i] - top);
        row[i] = weight;
        total += weight;
      }}
#pragma unroll
      for (u32 d = 16; d; d /= 2) total += __shfl_xor_sync(~0u, total, d);
      if (threadIdx.x % 32 == 0) {{
        const float kept = factor(tops[r], top);
        factors[r] = kept;
        totals[r] = fmaf(totals[r], kept, total);
        tops[r] = top;
      }}
    }}
    __syncthreads();
#pragma unroll
    for (u32 r = 0; r < {rows}; ++r)
#pragma unroll
      for (u32 n = 0; n < {numbers}; ++n) sums[r * {numbers} + n] *= factors[r];
    for (u32 base = 0; base < count; base += {step}) {{
      if (base) fetch(a, v, {v_steps[1]}, base);
#pragma unroll
      for (u32 u = 0; u < {READS}; ++u) {{
        const u32 i = base + u * {groups} + slot;
#pragma unroll
        for (u32 r = 0; r < {rows}; ++r) {{
          const float weight = i < count ? logits[r * {LONG} + i] : 0.0f;
#pragma unroll
          for (u32 n = 0; n < {numbers}; ++n)
            sums[r * {numbers} + n] = fmaf(weight, widened(a[u].e[n]),
                                           sums[r * {numbers} + n]);
        }}
      }}
    }}
    __syncthreads();
  }}
  {_added("sums", padded * numbers, 16, lanes)}
  const u32 kept = threadIdx.x % 32 / {lanes} * {left};
#pragma unroll
  for (u32 n = 0; n < {left}; ++n) {{
    const u32 r = (kept + n) / {numbers};
    if (r < {rows})
      held[(threadIdx.x / 32 * {rows} + r) * {depth} + lane * {numbers} + (kept + n) % {numbers}]
        = sums[n];
  }}
  __syncthreads();
  for (u32 e = threadIdx.x; e < {rows * depth}; e += {THREADS}) {{
      const u32 r = e / {depth}, d = e % {depth};
      float sum = 0.0f;
#pragma unroll
      for (u32 n = 0; n < {warps}; ++n) sum += held[n * {rows * depth} + e];
      const float top = tops[r], total = totals[r];
{stored}\
  }}
""", _head(form), threads=THREADS)


def _added(name: str, count: int, first: int, last: int) -> str:
    """Statements that add numbers of all lanes whose places differ in the bits from `first` down to
    `last`. While a lane has several numbers, it keeps the sums of half of them; place p keeps the
    p-th part."""
    lines, bit = [], first
    while bit >= last:
        if count > 1:
            count //= 2
            lines.append(f"for (u32 i = 0; i < {count}; ++i) {{ const bool upper = threadIdx.x & "
                         f"{bit}; const float given = upper ? {name}[i] : {name}[i + {count}]; "
                         f"{name}[i] = (upper ? {name}[i + {count}] : {name}[i]) "
                         f"+ __shfl_xor_sync(~0u, given, {bit}); }}")
        else:
            lines.append(f"{{ {name}[0] += __shfl_xor_sync(~0u, {name}[0], {bit}); }}")
        bit //= 2
    return "\n#pragma unroll\n          ".join(["", *lines]).lstrip(" ") if lines else ""


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
