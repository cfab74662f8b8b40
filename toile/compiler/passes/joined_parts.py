"""Concatenations need not be stored: loop nests can read the parts where they are.

    f(concatenate(x[:n], y)) = f(select(i < n, pad(x[:n]), pad(y)))
    f(concatenate(x[n:], x[:n])) = f(rotate(x))
    f(slice(pad(x)))             = f(pad(slice(x)))

Loop nests read padded arrays in place, so that the concatenation is not stored. One that `jnp.roll`
makes needs a single read of each element. A small concatenation of parts that have to be copied is
read in this way even if it is stored then: one kernel is faster than one for each part. The same
applies to an array that is padded for a stencil, which reads it through slices. This is for devices
whose nests can read elements at computed places along the innermost axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from toile.compiler.passes.rewriter import Replacement, Rewriter, readers_of, rewrite
from toile.compiler.passes.slices import before_padding, padded
from toile.engine.avals import Aval
from toile.engine.operation import Operation
from toile.engine.program import Atom, Equation, Literal, Program, without_dead_code
from toile.primitives.addresses import is_picked
from toile.primitives.bits import Lt
from toile.primitives.elementwise import SelectN
from toile.primitives.families import BroadcastInDim
from toile.primitives.shapes import Iota, Pad, Slice

MOST_PARTS = 4
MOST_SMALL_PARTS = 16  # parts of a small array that a single kernel copies
SMALL = 1 << 18  # elements
ADJACENT = 8  # elements that a kernel should write next to each other
MOST_READERS = 4
MOST_TAPS = 16  # slices of a padded array
LEAST = 1 << 14  # elements
SHARE = 16  # a slice is small if the whole has at least this many times its elements
INT32 = np.dtype(np.int32)


@dataclass(frozen=True)
class Rotate(Operation):
    """An array whose last `shift` elements along an axis come first."""

    axis: int
    shift: int
    moves_elements = True

    def infer(self, x: Aval) -> Aval:
        return x

    def eager(self, xp: Any, x: Any) -> Any:
        return xp.roll(x, self.shift, self.axis)

    def picks(self, ins: Sequence[Aval], out: Aval, innermost: bool = False,
              short: bool = False) -> bool:
        return is_picked(ins[0], out, innermost) and (innermost or self.axis < out.ndim - 1)

    def picked_maps(self, out: Any) -> list[Any]:
        return [tuple(() if i == self.axis else t for i, t in enumerate(out))]

    def nest_node(self, b: Any, member: Any) -> int:
        return b.rotated(member)


def read_parts(program: Program, can_fuse: Callable[[Equation], bool]) -> Program:
    """The Program without such concatenations; `can_fuse(e)`: whether loop nests compute `e`."""
    program = _read_padded(program, can_fuse)
    if all(e.op.joined_axis is None for e in program.equations):
        return program
    program = _cut(program, can_fuse)
    wanted = _read_in_nests(program, can_fuse)

    def rule(new: Rewriter, e: Equation) -> Replacement:
        axis = e.op.joined_axis
        if axis is None:
            return None
        if not _needs_copies(new, e, can_fuse):
            if e.outs[0] not in wanted or not _is_worthwhile(new, e):
                return None
        return [_rotated(new, e, axis) or _selected(new, e, axis)]

    return rewrite(program, rule)


def _read_padded(program: Program, can_fuse: Callable[[Equation], bool]) -> Program:
    """Pad slices instead of slicing padded arrays that loop nests could read in place."""
    readers, outputs = readers_of(program), set(program.outputs)
    wanted: dict[Atom, Equation] = {
        e.outs[0]: e for e in program.equations if e.op.margins is not None
        and e.outs[0] not in outputs and can_fuse(e)
        and _is_sliced_for_nests(e, readers, outputs, can_fuse)}

    def rule(new: Rewriter, e: Equation) -> Replacement:
        made = wanted.get(e.ins[0]) if e.op.views_part else None
        before = None if made is None else before_padding(made, e.op)
        if made is None or before is None:
            return None
        part, config = before
        x, fill = (new.atom(a) for a in made.ins)
        return [padded(new, new.add(part, [x], e), fill, config, e)]

    return without_dead_code(rewrite(program, rule)) if wanted else program


def _is_sliced_for_nests(
    e: Equation, readers: dict[Atom, list[Equation]], outputs: set[Atom],
    can_fuse: Callable[[Equation], bool],
) -> bool:
    """Whether a padded array is read only by loop nests, and only through slices that can be padded
    instead of it."""
    slices = readers.get(e.outs[0], [])
    return 0 < len(slices) <= MOST_TAPS and all(
        s.op.views_part and s.outs[0] not in outputs and before_padding(e, s.op) is not None
        and all(can_fuse(r) and not r.op.picks and not r.op.is_reduction
                for r in readers.get(s.outs[0], ()))
        for s in slices)


def _needs_copies(new: Rewriter, e: Equation, can_fuse: Callable[[Equation], bool]) -> bool:
    """Whether several parts would be copied, by a kernel each, into a small array or to places that
    are not adjacent. (Loop nests store their results in place.)"""
    out, axis = e.outs[0].aval, e.op.joined_axis
    apart = axis == out.ndim - 1 and max(a.aval.shape[axis] for a in e.ins) < ADJACENT
    most = 1 << 31 if apart else SMALL
    if not (len(e.ins) <= MOST_SMALL_PARTS and 0 < out.size < most and _can_be_read(e)):
        return False
    made = [new.producer(a) for a in e.ins]
    return sum(m is None or not can_fuse(m) or bool(m.op.picks) for m in made) > 1


def _can_be_read(e: Equation) -> bool:
    """Whether loop nests can read the parts of a concatenation."""
    return all(is_picked(a.aval, e.outs[0].aval, True) for a in e.ins)


def _read_in_nests(
    program: Program, can_fuse: Callable[[Equation], bool], sliced: bool = False
) -> set[Atom]:
    """The concatenations that only a few loop nests read.

    If `sliced`, small slices of them may also be taken, along other axes."""
    readers, outputs = readers_of(program), set(program.outputs)
    found: set[Atom] = set()
    for e in program.equations:
        if e.op.joined_axis is None or e.outs[0] in outputs:
            continue
        uses = [r for r in readers.get(e.outs[0], ()) if not (sliced and _is_cut(r, e))]
        if 0 < len(uses) <= MOST_READERS and all(
                can_fuse(r) and not r.op.picks and not r.op.is_reduction for r in uses):
            found.add(e.outs[0])
    return found


def _is_cut(e: Equation, joined: Equation) -> bool:
    """Whether an equation takes a small slice of a concatenation, but all of the joined axis."""
    op: Any = e.op
    axis, whole = joined.op.joined_axis or 0, joined.outs[0].aval
    return (op.views_part and SHARE * e.outs[0].aval.size <= whole.size
            and (op.starts[axis], op.limits[axis], op.strides[axis]) == (0, whole.shape[axis], 1))


def _cut(program: Program, can_fuse: Callable[[Equation], bool]) -> Program:
    """Concatenate slices instead of slicing concatenations that are stored only to be sliced."""
    wanted = _read_in_nests(program, can_fuse, sliced=True)

    def rule(new: Rewriter, e: Equation) -> Replacement:
        joined = new.producer(e.ins[0]) if e.op.views_part else None
        if joined is None or e.ins[0] not in wanted or not _is_cut(e, joined):
            return None
        op: Any = e.op
        axis = joined.op.joined_axis or 0
        parts = []
        for x in joined.ins:
            limits = (*op.limits[:axis], x.aval.shape[axis], *op.limits[axis + 1 :])
            parts.append(new.add(Slice(op.starts, limits, op.strides), [x], e))
        return [new.add(joined.op, parts, e, e.outs[0].aval)]

    return rewrite(program, rule) if wanted else program


def _is_worthwhile(new: Rewriter, e: Equation) -> bool:
    """Whether the largest part would be copied. (Results of loop nests are stored in place.)"""
    out = e.outs[0].aval
    fits = 2 <= len(e.ins) <= MOST_PARTS and LEAST <= out.size < 1 << 31
    if not fits or not _can_be_read(e):
        return False
    made = new.producer(max(e.ins, key=lambda a: a.aval.size))
    return made is None or made.op.views_part


def _rotated(new: Rewriter, e: Equation, axis: int) -> Atom | None:
    """The concatenation as a rotated array, if it consists of the two parts of one."""
    made = [new.producer(a) for a in e.ins]
    if len(made) != 2 or not all(m is not None and m.op.views_part for m in made):
        return None
    (last, first), shift = made, e.ins[0].aval.shape[axis]
    assert last is not None and first is not None
    x, out = first.ins[0], e.outs[0].aval
    if last.ins[0] is not x or x.aval.shape != out.shape:
        return None
    for part, start in ((last, out.shape[axis] - shift), (first, 0)):
        op: Any = part.op
        starts = tuple(start if d == axis else 0 for d in range(out.ndim))
        if op.starts != starts or any(s != 1 for s in op.strides):
            return None
    return new.add(Rotate(axis, shift), [x], e, out)


def _selected(new: Rewriter, e: Equation, axis: int) -> Atom:
    """The concatenation as a choice between padded parts."""
    out = e.outs[0].aval
    zero = Literal(np.zeros((), out.dtype), out.with_shape(()))
    which = new.add(Iota(INT32, out.shape, axis), [], e)
    found: Atom | None = None
    end = out.shape[axis]
    for part in reversed(e.ins):
        start = end - part.aval.shape[axis]
        margins = start, out.shape[axis] - end, 0
        config = tuple(margins if d == axis else (0, 0, 0) for d in range(out.ndim))
        placed = new.add(Pad(config), [part, zero], e, out)
        if found is None:
            found = placed
        else:
            limit = Literal(np.asarray(end, INT32), Aval((), INT32))
            before = new.add(Lt(), [which, new.add(BroadcastInDim(out.shape, ()), [limit], e)], e)
            found = new.add(SelectN(), [before, found, placed], e, out)
        end = start
    assert found is not None
    return found
