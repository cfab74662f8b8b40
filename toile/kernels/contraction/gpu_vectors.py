"""Products of one to four vectors with a matrix, whose time is that of reading the matrix.

A block computes the sums of a strip of columns, and its threads divide the rows of the matrix among
themselves. Each thread has several reads in flight. If no kernel of the Program writes the matrix,
as in the case of a model's weights, the first of these reads are issued before the block waits for
the kernels that compute the vectors: on GPUs where kernels start early (see `GraphOrder`), the
memory is busy while they end. cuBLAS computes such products with tiles of its tensor cores, most of
which stay empty, and its kernels do not start early.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from toile.compiler.ir.operands import Args, Ref
from toile.kernels.contraction.gpu_narrow import BYTES, VECTOR, is_plain
from toile.kernels.contraction.gpu_tensor_cores import is_aligned
from toile.targets.cuda.cublas import Gemm, Matrix
from toile.targets.cuda.launches import Launch, blocks_of
from toile.targets.cuda.scalars import HELPERS
from toile.targets.cuda.text import MOST, READY, Words, kernel_text, waiting

MOST_ROWS = 4  # vectors
FEWEST_TERMS = 128  # of a sum
FEWEST_BYTES = 1 << 17  # of the matrix: smaller ones take no longer than a launch
BUSY = 128  # blocks that keep a large GPU busy
STRIP = 4 * VECTOR  # bytes of a row that a block reads at least
# Bytes per second that a block reads, and that cuBLAS reads with all blocks; seconds of its launch.
BLOCK_RATE, LIBRARY_RATE, LIBRARY_TIME = 1e11, 2e12, 4e-6
LONG = 4096  # terms of a sum for which a block has more threads

# Reads are volatile: the compiler would otherwise move each to where its numbers are used.
_READ = """\
#ifdef __CUDA_ARCH__
__device__ __forceinline__ Vector read(const Number* at) {
  Vector v;
  asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.e[0]), "=r"(v.e[1]), "=r"(v.e[2]), "=r"(v.e[3]) : "l"(at));
  return v;
}
#else
__device__ inline Vector read(const Number* at) { return *(const Vector*)at; }
#endif
"""

# The numbers in a word of a matrix.
_UNPACKED = {
    "bfloat16": ("__int_as_float((int)(word << 16))", "__int_as_float((int)(word & 0xffff0000u))"),
    "float16": ("from_half((u16)word)", "from_half((u16)(word >> 16))"),
    "float32": ("__int_as_float((int)word)",),
}  # fmt: skip


class _Form(NamedTuple):
    """What determines the text.

    across: threads along a row of a strip; reads: how many a thread has in flight, twice."""

    type: str
    result: str
    rows: int
    across: int
    threads: int
    reads: int
    early: bool

    @property
    def numbers(self) -> int:
        """Numbers that a thread reads at once."""
        return VECTOR // BYTES[self.type]

    @property
    def columns(self) -> int:
        """Columns of a strip."""
        return self.across * self.numbers


class _Vectors(NamedTuple):
    """Vectors, the matrix that they are multiplied by, and steps in numbers."""

    vectors: Matrix
    matrix: Matrix
    rows: int
    columns: int
    steps: tuple[int, int]  # among the vectors: from one to the next, and along the sum
    out: tuple[int, int]  # in the result, likewise and from column to column


def launch(call: Gemm, never_written: Callable[[Ref], bool]) -> Launch | None:
    """The launch that computes a product instead of cuBLAS; None if the product is not suited.

    never_written: whether no kernel of the Program writes some memory."""
    found = _vectors(call) if is_plain(call) and call.count == 1 else None
    if found is None:
        return None
    size = BYTES[call.a.type]
    nbytes = found.columns * call.k * size
    vectors, matrix, rows, columns, steps, out = found
    if (
        call.k < FEWEST_TERMS or nbytes < FEWEST_BYTES or columns * size % VECTOR
        or not is_aligned(matrix.ref, VECTOR) or matrix.leading * size % VECTOR
        or max(columns, matrix.leading) * call.k >= MOST or max(steps) * call.k >= MOST
    ):  # fmt: skip
        return None
    early = matrix.ref if never_written(matrix.ref) else None
    form = _form(call, found, early is not None)
    strip = form.columns * call.k * size
    if strip / BLOCK_RATE > nbytes / LIBRARY_RATE + LIBRARY_TIME:  # libraries divide such sums
        return None
    args: Args = (vectors.ref, matrix.ref, call.c.ref, columns, call.k, matrix.leading, *steps,
                  *out)
    return Launch(_text(form), args, blocks_of(columns, form.columns), form.threads, 0,
                  f"vector product {call.a.type}", nbytes=nbytes, early=early)


def _vectors(call: Gemm) -> _Vectors | None:
    """The vectors and the matrix of a product; None if it has more rows, or if the matrix is
    contiguous along the sum.

    C is stored by columns."""
    a, b, by = call.a, call.b, call.c.leading
    along_a = (1, a.leading) if not a.transposed else (a.leading, 1)
    along_b = (b.leading, 1) if not b.transposed else (1, b.leading)
    if call.n <= MOST_ROWS and not a.transposed and call.m > call.n:
        return _Vectors(b, a, call.n, call.m, along_b, (by, 1))
    if call.m <= MOST_ROWS and b.transposed and call.n > call.m:
        return _Vectors(a, b, call.m, call.n, along_a, (1, by))
    return None


def _form(call: Gemm, found: _Vectors, early: bool) -> _Form:
    size = BYTES[call.a.type]
    across = 8 if blocks_of(found.columns * size, 2 * STRIP) >= BUSY else STRIP // VECTOR
    threads = 1024 if across == 4 and call.k >= LONG and found.rows == 1 else 512
    groups = threads // across
    most = 4 if threads == 1024 or across == 8 else 8
    reads = next((n for n in (1, 2, 4) if 2 * n * groups >= call.k and n < most), most)
    return _Form(call.a.type, call.c.type, found.rows, across, threads, reads, early)


@lru_cache(maxsize=64)
def _text(form: _Form) -> str:
    r = Words()
    x, wide, out = r.pointer("const Number"), r.pointer("const Number"), r.pointer("Result")
    columns, depth, leading, by_vector, by_term, to_row, to_column = r.many(7)
    rows, across, numbers = form.rows, form.across, form.numbers
    warps, groups, width = form.threads // 32, form.threads // form.across, form.columns
    step = form.reads * groups  # rows of the matrix that a block reads at once
    per_word = len(_UNPACKED[form.type])
    sums = "\n        ".join(
        f"sums[{m}][{w * per_word + i}] = fmaf(number{m}, {text.replace('word', f'v.e[{w}]')}, "
        f"sums[{m}][{w * per_word + i}]);"
        for w in range(4) for i, text in enumerate(_UNPACKED[form.type]) for m in range(rows))
    terms = " ".join(f"const float number{m} = inside ? widened(x[{m} * by_vector + "
                     "row * by_term]) : 0.0f;" for m in range(rows))
    before, after = waiting(form.early)
    return kernel_text(f"""\
  __shared__ float parts[{warps}][{rows}][{width}];
  const Number *x = {x}, *wide = {wide};
  Result* out = {out};
  const u32 columns = (u32){columns}, depth = (u32){depth}, leading = (u32){leading};
  const u32 by_vector = (u32){by_vector}, by_term = (u32){by_term};
  const u32 place = threadIdx.x % {across}, group = threadIdx.x / {across};
  const u32 column = block * {width} + place * {numbers};
  const u32 last = column < columns ? depth : 0;
  wide += column;
  float sums[{rows}][{numbers}] = {{}};
  Vector a[{form.reads}], b[{form.reads}];
  {before}
  fetch(a, wide, group, last, leading);
  {after}
  auto use = [&](const Vector* from, u32 start) {{
#pragma unroll
    for (u32 u = 0; u < {form.reads}; ++u) {{
      const u32 row = start + u * {groups} + group;
      const bool inside = row < depth;
      const Vector v = from[u];
      {terms}
      {{
        {sums}
      }}
    }}
  }};
  for (u32 start = 0; start < depth; start += {2 * step}) {{
    fetch(b, wide, start + {step} + group, last, leading);
    use(a, start);
    fetch(a, wide, start + {2 * step} + group, last, leading);
    use(b, start + {step});
  }}
#pragma unroll
  for (u32 m = 0; m < {rows}; ++m)
#pragma unroll
    for (u32 i = 0; i < {numbers}; ++i) {{
#pragma unroll
      for (u32 d = 16; d >= {across}; d /= 2)
        sums[m][i] += __shfl_xor_sync(~0u, sums[m][i], d);
      if (threadIdx.x % 32 < {across})
        parts[threadIdx.x / 32][m][place * {numbers} + i] = sums[m][i];
    }}
  __syncthreads();
  for (u32 e = threadIdx.x; e < {rows * width}; e += {form.threads}) {{
    const u32 m = e / {width}, i = e % {width};
    float sum = 0;
#pragma unroll
    for (u32 n = 0; n < {warps}; ++n) sum += parts[n][m][i];
    if (block * {width} + i < columns)
      out[(Word)m * {to_row} + (Word)(block * {width} + i) * {to_column}] = rounded(sum);
  }}
""", _head(form, groups), wide=None, threads=form.threads)


def _head(form: _Form, groups: int) -> str:
    """Types, conversions and reads."""
    short = {"bfloat16": "bf16", "float16": "half"}
    names = {short[t] for t in (form.type, form.result) if t in short}
    helpers = "".join(HELPERS[f"{way}_{name}"] for name in sorted(names) for way in ("from", "to"))
    widened = f"from_{short[form.type]}(x)" if form.type in short else "x"
    rounded = f"to_{short[form.result]}(x)" if form.result in short else "x"
    return (
        f"{helpers}typedef {'u16' if form.type in short else 'float'} Number;\n"
        f"typedef {'u16' if form.result in short else 'float'} Result;\n"
        f"struct alignas({VECTOR}) Vector {{ u32 e[4]; }};\n"
        f"__device__ inline float widened(Number x) {{ return {widened}; }}\n"
        f"__device__ inline Result rounded(float x) {{ return {rounded}; }}\n"
        f"{READY}{_READ}"
        "__device__ __forceinline__ void fetch(Vector* to, const Number* from, u32 row, u32 last,\n"
        "                                      u32 leading) {\n"
        "#pragma unroll\n"
        f"  for (u32 u = 0; u < {form.reads}; ++u) {{\n"
        f"    if (row + u * {groups} < last) to[u] = read(from + (row + u * {groups}) * leading);\n"
        "    else to[u] = Vector{};\n  }\n}\n"
    )
