"""Top k: the first of each row by descending keys, with their indices.

For a small k a warp or a block keeps the first k of what each thread reads, and nothing is sorted.
Otherwise each tile of a row is sorted and reduced to its first k, until one tile is left; if k is
large, long rows are sorted altogether.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from toile.compiler.ir.operands import Operand, Ref
from toile.kernels.sort import gpu_keys
from toile.kernels.sort.gpu_blocks import TILE, block_sort, tile_of
from toile.kernels.sort.gpu_places import Frame, sorted_places, take_text, words_of
from toile.kernels.sort.shared import Rows, orders, rows_of
from toile.targets.cuda.launches import THREADS, Launch, Planner, blocks_of
from toile.targets.cuda.text import MOST, divisors, kernel_text

_PART = 4  # tiles are used if k is at most their size divided by this
# The largest k for which nothing is sorted, how many numbers threads then read at once, and how
# many blocks are enough.
_FEW, _BATCH, _BUSY = 16, 8, 528
_WHOLE = 4096  # longest row that is always read as a whole, by a warp if there are many rows


def lower_top_k(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """TopK: by stages, or by sorting rows that are too long for that k."""
    x, n, k = ins[0], ins[0].shape[op.axis], op.k
    if not orders(x.dtype) or x.size > MOST or k == 0:
        return False
    type = gpu_keys.key_type(x.dtype)
    rows = rows_of(op.axis, x, *outs)
    if not tile_of(n, [type]) and k * _PART > TILE:
        places = sorted_places(op.axis, [x], "top", n, plan)
        args = (n, *divisors([k]), outs[0].size, places, x.ref, outs[0].ref, outs[1].ref,
                *words_of(rows))  # fmt: skip
        text = take_text((x.dtype.itemsize,), len(rows.extents), True)
        plan.stage(Launch.over(outs[0].size, text, args, "top_k"))
        return True
    _top_by_stages(x, outs, k, rows, type == "u32" and _is_small(k, n), plan)
    return True


def _is_small(k: int, n: int) -> bool:
    """Whether k rounds over a row take less time than sorting it, along with others, in a block."""
    return k <= _FEW and n > 32 and n >= 8 * k


def _top_by_stages(
    x: Operand, outs: list[Operand], k: int, rows: Rows, few: bool, plan: Planner
) -> None:
    """Add a stage that reduces each part of a row to its first k, until one part is left.

    few: nothing is sorted in the first stage, which has larger parts."""
    source: tuple[Ref | int, Ref | int] = (0, 0)
    rank, length = len(rows.extents), x.size // rows.number
    final = False
    while not final:
        tile = tile_of(length, [gpu_keys.key_type(x.dtype)]) or TILE
        part = min(tile, 1 << (length - 1).bit_length())
        each, warps = tile // part, False  # rows of a block, if they are not divided
        if few:
            part = _WHOLE if length <= _WHOLE else _BATCH * THREADS * max(
                1, x.size // (_BATCH * THREADS * _BUSY))
            warps = length <= _WHOLE and (rows.number >= 2 * _BUSY or length <= 32 * _BATCH)
            each = THREADS // 32 if warps else 1
        tiles = blocks_of(length, part)
        final = tiles == 1
        count = rows.number * tiles * k
        to: tuple[Ref | int, Ref | int] = (0, 0) if final else (
            plan.scratch(gpu_keys.key_bytes(x.dtype) * count), plan.scratch(4 * count))
        text = _best_text(x.dtype, rank, k, warps, final) if few else _top_text(
            x.dtype, rank, tile, source[0] == 0, final)
        args = (length, part, rows.number, k, tiles, *source, *to, x.ref, outs[0].ref,
                outs[1].ref, *words_of(rows))  # fmt: skip
        blocks = blocks_of(rows.number * tiles, each)
        plan.stage(Launch(text, args, blocks, THREADS, 0, "top_k"))
        source, length, few = to, tiles * k, False


# The least number of a block: the least of its warps' least numbers.
_OF_BLOCK = f"""\
    __syncthreads();
    if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = first;
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < {THREADS // 32}; ++i) if (found[i] < first) first = found[i];
"""


@lru_cache(maxsize=128)
def _best_text(dtype: Any, rank: int, k: int, warps: bool, final: bool) -> str:
    """The first k of a part of a row, for a small k: each thread keeps the first of what it reads.

    A number and its place are one integer, so that the least of them is the first. warps: each warp
    has a part of its own; final: the part is a whole row."""
    frame = Frame(9, 3, rank)
    length, part, rows, _, tiles, _, _, to_keys, to_places = frame.own
    bits, wide = gpu_keys.bits_type(dtype), 32 if warps else THREADS
    unit = f"block * {THREADS // 32}u + threadIdx.x / 32" if warps else "block"
    save = (
        f"const u32 at = (u32)mine; {frame.move(dtype.itemsize, 0, 1, 't')} "
        f"*(u32*)(p2 + (Word)t * {frame.inner[2]}) = at;"
        if final else
        f"const Word to = (Word)unit * {k} + t; ((u32*){to_keys})[to] = (u32)(mine >> 32); "
        f"((u32*){to_places})[to] = (u32)mine;"
    )  # fmt: skip
    return kernel_text(f"""\
  __shared__ u64 found[{THREADS // 32}];
  const u32 n = (u32){length}, part = (u32){part}, tiles = (u32){tiles};
  const u32 unit = {unit}, t = threadIdx.x % {wide};
  const u32 row = unit / tiles, begin = (unit - row * tiles) * part;
  if (row >= (u32){rows}) return;
  const u32 end = begin + part < n ? begin + part : n;
  {frame.pointers()}
  u64 best[{k}], mine = 0;
#pragma unroll
  for (int j = 0; j < {k}; ++j) best[j] = ~0ull;
  for (u32 start = begin + t; start < end; start += {wide * _BATCH}) {{
    u64 x[{_BATCH}];
#pragma unroll
    for (u32 u = 0; u < {_BATCH}; ++u) {{
      const u32 i = start + u * {wide}, at = i < end ? i : begin;
      const {bits} number = *(const {bits}*)(p0 + (Word)at * {frame.inner[0]});
      x[u] = i < end ? (u64)key_of(number) << 32 | i : ~0ull;
    }}
#pragma unroll
    for (u32 u = 0; u < {_BATCH}; ++u) {{
      if (x[u] >= best[{k - 1}]) continue;
      best[{k - 1}] = x[u];
#pragma unroll
      for (int j = {k - 1}; j > 0; --j)
        if (best[j] < best[j - 1]) {{
          const u64 y = best[j];
          best[j] = best[j - 1], best[j - 1] = y;
        }}
    }}
  }}
  for (u32 j = 0; j < {k}; ++j) {{
    u64 first = best[0];
    for (int d = 16; d; d >>= 1) {{
      const u64 y = __shfl_xor_sync(~0u, first, d);
      if (y < first) first = y;
    }}
{"" if warps else _OF_BLOCK}\
    if (t == j) mine = first;
    if (best[0] == first) {{
#pragma unroll
      for (int i = 1; i < {k}; ++i) best[i - 1] = best[i];
      best[{k - 1}] = ~0ull;
    }}
  }}
  if (t < {k}) {{ {save} }}
""", gpu_keys.key_function(dtype, "top"))


@lru_cache(maxsize=128)
def _top_text(dtype: Any, rank: int, tile: int, begins: bool, final: bool) -> str:
    """The first k of each tile of a row (or, if rows are short, of each row of a tile)."""
    frame = Frame(9, 3, rank)
    length, padded, rows, k, tiles, keys, places, to_keys, to_places = frame.own
    type, bits = gpu_keys.key_type(dtype), gpu_keys.bits_type(dtype)
    where = (
        f"const u32 first = (block * {tile}u) >> shift, begin = 0;" if final else
        f"const u32 first = block / tiles, begin = (block - first * tiles) * {tile}u;"
    )  # fmt: skip
    load = (
        f"{frame.pointers('there ? row : 0')} const {type} x = key_of(__ldg((const {bits}*)(p0 + "
        f"(Word)(there ? i : 0) * {frame.inner[0]}))); key0[e] = there ? x : ({type})~0ull; "
        "place[e] = there ? i : ~0u;"
        if begins else
        f"const Word at = (Word)row * n + i; key0[e] = there ? ((const {type}*){keys})[at] : "
        f"({type})~0ull; place[e] = there ? ((const u32*){places})[at] : ~0u;"
    )  # fmt: skip
    save = (
        f"{frame.pointers()} const u32 at = place[e]; {frame.move(dtype.itemsize, 0, 1, 'j')} "
        f"*(u32*)(p2 + (Word)j * {frame.inner[2]}) = at;"
        if final else
        f"const Word to = (Word)block * k + j; (({type}*){to_keys})[to] = key0[e]; "
        f"((u32*){to_places})[to] = place[e];"
    )  # fmt: skip
    return kernel_text(f"""\
  const u32 n = (u32){length}, padded = (u32){padded}, rows = (u32){rows};
  const u32 k = (u32){k}, tiles = (u32){tiles};
  const u32 shift = 31 - __clz((int)padded);
  {where}
#pragma unroll {min(_BATCH, tile // THREADS)}
  for (u32 e = threadIdx.x; e < {tile}; e += {THREADS}) {{
    const u32 i = begin + (e & (padded - 1)), row = first + (e >> shift);
    const bool there = i < n && row < rows;
    {load}
  }}
  sort(padded);
  for (u32 e = threadIdx.x; e < {tile}; e += {THREADS}) {{
    const u32 j = e & (padded - 1), row = first + (e >> shift);
    if (j >= k || row >= rows) continue;
    {save}
  }}
""", gpu_keys.key_function(dtype, "top") + block_sort([type], gpu_keys.key_bits(dtype), tile))
