"""Convolutions of single channels with long rows, in memory order. Vectors run along the rows.

The windows of x are an array that overlaps itself: with the stride of the taps along one axis and
that of the positions along another. Its product with w is a contraction that runs along the
positions or, if the sums are longer, as in the gradient of a kernel, along the taps.
"""

from __future__ import annotations

from toile.compiler.ir.geometry import part, room
from toile.compiler.ir.operands import Operand
from toile.kernels.contraction import cpu as contractions
from toile.kernels.contraction import cpu_dots
from toile.kernels.contraction.cpu_axes import arrange, element_types
from toile.kernels.convolution.cpu.layouts import padded, view
from toile.kernels.convolution.cpu.problem import Problem
from toile.kernels.copy import cpu as copies
from toile.primitives.contractions import DotGeneral
from toile.targets.llvm.launches import Launch, Planner

_LONG = 64  # positions, or taps, along the last axis
_GROUPS = 16  # groups that fill vectors by themselves
_BLOCK = 4096  # terms of a sum that stay in the cache while they are used for all positions


def suits(p: Problem) -> bool:
    """Whether channels are single, and rows so long that vectors are full of positions or taps."""
    last, longer = p.axes[2], p.taps > p.positions
    inner = p.images if longer else p.channels
    if inner > 4 or p.features > 1 or any(a.base > 1 for a in p.axes):
        return False
    short = min(last.taps, last.outs) < _GROUPS
    if (p.groups > 1 and last.x != 1) or (p.groups >= _GROUPS and short):
        return False  # vectors are along the groups
    if longer:
        return last.taps >= _LONG and last.dilation == 1
    return last.outs >= _LONG and last.stride == 1 and last.y == 1


def lower(p: Problem, plan: Planner) -> None:
    """Add the stages."""
    widths = {d: (a.outs - 1) * a.stride + (a.taps - 1) * a.dilation + 1
              for d, a in enumerate(p.axes)}
    if p.axes[2].x != 1 or any(a.low or a.size < widths[d] for d, a in enumerate(p.axes)):
        p = padded(p, "ngc012", widths, plan)
    x, w, y = view(p, "x", "ngc012"), view(p, "w", "gc012"), view(p, "y", "ng012")
    x = x._replace(
        shape=(*x.shape[:3], *w.shape[2:], *y.shape[2:]),
        strides=(*x.strides[:3], *(a.dilation * a.x for a in p.axes),
                 *(a.stride * a.x for a in p.axes)))
    if p.taps > p.positions:
        _along_taps(x, plan.contiguous(w), y, plan)
    else:
        types = element_types(x.dtype, w.dtype, y.dtype)
        assert types is not None
        op = DotGeneral("ngcabdpqr", "gcabd", "ngpqr")
        contractions.sweep(arrange(op, x, w, y, types, plan), plan)


def _along_taps(x: Operand, w: Operand, y: Operand, plan: Planner) -> None:
    """Sums over blocks of taps, which are then added in order."""
    types = element_types(x.dtype, w.dtype, y.dtype)
    assert types is not None and types.c is not None
    axis, row = (2, 1) if w.shape[4] > _BLOCK else (1, w.shape[4])
    labels, taps = "abd"[:axis] + "e" + "abd"[axis:], w.shape[2 + axis]
    op = DotGeneral(f"ngc{labels}pqr", f"gc{labels}", "engpqr")
    each = -(-taps // -(-taps * row // _BLOCK))
    blocks, rest = divmod(taps, each)
    count = blocks + (rest > 0)
    sums = room(plan, (count, *y.shape), y.dtype)
    for first, many, length in ((0, blocks, each), (blocks, count - blocks, rest)):
        if many:
            one = _blocks(x, 3 + axis, first * each, many, length)
            two = _blocks(w, 2 + axis, first * each, many, length)
            out = part(sums, [first, *[0] * 5], (many, *y.shape))
            contractions.dot(arrange(op, one, two, out, types, plan), plan)
    total = y if y.contiguous else room(plan, y.shape, y.dtype)
    plan.stage(Launch(cpu_dots.sum_arrays(types.c, types.c), (sums.ref, total.ref, y.size, count),
                      y.size, 4096, "sum of blocks"))
    if total is not y:
        copies.copy(y, total, plan)


def _blocks(x: Operand, at: int, first: int, count: int, each: int) -> Operand:
    """`count` blocks of an axis, which are `each` long, from an index on."""
    stride = x.strides[at]
    return Operand(x.ref.at(first * stride * x.dtype.itemsize),
                   (*x.shape[:at], count, each, *x.shape[at + 1 :]),
                   (*x.strides[:at], each * stride, stride, *x.strides[at + 1 :]), x.dtype)
