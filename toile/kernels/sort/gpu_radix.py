"""Stable radix sorts of rows of unsigned keys, optionally with indices: the lowest digit first.

Each pass over a digit counts the digits of every tile, sums the counts of each digit over the
tiles, and moves the keys of a tile to their positions. Within a tile each warp ranks its keys in
order: lanes with equal digits find each other by votes. Nothing depends on timing.
"""

from __future__ import annotations

from functools import lru_cache

from toile.compiler.ir.operands import Ref
from toile.targets.cuda.launches import THREADS, Launch, Planner, blocks_of
from toile.targets.cuda.text import divisor, kernel_text

DIGITS = 256
ITEMS = 8  # keys of a thread
TILE = THREADS * ITEMS
_WARPS = THREADS // 32

SCAN = f"""\
__device__ inline u32 running(u32 x, u32* sums) {{
  const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  for (u32 d = 1; d < 32; d <<= 1) {{
    u32 y = __shfl_up_sync(~0u, x, d);
    if (lane >= d) x += y;
  }}
  if (lane == 31) sums[warp] = x;
  __syncthreads();
  u32 before = 0;
  for (u32 k = 0; k < {_WARPS}; ++k) before += k < warp ? sums[k] : 0;
  __syncthreads();
  return x + before;
}}
"""


def sort_rows(
    plan: Planner, keys: tuple[Ref, Ref], places: tuple[Ref, Ref] | None, type: str, rows: int,
    n: int, bits: int, zero: int | None = None,
) -> tuple[tuple[Ref, Ref], tuple[Ref, Ref] | None]:  # fmt: skip
    """Sort dense rows of n keys by their low bits; the first buffer of each pair is the input.

    Returns the pairs, with the result first. zero: a key that is treated as the next one."""
    passes = blocks_of(bits, 8)
    tiles = blocks_of(n, TILE)
    counts, totals = plan.scratch(4 * rows * DIGITS * tiles), plan.scratch(4 * rows * DIGITS)
    digit_of = type, zero is not None
    for shift in range(0, 8 * passes, 8):
        shape = n, divisor(tiles), shift, -1 if zero is None else zero
        plan.stage(Launch(_count_text(*digit_of), (keys[0], counts, *shape), rows * tiles, THREADS,
                          note="digits"))
        plan.stage(Launch(_totals_text(), (counts, totals, tiles), rows * DIGITS, THREADS,
                          note="digits"))
        plan.stage(Launch(_move_text(*digit_of, places is not None),
                          (*keys, *(places or ()), counts, totals, *shape), rows * tiles, THREADS,
                          note="sort"))
        keys = keys[1], keys[0]
        places = None if places is None else (places[1], places[0])
    return keys, places


def _digit(type: str, merges: bool) -> str:
    """`digit(key, shift, zero)`."""
    body = "key += key == zero; " if merges else ""
    return (f"__device__ inline u32 digit({type} key, u32 shift, {type} zero) {{ {body}"
            f"return (u32)(key >> shift) & {DIGITS - 1}u; }}\n")


@lru_cache(maxsize=8)
def _count_text(type: str, merges: bool) -> str:
    return kernel_text(f"""\
  __shared__ u32 found[{DIGITS}];
  const {type}* keys = (const {type}*)w[0];
  u32* counts = (u32*)w[1];
  const u32 n = (u32)w[2], shift = (u32)w[4];
  Index tile = block, row = cut(tile, w[3]);
  found[threadIdx.x] = 0;
  __syncthreads();
  keys += (Word)row * n;
#pragma unroll
  for (u32 k = 0; k < {ITEMS}; ++k) {{
    const u32 i = tile * {TILE} + k * {THREADS} + threadIdx.x;
    if (i < n) atomicAdd(&found[digit(keys[i], shift, ({type})w[5])], 1u);
  }}
  __syncthreads();
  counts[((Word)row * {DIGITS} + threadIdx.x) * (u32)w[3] + tile] = found[threadIdx.x];
""", _digit(type, merges))


@lru_cache(maxsize=1)
def _totals_text() -> str:
    """A block for each digit of a row: counts of tiles become sums over earlier tiles."""
    return kernel_text(f"""\
  __shared__ u32 sums[{_WARPS}], last;
  u32* counts = (u32*)w[0] + (Word)block * w[2];
  const u32 tiles = (u32)w[2];
  u32 before = 0;
  for (u32 first = 0; first < tiles; first += {THREADS}) {{
    const u32 i = first + threadIdx.x;
    const u32 x = i < tiles ? counts[i] : 0;
    const u32 sum = running(x, sums);
    if (i < tiles) counts[i] = before + sum - x;
    if (threadIdx.x == {THREADS - 1}) last = sum;
    __syncthreads();
    before += last;
    __syncthreads();
  }}
  if (threadIdx.x == 0) ((u32*)w[1])[block] = before;
""", SCAN, wide=None)


# The rank of each key among the keys of its warp with the same digit.
_RANK = f"""\
#pragma unroll
  for (u32 k = 0; k < {ITEMS}; ++k) {{
    const u32 i = start + k * 32;
    key[k] = i < n ? keys[i] : 0;
    const u32 d = i < n ? digit(key[k], shift, zero) : {DIGITS - 1}u;  // those that are not, last
    u32 peers = ~0u;
#pragma unroll
    for (u32 b = 1; b < {DIGITS}; b <<= 1) {{
      const u32 votes = __ballot_sync(~0u, (d & b) != 0);
      peers &= d & b ? votes : ~votes;
    }}
    const u32 before = counts[warp][d];
    __syncwarp();
    rank[k] = before + __popc(peers & lower);
    if ((peers & lower) == 0) counts[warp][d] = before + __popc(peers);
    __syncwarp();
  }}
"""


@lru_cache(maxsize=16)
def _move_text(type: str, merges: bool, places: bool) -> str:
    n = 4 if places else 2  # index of the counts among the arguments
    along = (
        "const u32* places = (const u32*)w[2] + base;\n  u32* to_places = (u32*)w[3] + base;\n  "
        if places else ""
    )  # fmt: skip
    return kernel_text(f"""\
  __shared__ u32 counts[{_WARPS}][{DIGITS}], first[{DIGITS}], sums[{_WARPS}];
  const u32 n = (u32)w[{n + 2}], shift = (u32)w[{n + 4}], tiles = (u32)w[{n + 3}];
  const {type} zero = ({type})w[{n + 5}];
  const u32 t = threadIdx.x, lane = t & 31, warp = t >> 5, lower = (1u << lane) - 1;
  Index tile = block, row = cut(tile, w[{n + 3}]);
  const Word base = (Word)row * n, digits = (Word)row * {DIGITS} + t;
  const {type}* keys = (const {type}*)w[0] + base;
  {type}* to_keys = ({type}*)w[1] + base;
  {along}
#pragma unroll
  for (u32 k = 0; k < {_WARPS}; ++k) counts[k][t] = 0;
  const u32 total = ((const u32*)w[{n + 1}])[digits];
  first[t] = running(total, sums) - total + ((const u32*)w[{n}])[digits * tiles + tile];
  __syncthreads();
  {type} key[{ITEMS}];
  u32 rank[{ITEMS}];
  const u32 start = tile * {TILE} + warp * {32 * ITEMS} + lane;
{_RANK}  __syncthreads();
  u32 sum = first[t];
#pragma unroll
  for (u32 k = 0; k < {_WARPS}; ++k) {{
    const u32 count = counts[k][t];
    counts[k][t] = sum;
    sum += count;
  }}
  __syncthreads();
#pragma unroll
  for (u32 k = 0; k < {ITEMS}; ++k) {{
    const u32 i = start + k * 32;
    if (i >= n) continue;
    const u32 to = counts[warp][digit(key[k], shift, zero)] + rank[k];
    to_keys[to] = key[k];
    {"to_places[to] = places[i];" if places else ""}
  }}
""", _digit(type, merges) + SCAN)
