"""Matrix products with few rows, as in a layer in a loop: kernels whose blocks divide the sums.

cuBLAS divides only the result among blocks, and a result with few rows keeps only a few
multiprocessors busy: 32 rows times 512 by 512 numbers take 8 us, where 2 would be enough. Here a
tile of the result is small, and each warp of its block adds a part of the terms; then the block
adds the warps' sums in a fixed order. Fragments are read from memory straight into registers: since
the order of the terms is free, a thread takes neighboring ones. Weights are read before the block
waits for other kernels, as in `gpu_vectors`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from toile.compiler.ir.operands import Args, Ref
from toile.kernels.contraction.gpu_tensor_cores import has_tensor_cores, is_aligned
from toile.kernels.contraction.gpu_tensor_text import MMA
from toile.targets.cuda.cublas import Gemm, Matrix
from toile.targets.cuda.launches import Launch, blocks_of
from toile.targets.cuda.scalars import HELPERS
from toile.targets.cuda.text import MOST, READY, Words, divisor, kernel_text, waiting

MOST_ROWS = 64  # of the narrow operand
FEWEST_TERMS = 128  # of a sum
MOST_COLUMNS = 2048  # of all products: for more of them cuBLAS has enough tiles
MOST_BYTES = 1 << 23  # of the other operand: reading a larger one takes longer than a launch
BUSY = 132  # multiprocessors of a large GPU
VECTOR = 16  # bytes that a thread reads along the sum
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
MOST_ROUNDS = 8  # of reads before their numbers are multiplied
_REGISTERS = 96  # for numbers that are on their way from memory

# d += a b with 16 x 16 and 16 x 8 numbers of 16 bits; hosts use shuffles.
_SHORT_MMA = """\
#if __CUDA_ARCH__ >= 800
__device__ __forceinline__ void multiply(float* d, const u32* a, const u32* b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.KIND.KIND.f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#else
__device__ inline float number(u32 x, int odd) { return widened((u16)(odd ? x >> 16 : x)); }
__device__ inline void multiply(float* d, const u32* a, const u32* b) {
  const int lane = threadIdx.x & 31, row = lane & ~3, column = (lane & 3) * 8;
  for (int k = 0; k < 16; ++k) {
    const int half = k / 8, at = k % 8 / 2, odd = k & 1;
    const float p = number(__shfl_sync(~0u, a[2 * half], row + at), odd);
    const float q = number(__shfl_sync(~0u, a[2 * half + 1], row + at), odd);
    const float x = number(__shfl_sync(~0u, b[half], column + at), odd);
    const float y = number(__shfl_sync(~0u, b[half], column + 4 + at), odd);
    d[0] = fmaf(p, x, d[0]); d[1] = fmaf(p, y, d[1]);
    d[2] = fmaf(q, x, d[2]); d[3] = fmaf(q, y, d[3]);
  }
}
#endif
"""


class _Tile(NamedTuple):
    """What a block computes: 16 `rows` by 8 `columns` numbers."""

    rows: int
    columns: int

    def blocks(self, rows: int, columns: int) -> tuple[int, int]:
        return blocks_of(rows, 16 * self.rows), blocks_of(columns, 8 * self.columns)


class _Form(NamedTuple):
    """What determines the text.

    deep: the wide operand is contiguous along the sum; rounds: how often a thread reads before it
    multiplies; exact: rounds end where sums end; early: the wide operand is read before the block
    waits for the kernels that compute the narrow one."""

    type: str
    result: str
    tile: _Tile
    deep: bool
    warps: int
    rounds: int
    exact: bool
    early: bool


class _Sides(NamedTuple):
    """A product of a matrix with few rows, which are contiguous along the sum, and a wide one."""

    narrow: Matrix
    wide: Matrix
    rows: int
    columns: int
    steps: tuple[int, int]  # in the result, from row to row and from column to column
    deep: bool  # the wide matrix is contiguous along the sum


def launch(call: Gemm, never_written: Callable[[Ref], bool]) -> Launch | None:
    """The launch that computes a product instead of cuBLAS; None if the product is not suited.

    never_written: whether no kernel of the Program writes some memory."""
    sides = _sides(call) if is_plain(call) else None
    size = BYTES.get(call.a.type, 0)
    if sides is None or call.k < FEWEST_TERMS or call.k * size % VECTOR:
        return None
    every = sides.columns * call.count
    if every > MOST_COLUMNS or every * call.k * size > MOST_BYTES or not _is_near(call):
        return None
    narrow, wide, rows, columns, steps, deep = sides
    across = _most_across(wide, columns, size) if not deep else 4 * _is_aligned(wide, VECTOR, size)
    if not across or not _is_aligned(narrow, VECTOR, size) or not has_tensor_cores():
        return None
    tile = _tile(rows, columns, call.count, size, across)
    tiles = tile.blocks(rows, columns)
    args: Args = (
        narrow.ref, wide.ref, call.c.ref, rows, columns, call.k, narrow.leading, wide.leading,
        *steps, narrow.step, wide.step, call.c.step, *map(divisor, reversed(tiles)),
    )  # fmt: skip
    shares = _shares(tile, call.k, size)
    early = wide.ref if never_written(wide.ref) else None
    text = _text(_Form(call.a.type, call.c.type, tile, deep, *shares, early is not None))
    return Launch(text, args, tiles[0] * tiles[1] * call.count, 32 * shares[0], 0,
                  f"narrow product {call.a.type}" + (" (tf32)" if size == 4 else ""),
                  early=early)


def _is_near(call: Gemm) -> bool:
    """Whether offsets within a matrix fit into 32 bits."""
    return max(call.m, call.n, call.k) * max(call.a.leading, call.b.leading) < MOST


def is_plain(call: Gemm) -> bool:
    """Whether a call is C = A B of types that tensor cores multiply, without offsets or
    addresses."""
    a, b = call.a.type, call.b.type
    computed = {"float32": "tf32", "bfloat16": "float32", "float16": "float32"}.get(a)
    return a == b and call.compute == computed and not call.beta and call.arrays is None and (
        call.loop == ((0, 0, 0),))


def _sides(call: Gemm) -> _Sides | None:
    """The narrow and the wide operand; None if there is no narrow one.

    C is stored by columns: the columns of B are rows here, unless A is the narrow one."""
    a, b, by = call.a, call.b, call.c.leading
    for found, along in ((_Sides(b, a, call.n, call.m, (by, 1), a.transposed), not b.transposed),
                         (_Sides(a, b, call.m, call.n, (1, by), not b.transposed), a.transposed)):
        if along and 1 < found.rows <= MOST_ROWS and 2 * found.rows <= found.columns:
            return found
    return None


def _most_across(wide: Matrix, columns: int, size: int) -> int:
    """How many columns may be read together: 4, 2 or 1; 0 if their reads would be too small."""
    for n in (4, 2, 1):
        if columns % n == 0 and _is_aligned(wide, n * size, size):
            return n if n * size >= 4 else 0
    return 0


def _is_aligned(m: Matrix, unit: int, size: int) -> bool:
    return is_aligned(m.ref, unit) and m.leading * size % unit == 0 and m.step * size % unit == 0


def _tile(rows: int, columns: int, count: int, size: int, across: int) -> _Tile:
    """The tile with which the busiest multiprocessor reads the least."""
    def cost(tile: _Tile) -> tuple[int, int]:
        blocks = tile.blocks(rows, columns)
        each = 16 * tile.rows + 8 * tile.columns
        total = blocks[0] * blocks[1] * count
        return each * blocks_of(total, BUSY), each * total

    columns_of = [n for n in (1, 2, 4) if n * size >= 4 and n <= across]
    return min((_Tile(r, c) for r in (1, 2) if r == 1 or rows > 16 for c in columns_of), key=cost)


def _shares(tile: _Tile, depth: int, size: int) -> tuple[int, int, bool]:
    """Warps that share the terms, rounds of reads in flight, and whether they end where sums
    end."""
    each = 4 * VECTOR // size  # terms of a warp in a round
    warps = 16 if depth % (16 * each) == 0 and tile.rows * tile.columns <= 4 else 8
    most = min(MOST_ROUNDS, _REGISTERS // (8 * tile.rows + 4 * tile.columns))
    for n in range(most, 0, -1):
        if depth % (n * warps * each) == 0 and (2 * n > most or depth == n * warps * each):
            return warps, n, True
    return warps, min(most, blocks_of(depth, warps * each)), False


@lru_cache(maxsize=64)
def _text(form: _Form) -> str:
    """A block loads fragments of both operands, multiplies them, and adds the sums of its warps.

    Positions outside the operands are moved inside: what is read there goes into numbers that are
    not stored, except for terms beyond the sum, which become zero."""
    tile, size, rounds, warps = form.tile, BYTES[form.type], form.rounds, form.warps
    per = VECTOR // size  # neighboring terms of a thread
    vectors = tile.columns if form.deep else per
    wide_type = "Along" if form.deep else "Across"
    r = Words()
    narrow, wide, out = r.pointer("const Number"), r.pointer("const Number"), r.pointer("Result")
    rows, columns, depth, by_narrow, by_wide, to_row, to_column = r.many(7)
    steps, tiles = r.many(3), r.many(2)
    inside, zeros = "k", ""
    if not form.exact:
        inside = "(k < depth ? k : 0)"
        zeros = (f"if (k >= depth) {{ for (u32 i = 0; i < {2 * tile.rows}; ++i) "
                 f"a[u][i] = Along{{}}; for (u32 i = 0; i < {vectors}; ++i) "
                 f"b[u][i] = {wide_type}{{}}; }}")
    before, after = waiting(form.early)
    first = "least(column + i, columns - 1) * by_wide" if form.deep else "column + i * by_wide"
    along = "" if form.deep else " * by_wide"
    terms = [f"h * {per // 2} + {i}" for i in range(per // 2)]
    right = [f"b[u][i].e[{x}]" if form.deep else f"b[u][{x}].e[i]" for x in terms]
    pairs = [("p", 0), ("q", 0), ("p", 1), ("q", 1)]
    if size == 4:
        left = ", ".join(f"tf32({p}.e[{terms[i]}])" for p, i in pairs)
        right = [f"tf32({x})" for x in right]
    else:
        left = ", ".join(f"both({p}.e[{terms[2 * i]}], {p}.e[{terms[2 * i + 1]}])"
                         for p, i in pairs)
        right = [f"both({right[i]}, {right[i + 1]})" for i in (0, 2)]
    width, step = 8 * tile.columns, warps * 4 * per
    return kernel_text(f"""\
  __shared__ float sums[{warps}][{16 * tile.rows}][{width + 1}];
  Index column_tile = block, row_tile = cut(column_tile, {tiles[0]});
  const Word batch = cut(row_tile, {tiles[1]});
  const Number *narrow = {narrow} + batch * {steps[0]}, *wide = {wide} + batch * {steps[1]};
  Result* out = {out} + batch * {steps[2]};
  const u32 rows = (u32){rows}, columns = (u32){columns}, depth = (u32){depth};
  const u32 by_narrow = (u32){by_narrow}, by_wide = (u32){by_wide};
  const u32 lane = threadIdx.x & 31, warp = threadIdx.x / 32, row = lane / 4, place = lane & 3;
  const u32 row0 = row_tile * {16 * tile.rows}u, column0 = column_tile * {width}u;
  const u32 column = least(column0 + row * {tile.columns}, columns - {1 if form.deep else
                                                                      tile.columns});
  float d[{tile.rows}][{tile.columns}][4] = {{}};
  {wide_type} b[{rounds}][{vectors}];
  auto fetch = [&](u32 k0) {{
#pragma unroll
    for (u32 u = 0; u < {rounds}; ++u) {{
      const u32 k = k0 + u * {step} + place * {per}, at = {inside};
#pragma unroll
      for (u32 i = 0; i < {vectors}; ++i)
        b[u][i] = *(const {wide_type}*)(wide + {first} + at{along});
    }}
  }};
  {before}
  fetch(warp * {4 * per});
  {after}
  for (u32 k0 = warp * {4 * per}; k0 < depth; k0 += {rounds * step}) {{
    Along a[{rounds}][{2 * tile.rows}];
#pragma unroll
    for (u32 u = 0; u < {rounds}; ++u) {{
      const u32 k = k0 + u * {step} + place * {per}, at = {inside};
#pragma unroll
      for (u32 i = 0; i < {2 * tile.rows}; ++i)
        a[u][i] = *(const Along*)(narrow + least(row0 + 8 * i + row, rows - 1) * by_narrow + at);
      {zeros}
    }}
#pragma unroll
    for (u32 u = 0; u < {rounds}; ++u)
#pragma unroll
      for (u32 h = 0; h < 2; ++h)
#pragma unroll
        for (u32 j = 0; j < {tile.rows}; ++j) {{
          const Along &p = a[u][2 * j], &q = a[u][2 * j + 1];
          const u32 left[4] = {{{left}}};
#pragma unroll
          for (u32 i = 0; i < {tile.columns}; ++i) {{
            const u32 right[2] = {{{", ".join(right)}}};
            multiply(d[j][i], left, right);
          }}
        }}
    if (k0 + {rounds * step} < depth) fetch(k0 + {rounds * step});
  }}
#pragma unroll
  for (u32 j = 0; j < {tile.rows}; ++j)
#pragma unroll
    for (u32 i = 0; i < {tile.columns}; ++i)
#pragma unroll
      for (u32 n = 0; n < 4; ++n)
        sums[warp][16 * j + 8 * (n / 2) + row][(2 * place + n % 2) * {tile.columns} + i]
          = d[j][i][n];
  __syncthreads();
  for (u32 e = threadIdx.x; e < {16 * tile.rows * width}; e += {32 * warps}) {{
    const u32 y = e / {width}, x = e % {width};
    float sum = 0;
#pragma unroll
    for (u32 n = 0; n < {warps}; ++n) sum += sums[n][y][x];
    if (row0 + y < rows && column0 + x < columns)
      out[(Word)(row0 + y) * {to_row} + (Word)(column0 + x) * {to_column}] = rounded(sum);
  }}
""", _head(form), threads=32 * warps)


def _head(form: _Form) -> str:
    """Types, conversions and the instruction."""
    size, short = BYTES[form.type], {"bfloat16": "bf16", "float16": "half"}
    number = "float" if size == 4 else "u16"
    names = {short[t] for t in (form.type, form.result) if t in short}
    head = "".join(HELPERS[f"{way}_{name}"] for name in sorted(names) for way in ("from", "to"))
    result = "u16" if form.result in short else "float"
    rounded = f"to_{short[form.result]}(x)" if form.result in short else "x"
    head += READY + (
        f"typedef {number} Number;\ntypedef {result} Result;\n"
        f"struct alignas({VECTOR}) Along {{ Number e[{VECTOR // size}]; }};\n"
        f"struct alignas({form.tile.columns * size}) Across {{ Number e[{form.tile.columns}]; }};\n"
        "__device__ inline u32 least(u32 x, u32 y) { return x < y ? x : y; }\n"
        f"__device__ inline Result rounded(float x) {{ return {rounded}; }}\n"
    )
    if size == 4:
        return head + MMA
    kind = {"bfloat16": "bf16", "float16": "f16"}[form.type]
    return head + (
        f"__device__ inline float widened(u16 x) {{ return from_{short[form.type]}(x); }}\n"
        "__device__ inline u32 both(u16 x, u16 y) { return x | (u32)y << 16; }\n"
        + _SHORT_MMA.replace("KIND", kind))
