"""Running sums, products, extrema and log-sum-exps along one axis.

Along the innermost axis a warp processes a short row, a block a tile of a long one; along other
axes a thread processes a column. Long rows and few columns are divided: totals of the parts,
running totals of those, then the parts, each starting from the total before it. float32 sums and
products of long axes run in float64 and 16-bit floats in float32, as in the eager rule. Products of
complex numbers hold their numbers in pairs.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from toile.compiler.ir.operands import Operand, Ref
from toile.kernels.cumulative.shared import running_of
from toile.targets.cuda import elements as numbers
from toile.targets.cuda.launches import THREADS, Launch, Planner, blocks_of
from toile.targets.cuda.scalars import HELPERS
from toile.targets.cuda.text import MOST, divisor, kernel_text

_SHORT = 512  # elements of a row that one warp processes
_ITEMS = 8  # of a thread in a tile
_TILE = THREADS * _ITEMS
_ENOUGH = 1 << 17  # threads that keep a GPU busy
_PART = 64  # least rows of a part of a column

_LOGADDEXP = """\
__device__ inline double combine(double a, double b) {
  const double gap = a - b;
  if (gap != gap) return a + b;  // equal infinities, or a NaN
  return (a > b ? a : b) + log1p(exp(-fabs(gap)));
}
"""


def lower(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """Cumsum, Cumprod, Cummax, Cummin, Cumlogsumexp."""
    found = running_of(op, ins[0])
    if found is None or found.outer * found.n * found.inner > MOST:
        return False
    kind, dtype, wide, outer, n, inner = found
    x, out = plan.contiguous(ins[0]), outs[0]
    work = "double" if wide else numbers.work_type(numbers.real_part(dtype))
    work = f"Pair<{work}>" if dtype.kind == "c" else work
    key = (kind, dtype, work, op.reverse)
    if inner == 1 and n <= _SHORT:
        args = (out.ref, x.ref, n, outer)
        blocks = blocks_of(outer, THREADS // 32)
        plan.stage(Launch(_warp_text(*key), args, blocks, THREADS, 0, op.name))
    elif inner == 1:
        _tiles(key, out.ref, x.ref, outer, n, plan)
    else:
        _columns(key, out.ref, x.ref, outer, n, inner, plan)
    return True


def _cell(work: str) -> int:
    """Bytes that are enough for a running value."""
    return 16 if work.startswith("Pair") else 8


def _tiles(key: Any, out: Ref, x: Ref, outer: int, n: int, plan: Planner) -> None:
    tiles = blocks_of(n, _TILE)
    totals: Ref | int = plan.scratch(_cell(key[2]) * outer * tiles) if tiles > 1 else 0
    args = (out, x, n, divisor(tiles), totals)
    note = f"running {key[0]}"
    if tiles > 1:
        assert isinstance(totals, Ref)
        plan.stage(Launch(_tile_text(*key, "totals"), args, outer * tiles, THREADS, 0, note))
        # The totals before each tile: running totals, in place.
        rows = key[0], None, key[2], False
        if tiles > _SHORT:
            _tiles(rows, totals, totals, outer, tiles, plan)
        else:
            before = (totals, totals, tiles, outer)
            plan.stage(Launch(_warp_text(*rows), before, blocks_of(outer, THREADS // 32), THREADS,
                              0, note))  # fmt: skip
    role = "parts" if tiles > 1 else "whole"
    plan.stage(Launch(_tile_text(*key, role), args, outer * tiles, THREADS, 0, note))


def _columns(key: Any, out: Ref, x: Ref, outer: int, n: int, inner: int, plan: Planner) -> None:
    columns = outer * inner
    parts = max(1, min(n // _PART, blocks_of(_ENOUGH, columns)))
    step = blocks_of(n, parts)
    parts = blocks_of(n, step)
    totals: Ref | int = plan.scratch(_cell(key[2]) * columns * parts) if parts > 1 else 0
    args = (out, x, n, divisor(inner), totals, step, divisor(parts), columns * parts)
    blocks, note = blocks_of(columns * parts, THREADS), f"running {key[0]}"
    if parts == 1:
        plan.stage(Launch(_column_text(*key, "whole"), args, blocks, THREADS, 0, note))
        return
    plan.stage(Launch(_column_text(*key, "totals"), args, blocks, THREADS, 0, note))
    before = (totals, totals, parts, divisor(inner), 0, parts, divisor(1), columns)
    text = _column_text(key[0], None, key[2], False, "whole")
    plan.stage(Launch(text, before, blocks_of(columns, THREADS), THREADS, 0, note))
    plan.stage(Launch(_column_text(*key, "parts"), args, blocks, THREADS, 0, note))


# ------------------------------------------------------------------------------------------- texts


def _head(kind: str, dtype: Any, work: str) -> str:
    """Types, and `read`, `written`, `combine`, `nothing`; dtype None: totals of type `work`."""
    if work.startswith("Pair"):
        memory = work if dtype is None else f"Pair<{numbers.work_type(numbers.real_part(dtype))}>"
        return f"{HELPERS['Pair']}typedef {memory} Memory;\ntypedef {work} Number;\n{_PRODUCT}"
    memory = work if dtype is None else numbers.memory_type(dtype)
    like = numbers.dtype_of(work) if dtype is None else dtype
    load = "x" if dtype is None else numbers.load(dtype, "x")
    store = "x" if dtype is None else numbers.store(
        dtype, "(float)x" if work == "double" and memory != "double" else "x")
    combine = _LOGADDEXP if kind == "logsumexp" else numbers.combine_function(kind, like, work)
    neutral = numbers.literal(float("-inf"), like, work) if kind == "logsumexp" else (
        numbers.neutral(kind, like, work))  # fmt: skip
    return (
        ("" if dtype is None else numbers.conversions(dtype))
        + f"typedef {memory} Memory;\ntypedef {work} Number;\n{combine}"
        + f"__device__ inline Number read(Memory x) {{ return (Number){load}; }}\n"
        + f"__device__ inline Memory written(Number x) {{ return {store}; }}\n"
        + f"__device__ inline Number nothing() {{ return {neutral}; }}\n"
        + "__device__ inline Number before(Number x, u32 d) { return __shfl_up_sync(~0u, x, d); }\n"
        + "__device__ inline Number last(Number x) { return __shfl_sync(~0u, x, 31); }\n"
    )


# Complex numbers; the neutral element is not multiplied: the product of 0 and inf is NaN.
_PRODUCT = """\
__device__ inline Number combine(Number a, Number b) {
  if (a.re == 1 && a.im == 0) return b;
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
__device__ inline Number read(Memory x) { return {x.re, x.im}; }
__device__ inline Memory written(Number x) {
  Memory y;
  y.re = x.re, y.im = x.im;
  return y;
}
__device__ inline Number nothing() { return {1, 0}; }
__device__ inline Number before(Number x, u32 d) {
  return {__shfl_up_sync(~0u, x.re, d), __shfl_up_sync(~0u, x.im, d)};
}
__device__ inline Number last(Number x) {
  return {__shfl_sync(~0u, x.re, 31), __shfl_sync(~0u, x.im, 31)};
}
"""


_WARP_SCAN = """\
__device__ inline Number running(Number x) {
  const u32 lane = threadIdx.x & 31;
#pragma unroll
  for (u32 d = 1; d < 32; d <<= 1) {
    const Number y = before(x, d);
    if (lane >= d) x = combine(y, x);
  }
  return x;
}
"""


@lru_cache(maxsize=128)
def _warp_text(kind: str, dtype: Any, work: str, reverse: bool) -> str:
    """Each warp is a row."""
    at = "n - 1 - i" if reverse else "i"
    return kernel_text(f"""\
  const u32 n = (u32)w[2], row = block * {THREADS // 32}u + (threadIdx.x >> 5);
  if (row >= (u32)w[3]) return;
  Memory* out = (Memory*)w[0] + (Word)row * n;
  const Memory* x = (const Memory*)w[1] + (Word)row * n;
  Number start = nothing();
  for (u32 first = 0; first < n; first += 32) {{
    const u32 i = first + (threadIdx.x & 31), at = {at};
    const Number sum = combine(start, running(i < n ? read(x[at]) : nothing()));
    if (i < n) out[at] = written(sum);
    start = last(sum);
  }}
""", _head(kind, dtype, work) + _WARP_SCAN)


@lru_cache(maxsize=128)
def _tile_text(kind: str, dtype: Any, work: str, reverse: bool, role: str) -> str:
    """A block is a tile of a row; elements go through shared memory to be read in order."""
    at = "n - 1 - i" if reverse else "i"
    room = _TILE + _TILE // _ITEMS
    warps = THREADS // 32
    save = f"  if (threadIdx.x == {THREADS - 1}) totals[block] = combine(start, x[{_ITEMS - 1}]);"
    write = f"""\
#pragma unroll
  for (u32 k = 0; k < {_ITEMS}; ++k) held[mine + k] = combine(start, x[k]);
  __syncthreads();
#pragma unroll
  for (u32 k = 0; k < {_ITEMS}; ++k) {{
    const u32 j = k * {THREADS} + threadIdx.x, i = tile * {_TILE}u + j, at = {at};
    if (i < n) out[at] = written(held[j + j / {_ITEMS}]);
  }}"""
    start = "tile ? totals[block - 1] : nothing()" if role == "parts" else "nothing()"
    return kernel_text(f"""\
  __shared__ Number held[{room}], sums[{warps}];
  const u32 n = (u32)w[2];
  Index tile = block;
  const Index row = cut(tile, w[3]);
  Memory* out = (Memory*)w[0] + (Word)row * n;
  const Memory* source = (const Memory*)w[1] + (Word)row * n;
  Number* totals = (Number*)w[4];
#pragma unroll
  for (u32 k = 0; k < {_ITEMS}; ++k) {{
    const u32 j = k * {THREADS} + threadIdx.x, i = tile * {_TILE}u + j, at = {at};
    held[j + j / {_ITEMS}] = i < n ? read(source[at]) : nothing();
  }}
  __syncthreads();
  const u32 mine = threadIdx.x * {_ITEMS + 1}, warp = threadIdx.x >> 5;
  Number x[{_ITEMS}];
#pragma unroll
  for (u32 k = 0; k < {_ITEMS}; ++k)
    x[k] = k ? combine(x[k - 1], held[mine + k]) : held[mine];
  const Number sum = running(x[{_ITEMS - 1}]);
  const Number left = before(sum, 1);
  if ((threadIdx.x & 31) == 31) sums[warp] = sum;
  __syncthreads();
  Number start = {start};
  for (u32 k = 0; k < warp; ++k) start = combine(start, sums[k]);
  if (threadIdx.x & 31) start = combine(start, left);
{save if role == "totals" else write}
""", _head(kind, dtype, work) + _WARP_SCAN)


@lru_cache(maxsize=128)
def _column_text(kind: str, dtype: Any, work: str, reverse: bool, role: str) -> str:
    """A thread processes a column, or a part of one."""
    at = "(n - 1 - i)" if reverse else "i"
    start = "part ? totals[number - inner] : nothing()" if role == "parts" else "nothing()"
    return kernel_text(f"""\
  const u32 unit = block * {THREADS}u + threadIdx.x;
  if (unit >= (u32)w[7]) return;
  const u32 n = (u32)w[2], inner = (u32)w[3], step = (u32)w[5];
  Index column = unit, part = cut(column, w[3]);
  const Index outer = cut(part, w[6]);
  const Word base = (Word)outer * n * inner + column;
  const Word number = ((Word)outer * (u32)w[6] + part) * inner + column;
  Memory* out = (Memory*)w[0] + base;
  const Memory* x = (const Memory*)w[1] + base;
  Number* totals = (Number*)w[4];
  const u32 low = part * step, high = low + step < n ? low + step : n;
  Number sum = {start};
#pragma unroll 4
  for (u32 i = low; i < high; ++i) {{
    const Word at = (Word){at} * inner;
    sum = combine(sum, read(x[at]));
    {"" if role == "totals" else "out[at] = written(sum);"}
  }}
  {"totals[number] = sum;" if role == "totals" else ""}
""", _head(kind, dtype, work))
