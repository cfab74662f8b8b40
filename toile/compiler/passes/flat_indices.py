"""Index vectors of several components become single indices into the flattened array.

    x[i, j] = reshape(x, (-1,))[i n + j]     for x of shape (m, n)

So do indices into the rows of a batch, as `take_along_axis` and mapped functions have them, for
which i is a count. The components are then not stored as vectors: the kernel that computes them
computes the index. Indices that are out of bounds are clamped or become -1, as the mode of the
gather demands.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from toile.compiler.passes.random_bits import spliced
from toile.compiler.passes.rewriter import Replacement, Rewriter, readers_of, rewrite
from toile.engine.program import Atom, Equation, Program
from toile.engine.strides import row_major
from toile.primitives.addresses import GatherDimensionNumbers
from toile.primitives.bits import and_, ge, lt
from toile.primitives.elementwise import clamp, select
from toile.primitives.families import add, broadcast_in_dim, mul, reshape, scalar
from toile.primitives.gathers import Gather
from toile.primitives.shapes import iota

INDEX = np.dtype(np.int32)


def flatten_indices(program: Program) -> Program:
    """Replace gathers of single elements whose index vectors are joined from several components."""
    if not any(e.op.by_index for e in program.equations):
        return program
    readers = readers_of(program)

    def rule(new: Rewriter, e: Equation) -> Replacement:
        if not e.op.by_index or e.op.updates or not _is_of_elements(e):
            return None
        x, indices = e.ins
        moved = new.producer(x)
        parts = [indices] if indices.aval.shape[-1] == 1 else _components(
            new.producer(indices), e, readers)
        if not parts or moved is not None and moved.op.is_view:
            return None
        return [spliced(new, e, _flat, [x, *parts])]

    return rewrite(program, rule)


def _components(made: Equation | None, e: Equation,
                readers: dict[Atom, list[Equation]]) -> list[Atom]:
    """The components of index vectors that only one gather reads; none if they are not known."""
    indices = e.ins[1]
    if made is None or made.op.joined_axis != indices.aval.ndim - 1 or (
            any(a.aval.shape[-1] != 1 for a in made.ins) or len(readers.get(indices, ())) != 1):
        return []
    return made.ins


def _is_of_elements(e: Equation) -> bool:
    """Whether each index vector selects one element, and the indices are not in this form yet."""
    x, indices = (a.aval for a in e.ins)
    op: Any = e.op
    windows, dropped = op.dimension_numbers[:2]
    plain = x.ndim == 1 and not windows and dropped == (0,)
    return (not plain and all(n == 1 for n in op.slice_sizes)
            and indices.dtype == INDEX and 0 < x.size < 1 << 31)


def _flat(op: Gather, x: Any, *parts: Any) -> Any:
    steps, shape = row_major(x.shape), parts[0].shape[:-1]
    number = lambda n: broadcast_in_dim(scalar(n, INDEX), shape, ())
    place, inside = number(0), None
    for d, axis in zip(*op.dimension_numbers[3:], strict=True):
        place = add(place, mul(iota(INDEX, shape, axis), number(steps[d])))
    for part, d in zip(parts, op.dimension_numbers.start_index_map, strict=True):
        i = reshape(part, shape)
        if op.fills:
            found = and_(ge(i, number(0)), lt(i, number(x.shape[d])))
            inside = found if inside is None else and_(inside, found)
        else:
            i = clamp(scalar(0, INDEX), i, scalar(x.shape[d] - 1, INDEX))
        place = add(place, mul(i, number(steps[d])))
    if inside is not None:
        place = select(inside, place, number(-1))
    numbers = GatherDimensionNumbers((), (0,), (0,))
    one = Gather(numbers, (1,), False, op.unique_indices, op.mode, op.fill_value)
    found = one(reshape(x, (x.size,)), reshape(place, (*shape, 1)))
    return reshape(found, op.infer(x.aval, parts[0].aval.with_shape((*shape, len(parts)))).shape)
