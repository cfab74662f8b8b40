"""Stable radix sorts of rows of unsigned keys, optionally with indices: the lowest digit first.

Each pass over a digit counts the digits of every tile, sums the counts of each digit over the
tiles, and moves the keys of a tile to their positions. Within a tile each warp ranks its keys in
order: lanes with equal digits find each other by votes. A tile is put in order in shared memory
first, so that keys of one digit are written to consecutive addresses. Nothing depends on timing.
"""

from __future__ import annotations

from functools import lru_cache

from toile.compiler.ir.operands import Ref
from toile.targets.cuda.launches import THREADS, Launch, Planner, blocks_of
from toile.targets.cuda.text import divisor, kernel_text

DIGITS = 256
# Keys of a thread: more keys make longer runs of one digit, and are used if there are enough tiles
# for all processors of a GPU. Keys of 64 bits need twice the registers and shared memory, so a
# thread always has few of them.
ITEMS, _MORE_ITEMS = 8, 16
_ENOUGH = 264  # tiles
WARPS = THREADS // 32

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
  for (u32 k = 0; k < {WARPS}; ++k) before += k < warp ? sums[k] : 0;
  __syncthreads();
  return x + before;
}}
"""


# Orders the keys of a block by one digit, and those with equal digits by warp, by number in a
# thread, then by lane. `to` becomes the positions (until they are known, it has digits and ranks in
# one word, to save registers); the result is the first position of digit threadIdx.x.
_POSITIONS = f"""\
template <int N> __device__ inline u32 positions(
    const Key (&key)[N], u32 (&to)[N], u32 shift, Key zero, u32* counts, u32* sums) {{
  const u32 t = threadIdx.x, lower = (1u << (t & 31)) - 1;
  u32* mine = counts + (t >> 5) * {DIGITS};
  for (u32 d = t & 31; d < {DIGITS}; d += 32) mine[d] = 0;
  __syncwarp();
#pragma unroll
  for (int k = 0; k < N; ++k) {{
    const u32 d = digit(key[k], shift, zero);
    u32 peers = ~0u;
#pragma unroll
    for (u32 b = 1; b < {DIGITS}; b <<= 1) {{
      const u32 votes = __ballot_sync(~0u, (d & b) != 0);
      peers &= d & b ? votes : ~votes;
    }}
    const u32 before = mine[d];
    __syncwarp();
    to[k] = d << 16 | (before + __popc(peers & lower));
    if ((peers & lower) == 0) mine[d] = before + __popc(peers);
    __syncwarp();
  }}
  __syncthreads();
  u32 sum = 0;
#pragma unroll
  for (u32 k = 0; k < {WARPS}; ++k) sum += counts[k * {DIGITS} + t];
  const u32 start = running(sum, sums) - sum;
  sum = start;
#pragma unroll
  for (u32 k = 0; k < {WARPS}; ++k) {{
    const u32 count = counts[k * {DIGITS} + t];
    counts[k * {DIGITS} + t] = sum;
    sum += count;
  }}
  __syncthreads();
#pragma unroll
  for (int k = 0; k < N; ++k) to[k] = mine[to[k] >> 16] + (to[k] & 0xffff);
  return start;
}}
"""


def sort_rows(
    plan: Planner, keys: tuple[Ref, Ref], places: tuple[Ref, Ref] | None, type: str, rows: int,
    n: int, bits: int, zero: int | None = None, low: int = 0,
) -> tuple[tuple[Ref, Ref], tuple[Ref, Ref] | None]:  # fmt: skip
    """Sort dense rows of n keys by their low bits; the first buffer of each pair is the input.

    Returns the pairs, with the result first. zero: a key that sorts like the next key; low: the
    first bit that matters."""
    many = type == "u32" and rows * (n // (THREADS * _MORE_ITEMS)) >= _ENOUGH
    items = _MORE_ITEMS if many else ITEMS
    tiles = blocks_of(n, THREADS * items)
    counts, totals = plan.scratch(4 * rows * DIGITS * tiles), plan.scratch(4 * rows * DIGITS)
    kind = type, zero is not None, items
    for shift in range(low, bits, 8):
        shape = n, divisor(tiles), shift, -1 if zero is None else zero
        plan.stage(Launch(_count_text(*kind), (keys[0], counts, *shape), rows * tiles, THREADS,
                          note="digits"))
        plan.stage(_totals(counts, totals, tiles, rows * DIGITS))
        plan.stage(Launch(_move_text(*kind, places is not None),
                          (*keys, *(places or ()), counts, totals, *shape), rows * tiles, THREADS,
                          note="sort"))
        keys = keys[1], keys[0]
        places = None if places is None else (places[1], places[0])
    return keys, places


def _digits(type: str, merges: bool) -> str:
    """`Key`, `digit(key, shift, zero)`; merges: the key `zero` has the digits of the next key."""
    body = "key += key == zero; " if merges else ""
    return (f"typedef {type} Key;\n__device__ inline u32 digit(Key key, u32 shift, Key zero) "
            f"{{ {body}return (u32)(key >> shift) & {DIGITS - 1}u; }}\n")


def positions(type: str, merges: bool = False) -> str:
    """`positions(key, to, shift, zero, counts, sums)`: where the keys of a block go in the order of
    a digit."""
    return _digits(type, merges) + SCAN + _POSITIONS


@lru_cache(maxsize=8)
def _count_text(type: str, merges: bool, items: int) -> str:
    return kernel_text(f"""\
  __shared__ u32 found[{DIGITS}];
  const u32 n = (u32)w[2], shift = (u32)w[4];
  Index tile = block, row = cut(tile, w[3]);
  const Key* keys = (const Key*)w[0] + (Word)row * n;
  const u32 start = tile * {THREADS * items} + threadIdx.x;
  Key key[{items}];
#pragma unroll
  for (u32 k = 0; k < {items}; ++k)
    key[k] = start + k * {THREADS} < n ? keys[start + k * {THREADS}] : 0;
  found[threadIdx.x] = 0;
  __syncthreads();
#pragma unroll
  for (u32 k = 0; k < {items}; ++k)
    if (start + k * {THREADS} < n) atomicAdd(&found[digit(key[k], shift, (Key)w[5])], 1u);
  __syncthreads();
  ((u32*)w[1])[((Word)row * {DIGITS} + threadIdx.x) * (u32)w[3] + tile] = found[threadIdx.x];
""", _digits(type, merges))


def _totals(counts: Ref, totals: Ref, tiles: int, many: int) -> Launch:
    """The counts of tiles become sums over earlier tiles, for each of many digits of rows.

    A block processes one digit or, if there are few tiles, several."""
    if tiles > 32:
        return Launch(_totals_text(), (counts, totals, tiles), many, THREADS, note="digits")
    shift = (tiles - 1).bit_length()
    return Launch(_few_totals_text(), (counts, totals, tiles, shift), (many << shift) // THREADS,
                  THREADS, note="digits")  # fmt: skip


@lru_cache(maxsize=1)
def _few_totals_text() -> str:
    """A digit of a row belongs to 2^shift lanes, each of which has one tile or none."""
    return kernel_text(f"""\
  const u32 tiles = (u32)w[2], width = 1u << w[3], i = threadIdx.x & (width - 1);
  const u32 unit = (block * {THREADS} + threadIdx.x) >> w[3];
  u32* counts = (u32*)w[0] + (Word)unit * tiles;
  const u32 x = i < tiles ? counts[i] : 0;
  u32 sum = x;
  for (u32 d = 1; d < width; d <<= 1) {{
    const u32 y = __shfl_up_sync(~0u, sum, d, (int)width);
    if (i >= d) sum += y;
  }}
  if (i < tiles) counts[i] = sum - x;
  if (i == width - 1) ((u32*)w[1])[unit] = sum;
""", wide=None)


@lru_cache(maxsize=1)
def _totals_text() -> str:
    """A block for each digit of a row: counts of tiles become sums over earlier tiles."""
    return kernel_text(f"""\
  __shared__ u32 sums[{WARPS}], last;
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


@lru_cache(maxsize=16)
def _move_text(type: str, merges: bool, items: int, places: bool) -> str:
    n = 4 if places else 2  # index of the counts among the arguments
    # Places are put into the order of their keys, through the same memory.
    load = f"""\
  u32 place[{items}];
#pragma unroll
  for (u32 k = 0; k < {items}; ++k)
    place[k] = start + k * 32 < n ? ((const u32*)w[2])[base + start + k * 32] : 0;
""" if places else ""  # fmt: skip
    follow = f"""\
  u32* held_places = (u32*)held;
  __syncthreads();
#pragma unroll
  for (u32 k = 0; k < {items}; ++k) held_places[at[k]] = place[k];
  __syncthreads();
#pragma unroll
  for (u32 k = 0; k < {items}; ++k)
    if (k * {THREADS} + t < size) ((u32*)w[3])[base + to[k]] = held_places[k * {THREADS} + t];
""" if places else ""  # fmt: skip
    return kernel_text(f"""\
  __shared__ u32 counts[{WARPS * DIGITS}], first[{DIGITS}], sums[{WARPS}];
  __shared__ Key held[{THREADS * items}];
  const u32 n = (u32)w[{n + 2}], shift = (u32)w[{n + 4}], tiles = (u32)w[{n + 3}];
  const Key zero = (Key)w[{n + 5}];
  const u32 t = threadIdx.x;
  Index tile = block, row = cut(tile, w[{n + 3}]);
  const Word base = (Word)row * n, digits = (Word)row * {DIGITS} + t;
  const Key* keys = (const Key*)w[0] + base;
  const u32 left = n - tile * {THREADS * items};
  const u32 size = left < {THREADS * items} ? left : {THREADS * items};
  const u32 start = tile * {THREADS * items} + (t >> 5) * {32 * items} + (t & 31);
  Key key[{items}];
  u32 at[{items}], to[{items}];
#pragma unroll
  for (u32 k = 0; k < {items}; ++k) {{  // keys beyond the row come last
    const u32 i = start + k * 32;
    key[k] = i < n ? keys[i] : ~(Key)0;
  }}
  const u32 total = ((const u32*)w[{n + 1}])[digits];
  const u32 earlier = ((const u32*)w[{n}])[digits * tiles + tile];
  const u32 begin = running(total, sums) - total + earlier;
  first[t] = begin - positions(key, at, shift, zero, counts, sums);
#pragma unroll
  for (u32 k = 0; k < {items}; ++k) held[at[k]] = key[k];
{load}  __syncthreads();
#pragma unroll
  for (u32 k = 0; k < {items}; ++k) {{
    key[k] = held[k * {THREADS} + t];
    to[k] = first[digit(key[k], shift, zero)] + k * {THREADS} + t;
  }}
#pragma unroll
  for (u32 k = 0; k < {items}; ++k)
    if (k * {THREADS} + t < size) ((Key*)w[1])[base + to[k]] = key[k];
{follow}""", positions(type, merges))
