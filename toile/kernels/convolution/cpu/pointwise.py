"""Convolutions that are products of matrices as they are stored: kernels of one tap.

The products with panels packed for a convolution (indirect, outer) are as fast for most sizes;
those here are faster if packing is expensive: few positions, or gradients of large kernels.
"""

from __future__ import annotations

from toile.compiler.ir.operands import Operand
from toile.kernels.contraction import cpu as contractions
from toile.kernels.convolution.cpu.layouts import view
from toile.kernels.convolution.cpu.problem import Problem
from toile.primitives.contractions import DotGeneral
from toile.targets.llvm.launches import Planner

_FEW = 512  # positions for which packing the kernels is expensive
_LARGE = 1 << 16  # elements of kernels
_LONG = 64  # rows per column of a product that is better divided along its rows


def _plain(p: Problem) -> bool:
    """One group, one tap or one position, and nothing outside x."""
    return p.groups == 1 and all(
        (a.base, a.low, a.stride, a.dilation) == (1, 0, 1, 1)
        and a.size == max(a.outs, a.taps) and 1 in (a.outs, a.taps)
        for a in p.axes
    )


def matrices(p: Problem) -> tuple[DotGeneral, list[Operand], Operand] | None:
    """The product, its operands and its result as matrices, if they are matrices in memory."""
    if not _plain(p):
        return None
    if p.taps == 1:
        op, order = DotGeneral("mk", "kn", "mn"), ("n012c", "co", "n012o")
        rows, inner = p.images * p.positions, p.channels
    elif p.positions == 1:
        op, order = DotGeneral("km", "kn", "mn"), ("c012n", "c012o", "no")
        rows, inner = p.channels * p.taps, p.images
    else:
        return None
    x, w, y = (view(p, which, o) for which, o in zip("xwy", order, strict=True))
    flat = [x] if p.taps == 1 else [x, w]
    if not all(a.contiguous for a in flat) or not y.contiguous:
        return None
    matrix = lambda a, m, n: a._replace(shape=(m, n), strides=(n, 1))
    if p.taps == 1:
        return op, [matrix(x, rows, inner), w], matrix(y, rows, p.features)
    return op, [matrix(x, rows, inner), matrix(w, rows, p.features)], y


def suits(p: Problem) -> bool:
    """Whether a convolution is a product that should not be packed."""
    if not _plain(p):
        return False
    if p.taps == 1:
        few = p.images * p.positions <= _FEW
        return few and p.channels * p.features >= _LARGE and matrices(p) is not None
    rows = p.channels * p.taps
    return rows <= _LONG * min(p.images, p.features) and matrices(p) is not None


def lower(p: Problem, plan: Planner) -> bool:
    """Add the stages of the product."""
    found = matrices(p)
    assert found is not None
    op, ins, out = found
    return contractions.lower(op, ins, [out], plan)
