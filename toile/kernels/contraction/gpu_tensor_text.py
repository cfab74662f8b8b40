"""The text of products on tensor cores, in TF32 (see `gpu_tensor_cores`).

A block has four warps and computes a tile of the result from slices of both operands in shared
memory, three of which are in flight at a time. An element of an operand is identified by two
numbers: its row (or column) in the product and its position in the sum. A `Walk` maps each to
memory; with windows both give coordinates in the images, and elements outside are zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from toile.compiler.ir.geometry import collapse
from toile.compiler.ir.operands import Ref
from toile.targets.cuda.launches import blocks_of
from toile.targets.cuda.scalars import HELPERS
from toile.targets.cuda.text import Words, decode, divisors, kernel_text

WARPS = 4
THREADS = 32 * WARPS
STAGES = 3
WORDS = 16  # arguments that the kernel itself uses

WalkForm = tuple[str, int]
Form = tuple[WalkForm, WalkForm, int, bool, int]

# Warp instructions: `multiply` adds a b to d (16 x 8 numbers in d and a, 8 x 8 in b); `fragments`
# loads four pieces of 8 x 4 numbers from shared memory, for which each thread points at a row.
# Older processors, and hosts, use shuffles.
MMA = """\
#if __CUDA_ARCH__ >= 800
__device__ __forceinline__ u32 tf32(float x) {
  u32 r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
  return r;
}
__device__ __forceinline__ void multiply(float* d, const u32* a, const u32* b) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void fragments(u32* r, const float* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"((u32)__cvta_generic_to_shared(p)) : "memory");
}
#else
__device__ __forceinline__ u32 tf32(float x) { return (u32)__float_as_int(x); }
__device__ inline void fragments(u32* r, const float* p) {
  const int lane = threadIdx.x & 31;
  for (int i = 0; i < 4; ++i) {
    const float* q = (const float*)__shfl_sync(~0u, (u64)p, 8 * i + lane / 4);
    r[i] = (u32)__float_as_int(q[lane & 3]);
  }
}
__device__ inline float number(u32 x) { return __int_as_float((int)x); }
__device__ inline void multiply(float* d, const u32* a, const u32* b) {
  const int lane = threadIdx.x & 31, row = lane & ~3, column = (lane & 3) * 8;
  for (int k = 0; k < 8; ++k) {
    const int half = k / 4, at = k & 3;
    const float p = number(__shfl_sync(~0u, a[2 * half], row + at));
    const float q = number(__shfl_sync(~0u, a[2 * half + 1], row + at));
    const float x = number(__shfl_sync(~0u, b[half], column + at));
    const float y = number(__shfl_sync(~0u, b[half], column + 4 + at));
    d[0] = fmaf(p, x, d[0]); d[1] = fmaf(p, y, d[1]);
    d[2] = fmaf(q, x, d[2]); d[3] = fmaf(q, y, d[3]);
  }
}
#endif
"""


# ----------------------------------------------------------------------------------------- operands


class Walk(NamedTuple):
    """How the rows, columns or terms of a product are mapped to an operand.

    "axes": extents and steps; "positions" of windows: those of images and outputs, and for each
    spatial axis the first coordinate and its step; "patches": taps, then channels. Steps in memory
    are in bytes."""

    kind: str
    extents: tuple[int, ...]
    steps: tuple[int, ...]
    lows: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        return prod(self.extents)

    @property
    def form(self) -> WalkForm:
        """What determines the text."""
        return self.kind, len(self.extents)

    @property
    def words(self) -> list[int]:
        return [*divisors(self.extents), *self.steps, *self.lows]

    @classmethod
    def along(cls, extents: Any, steps: Any) -> Walk:
        """A walk along axes; neighbors are merged where possible."""
        sizes, (merged,) = collapse(list(extents), list(steps))
        return cls("axes", tuple(sizes), tuple(merged))


def walk_text(name: str, form: WalkForm, r: Words, steps_to: Sequence[str] = ()) -> str:
    """A function from a number to its `Place`; coordinates also add to `at`, by `steps_to`."""
    kind, rank = form
    extents, steps = r.many(rank), r.many(rank)
    if kind == "axes":
        lines = decode("i", extents, [("p.at", [f"(int){s}" for s in steps])], "int")
    else:
        lows = r.many(rank - 1) if kind == "positions" else ["0"] * (rank - 1)
        found = []
        for d in reversed(range(1, rank)) if kind == "positions" else [rank - 1]:
            found.append(f"{{ Index c = i; i = cut(c, {extents[d]}); "
                         + (f"p.c{d - 1} = (int)c * (int){steps[d]} - (int){lows[d - 1]}; }}"
                            if kind == "positions" else f"p.at = (int)c * (int){steps[d]}; }}"))
        if kind == "positions":
            found.append(f"p.at = (int)i * (int){steps[0]};")
        else:
            for d in reversed(range(rank - 1)):
                rest = f"i = cut(c, {extents[d]}); " if d else ""
                found.append(f"{{ Index c = i; {rest}p.c{d} = (int)c * (int){steps[d]}; }}")
        found += [f"p.at += p.c{d} * (int){step};" for d, step in enumerate(steps_to)]
        lines = " ".join(found)
    return (f"__device__ __forceinline__ Place {name}(const Word* w, Index i) {{\n"
            f"  Place p = {{}};\n  {lines}\n  return p;\n}}\n")


@dataclass(frozen=True)
class Side:
    """An operand: `outer` maps its rows (or columns), `inner` the terms of the sum.

    window: extent and step in bytes of each spatial axis of images; deep: vectors are along the
    sum; vector: numbers that are read together."""

    ref: Ref
    outer: Walk
    inner: Walk
    window: tuple[tuple[int, int], ...] = ()
    deep: bool = False
    vector: int = 1

    @property
    def form(self) -> Form:
        return self.outer.form, self.inner.form, len(self.window), self.deep, self.vector

    @property
    def words(self) -> list[int]:
        extents, steps = ([pair[i] for pair in self.window] for i in (0, 1))
        return [*extents, *steps, *self.outer.words, *self.inner.words]


class Tile(NamedTuple):
    """Rows and columns of a block's result, terms of a slice, and how many warps share the rows."""

    rows: int
    columns: int
    depth: int
    across: int

    @property
    def fragments(self) -> tuple[int, int]:
        """How many fragments of 16 rows and of 8 columns a warp has."""
        return self.rows // self.across // 16, self.columns * self.across // WARPS // 8

    def room(self, extent: int) -> int:
        """How many numbers a slice of an operand has, in either layout."""
        return max(extent * (self.depth + 4), self.depth * (extent + 8))

    @property
    def shared(self) -> int:
        return self.room(self.rows) + self.room(self.columns)


# --------------------------------------------------------------------------------------- the kernel


def _side_text(name: str, form: Form, r: Words) -> str:
    """`<name>_outer`, `<name>_inner` and `<name>_has`, which says whether an element exists."""
    outer, inner, windows, _, _ = form
    extents, steps = r.many(windows), r.many(windows)
    text = walk_text(f"{name}_outer", outer, r, steps) + walk_text(
        f"{name}_inner", inner, r, steps)
    inside = " && ".join(f"(u32)(o.c{d} + k.c{d}) < (u32){n}" for d, n in enumerate(extents))
    return (f"{text}__device__ __forceinline__ bool {name}_has(const Word* w, const Place& o, "
            f"const Place& k) {{ return {inside or 'true'}; }}\n")


def _pitch(form: Form, extent: int, depth: int) -> int:
    """The row pitch of a slice, in numbers, chosen such that fragments use all memory banks."""
    return depth + 4 if form[3] else extent + 8


def _fetch_text(name: str, form: Form, extent: int, depth: int, limit: str, first: str
                ) -> tuple[str, str]:
    """The values that a thread computes once for its part of a slice, and the fetching code."""
    *_, deep, vector = form
    pitch = _pitch(form, extent, depth)
    run = depth if deep else extent
    each = THREADS * vector // run  # lines of a slice that all threads fetch at once
    lines = extent if deep else depth
    turns = blocks_of(lines, each)
    spare = f"if ({name}_line >= {lines}u) break;\n        " if each > lines else ""
    known = (f"  const u32 {name}_in = threadIdx.x % {run // vector}u * {vector}u;\n"
             f"  const u32 {name}_line = threadIdx.x / {run // vector}u;\n")
    copy = (f"if (there) later((Vector<{vector}>*)to, "
            f"(const Vector<{vector}>*)({name}_base + (o.at + k.at)));\n"
            f"        else *(Vector<{vector}>*)to = Vector<{vector}>{{}};\n")
    if deep:
        known += (f"  Place {name}_known[{turns}];\n  bool {name}_is[{turns}];\n"
                  f"#pragma unroll\n  for (int s = 0; s < {turns}; ++s) {{\n"
                  f"    const u32 o = {first} + {name}_line + s * {each}u;\n"
                  f"    {name}_is[s] = o < {limit};\n"
                  f"    {name}_known[s] = {name}_outer(w, {name}_is[s] ? o : 0);\n  }}\n")
        fetch = (f"      const bool within = k0 + {name}_in < end;\n"
                 f"      const Place k = {name}_inner(w, within ? k0 + {name}_in : 0);\n"
                 f"#pragma unroll\n      for (int s = 0; s < {turns}; ++s) {{\n"
                 f"        {spare}float* to = {name} + ({name}_line + s * {each}u) * {pitch} + "
                 f"{name}_in;\n"
                 f"        const Place& o = {name}_known[s];\n"
                 f"        const bool there = within && {name}_is[s] && {name}_has(w, o, k);\n"
                 f"        {copy}      }}\n")
        return known, fetch
    known += (f"  const bool {name}_is = {first} + {name}_in < {limit};\n"
              f"  const Place {name}_known = {name}_outer("
              f"w, {name}_is ? {first} + {name}_in : 0);\n")
    fetch = (f"#pragma unroll\n      for (int s = 0; s < {turns}; ++s) {{\n"
             f"        const u32 line = {name}_line + s * {each}u;\n"
             f"        {spare}float* to = {name} + line * {pitch} + {name}_in;\n"
             f"        const Place& o = {name}_known;\n"
             f"        const bool within = {name}_is && k0 + line < end;\n"
             f"        const Place k = {name}_inner(w, within ? k0 + line : 0);\n"
             f"        const bool there = within && {name}_has(w, o, k);\n"
             f"        {copy}      }}\n")
    return known, fetch


def _take_text(name: str, deep: bool, pitch: int, count: int) -> str:
    """Load the fragments of eight terms of a slice: `p` of rows (a), or `q` of columns (b)."""
    rows = name == "a"
    to, first, step = ("p", "warp_row", 16) if rows else ("q", "warp_column", 8)
    each = 4 if rows else 2
    if deep:  # rows: 0-7, 8-15 of four terms, then of the next four; columns: four, then four
        row = "(lane & 15u)" if rows else "(lane & 7u) + (lane >> 4) * 8"
        deeper = "(lane >> 4) * 4" if rows else "(lane >> 3 & 1u) * 4"
        pieces, at = (count, f"{to}[i]") if rows else (count // 2, f"{to}[2 * i]")
        lines = [f"#pragma unroll\n      for (u32 i = 0; i < {pieces}; ++i)\n"
                 f"        fragments({at}, {name} + ({first} + i * 16 + {row}) * {pitch} + s + "
                 f"{deeper});\n"]
        if count % 2 and not rows:
            lines.append(f"      {{ u32 r[4]; fragments(r, {name} + ({first} + {8 * (count - 1)} + "
                         f"(lane & 7u)) * {pitch} + s + {deeper}); "
                         f"{to}[{count - 1}][0] = r[0]; {to}[{count - 1}][1] = r[1]; }}\n")
        lines.append(f"#pragma unroll\n      for (u32 i = 0; i < {count}; ++i)\n#pragma unroll\n"
                     f"        for (u32 e = 0; e < {each}; ++e) "
                     f"{to}[i][e] = tf32(__int_as_float((int){to}[i][e]));\n")
        return "".join(lines)
    place = "group + (e & 1) * 8" if rows else "group"
    deeper = "(e >> 1) * 4" if rows else "e * 4"
    return (f"#pragma unroll\n      for (u32 i = 0; i < {count}; ++i)\n#pragma unroll\n"
            f"        for (u32 e = 0; e < {each}; ++e)\n"
            f"          {to}[i][e] = tf32({name}[(s + member + {deeper}) * {pitch} + {first} + "
            f"i * {step} + {place}]);\n")


def _sum_text(tile: Tile, left: Form, right: Form) -> str:
    """Accumulate the `sums` of a tile, slice by slice, from what `fetch` loads."""
    downs, overs = tile.fragments
    a_take = _take_text("a", left[3], _pitch(left, tile.rows, tile.depth), downs)
    b_take = _take_text("b", right[3], _pitch(right, tile.columns, tile.depth), overs)
    return f"""\
  float sums[{downs}][{overs}][4];
#pragma unroll
  for (int i = 0; i < {downs}; ++i)
#pragma unroll
    for (int j = 0; j < {overs}; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[i][j][e] = 0;
#pragma unroll
  for (u32 s = 0; s < {STAGES - 1}; ++s) {{ if (s < turns) fetch(s); sent(); }}
  for (u32 turn = 0; turn < turns; ++turn) {{
    arrived<{STAGES - 2}>();
    __syncthreads();
    if (turn + {STAGES - 1} < turns) fetch(turn + {STAGES - 1});
    sent();
    const float* a = (const float*)dynamic + turn % {STAGES}u * {tile.shared}u;
    const float* b = a + {tile.room(tile.rows)};
#pragma unroll
    for (u32 s = 0; s < {tile.depth}; s += 8) {{
      u32 p[{downs}][4], q[{overs}][2];
{a_take}{b_take}#pragma unroll
      for (int i = 0; i < {downs}; ++i)
#pragma unroll
        for (int j = 0; j < {overs}; ++j) multiply(sums[i][j], p[i], q[j]);
    }}
  }}
"""


def _write_text(tile: Tile, paired: bool) -> str:
    """Write the result; a thread has two adjacent columns of every eight, in every eighth row."""
    downs, overs = tile.fragments
    if paired:
        put = ("if (column < columns) *(float2*)(to + row_to.at + column_at(w, column).at) = "
               "float2{sums[i][j][2 * h], sums[i][j][2 * h + 1]};")
    else:
        put = ("for (int e = 0; e < 2; ++e) if (column + e < columns) "
               "*(float*)(to + row_to.at + column_at(w, column + e).at) = sums[i][j][2 * h + e];")
    return f"""\
#pragma unroll
  for (u32 i = 0; i < {downs}; ++i)
#pragma unroll
    for (u32 h = 0; h < 2; ++h) {{
      const u32 row = row0 + warp_row + i * 16 + group + h * 8;
      if (row >= rows) continue;
      const Place row_to = row_at(w, row);
#pragma unroll
      for (u32 j = 0; j < {overs}; ++j) {{
        const u32 column = column0 + warp_column + j * 8 + member * 2;
        {put}
      }}
    }}
"""


@lru_cache(maxsize=64)
def product_text(left: Form, right: Form, rows: WalkForm, columns: WalkForm, tile: Tile,
                 paired: bool) -> str:
    """The kernel; paired: the result is written two numbers at a time."""
    r = Words()
    a_base, b_base, to = r.pointer("const char"), r.pointer("const char"), r.pointer()
    limits, each, part, tiles = r.many(3), r.one(), r.one(), r.many(2)
    r.place = WORDS
    sides = _side_text("a", left, r) + _side_text("b", right, r)
    places = walk_text("row_at", rows, r) + walk_text("column_at", columns, r)
    coordinates = "".join(f" int c{d};" for d in range(max(left[2], right[2])))
    a_known, a_fetch = _fetch_text("a", left, tile.rows, tile.depth, "rows", "row0")
    b_known, b_fetch = _fetch_text("b", right, tile.columns, tile.depth, "columns", "column0")
    head = f"""\
{HELPERS["later"]}{MMA}\
struct Place {{ int at;{coordinates} }};
template <int N> struct __align__(4 * N) Vector {{ float e[N]; }};
{sides}{places}\
extern __shared__ __align__(16) unsigned char dynamic[];
"""
    return kernel_text(f"""\
  const char *a_base = {a_base}, *b_base = {b_base};
  const u32 rows = (u32){limits[0]}, columns = (u32){limits[1]}, depth = (u32){limits[2]};
  Index tile_column = block, tile_row = cut(tile_column, {tiles[1]});
  const Index split = cut(tile_row, {tiles[0]});
  char* to = {to} + (Word)split * {part};
  const u32 row0 = tile_row * {tile.rows}u, column0 = tile_column * {tile.columns}u;
  const u32 begin = split * (u32){each};
  const u32 end = begin + (u32){each} < depth ? begin + (u32){each} : depth;
  const u32 turns = (end - begin + {tile.depth - 1}u) / {tile.depth}u;
  const u32 warp = threadIdx.x / 32, lane = threadIdx.x & 31u;
  const u32 group = lane >> 2, member = lane & 3u;
  const u32 warp_row = warp % {tile.across}u * {tile.rows // tile.across}u;
  const u32 warp_column = warp / {tile.across}u * {tile.columns * tile.across // WARPS}u;
{a_known}{b_known}\
  auto fetch = [&](u32 turn) {{
    float* a = (float*)dynamic + turn % {STAGES}u * {tile.shared}u;
    float* b = a + {tile.room(tile.rows)};
    const u32 k0 = begin + turn * {tile.depth}u;
    {{
{a_fetch}    }}
    {{
{b_fetch}    }}
  }};
{_sum_text(tile, left, right)}{_write_text(tile, paired)}\
""", head, threads=THREADS)
