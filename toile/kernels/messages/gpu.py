"""Sums of rows along the edges of a graph: sort the edges by target, then sum."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

from toile.compiler.ir.geometry import with_dense_rows
from toile.compiler.ir.operands import Operand, Ref
from toile.compiler.passes.messages import EdgesByTarget, GatherScatter
from toile.kernels.copy.gpu import fill_launch
from toile.kernels.messages.shared import copy_sums, room_for_sums
from toile.kernels.scatter.gpu_segments import Axes, Segments, combine_segments
from toile.kernels.sort.gpu_radix import sort_rows
from toile.targets.cuda import elements as numbers
from toile.targets.cuda.launches import THREADS, Launch, Planner, blocks_of
from toile.targets.cuda.text import MOST, clamped, integer, kernel_text
from toile.targets.cuda.units import widest

MANY_ROWS = 4  # rows for each edge: so many that most have no edges


def lower_edges(op: EdgesByTarget, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """Edges out of bounds get a target after the last one, then all are radix-sorted."""
    *given, targets = (plan.contiguous(x) for x in ins)
    ends, ordered = outs
    n = targets.size
    keys = plan.scratch(4 * n), plan.scratch(4 * n)
    sources = given[0] if given else None
    bits = op.targets.bit_length()
    passes = blocks_of(bits, 8)
    # The buffers alternate, and the last pass must write the result.
    other = plan.scratch(4 * n)
    values = (other, ordered.ref) if passes % 2 else (ordered.ref, other)
    text = _edges_text(sources and sources.dtype, targets.dtype, op.clips_sources,
                       op.clips_targets, op.numbered)  # fmt: skip
    args = (keys[0], values[0], targets.ref, n, op.targets - 1, op.sources - 1,
            sources.ref if sources else 0)  # fmt: skip
    plan.stage(Launch.over(n, text, args, "edges"))
    (found, _), _ = sort_rows(plan, keys, values, "u32", 1, n, bits)
    plan.stage(Launch.over(op.targets, _ends_text(), (ends.ref, found, n, op.targets),
                           "ends of edges"))
    return True


@lru_cache(maxsize=64)
def _edges_text(
    sources: Any, targets: Any, clips_sources: bool, clips_targets: bool, numbered: bool
) -> str:
    """The key of each edge, and the number that represents it."""
    lines = [f"Word t = {integer(targets, f'(const char*)w[2] + i * {targets.itemsize}')};",
             "bool ok = true;", "Word s = i;"]  # fmt: skip
    if sources is not None:
        lines.append(f"s = {integer(sources, f'(const char*)w[6] + i * {sources.itemsize}')};")
        lines.append(f"s = {clamped(sources, 's', 'w[5]')};" if clips_sources else
                     "ok = (u64)s <= (u64)w[5];")  # fmt: skip
    lines.append(f"t = {clamped(targets, 't', 'w[4]')};" if clips_targets else
                 "ok = ok && (u64)t <= (u64)w[4];")  # fmt: skip
    statements = "\n  ".join(lines)
    return kernel_text(f"""\
  const Word i = (Word)block * {THREADS} + threadIdx.x;
  if (i >= w[3]) return;
  {statements}
  ((u32*)w[0])[i] = ok ? (u32)t : (u32)(w[4] + 1);
  ((u32*)w[1])[i] = ok ? (u32){"i" if numbered else "s"} : 0u;
""", wide=None)


@lru_cache(maxsize=1)
def _ends_text() -> str:
    """For each target, how many of the sorted keys are not greater."""
    return kernel_text(f"""\
  const u32 row = block * {THREADS}u + threadIdx.x;
  if (row >= (u32)w[3]) return;
  const u32* keys = (const u32*)w[1];
  u32 low = 0, high = (u32)w[2];
  while (low < high) {{
    const u32 middle = (low + high) >> 1;
    if (keys[middle] <= row) low = middle + 1; else high = middle;
  }}
  ((u32*)w[0])[row] = low;
""", wide=None)


def lower(op: GatherScatter, ins: list[Operand], outs: list[Operand], plan: Any) -> bool:
    """Each row of the result is a segment. If most rows have no edges, as in the gradient of an
    embedding table, all rows are cleared first, and only rows with edges are computed."""
    (out,) = outs
    dtype = out.dtype
    if not numbers.supported(dtype) or dtype.kind == "b" or out.size > MOST or ins[0].size > MOST:
        return False
    h, apart = with_dense_rows(ins[0], len(out.shape) - 1, plan)
    ends, sources, *more = (plan.contiguous(x) for x in ins[1:])
    weights: tuple[Ref, Ref] | None = (more[0].ref, more[1].ref) if op.weighted else None
    start = more[2 if op.weighted else 0 :]
    made = room_for_sums(out, bool(start), plan)
    row = prod(out.shape[1:]) * dtype.itemsize
    step, to = apart * dtype.itemsize, made.strides[0] * dtype.itemsize
    unit = widest(dtype.itemsize, row // op.heads, step, to)  # of one head
    many = not start and out.shape[0] > MANY_ROWS * sources.size
    if sparse := many and made.contiguous:
        plan.stage(fill_launch(made.ref, out.size * dtype.itemsize, bytes(dtype.itemsize)))
    combine_segments(Segments(
        "add", dtype, unit, sources.size, out.shape[0], "few ends" if sparse else "ends", ends.ref,
        sources.ref, made.ref,
        h.ref, Axes([row // unit], [unit], [unit]), Axes([out.shape[0]], [to], []),
        Axes([h.size * dtype.itemsize // row], [], [step]), weights,
        start[0].ref if start else None, "start" if start else "zero", op.heads,
    ), plan)  # fmt: skip
    copy_sums(out, made, plan)
    return True
