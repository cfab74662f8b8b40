"""Index vectors that contain row numbers: those rows become a batch.

    x[arange(n), i] = take_along_axis(x, i[:, None], 1)[:, 0]

is the usual way to select the score of each label or action, and its gradient adds to one element
of each row. After this pass only `i` remains to be looked up, updates cannot collide, and the next
pass (`row_picks`) can replace the lookup by comparisons.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from toile.compiler.passes.rewriter import Replacement, Rewriter, rewrite
from toile.engine import dtypes
from toile.engine.program import Atom, Equation, Program


def batch_by_row_numbers(program: Program) -> Program:
    """Replace row numbers in the indices of gathers and scatters by batch axes."""
    if not any(e.op.by_index for e in program.equations):
        return program
    return rewrite(program, _rule)


def _rule(new: Rewriter, e: Equation) -> Replacement:
    if not e.op.by_index:
        return None
    x, indices, *updates = e.ins
    op: Any = e.op
    found = _numbered(new, e)
    if found:
        made = new.producer(indices)
        assert made is not None
        parts = [a for i, a in enumerate(made.ins) if i not in found]
        indices = parts[0] if len(parts) == 1 else new.add(made.op, parts, made)
        op = _batched(op, found)
    if updates and not op.unique_indices and len(op.dimension_numbers[4]) == indices.aval.ndim - 1:
        op = replace(op, unique_indices=True)  # one update in each element of the batch
    if op is e.op:
        return None
    return [new.add(op, [x, indices, *updates], e, e.outs[0].aval)]


def _numbered(new: Rewriter, e: Equation) -> dict[int, int]:
    """For each component of the indices that is a row number: the axis that it numbers."""
    x, indices = (a.aval for a in e.ins[:2])
    op: Any = e.op
    _, dropped, starts, _, batching = op.dimension_numbers
    made = new.producer(e.ins[1])
    last = indices.ndim - 1
    if made is None or made.op.joined_axis != last or [a.aval.shape[-1] for a in made.ins] != (
            [1] * len(starts)):
        return {}
    found: dict[int, int] = {}
    for i, (part, d) in enumerate(zip(made.ins, starts, strict=True)):
        axis = _counted(new, part)
        if axis is not None and d in dropped and x.shape[d] == indices.shape[axis] and (
                axis not in (last, *batching, *found.values())):
            found[i] = axis
    if len(found) == len(starts):  # a diagonal: something must be left to look up
        found.popitem()
    return found


def _batched(op: Any, found: dict[int, int]) -> Any:
    """The operation with components that are row numbers as a batch."""
    windows, dropped, starts, batch, index_batch = op.dimension_numbers
    pairs = sorted([*zip(batch, index_batch, strict=True),
                    *((starts[i], axis) for i, axis in found.items())])
    gone = [starts[i] for i in found]
    numbers = op.dimension_numbers.__class__(
        windows, tuple(d for d in dropped if d not in gone),
        tuple(d for d in starts if d not in gone), *map(tuple, zip(*pairs, strict=True)))
    return replace(op, dimension_numbers=numbers)


def _counted(new: Rewriter, a: Atom) -> int | None:
    """The axis along which the elements of an atom are 0, 1, 2, ...; None if there is none."""
    made = new.producer(a)
    if made is None or len(made.ins) > 1:
        return None
    axis, dtype = made.op.counted_axis, a.aval.dtype
    if made.ins and made.op.moves_axes:
        axis = _counted(new, made.ins[0])
        axis = None if axis is None else made.op.moved_axis(made.ins[0].aval.shape, axis)
    if axis is None or dtypes.kind(dtype) not in "iu" or (
            a.aval.shape[axis] - 1 > np.iinfo(dtype).max):
        return None
    return axis
