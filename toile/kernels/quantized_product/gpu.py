"""Products of few rows with a matrix of 8-bit or 4-bit numbers, which are converted in registers.

The time is that of reading the matrix, if enough reads are in flight: a thread reads up to 16 bytes
at a time, and several times before it uses them. If the summed axis comes first, a block computes a
few columns. Its threads divide the rows of the matrix among themselves, and their sums are added in
a fixed order. If the summed axis comes last, a warp computes the products with one row of the
matrix.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from toile.compiler.ir.operands import Args, Operand
from toile.compiler.passes.quantized_products import QuantizedProduct
from toile.kernels.contraction.gpu_tensor_cores import is_aligned
from toile.targets.cuda.launches import THREADS, Launch, Planner, blocks_of
from toile.targets.cuda.text import MOST, kernel_text

MANY = 512  # threads of a block that computes columns, if there are few blocks
STEPS = 8  # rows of stored values that a thread reads before it uses them
READS = 4  # parts of a row of stored values that a thread reads before it uses them
BUSY = 120  # blocks that keep a large GPU busy
SUMS = 32  # that a thread keeps
FOUR = 4  # numbers of x that a thread reads at once


class _Kind(NamedTuple):
    """What the text of a kernel depends on."""

    bits: int
    signed: bool
    zeros: bool
    rows: int  # of x
    width: int  # bytes that a thread reads at once
    across: int  # threads along a row of the matrix
    threads: int
    single: bool  # there is one group
    fours: bool  # x can be read in fours

    @property
    def pairs(self) -> int:
        """Numbers in a byte."""
        return 8 // self.bits


def lower(op: QuantizedProduct, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """One launch."""
    x, values, scales, *zeros = (plan.contiguous(a) for a in ins)
    (out,) = outs
    k, n, nbytes = x.shape[1], out.shape[1], values.shape[0] * values.shape[1]
    if max(nbytes, x.shape[0] * k) > MOST:
        raise ValueError(f"quantized product: needed fewer than 2^31 bytes, got {values.shape}")
    kind = _kind(op, x, values, n, bool(zeros))
    refs = [a.ref for a in (out, x, values, scales, (zeros or [scales])[0])]
    args: Args = (*refs, n, k, k // kind.pairs, op.group // kind.pairs, -(-k // op.group))
    if op.transposed:
        text, blocks = _rows_text(kind), blocks_of(n, THREADS // 32)
    else:
        text, blocks = _columns_text(kind), blocks_of(n, kind.across * kind.width)
    plan.stage(Launch(text, args, blocks, kind.threads, note=f"int{op.bits} product",
                      nbytes=nbytes))
    return True


def _kind(op: QuantizedProduct, x: Operand, values: Operand, n: int, zeros: bool) -> _Kind:
    m, k = x.shape
    single, pairs = k <= op.group, 8 // op.bits
    step = op.group // pairs
    width = 1
    for unit in (4, 8, 16):
        fits = unit * m <= SUMS if not op.transposed else single or step % unit == 0
        if fits and values.shape[1] % unit == 0 and is_aligned(values.ref, unit):
            width = unit
    across = 4 if width < 16 or blocks_of(n, 4 * width) >= 2 * BUSY else 2
    threads = MANY if not op.transposed and blocks_of(n, across * width) < BUSY else THREADS
    unit = k // pairs if op.transposed else STEPS * pairs if single else step * pairs
    fours = k % FOUR == 0 and unit % FOUR == 0 and is_aligned(x.ref, 16)
    signed = values.dtype.name == "int8"
    return _Kind(op.bits, signed, zeros, m, width, across, threads, single, fours)


# `issued()` after some reads: the compiler would otherwise move each of them to where its number is
# used, and wait for one after the other.
ISSUED = """\
#ifdef __CUDA_ARCH__
__device__ __forceinline__ void issued() { __syncwarp(__activemask()); }
#else
__device__ inline void issued() {}
#endif
"""

# A byte b becomes the number 2^23 + b, from which the rest is subtracted without rounding.
_HEAD = """\
typedef {stored} Stored;
struct alignas({width}) Bytes {{ {part} e[{parts}]; }};
struct alignas(16) Four {{ float e[4]; }};
#ifdef __CUDA_ARCH__
__device__ __forceinline__ float number(u32 word, u32 t) {{
  return __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7650u | t)) - {start};
}}
#else
__device__ inline float number(u32 word, u32 t) {{
  return 8388608.0f + (float)(word >> 8 * t & 255) - {start};
}}
#endif
__device__ inline Bytes read(const Stored* at) {{ return *(const Bytes*)at; }}
{issued}"""
_NAMES = """\
  float* out = (float*)w[0];
  const float* x = (const float*)w[1];
  const Stored* values = (const Stored*)w[2];
  const float* scales = (const float*)w[3];
  const float* zeros = (const float*)w[4];
  const u32 n = (u32)w[5], k = (u32)w[6], bytes = (u32)w[7], step = (u32)w[8];
  const u32 groups = (u32)w[9];
"""


def _head(kind: _Kind) -> str:
    whole = kind.width >= 4
    above = 128 if kind.signed else 8 if kind.bits == 4 and not kind.zeros else 0
    return _HEAD.format(
        stored="u8", width=kind.width, part="u32" if whole else "u8",
        parts=kind.width // 4 if whole else 1, start=f"{(1 << 23) + above}.0f",
        issued=ISSUED)


def _words(kind: _Kind, name: str, read: str) -> str:
    """Statements that separate the numbers of some bytes: word p has those at place p of a byte."""
    lines = []
    for i in range(max(1, kind.width // 4)):
        for p in range(kind.pairs):
            word = f"{read}.e[{i}]"
            if kind.bits == 4:
                word = f"({word} >> {4 * p}) & 0x0f0f0f0fu"
            elif kind.signed:
                word = f"{word} ^ 0x80808080u"
            lines.append(f"const u32 {name}{p}_{i} = {word};")
    return " ".join(lines)


def _number(name: str, p: int, t: int) -> str:
    """The number at place p of byte t."""
    return f"number({name}{p}_{t // 4}, {t % 4})"


def _scaled(kind: _Kind, where: str, t: int, m: int, into: str) -> str:
    """A statement that adds the scaled sum m of column t, or of a row, to others."""
    part = f"part[{m}][{t}]"
    if kind.zeros:
        part = f"fmaf(-zeros[{where}], ones[{m}], {part})"
    return f"{into} = fmaf(scales[{where}], {part}, {into});"


def _used_columns(kind: _Kind, name: str, terms: list[list[str]]) -> str:
    """Statements that multiply the numbers of some bytes by terms[m][p] of x."""
    lines = []
    for m, row in enumerate(terms):
        for p, term in enumerate(row):
            lines += [f"part[{m}][{t}] = fmaf({term}, {_number(name, p, t)}, part[{m}][{t}]);"
                      for t in range(kind.width)]
            if kind.zeros:
                lines.append(f"ones[{m}] += {term};")
    return "\n        ".join(lines)


def _chunk(kind: _Kind) -> str:
    """Statements that use `STEPS` rows of the matrix."""
    lines = [f"Bytes raw[{STEPS}];", "#pragma unroll", f"for (u32 u = 0; u < {STEPS}; ++u) "
             "raw[u] = read(values + (start + u) * n + j);", "issued();"]
    half = FOUR  # rows whose terms of x are held at once
    for first in range(0, STEPS, half):
        reads = []
        for m in range(kind.rows):
            at = f"x + {m} * k + (start + {first}) * {kind.pairs}"
            reads += [f"const Four x{m}_{q} = *(const Four*)({at} + {FOUR * q});"
                      for q in range(kind.pairs)]
        lines += ["{", *(reads if kind.fours else ())]
        for u in range(half):
            terms = [[f"x{m}_{(u * kind.pairs + p) // FOUR}.e[{(u * kind.pairs + p) % FOUR}]"
                      if kind.fours else f"x[{m} * k + (start + {first + u}) * {kind.pairs} + {p}]"
                      for p in range(kind.pairs)] for m in range(kind.rows)]
            lines += ["{", _words(kind, "b", f"raw[{first + u}]"), _used_columns(kind, "b", terms),
                      "}"]
        lines.append("}")
    return "\n        ".join(lines)


@lru_cache(maxsize=64)
def _columns_text(kind: _Kind) -> str:
    m, width, across = kind.rows, kind.width, kind.across
    columns, warps = across * width, kind.threads // 32
    sums = f"float part[{m}][{width}] = {{}}, ones[{m}] = {{}};"
    group, into = ("0u", "c") if kind.single else ("c / each", "c % each")
    scale = "\n      ".join(
        _scaled(kind, f"{group if kind.single else 'g'} * n + j + {t}", t, i, f"total[{i}][{t}]")
        for t in range(width) for i in range(m))
    terms = [[f"x[{i} * k + r * {kind.pairs} + {p}]" for p in range(kind.pairs)] for i in range(m)]
    return kernel_text(f"""\
{_NAMES}\
  __shared__ float held[{warps}][{m}][{columns}];
  const u32 lane = threadIdx.x % {across}, slice = threadIdx.x / {across};
  const u32 first = block * {columns}, j = first + lane * {width};
  float total[{m}][{width}] = {{}};
  if (j < n) {{
    const u32 each = (step + {STEPS - 1}) / {STEPS};
    {sums if kind.single else ""}
    for (u32 c = slice; c < groups * each; c += {kind.threads // across}) {{
      const u32 g = {group}, start = g * step + {into} * {STEPS};
      u32 end = start + {STEPS};
      if (end > (g + 1) * step) end = (g + 1) * step;
      if (end > bytes) end = bytes;
      {"" if kind.single else sums}
      if (end == start + {STEPS}) {{
        {_chunk(kind)}
      }} else {{
        for (u32 r = start; r < end; ++r) {{
          const Bytes raw = read(values + r * n + j);
          {_words(kind, "b", "raw")}
          {_used_columns(kind, "b", terms)}
        }}
      }}
      {"" if kind.single else scale}
    }}
    {scale if kind.single else ""}
  }}
#pragma unroll
  for (u32 m = 0; m < {m}; ++m)
#pragma unroll
    for (u32 t = 0; t < {width}; ++t) {{
#pragma unroll
      for (u32 d = 16; d >= {across}; d /= 2)
        total[m][t] += __shfl_xor_sync(~0u, total[m][t], d);
      if (threadIdx.x % 32 < {across}) held[threadIdx.x / 32][m][lane * {width} + t] = total[m][t];
    }}
  __syncthreads();
  for (u32 i = threadIdx.x; i < {m * columns}; i += {kind.threads}) {{
    const u32 m = i / {columns}, column = i % {columns};
    float sum = 0.0f;
    for (u32 s = 0; s < {warps}; ++s) sum += held[s][m][column];
    if (first + column < n) out[m * n + first + column] = sum;
  }}
""", _head(kind), wide=None, threads=kind.threads)


def _used_row(kind: _Kind) -> str:
    """Statements that multiply the bytes at `at` of a row by numbers of x."""
    lines = []
    fours = kind.fours and kind.width >= FOUR
    for i in range(kind.rows):
        for p in range(kind.pairs):
            at = f"x + {i} * k + {p} * bytes + at"
            if fours:
                lines += [f"const Four x{i}_{p}_{q} = *(const Four*)({at} + {FOUR * q});"
                          for q in range(kind.width // FOUR)]
            for t in range(kind.width):
                term = f"x{i}_{p}_{t // FOUR}.e[{t % FOUR}]" if fours else f"({at})[{t}]"
                lines.append(f"part[{i}][0] = fmaf({term}, {_number('b', p, t)}, part[{i}][0]);")
                if kind.zeros:
                    lines.append(f"ones[{i}] += {term};")
    return "\n        ".join(lines)


@lru_cache(maxsize=64)
def _rows_text(kind: _Kind) -> str:
    m, width = kind.rows, kind.width
    sums = f"float part[{m}][1] = {{}}, ones[{m}] = {{}};"
    where = "row" if kind.single else "row * groups + at / step"
    scale = "\n      ".join(_scaled(kind, where, 0, i, f"total[{i}]") for i in range(m))
    stride = 32 * width
    return kernel_text(f"""\
{_NAMES}\
  const u32 lane = threadIdx.x % 32, row = block * {THREADS // 32} + threadIdx.x / 32;
  float total[{m}] = {{}};
  {sums if kind.single else ""}
  const u32 last = row < n ? bytes : 0;
  for (u32 i = lane * {width}; i < last; i += {READS * stride}) {{
    Bytes raw[{READS}];
#pragma unroll
    for (u32 u = 0; u < {READS}; ++u)
      if (i + u * {stride} < bytes) raw[u] = read(values + row * bytes + i + u * {stride});
    issued();
#pragma unroll
    for (u32 u = 0; u < {READS}; ++u) {{
      const u32 at = i + u * {stride};
      if (at < bytes) {{
        {"" if kind.single else sums}
        {_words(kind, "b", "raw[u]")}
        {_used_row(kind)}
        {"" if kind.single else scale}
      }}
    }}
  }}
  {f"if (row < n) {{ {scale} }}" if kind.single else ""}
#pragma unroll
  for (u32 m = 0; m < {m}; ++m) {{
    for (u32 d = 16; d; d /= 2) total[m] += __shfl_xor_sync(~0u, total[m], d);
    if (row < n && lane == 0) out[m * n + row] = total[m];
  }}
""", _head(kind), wide=None)
