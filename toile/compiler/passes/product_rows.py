"""Select rows of the operand of a matrix product instead of rows of the product.

    (x @ w)[rows] = x[rows] @ w

The logits of the last position of a prompt then need the product of one row with the vocabulary.
Slices, dynamic slices and gathers of whole rows are moved, also through operations by element,
reductions over other axes, and operations that only change axes. A selection is moved only if
nothing else reads what it selects from, if it keeps at most half of each axis that it cuts, and if
it reaches a large product. If a gather fills rows whose index is out of bounds, they are filled at
the end.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from toile.compiler.passes.random_bits import spliced
from toile.compiler.passes.rewriter import Replacement, Rewriter, rewrite
from toile.compiler.passes.row_picks import fill_outside
from toile.compiler.scalar.fusible import by_element
from toile.engine.operation import Operation
from toile.engine.program import Atom, Equation, Literal, Program, Var, without_dead_code
from toile.engine.traits import Shape
from toile.primitives.addresses import GatherDimensionNumbers, GatherScatterMode
from toile.primitives.elementwise import convert
from toile.primitives.families import Reshape, Transpose, broadcast_in_dim, reshape
from toile.primitives.gathers import Gather
from toile.primitives.shapes import slice_axis

LEAST = 1 << 17  # floating-point operations of the products that a selection is moved before

# For each axis of an array: the axis of the selection's operand to which it corresponds, if that
# axis is cut or if the indices depend on it; otherwise -1.
Frame = tuple[int, ...]
# An equation to compute from selected parts, and the frames of its result and of its operands.
Step = tuple[Equation, Frame, list[Frame]]


def select_before_products(program: Program) -> Program:
    """Select rows of the operands of products instead of rows of their results."""
    multiplies = any(e.op.kernel_family == "contraction" for e in program.equations)
    if not multiplies or not any(_selection(e) for e in program.equations):
        return program
    program = without_dead_code(program)
    search = _Search(program)

    def rule(new: Rewriter, e: Equation) -> Replacement:
        selection = _selection(e)
        # Operands of `e` may have been replaced, but not its result.
        steps = search.steps(search.made[e.outs[0]], selection) if selection else None
        return None if selection is None or steps is None else [_moved(new, selection, steps)]

    made = rewrite(program, rule)
    return made if made is program else without_dead_code(made)


class _Selection:
    """A slice or dynamic slice of an array, which can be applied to other arrays."""

    def __init__(self, e: Equation, sizes: dict[int, int], batch: Sequence[int] = ()):
        self.e = e
        self.op: Any = e.op
        self.sizes = sizes  # the number of elements that are selected along each axis that is cut
        axes = range(e.ins[0].aval.ndim)
        self.frame = tuple([d if d in sizes or d in batch else -1 for d in axes])

    def cuts(self, frame: Frame) -> bool:
        """Whether the selection cuts an axis of an array."""
        return any(t in self.sizes for t in frame)

    def shape(self, shape: Shape, frame: Frame) -> tuple[int, ...]:
        """The shape of an array after the selection, in which all axes keep their places."""
        return tuple([self.sizes.get(t, n) for t, n in zip(frame, shape, strict=True)])

    def taken(self, new: Rewriter, a: Atom, frame: Frame) -> Atom:
        """The selected parts of an array."""
        op, (_, *starts), shape = self.op, self.e.ins, a.aval.shape
        if op.views_part:
            parts = [(op.starts[t], op.limits[t], op.strides[t]) if t >= 0 else (0, n, 1)
                     for t, n in zip(frame, shape, strict=True)]
            return new.add(op.__class__(*zip(*parts, strict=True)), [a], self.e)
        zero = Literal(np.zeros((), starts[0].aval.dtype), starts[0].aval)
        ins = [a, *(starts[t] if t >= 0 else zero for t in frame)]
        return new.add(op.__class__(self.shape(shape, frame)), ins, self.e)

    def placed(self, new: Rewriter, a: Atom) -> Atom:
        """The selection's result, made from an array with the operand's axes."""
        return a


class _Rows(_Selection):
    """A gather of whole rows: each index vector selects an element of one axis."""

    def __init__(self, e: Equation, axis: int):
        x, indices = (a.aval for a in e.ins)
        self.axis = axis
        op: Any = e.op
        offset, _, _, batch, _ = op.dimension_numbers
        self.batch = [d for d in batch if x.shape[d] != 1]
        super().__init__(e, {axis: prod(indices.shape[len(batch) : -1])}, self.batch)
        # The axes of the result that are those of the batch, and then those of the rows.
        self.places = [d for d in range(e.outs[0].aval.ndim) if d not in offset]

    def taken(self, new: Rewriter, a: Atom, frame: Frame) -> Atom:
        tagged = [i for i, t in enumerate(frame) if t >= 0]
        at = frame.index(self.axis)
        numbers = GatherDimensionNumbers(
            tuple(i for i, t in enumerate(frame) if t < 0), (at,), (at,),
            tuple(i for i in tagged if i != at),
            tuple(j for j, i in enumerate(tagged) if i != at))
        sizes = tuple(1 if t >= 0 else n for t, n in zip(frame, a.aval.shape, strict=True))
        mode = GatherScatterMode.CLIP if self.op.fills else self.op.mode
        indices = spliced(new, self.e, _column, self.e.ins)
        order = [*self.batch, self.axis]
        shape = (*(self.e.ins[0].aval.shape[d] for d in self.batch), self.sizes[self.axis], 1)
        indices = new.add(Reshape(shape), [indices], self.e)
        perm = (*(order.index(frame[i]) for i in tagged), len(order))
        indices = new.add(Transpose(perm), [indices], self.e)
        return new.add(Gather(numbers, sizes, mode=mode), [a, indices], self.e)

    def placed(self, new: Rewriter, a: Atom) -> Atom:
        offset, collapsed, _, batch, _ = self.op.dimension_numbers
        windows = [d for d in range(a.aval.ndim) if d not in collapsed and d not in batch]
        place = dict(zip(windows, offset, strict=True)) | dict(zip(batch, self.places))
        if len(self.places) > len(batch):
            place[self.axis] = self.places[len(batch)]
        # Axes that are not in the result have size 1 and stay beside their neighbors.
        order = sorted(range(a.aval.ndim), key=lambda d: place.get(d, place.get(d - 1, -1)))
        a = new.add(Transpose(tuple(order)), [a], self.e)
        a = new.add(Reshape(self.e.outs[0].aval.shape), [a], self.e)
        return spliced(new, self.e, _filled, [*self.e.ins, a]) if self.op.fills else a


def _cut_axes(op: Any, shape: Shape) -> list[int]:
    """The axes of the operand of which a gather reads parts."""
    batch = op.dimension_numbers.operand_batching_dims
    return [d for d, n in enumerate(shape) if op.slice_sizes[d] != n and d not in batch]


def _column(op: Any, x: Any, indices: Any) -> Any:
    """The indices of rows; the other components of index vectors select whole axes."""
    at = op.dimension_numbers.start_index_map.index(*_cut_axes(op, x.shape))
    return slice_axis(indices, at, at + 1, indices.ndim - 1)


def _filled(op: Any, x: Any, indices: Any, rows: Any) -> Any:
    """Rows of `x`, or the fill value where an index is out of bounds."""
    (axis,) = _cut_axes(op, x.shape)
    places = [d for d in range(rows.ndim) if d not in op.dimension_numbers.offset_dims]
    indices = reshape(convert(indices, np.dtype(np.int64)), indices.shape[:-1])
    which = broadcast_in_dim(indices, rows.shape, tuple(places))
    return fill_outside(op, which, x.shape[axis], rows)


def _selection(e: Equation) -> _Selection | None:
    """The selection that an equation makes, if it selects at most half of each axis it cuts."""
    if e.op.updates or not (e.op.views_part or e.op.by_blocks) or not e.outs[0].aval.size:
        return None
    x, out = e.ins[0].aval, e.outs[0].aval
    found: _Selection | None
    if e.op.by_index:
        found = _rows(e)
    else:
        found = _Selection(e, {d: n for d, n in enumerate(out.shape) if n != x.shape[d]})
    few = found and found.sizes and all(2 * n <= x.shape[d] for d, n in found.sizes.items())
    return found if few else None


def _rows(e: Equation) -> _Rows | None:
    """The selection of a gather, if it takes whole rows at indices on one axis."""
    op: Any = e.op
    _, _, starts, batch, index_batch = op.dimension_numbers
    cut = _cut_axes(op, e.ins[0].aval.shape)
    if len(cut) != 1 or cut[0] not in starts or op.slice_sizes[cut[0]] != 1 or (
            op.fills and len(starts) > 1) or index_batch != tuple(range(len(batch))):
        return None
    found = _Rows(e, cut[0])
    rows = found.places[len(batch) :]
    return found if not rows or rows[-1] - rows[0] == len(rows) - 1 else None


class _Search:
    """Finds the equations that a selection can be moved before."""

    def __init__(self, program: Program):
        self.equations = program.equations
        self.made = {o: i for i, e in enumerate(program.equations) for o in e.outs}
        self.uses = Counter(a for e in program.equations for a in e.ins if a.__class__ is Var)
        self.uses.update(o for o in program.outputs if o.__class__ is Var)

    def steps(self, i: int, selection: _Selection) -> list[Step] | None:
        """The equations before which selection `i` can be moved; None if that saves little.

        They are in order, and visited after all their readers."""
        asked: Counter[tuple[Atom, Frame]] = Counter()
        waiting: list[tuple[int, Frame]] = []

        def ask(a: Atom, frame: Frame, alone: bool = True) -> None:
            if (a, frame) not in asked and a in self.made:
                heapq.heappush(waiting, (-self.made[a], frame))
            asked[a, frame] += alone

        ask(self.equations[i].ins[0], selection.frame)
        found: list[Step] = []
        saved = 0
        while waiting:
            at, frame = heapq.heappop(waiting)
            e = self.equations[-at]
            alone = asked[e.outs[0], frame] == self.uses[e.outs[0]]
            if len(e.outs) > 1 or not (alone or e.op.makes_axes):
                continue
            frames = _frames(e, frame, selection)
            if frames is None:
                continue
            found.append((e, frame, frames))
            if e.op.kernel_family == "contraction":
                saved += e.op.flops(*[a.aval for a in e.ins])
            for a, of in zip(e.ins, frames, strict=True):
                if selection.cuts(of):
                    ask(a, of, alone)
        return found[::-1] if found and saved >= LEAST else None


def _frames(e: Equation, frame: Frame, selection: _Selection) -> list[Frame] | None:
    """The frames of the operands if the result has a frame; None if selecting parts of the operands
    does not give the selected parts of the result."""
    found = _operand_frames(e, frame)
    cut = [f for f in found or () if selection.cuts(f)]
    if not cut:
        return found if e.op.makes_axes else None
    tags = {t for t in frame if t >= 0}
    return found if all(tags <= set(f) for f in cut) else None


def _operand_frames(e: Equation, frame: Frame) -> list[Frame] | None:
    """The frames of the operands; -1 for axes that do not become one whole axis of the result."""
    op, out = e.op, e.outs[0].aval.shape
    if not (by_element(e) or op.views_part or op.moves_axes or op.is_reduction
            or op.joined_axis is not None or op.kernel_family == "contraction"):
        return None
    found = []
    for i, a in enumerate(e.ins):
        places = [_place(op, i, a.aval.shape, d, out) for d in range(a.aval.ndim)]
        found.append(tuple([-1 if p is None else frame[p] for p in places]))
    return found


def _place(op: Operation, i: int, shape: Shape, d: int, out: Shape) -> int | None:
    """The axis of the result that corresponds to axis `d` of operand `i`, if there is one."""
    if op.moves_axes:
        return op.moved_axis(shape, d)
    if op.is_reduction or op.kernel_family == "contraction":
        return op.grown_axis(i, shape, d, out, shape[d])
    return d if shape[d] == out[d] else None


def _moved(new: Rewriter, selection: _Selection, steps: Iterable[Step]) -> Atom:
    """The result of a selection that is moved before some equations."""
    taken: dict[tuple[Atom, Frame], Atom] = {}

    def part(a: Atom, frame: Frame) -> Atom:
        if not selection.cuts(frame):
            return new.atom(a)
        if (a, frame) not in taken:
            taken[a, frame] = selection.taken(new, new.atom(a), frame)
        return taken[a, frame]

    out: Atom
    for e, frame, frames in steps:
        ins = [part(a, f) for a, f in zip(e.ins, frames, strict=True)]
        aval = e.outs[0].aval
        shape = selection.shape(aval.shape, frame)
        out = new.add(_reshaped(e.op, frame, shape), ins, e, aval.with_shape(shape))
        taken[e.outs[0], frame] = out
    return selection.placed(new, out)


def _reshaped(op: Any, frame: Frame, shape: tuple[int, ...]) -> Any:
    """An operation with the parameters that give a result of another shape."""
    if op.views_part:
        limits = tuple(limit if t < 0 else n for limit, t, n in zip(
            op.limits, frame, shape, strict=True))
        return replace(op, limits=limits)
    return replace(op, shape=shape) if op.moves_axes and hasattr(op, "shape") else op
