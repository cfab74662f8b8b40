"""Carries that a scan also stacks: each turn reads its carry from one row of the stack, and writes
the new carry to the next one.

    carry, (before, after) = scan(lambda c, x: (f(c, x), (c, f(c, x))), init)

    rows:    init   c1   c2   ...   last        of one array with a row more than there are turns
    before:  [---------------]
    after:          [----------------]

A gradient needs the carries of all turns. They are stored where the next turn reads them, so that
nothing is copied. A loop from the last row to the first begins in the row after the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from toile.compiler.ir.geometry import dense
from toile.compiler.ir.operands import Operand, Ref, VariableBuffer
from toile.engine.program import Program, Var

UNIT = 16  # bytes: rows begin at multiples of it, so that kernels read packs of elements


class Stack(NamedTuple):
    """The rows of a carry. `given`, `made`: the numbers of the stacked results that are its values
    before and after each turn; `final`: whether the last one is stored here."""

    rows: Ref
    stride: int  # bytes, from what a turn reads to what it writes; negative if the loop is reversed
    given: int
    made: int | None
    final: bool

    def start(self, turns: int) -> Ref:
        """Where the first turn reads."""
        return self.rows.at(-min(0, self.stride) * turns)

    def end(self, turns: int) -> Ref:
        """Where the last turn writes."""
        return self.rows.at(max(0, self.stride) * turns)


def stack_of(body: Program, carries: int, i: int, given: Any, op: Any, plan: Any) -> Stack | None:
    """The rows of carry i, whose value is `given` in the body; None if it is not stacked."""
    outs: Sequence[Any] = plan.origin.members[0].equation.outs
    stacked = list(zip(body.outputs[carries:], outs[carries:], strict=True))
    before = [j for j, (y, out) in enumerate(stacked) if y is given and _is_movable(out, plan)]
    aval = given.aval
    if not before or aval.nbytes % UNIT or not aval.nbytes:
        return None
    after = [j for j, (y, out) in enumerate(stacked)
             if y is body.outputs[i] and _is_movable(out, plan)]
    rows = Ref(VariableBuffer(stacked[before[0]][1], 1))
    stride = -aval.nbytes if op.reverse else aval.nbytes
    found = Stack(rows, stride, before[0], after[0] if after else None,
                  _is_movable(outs[i], plan))
    low = rows.at(-min(0, stride))
    plan.refs[stacked[found.given][1]] = low
    if found.made is not None:
        plan.refs[stacked[found.made][1]] = low.at(stride)
    if found.final:
        plan.refs[outs[i]] = found.end(op.length)
    plan.written.add(rows.buffer)
    return found


def _is_movable(out: Var, plan: Any) -> bool:
    """Whether a result is a temporary that may be stored anywhere."""
    ref = plan.refs.get(out)
    return ref is not None and not ref.offset and isinstance(ref.buffer, VariableBuffer) and (
        ref.buffer.var is out) and ref.buffer.nbytes == out.aval.nbytes and (
        ref.buffer not in plan.outside)


def begin(stack: Stack, init: Operand, turns: int, plan: Any) -> None:
    """Stage the copy of the initial value."""
    plan.copy(dense(stack.start(turns), init.shape, init.dtype), init)
