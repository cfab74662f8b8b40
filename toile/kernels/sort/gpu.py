"""Sort: rows by integer keys, short ones in shared memory, long ones by digits.

A number becomes an unsigned integer of the same order (`gpu_keys`). Rows that fit are sorted by a
block (`gpu_blocks`), keys with their original indices; several short rows share a block. Operands
are then read in the order of the indices.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from toile.compiler.ir.geometry import dense, permuted
from toile.compiler.ir.operands import Args, Operand
from toile.kernels.copy.gpu import copy
from toile.kernels.sort import gpu_keys
from toile.kernels.sort.gpu_blocks import block_sort, tile_of
from toile.kernels.sort.gpu_extrema import lower_extremum
from toile.kernels.sort.gpu_places import (
    EACH,
    Frame,
    load_text,
    sorted_places,
    take_text,
    two_buffers,
    words_of,
)
from toile.kernels.sort.gpu_radix import sort_rows
from toile.kernels.sort.gpu_top import lower_top_k
from toile.kernels.sort.shared import keys_of, rows_of
from toile.targets.cuda.launches import THREADS, Launch, Planner
from toile.targets.cuda.text import MOST, divisors, kernel_text

__all__ = ["lower", "lower_extremum", "lower_top_k"]

_BATCH = 8  # elements that a thread reads at once
_CARRIED = 4  # bytes of numbers that move with the keys: reading them in order later costs more


def lower(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """Sort, any number of operands and keys."""
    keys, n = keys_of(op, ins), ins[0].shape[op.dimension]
    if keys is None or ins[0].size > MOST or len(keys) > 6 or len(ins) > 16:
        return False
    dtypes = tuple(k.dtype for k in keys)
    sizes = tuple(x.dtype.itemsize for x in ins)
    rows = rows_of(op.dimension, *keys, *ins, *outs)
    tile = tile_of(n, [gpu_keys.key_type(d) for d in dtypes])
    if tile:
        padded = 1 << (n - 1).bit_length()
        text = _short_text(dtypes, sizes, len(rows.extents), tile)
        args = (n, padded, rows.number, *(x.ref for x in (*keys, *ins, *outs)), *words_of(rows))
        plan.stage(Launch.over(rows.number * padded, text, args, "sort", tile))
    elif len(keys) == 1 and (len(ins) == 1 or sizes[1:] == (_CARRIED,)):
        _sort_values(op, ins, outs, n, plan)
    else:
        places = sorted_places(op.dimension, keys, "sort", n, plan)
        moved = rows_of(op.dimension, *ins, *outs)
        args = (n, *divisors([n]), rows.number * n, places, *(x.ref for x in (*ins, *outs)),
                *words_of(moved))  # fmt: skip
        text = take_text(sizes, len(moved.extents), False)
        plan.stage(Launch.over(ins[0].size, text, args, "sort"))
    return True


@lru_cache(maxsize=256)
def _short_text(keys: tuple[Any, ...], sizes: tuple[int, ...], rank: int, tile: int) -> str:
    """A block sorts as many rows as its tile holds."""
    frame = Frame(3, len(keys) + 2 * len(sizes), rank)
    n, padded, rows = frame.own
    functions = "".join(gpu_keys.key_function(d, "sort", f"key_of{i}") for i, d in enumerate(keys))
    types = [gpu_keys.key_type(d) for d in keys]
    loads = " ".join(
        f"const {t} x{i} = key_of{i}(__ldg((const {gpu_keys.bits_type(d)}*)(p{i} + "
        f"(Word)(there ? i : 0) * {frame.inner[i]}))); key{i}[e] = there ? x{i} : ({t})~0ull;"
        for i, (d, t) in enumerate(zip(keys, types, strict=True))
    )  # fmt: skip
    moves = [frame.move(size, len(keys) + j, len(keys) + len(sizes) + j, there="there")
             for j, size in enumerate(sizes)]
    batch = min(_BATCH, tile // THREADS)
    return kernel_text(f"""\
  const u32 n = (u32){n}, padded = (u32){padded}, rows = (u32){rows};
  const u32 shift = 31 - __clz((int)padded), first = (block * {tile}u) >> shift;
#pragma unroll {batch}
  for (u32 e = threadIdx.x; e < {tile}; e += {THREADS}) {{
    const u32 i = e & (padded - 1), row = first + (e >> shift);
    const bool there = i < n && row < rows;
    {frame.pointers("there ? row : 0")}
    {loads}
    place[e] = i;
  }}
  sort(padded);
  for (u32 start = threadIdx.x; start < {tile}; start += {batch * THREADS}) {{
    u32 places[{batch}];
#pragma unroll
    for (u32 k = 0; k < {batch}; ++k) places[k] = place[start + k * {THREADS}];
#pragma unroll
    for (u32 k = 0; k < {batch}; ++k) {{
      const u32 e = start + k * {THREADS}, i = e & (padded - 1), row = first + (e >> shift);
      const bool there = i < n && row < rows;
      {frame.pointers("there ? row : 0")}
      const u32 at = there ? places[k] : 0;
      {" ".join(moves)}
    }}
  }}
""", functions + block_sort(types, gpu_keys.key_bits(keys[0]), tile))


# --------------------------------------------------------------------------------------- long rows


def _sort_values(op: Any, ins: list[Operand], outs: list[Operand], n: int, plan: Planner) -> None:
    """Sort rows of one operand by their keys alone; rows of a second operand move with them."""
    x, (dtype, rows) = ins[0], (ins[0].dtype, rows_of(op.dimension, ins[0]))
    keys = two_buffers(plan, gpu_keys.key_bytes(dtype) * x.size)
    args: Args = (n, *divisors([n]), x.size, keys[0], 0, x.ref, *words_of(rows))
    text = load_text(dtype, "values", len(rows.extents), "none")
    plan.stage(Launch.over(x.size, text, args, "sort"))
    carried = two_buffers(plan, _CARRIED * x.size) if len(ins) > 1 else None
    others = [d for d in range(len(x.shape)) if d != op.dimension]
    *given, results = (permuted(a, (*others, op.dimension)) for a in (*ins[1:], outs[-1]))
    if carried is not None:
        copy(dense(carried[0], given[0].shape, given[0].dtype), given[0], plan)
    (found, _), carried = sort_rows(
        plan, keys, carried, gpu_keys.key_type(dtype), rows.number, n, gpu_keys.key_bits(dtype),
        gpu_keys.below_zero(dtype))
    back = rows_of(op.dimension, outs[0])
    args = (n, *divisors([n]), x.size, found, 0, outs[0].ref, *words_of(back))
    plan.stage(Launch.over(x.size, _values_text(dtype, len(back.extents)), args, "sort"))
    if carried is not None:
        copy(results, dense(carried[0], results.shape, results.dtype), plan)


@lru_cache(maxsize=64)
def _values_text(dtype: Any, rank: int) -> str:
    """The numbers of sorted keys."""
    frame = Frame(5, 1, rank)
    _, by, total, keys, _ = frame.own
    return kernel_text(f"""\
{EACH.format(threads=THREADS, total=total, divisor=by)}\
  {frame.pointers()}
  *({gpu_keys.bits_type(dtype)}*)(p0 + (Word)i * {frame.inner[0]}) = \
number_of(((const {gpu_keys.key_type(dtype)}*){keys})[e]);
""", gpu_keys.number_function(dtype))
