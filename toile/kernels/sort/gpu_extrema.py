"""Argmax and argmin along an axis.

Keys (`gpu_keys`) turn every comparison into one of unsigned integers: the greatest wins; among
equal ones, the one with the lowest index. Warps process parts of rows, threads parts of columns; if
there are several parts, a second pass compares their results.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

from toile.compiler.ir.operands import Operand, Ref
from toile.kernels.sort.gpu_keys import bits_type, key_bytes, key_function, key_type
from toile.kernels.sort.shared import orders
from toile.targets.cuda.launches import THREADS, Launch, Planner, blocks_of
from toile.targets.cuda.text import MOST, divisor, integer_type, kernel_text

_ROW, _SHORT_ROW = 4096, 256  # most and fewest elements of a part of a row
_COLUMN = 64  # smallest part of a column, in elements
_ENOUGH = 1 << 17  # threads that keep a GPU busy: rather than more, parts are longer


def lower_extremum(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """Argmax and Argmin."""
    dtype, to = ins[0].dtype, outs[0].dtype
    n = ins[0].shape[op.axis]
    if not orders(dtype) or to.kind not in "iu" or ins[0].size > MOST:
        return False
    x = plan.contiguous(ins[0])
    inner, outer = prod(x.shape[op.axis + 1 :]), prod(x.shape[: op.axis])
    rows = inner == 1
    each = blocks_of(n * outer * inner, _ENOUGH)
    step = min(_ROW, max(_SHORT_ROW, 32 * each)) if rows else max(_COLUMN, each)
    parts = blocks_of(n, step)
    per_block = THREADS // 32 if rows else THREADS
    source: tuple[Ref | int, ...] = (x.ref, 0)
    if parts > 1:
        count = outer * inner * parts
        found = plan.scratch(key_bytes(dtype) * count), plan.scratch(4 * count)
        args = (*source, *found, n, divisor(inner), step, divisor(parts), count)
        text = _text(dtype, None, op.extremum, rows, False)
        plan.stage(Launch.over(count, text, args, op.name, per_block))
        source, n = found, parts
    args = (*source, outs[0].ref, 0, n, divisor(inner), n, divisor(1), outer * inner)
    text = _text(dtype, to, op.extremum, rows, parts > 1)
    plan.stage(Launch.over(outer * inner, text, args, op.name, per_block))
    return True


@lru_cache(maxsize=128)
def _text(dtype: Any, to: Any, use: str, rows: bool, found: bool) -> str:
    """`to`: the dtype of results, None to write keys and indices; `found`: the source has those."""
    type, bits = key_type(dtype), bits_type(dtype)
    load = (
        f"const {type} k = ((const {type}*)w[0])[at]; const u32 p = ((const u32*)w[1])[at];"
        if found else f"const {type} k = key_of(((const {bits}*)w[0])[at]); const u32 p = i;"
    )  # fmt: skip
    save = (
        f"(({type}*)w[2])[unit] = key; ((u32*)w[3])[unit] = place;" if to is None else
        f"(({integer_type(to)}*)w[2])[unit] = ({integer_type(to)})place;"
    )  # fmt: skip
    keep_best = "if (k > key || (k == key && p < place)) { key = k; place = p; }"
    lanes = f"""\
  for (u32 d = 16; d > 0; d >>= 1) {{
    const {type} k = __shfl_xor_sync(~0u, key, d);
    const u32 p = __shfl_xor_sync(~0u, place, d);
    {keep_best}
  }}
  if (threadIdx.x & 31) return;
"""
    unit = f"block * {THREADS // 32}u + (threadIdx.x >> 5)" if rows else (
        f"block * {THREADS}u + threadIdx.x")  # fmt: skip
    return kernel_text(f"""\
  const u32 unit = {unit};
  if (unit >= (u32)w[8]) return;
  const u32 n = (u32)w[4], inner = (u32)w[5], step = (u32)w[6];
  Index column = unit, part = cut(column, w[5]);
  const Index outer = cut(part, w[7]);
  const u32 low = part * step, high = low + step < n ? low + step : n;
  {type} key = 0;
  u32 place = ~0u;
#pragma unroll 4
  for (u32 i = low{" + (threadIdx.x & 31)" if rows else ""}; i < high; i += {32 if rows else 1}) {{
    const Word at = ((Word)outer * n + i) * inner + column;
    {load}
    {keep_best}
  }}
{lanes if rows else ""}\
  {save}
""", "" if found else key_function(dtype, use))
