"""Sort and top k: rows by integer keys, short ones in shared memory, long ones by digits.

A number becomes an unsigned integer of the same order (`gpu_keys`). Short rows go through a sorting
network on keys with their original indices, which break ties; several short rows share a block.
Operands are then read in the order of the indices. If long rows have several keys, these are sorted
one after the other, the last first.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from toile.compiler.ir.operands import Args, Operand, Ref
from toile.kernels.sort import gpu_keys
from toile.kernels.sort.gpu_extrema import lower_extremum
from toile.kernels.sort.gpu_radix import sort_rows
from toile.kernels.sort.shared import Rows, keys_of, orders, rows_of
from toile.targets.cuda.launches import THREADS, Launch, Planner, blocks_of
from toile.targets.cuda.text import MOST, Words, decode, divisors, kernel_text
from toile.targets.cuda.units import UNITS

__all__ = ["lower", "lower_extremum", "lower_top_k"]

_ROOM = 48 << 10  # bytes of shared memory
_TILES = (256, 512, 1024, 2048)  # elements that a block sorts
_PART = 4  # tiles are used if k is at most their size divided by this
# For top_k: how many numbers threads find without sorting, how many they read at once, and how many
# blocks are enough.
_FEW, _BATCH, _BUSY = 16, 8, 528


def _words(rows: Rows) -> list[int]:
    """The numbers of rows, as texts read them."""
    return [*divisors(rows.extents), *sum(rows.steps, []), *rows.inner]


def _two(plan: Planner, nbytes: int) -> tuple[Ref, Ref]:
    """Two alternating buffers."""
    return plan.scratch(nbytes), plan.scratch(nbytes)


class _Frame:
    """The arguments of texts over rows, after a few of their own."""

    def __init__(self, own: int, arrays: int, rank: int):
        r = Words()
        self.own = r.many(own)
        self.bases = [r.pointer() for _ in range(arrays)]
        self.extents = r.many(rank)
        self.steps = [r.many(rank) for _ in range(arrays)]
        self.inner = r.many(arrays)

    def move(self, size: int, source: int, target: int, to: str = "i") -> str:
        """The statement that copies element `at` of a row of one array to an index of another."""
        unit = UNITS[size]
        return (f"*({unit}*)(p{target} + (Word){to} * {self.inner[target]}) = "
                f"*(const {unit}*)(p{source} + (Word)at * {self.inner[source]});")

    def pointers(self, row: str = "row") -> str:
        """Statements that set p0, p1 ... to the beginning of a row."""
        names = [f"p{i}" for i in range(len(self.bases))]
        start = " ".join(f"char* {p} = {b};" for p, b in zip(names, self.bases, strict=True))
        moves = decode("rest", self.extents, list(zip(names, self.steps, strict=True)))
        return f"{start} {{ Index rest = {row}; {moves} }}"


def lower(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """Sort, any number of operands and keys."""
    keys, n = keys_of(op, ins), ins[0].shape[op.dimension]
    if keys is None or ins[0].size > MOST or len(keys) > 6 or len(ins) > 16:
        return False
    dtypes = tuple(k.dtype for k in keys)
    sizes = tuple(x.dtype.itemsize for x in ins)
    rows = rows_of(op.dimension, *keys, *ins, *outs)
    tile = _tile(n, [gpu_keys.key_type(d) for d in dtypes])
    if tile:
        padded = 1 << (n - 1).bit_length()
        text = _short_text(dtypes, sizes, len(rows.extents), tile)
        args = (n, padded, rows.number, *(x.ref for x in (*keys, *ins, *outs)), *_words(rows))
        plan.stage(Launch.over(rows.number * padded, text, args, "sort", tile))
    elif len(ins) == len(keys) == 1:
        _sort_values(op, ins[0], outs[0], n, plan)
    else:
        places = _sorted_places(op.dimension, keys, "sort", n, plan)
        moved = rows_of(op.dimension, *ins, *outs)
        args = (n, *divisors([n]), rows.number * n, places, *(x.ref for x in (*ins, *outs)),
                *_words(moved))  # fmt: skip
        text = _take_text(sizes, len(moved.extents), False)
        plan.stage(Launch.over(ins[0].size, text, args, "sort"))
    return True


def _tile(n: int, types: list[str], most: int = _TILES[-1]) -> int:
    """The smallest tile that holds a row; 0 if none does."""
    bytes = 4 + sum(8 if t == "u64" else 4 for t in types)
    fits = [t for t in _TILES if t >= n and t * bytes <= _ROOM and t <= most]
    return min(fits, default=0)


# -------------------------------------------------------------------------------------- short rows


def network(types: list[str], tile: int) -> str:
    """`sort(padded)` in shared memory: rows of `padded` elements, a power of two, by keys, then
    indices."""
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


@lru_cache(maxsize=256)
def _short_text(keys: tuple[Any, ...], sizes: tuple[int, ...], rank: int, tile: int) -> str:
    """A block sorts as many rows as its tile holds."""
    frame = _Frame(3, len(keys) + 2 * len(sizes), rank)
    n, padded, rows = frame.own
    functions = "".join(gpu_keys.key_function(d, "sort", f"key_of{i}") for i, d in enumerate(keys))
    loads = " ".join(
        f"key{i}[e] = there ? key_of{i}(*(const {gpu_keys.bits_type(d)}*)(p{i} + (Word)i * "
        f"{frame.inner[i]})) : ({gpu_keys.key_type(d)})~0ull;" for i, d in enumerate(keys)
    )  # fmt: skip
    moves = [frame.move(size, len(keys) + j, len(keys) + len(sizes) + j)
             for j, size in enumerate(sizes)]
    return kernel_text(f"""\
  const u32 n = (u32){n}, padded = (u32){padded}, rows = (u32){rows};
  const u32 shift = 31 - __clz((int)padded), first = (block * {tile}u) >> shift;
  for (u32 e = threadIdx.x; e < {tile}; e += {THREADS}) {{
    const u32 i = e & (padded - 1), row = first + (e >> shift);
    const bool there = i < n && row < rows;
    {frame.pointers("there ? row : 0")}
    {loads}
    place[e] = i;
  }}
  sort(padded);
  for (u32 e = threadIdx.x; e < {tile}; e += {THREADS}) {{
    const u32 i = e & (padded - 1), row = first + (e >> shift);
    if (i >= n || row >= rows) continue;
    {frame.pointers()}
    const u32 at = place[e];
    {" ".join(moves)}
  }}
""", functions + network([gpu_keys.key_type(d) for d in keys], tile))


# --------------------------------------------------------------------------------------- long rows


def _sort_values(op: Any, x: Operand, out: Operand, n: int, plan: Planner) -> None:
    """Rows of one operand: only the keys are sorted."""
    dtype, rows = x.dtype, rows_of(op.dimension, x)
    keys = _two(plan, gpu_keys.key_bytes(dtype) * x.size)
    args: Args = (n, *divisors([n]), x.size, keys[0], 0, x.ref, *_words(rows))
    text = _load_text(dtype, "values", len(rows.extents), "none")
    plan.stage(Launch.over(x.size, text, args, "sort"))
    (found, _), _ = sort_rows(
        plan, keys, None, gpu_keys.key_type(dtype), rows.number, n, gpu_keys.key_bits(dtype),
        gpu_keys.below_zero(dtype))
    back = rows_of(op.dimension, out)
    args = (n, *divisors([n]), x.size, found, 0, out.ref, *_words(back))
    plan.stage(Launch.over(x.size, _values_text(dtype, len(back.extents)), args, "sort"))


def _sorted_places(axis: int, keys: list[Operand], use: str, n: int, plan: Planner) -> Ref:
    """Rows of indices, in the order of the keys."""
    total = keys[0].size
    held = _two(plan, max(gpu_keys.key_bytes(k.dtype) for k in keys) * total)
    places = _two(plan, 4 * total)
    for number, k in enumerate(reversed(keys)):
        rows = rows_of(axis, k)
        args = (n, *divisors([n]), total, held[0], places[0], k.ref, *_words(rows))
        text = _load_text(k.dtype, use, len(rows.extents), "read" if number else "write")
        plan.stage(Launch.over(total, text, args, "sort"))
        held, found = sort_rows(plan, held, places, gpu_keys.key_type(k.dtype), rows.number, n,
                                gpu_keys.key_bits(k.dtype))  # fmt: skip
        assert found is not None
        places = found
    return places[0]


_EACH = """\
  Index i = (Index)block * {threads} + threadIdx.x, e = i;
  if (i >= (Index){total}) return;
  const Index row = cut(i, {divisor});
"""


@lru_cache(maxsize=128)
def _load_text(dtype: Any, use: str, rank: int, places: str) -> str:
    """Keys of all elements; their indices are written, or read and followed."""
    frame = _Frame(5, 1, rank)
    _, by, total, keys, at = frame.own
    follow = {
        "none": "", "write": f"((u32*){at})[e] = i;", "read": f"i = ((const u32*){at})[e];"
    }[places]  # fmt: skip
    return kernel_text(f"""\
{_EACH.format(threads=THREADS, total=total, divisor=by)}\
  {follow}
  {frame.pointers()}
  (({gpu_keys.key_type(dtype)}*){keys})[e] = \
key_of(*(const {gpu_keys.bits_type(dtype)}*)(p0 + (Word)i * {frame.inner[0]}));
""", gpu_keys.key_function(dtype, use))


@lru_cache(maxsize=64)
def _values_text(dtype: Any, rank: int) -> str:
    """The numbers of sorted keys."""
    frame = _Frame(5, 1, rank)
    _, by, total, keys, _ = frame.own
    return kernel_text(f"""\
{_EACH.format(threads=THREADS, total=total, divisor=by)}\
  {frame.pointers()}
  *({gpu_keys.bits_type(dtype)}*)(p0 + (Word)i * {frame.inner[0]}) = \
number_of(((const {gpu_keys.key_type(dtype)}*){keys})[e]);
""", gpu_keys.number_function(dtype))


@lru_cache(maxsize=128)
def _take_text(sizes: tuple[int, ...], rank: int, numbers: bool) -> str:
    """Operands in the order of indices, whose rows may be longer; `numbers`: indices as well."""
    frame = _Frame(4, 2 * len(sizes) + numbers, rank)
    n, by, total, places = frame.own
    moves = [frame.move(size, j, len(sizes) + j) for j, size in enumerate(sizes)]
    if numbers:
        last = 2 * len(sizes)
        moves.append(f"*(u32*)(p{last} + (Word)i * {frame.inner[last]}) = at;")
    return kernel_text(f"""\
{_EACH.format(threads=THREADS, total=total, divisor=by)}\
  const u32 at = ((const u32*){places})[(Word)row * {n} + i];
  {frame.pointers()}
  {" ".join(moves)}
""")


# ------------------------------------------------------------------------------------------- top k


def lower_top_k(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """TopK: the best of each tile, and of those, until one tile is left; otherwise a sort."""
    x, n, k = ins[0], ins[0].shape[op.axis], op.k
    if not orders(x.dtype) or x.size > MOST or k == 0:
        return False
    type = gpu_keys.key_type(x.dtype)
    tile = _tile(n, [type])
    if not tile and k * _PART > _TILES[-1]:
        places = _sorted_places(op.axis, [x], "top", n, plan)
        rows = rows_of(op.axis, x, *outs)
        args = (n, *divisors([k]), outs[0].size, places, x.ref, outs[0].ref, outs[1].ref,
                *_words(rows))
        text = _take_text((x.dtype.itemsize,), len(rows.extents), True)
        plan.stage(Launch.over(outs[0].size, text, args, "top_k"))
        return True
    rows = rows_of(op.axis, x, *outs)
    few = not tile and k <= _FEW and type == "u32"
    _top_by_tiles(x, outs, k, rows, few, plan)
    return True


def _top_by_tiles(
    x: Operand, outs: list[Operand], k: int, rows: Rows, few: bool, plan: Planner
) -> None:
    """Add a stage that reduces each tile of a row to its first k, until one tile is left.

    few: the first stage has larger parts, of which nothing is sorted."""
    source: tuple[Ref | int, Ref | int] = (0, 0)
    type, rank = gpu_keys.key_type(x.dtype), len(rows.extents)
    length = x.size // rows.number
    final = False
    while not final:
        tile = _tile(length, [type]) or _TILES[-1]
        tiles = blocks_of(length, tile)
        final = tiles == 1
        padded = min(tile, 1 << (length - 1).bit_length())
        if few:
            padded = _BATCH * THREADS * max(1, x.size // (_BATCH * THREADS * _BUSY))
            tiles = blocks_of(length, padded)
        count = rows.number * tiles * k
        to: tuple[Ref | int, Ref | int] = (0, 0) if final else (
            plan.scratch(gpu_keys.key_bytes(x.dtype) * count), plan.scratch(4 * count))
        text = _best_text(x.dtype, rank, k) if few else _top_text(
            x.dtype, rank, tile, source[0] == 0, final)
        args = (length, padded, rows.number, k, tiles, *source, *to, x.ref, outs[0].ref,
                outs[1].ref, *_words(rows))  # fmt: skip
        blocks = blocks_of(rows.number * padded, tile) if final else rows.number * tiles
        plan.stage(Launch(text, args, blocks, THREADS, 0, "top_k"))
        source, length, few = to, tiles * k, False


@lru_cache(maxsize=128)
def _best_text(dtype: Any, rank: int, k: int) -> str:
    """The first k of a part of a row, for a small k: each thread keeps the first of what it reads.

    A number and its place are one integer, so that the least of them is the first."""
    frame = _Frame(9, 3, rank)
    length, part, _, _, tiles, _, _, to_keys, to_places = frame.own
    bits = gpu_keys.bits_type(dtype)
    return kernel_text(f"""\
  __shared__ u64 found[{THREADS // 32}];
  const u32 n = (u32){length}, part = (u32){part}, tiles = (u32){tiles};
  const u32 row = block / tiles, begin = (block - row * tiles) * part;
  const u32 end = begin + part < n ? begin + part : n;
  {frame.pointers()}
  u64 best[{k}];
#pragma unroll
  for (int j = 0; j < {k}; ++j) best[j] = ~0ull;
  for (u32 start = begin + threadIdx.x; start < end; start += {THREADS * _BATCH}) {{
    u64 x[{_BATCH}];
#pragma unroll
    for (u32 u = 0; u < {_BATCH}; ++u) {{
      const u32 i = start + u * {THREADS}, at = i < end ? i : begin;
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
    __syncthreads();
    if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = first;
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < {THREADS // 32}; ++i) if (found[i] < first) first = found[i];
    if (best[0] == first) {{
#pragma unroll
      for (int i = 1; i < {k}; ++i) best[i - 1] = best[i];
      best[{k - 1}] = ~0ull;
    }}
    if (threadIdx.x == 0) {{
      const Word to = (Word)block * {k} + j;
      ((u32*){to_keys})[to] = (u32)(first >> 32);
      ((u32*){to_places})[to] = (u32)first;
    }}
  }}
""", gpu_keys.key_function(dtype, "top"))


@lru_cache(maxsize=128)
def _top_text(dtype: Any, rank: int, tile: int, begins: bool, final: bool) -> str:
    """The first k of each tile of a row (or, if rows are short, of each row of a tile)."""
    frame = _Frame(9, 3, rank)
    length, padded, rows, k, tiles, keys, places, to_keys, to_places = frame.own
    type, bits = gpu_keys.key_type(dtype), gpu_keys.bits_type(dtype)
    where = (
        f"const u32 first = (block * {tile}u) >> shift, begin = 0;" if final else
        f"const u32 first = block / tiles, begin = (block - first * tiles) * {tile}u;"
    )  # fmt: skip
    load = (
        f"{frame.pointers('there ? row : 0')} key0[e] = there ? key_of(*(const {bits}*)(p0 + "
        f"(Word)i * {frame.inner[0]})) : ({type})~0ull; place[e] = there ? i : ~0u;"
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
""", gpu_keys.key_function(dtype, "top") + network([type], tile))
