"""Reductions over the axis of a stack of a few arrays become elementwise operations.

    reduce_max(stack(x, y))         = max(x, y)
    reduce_sum(exp(stack(x, y) - z)) = exp(x - z) + exp(y - z)

A CTC loss, for example, adds three probabilities in each step of a scan, as the logarithm of a sum
of exponentials. This pass makes that a single kernel; a reduction over an outer axis would end one.
Other results that have the axis of the stack are stacked again from their parts, which their kernel
stores in place.
"""

from __future__ import annotations

import functools
from typing import Any

from toile.compiler.passes.rewriter import Replacement, Rewriter, rewrite
from toile.compiler.scalar.fusible import by_element
from toile.engine import dtypes
from toile.engine.program import Atom, Equation, Program, Var
from toile.primitives.families import Reshape
from toile.primitives.shapes import Concatenate, Slice

MOST = 8  # arrays in a stack


class _Stack:
    """Arrays of one shape, computed element by element from arrays that are stacked along `axis`;
    `reduced`: whether one of them is reduced over this axis."""

    def __init__(self, axis: int, first: Var):
        self.axis, self.members = axis, [first]
        self.reduced = False

    def unite(self, other: _Stack, stacks: dict[Atom, _Stack]) -> None:
        """Take over the arrays of another stack."""
        if other is not self:
            self.members += other.members
            self.reduced |= other.reduced
            stacks.update(dict.fromkeys(other.members, self))


def unstack(program: Program) -> Program:
    """The Program without such reductions."""
    if all(e.op.joined_axis is None for e in program.equations):
        return program
    stacks = _stacks(program)
    if not any(stack.reduced for stack in stacks.values()):
        return program
    parts: dict[Atom, tuple[int, list[Atom]]] = {}  # and the axis of the stack

    def rule(new: Rewriter, e: Equation) -> Replacement:
        stack = stacks.get(e.outs[0]) if e.outs else None
        if stack is None:
            stacked = parts.get(e.ins[0]) if e.op.is_reduction else None
            reducible = stacked is not None and _is_elementwise(e, stacked[0])
            return [_combined(new, e, *stacked)] if stacked and reducible else None
        if not stack.reduced:
            return None
        if e.op.joined_axis is not None:
            parts[e.outs[0]] = stack.axis, list(e.ins)
            return None
        found = _in_parts(new, e, stack.axis, parts)
        out = new.add(Concatenate(stack.axis), found, e, e.outs[0].aval)
        parts[out] = stack.axis, found
        return [out]

    return rewrite(program, rule)


def _stacks(program: Program) -> dict[Atom, _Stack]:
    """The stack that each array belongs to, for arrays that belong to one."""
    found: dict[Atom, _Stack] = {}
    for e in program.equations:
        axis = e.op.joined_axis
        if axis is not None:
            if 2 <= len(e.ins) <= MOST and all(a.aval.shape[axis] == 1 for a in e.ins):
                found[e.outs[0]] = _Stack(axis, e.outs[0])
        elif by_element(e):
            stacks = [found[a] for a in e.ins if a in found]
            for stack in stacks:
                if stack.axis == stacks[0].axis:
                    stacks[0].unite(stack, found)
            if stacks:
                stacks[0].members.append(e.outs[0])
                found[e.outs[0]] = stacks[0]
        elif e.op.is_reduction and e.ins[0] in found:
            found[e.ins[0]].reduced |= _is_elementwise(e, found[e.ins[0]].axis)
    return found


def _is_elementwise(e: Equation, axis: int) -> bool:
    """Whether a reduction is a chain of elementwise operations, apart from axes besides `axis`.

    Sums and products of narrow floats are not: they are rounded once, not after each operation."""
    op: Any = e.op
    aval = e.outs[0].aval
    rounds = dtypes.kind(aval.dtype) == "f" and aval.dtype.itemsize < 4 and not op.needs_order
    fits = op.of_two is not None and dtypes.kind(aval.dtype) in "fiu"
    return fits and axis in op.axes and not rounds


def _in_parts(
    new: Rewriter, e: Equation, axis: int, parts: dict[Atom, tuple[int, list[Atom]]]
) -> list[Atom]:
    """The parts of an elementwise result."""
    aval = e.outs[0].aval
    shape = (*aval.shape[:axis], 1, *aval.shape[axis + 1 :])

    def part(a: Atom, i: int) -> Atom:
        if not a.aval.shape:
            return a
        if a in parts and parts[a][0] == axis:
            return parts[a][1][i]
        starts, limits = [0] * len(shape), list(a.aval.shape)
        starts[axis], limits[axis] = i, i + 1
        return new.add(Slice(tuple(starts), tuple(limits), (1,) * len(shape)), [a], e)

    return [new.add(e.op, [part(a, i) for a in e.ins], e, aval.with_shape(shape))
            for i in range(aval.shape[axis])]


def _combined(new: Rewriter, e: Equation, stacked: int, parts: list[Atom]) -> Atom:
    """The reduction of a stack, from its parts."""
    op: Any = e.op
    total = functools.reduce(lambda x, y: new.add(op.of_two, [x, y], e), parts)
    rest = tuple(axis for axis in op.axes if axis != stacked)
    total = new.add(type(op)(rest), [total], e) if rest else total
    return new.add(Reshape(e.outs[0].aval.shape), [total], e, e.outs[0].aval)
