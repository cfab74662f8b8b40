"""Read or write one element of each row by comparing with an iota, which can be fused.

Labels select log-probabilities this way, and the gradient puts one number into each row of zeros:

    take_along_axis(x, i[:, None], 1) = sum(where(count == i, x, 0))    for x that is not stored
    zeros.at[rows, i].add(u)          = where(count == i, u, 0)

A loss and its gradient then read the logits only once. This is exact except for the sign of zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from toile.compiler.passes.random_bits import spliced
from toile.compiler.passes.rewriter import Replacement, Rewriter, rewrite
from toile.compiler.scalar.fusible import fuses
from toile.engine import dtypes
from toile.engine.program import Atom, Equation, Program
from toile.primitives.addresses import GatherScatterMode, fill_number
from toile.primitives.arrays.gather_arrays import default_fill
from toile.primitives.bits import eq, ge, lt
from toile.primitives.elementwise import clamp, convert, select
from toile.primitives.families import broadcast_in_dim, reduce_sum, reshape, scalar
from toile.primitives.gathers import Gather, Scatter
from toile.primitives.shapes import iota

SHORT = 1 << 10  # elements of a row that takes no longer to compare than to fill
LONGEST = 1 << 20  # elements of a row; longer rows would take too many comparisons


def pick_by_counting(program: Program) -> Program:
    """Replace gathers and scatters of one element per row."""
    unfused = _unfused_readers(program)

    def rule(new: Rewriter, e: Equation) -> Replacement:
        if not _is_within_rows(e):
            return None
        if e.op.updates:
            fill = new.fill_of(e.ins[0])
            short = e.ins[0].aval.shape[-1] <= SHORT
            zeros = fill is not None and not fill.any()
            alone = zeros and (short or not unfused[e.outs[0]])
            return [spliced(new, e, _put, e.ins)] if alone else None
        made = new.producer(e.ins[0])
        alone = made is not None and fuses(made) and unfused.get(e.ins[0]) == 1  # only this gather
        return [spliced(new, e, _picked, e.ins)] if alone else None

    return rewrite(program, rule) if unfused else program


def _is_within_rows(e: Equation) -> bool:
    """Whether an equation reads or adds to one element of each row, and rows are short enough."""
    if not e.op.by_blocks or not e.op.within_rows(*[a.aval for a in e.ins]):
        return False
    x = e.ins[0].aval
    return x.shape[-1] <= LONGEST and dtypes.kind(x.dtype) in "iuf"


def _unfused_readers(program: Program) -> dict[Atom, int]:
    """For each gather's operand and each scatter's result: how many readers cannot fuse with it.

    A Program's result counts as such a reader."""
    found: dict[Atom, int] = {}
    for e in program.equations:
        if _is_within_rows(e):
            found[e.outs[0] if e.op.updates else e.ins[0]] = 0
    if found:
        for e in program.equations:
            for a in e.ins:
                if a in found and not fuses(e):
                    found[a] += 1
        for o in program.outputs:
            if o in found:
                found[o] += 1
    return found


def _hits(op: Any, indices: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """A mask of the element that each row's index selects, and the index of each row."""
    which = reshape(indices, shape[:-1])
    if which.dtype.itemsize < 4:
        which = convert(which, np.dtype(np.int32))
    if op.mode == GatherScatterMode.CLIP:
        low, high = (scalar(n, which.dtype) for n in (0, shape[-1] - 1))
        which = clamp(low, which, high)
    spread = broadcast_in_dim(which, shape, tuple(range(len(shape) - 1)))
    return eq(spread, iota(which.dtype, shape, len(shape) - 1)), which


def _picked(op: Gather, x: Any, indices: Any) -> Any:
    hits, which = _hits(op, indices, x.shape)
    zeros = broadcast_in_dim(scalar(0, x.dtype), x.shape, ())
    found = reduce_sum(select(hits, x, zeros), (len(x.shape) - 1,))
    if op.mode == GatherScatterMode.FILL_OR_DROP:
        found = fill_outside(op, which, x.shape[-1], found)
    return reshape(found, indices.shape[:-1])


def fill_outside(op: Gather, which: Any, length: int, found: Any) -> Any:
    """What a gather found, or its fill value where the index is not in an axis of this length."""
    fill = fill_number(op.fill_value, found.dtype)
    fill = default_fill(np.dtype(found.dtype)) if fill is None else fill
    low, high, other = (broadcast_in_dim(scalar(n, x.dtype), found.shape, ())
                        for n, x in ((0, which), (length, which), (fill, found)))
    return select(ge(which, low), select(lt(which, high), found, other), other)


def _put(op: Scatter, zeros: Any, indices: Any, updates: Any) -> Any:
    size = zeros.shape
    hits, _ = _hits(op, indices, size)
    rows = reshape(updates, size[:-1])
    spread = broadcast_in_dim(rows, size, tuple(range(len(size) - 1)))
    return select(hits, spread, broadcast_in_dim(scalar(0, updates.dtype), size, ()))
