"""Products of few rows with a matrix of 8-bit or 4-bit numbers, which are converted in registers.

If the summed axis comes first, a block computes 32 columns or, where rows are not aligned, 8; its
threads divide the rows of the matrix among themselves, and their sums are added in a fixed order.
If the summed axis comes last, a warp computes the products with one row of the matrix.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from toile.compiler.ir.operands import Args, Operand
from toile.compiler.passes.quantized_products import QuantizedProduct
from toile.kernels.contraction.gpu_tensor_cores import is_aligned
from toile.targets.cuda.launches import THREADS, Launch, Planner, blocks_of
from toile.targets.cuda.text import kernel_text

ACROSS = 8  # threads along a row of the matrix
SLICES = THREADS // ACROSS  # parts of the sums, one for each such group of threads
STEPS = 16  # rows of stored values that a thread adds before it scales them
WORD = 4  # bytes that a thread reads at once


class _Kind(NamedTuple):
    """What the text of a kernel depends on."""

    bits: int
    stored: str  # C's type of a stored byte
    zeros: bool
    rows: int  # of x
    width: int  # bytes that a thread reads at once


def lower(op: QuantizedProduct, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """One launch."""
    x, sums, values, scales, *zeros = (plan.contiguous(a) for a in ins)
    (out,) = outs
    (m, k), n, groups = x.shape, out.shape[1], sums.shape[1]
    step, row = op.group * op.bits // 8, values.shape[1]
    whole = row % WORD == 0 and (step % WORD == 0 or not op.transposed)
    width = WORD if whole and is_aligned(values.ref, WORD) else 1
    kind = _Kind(op.bits, "i8" if values.dtype.name == "int8" else "u8", bool(zeros), m, width)
    refs = [a.ref for a in (out, x, sums, values, scales, (zeros or [scales])[0])]
    args: Args = (*refs, n, k, op.group, groups)
    text = _rows_text(kind) if op.transposed else _columns_text(kind)
    blocks = blocks_of(n, THREADS // 32 if op.transposed else ACROSS * width)
    plan.stage(Launch(text, args, blocks, THREADS, note=f"int{op.bits} product"))
    return True


_NAMES = """\
  float* out = (float*)w[0];
  const float* x = (const float*)w[1];
  const float* sums = (const float*)w[2];
  const {stored}* values = (const {stored}*)w[3];
  const float* scales = (const float*)w[4];
  const float* zeros = (const float*)w[5];
  const Word n = w[6], k = w[7], groups = w[9];
  const Word bytes = k / {pairs}, step = w[8] / {pairs};
"""


def _start(kind: _Kind) -> str:
    return _NAMES.format(stored=kind.stored, pairs=8 // kind.bits)


def _load(kind: _Kind, place: str) -> str:
    """Statements that read neighboring bytes into `b`."""
    if kind.width == 1:
        return f"{kind.stored} b[1] = {{*({place})}};"
    return (f"{kind.stored} b[{WORD}]; "
            f"{{ const u32 all = *(const u32*)({place}); for (int t = 0; t < {WORD}; ++t) "
            f"b[t] = ({kind.stored})(all >> 8 * t); }}")


def _number(kind: _Kind, p: int) -> str:
    """The stored number p of byte t."""
    if kind.bits == 8:
        return "(float)b[t]"
    return f"(float)(b[t] >> {4 * p} & 15)"


def _offset(kind: _Kind, index: str) -> str:
    """What is subtracted from the stored numbers."""
    return f"zeros[{index}]" if kind.zeros else "8.0f" if kind.bits == 4 else "0.0f"


@lru_cache(maxsize=64)
def _columns_text(kind: _Kind) -> str:
    m, width, pairs = kind.rows, kind.width, 8 // kind.bits
    products = "\n            ".join(
        f"part[m][t] = fmaf(x[m * k + r * {pairs} + {p}], {_number(kind, p)}, part[m][t]);"
        for p in range(pairs))
    return kernel_text(f"""\
{_start(kind)}\
  __shared__ float held[{SLICES}][{m}][{ACROSS * width}];
  const int lane = threadIdx.x % {ACROSS}, slice = threadIdx.x / {ACROSS};
  const Word first = (Word)block * {ACROSS * width}, j = first + lane * {width};
  float total[{m}][{width}];
  for (int m = 0; m < {m}; ++m)
    for (int t = 0; t < {width}; ++t) total[m][t] = 0.0f;
  if (j < n) {{
    const Word each = (step + {STEPS - 1}) / {STEPS};
    for (Word c = slice; c < groups * each; c += {SLICES}) {{
      const Word g = c / each, start = g * step + c % each * {STEPS};
      Word end = start + {STEPS};
      if (end > (g + 1) * step) end = (g + 1) * step;
      if (end > bytes) end = bytes;
      float part[{m}][{width}];
      for (int m = 0; m < {m}; ++m)
        for (int t = 0; t < {width}; ++t)
          part[m][t] = c % each ? 0.0f : -sums[m * groups + g] * {_offset(kind, "g * n + j + t")};
      for (Word r = start; r < end; ++r) {{
        {_load(kind, "values + r * n + j")}
        for (int t = 0; t < {width}; ++t)
          for (int m = 0; m < {m}; ++m) {{
            {products}
          }}
      }}
      for (int t = 0; t < {width}; ++t) {{
        const float scale = scales[g * n + j + t];
        for (int m = 0; m < {m}; ++m) total[m][t] = fmaf(scale, part[m][t], total[m][t]);
      }}
    }}
  }}
  for (int m = 0; m < {m}; ++m)
    for (int t = 0; t < {width}; ++t) held[slice][m][lane * {width} + t] = total[m][t];
  __syncthreads();
  for (int i = threadIdx.x; i < {m * ACROSS * width}; i += {THREADS}) {{
    const int m = i / {ACROSS * width}, column = i % {ACROSS * width};
    float sum = 0.0f;
    for (int s = 0; s < {SLICES}; ++s) sum += held[s][m][column];
    if (first + column < n) out[m * n + first + column] = sum;
  }}
""", wide=None)


@lru_cache(maxsize=64)
def _rows_text(kind: _Kind) -> str:
    m, width, pairs = kind.rows, kind.width, 8 // kind.bits
    products = "\n        ".join(
        f"part = fmaf(x[m * k + {p} * bytes + i + t], {_number(kind, p)}, part);"
        for p in range(pairs))
    return kernel_text(f"""\
{_start(kind)}\
  const int lane = threadIdx.x % 32;
  const Word row = (Word)block * {THREADS // 32} + threadIdx.x / 32;
  float total[{m}];
  for (int m = 0; m < {m}; ++m) total[m] = 0.0f;
  for (Word i = lane * {width}; row < n && i < bytes; i += {32 * width}) {{
    const Word g = i / step, at = row * groups + g;
    {_load(kind, "values + row * bytes + i")}
    for (int m = 0; m < {m}; ++m) {{
      float part = i % step ? 0.0f : -sums[m * groups + g] * {_offset(kind, "at")};
      for (int t = 0; t < {width}; ++t) {{
        {products}
      }}
      total[m] = fmaf(scales[at], part, total[m]);
    }}
  }}
  for (int m = 0; m < {m}; ++m) {{
    for (int d = 16; d; d /= 2) total[m] += __shfl_xor_sync(~0u, total[m], d);
    if (row < n && lane == 0) out[m * n + row] = total[m];
  }}
""", wide=None)
