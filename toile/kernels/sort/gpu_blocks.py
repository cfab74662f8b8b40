"""Sorts of rows in the shared memory of a block.

Rows of one key that fill a block are sorted by digits, eight bits at a time (`gpu_radix`). Short
rows, of which several share a block, and rows of several keys go through a sorting network; there
original indices break ties, so both give the same order.
"""

from __future__ import annotations

from toile.kernels.sort.gpu_radix import DIGITS, WARPS, positions
from toile.targets.cuda.launches import THREADS

_ROOM = 48 << 10  # bytes of shared memory
_TILES = (256, 512, 1024, 2048)  # elements that a block sorts
_BY_DIGITS, _LARGEST = 1024, 4096  # the smallest and the largest tile that is sorted by digits
TILE = _TILES[-1]  # the tile for parts of rows that no tile holds


def tile_of(n: int, types: list[str]) -> int:
    """The smallest tile that holds a row with keys of these types; 0 if none does.

    A row with a single key has its tile to itself if the tile is sorted by digits."""
    each = 4 + sum(8 if t == "u64" else 4 for t in types)
    single = len(types) == 1
    counts = 4 * (WARPS * DIGITS + WARPS) if single else 0
    tiles = (*_TILES, _LARGEST) if single else _TILES
    return min((t for t in tiles if t >= n and t * each + counts <= _ROOM), default=0)


def block_sort(types: list[str], bits: int, tile: int) -> str:
    """`sort(padded)` of the shared arrays `key0`, `key1` ... and `place`.

    It sorts rows of `padded` elements, a power of two, by their keys; equal keys keep their order,
    which must be that of `place`. bits: how many low bits of a single key are used."""
    single = len(types) == 1 and tile >= _BY_DIGITS
    return _by_digits(types[0], bits, tile) if single else _network(types, tile)


def _by_digits(type: str, bits: int, tile: int) -> str:
    """Threads hold the keys of a pass, then the places, so that one copy in memory is enough."""
    items = tile // THREADS
    return f"""\
{positions(type)}\
__shared__ Key key0[{tile}];
__shared__ u32 place[{tile}], counts[{WARPS * DIGITS}], sums[{WARPS}];
__device__ inline void sort(u32) {{
  const u32 start = (threadIdx.x >> 5) * {32 * items} + (threadIdx.x & 31);
  __syncthreads();
#pragma unroll 1
  for (u32 shift = 0; shift < {bits}; shift += 8) {{
    Key key[{items}];
    u32 to[{items}], held[{items}];
#pragma unroll
    for (u32 k = 0; k < {items}; ++k) key[k] = key0[start + k * 32];
    positions(key, to, shift, (Key)0, counts, sums);
#pragma unroll
    for (u32 k = 0; k < {items}; ++k) {{
      key0[to[k]] = key[k];
      held[k] = place[start + k * 32];
    }}
    __syncthreads();
#pragma unroll
    for (u32 k = 0; k < {items}; ++k) place[to[k]] = held[k];
  }}
  __syncthreads();
}}
"""


def _network(types: list[str], tile: int) -> str:
    """A sorting network for all rows of a tile: by keys, then by places."""
    names = [f"key{i}" for i in range(len(types))]
    shared = "".join(f"__shared__ {t} {k}[{tile}];\n" for t, k in zip(types, names, strict=True))
    tests = " ".join(f"if ({k}[a] != {k}[b]) return {k}[a] > {k}[b];" for k in names)
    swaps = " ".join(
        f"{{ {t} x = {k}[a]; {k}[a] = {k}[b]; {k}[b] = x; }}"
        for t, k in [*zip(types, names, strict=True), ("u32", "place")]
    )
    return f"""\
{shared}__shared__ u32 place[{tile}];
__device__ inline bool after(u32 a, u32 b) {{ {tests} return place[a] > place[b]; }}
__device__ inline void sort(u32 padded) {{
  for (u32 k = 2; k <= padded; k <<= 1)
    for (u32 j = k >> 1; j > 0; j >>= 1) {{
      __syncthreads();
      for (u32 i = threadIdx.x; i < {tile // 2}; i += {THREADS}) {{
        const u32 a = 2 * i - (i & (j - 1)), b = a | j;
        const bool up = (a & (padded - 1) & k) == 0;
        if (after(a, b) == up) {{ {swaps} }}
      }}
    }}
  __syncthreads();
}}
"""
