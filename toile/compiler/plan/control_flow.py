"""Loops and branches as steps: their bodies are plans that share one table of pointers.

A carry has two buffers that alternate: the body reads one and writes the other, and the device
swaps the pointers after each step. Slices of inputs and outputs of a scan are pointers that
advance. A carry that the body updates in place (a slice or a scatter into it) has one buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any

import numpy as np

from toile.compiler.ir.geometry import dense
from toile.compiler.ir.operands import Operand, Ref
from toile.compiler.ir.steps import (
    LoopStep,
    Moving,
    ScanStep,
    SwitchStep,
    WhileStep,
    alignment,
)
from toile.compiler.passes.calls import Choice, plain
from toile.compiler.pipeline import optimize
from toile.compiler.plan import stacked_carries
from toile.compiler.plan.lower import Plan
from toile.control.cond import Cond
from toile.control.scan import Scan
from toile.control.while_loop import While
from toile.engine.program import Program, Var


def prepared(program: Program, choose: Choice = plain) -> Program:
    """A loop body after the passes."""
    return program.memoized(("optimized", choose), lambda: optimize(program, choose=choose))


class _Carries:
    """The carries of a loop; a carry that the body returns as it is does not change."""

    def __init__(self, plan: Plan, body: Program, first: int, inits: Sequence[Operand],
                 finals: Sequence[Operand], start: int):
        self.plan, self.body, self.inits, self.finals = plan, body, inits, finals
        self.start = start  # the number of the first initial value among the operands
        self.inputs = body.inputs[first:first + len(finals)]
        same = [x is out for x, out in zip(self.inputs, body.outputs, strict=False)]
        self.fixed = [i for i, s in enumerate(same) if s]
        self.moving = [i for i, s in enumerate(same) if not s]
        self.refs: dict[int, Ref] = {}  # where the body reads each carry
        self.writes: list[Ref] = []  # where it writes the carries that change
        self.stacks: dict[int, stacked_carries.Stack] = {}  # of carries that are stacked, too

    def bind_fixed(self, i: int) -> None:
        """Let the body read an unchanging carry from the place of its initial value."""
        self.refs[i] = self.plan.contiguous(self.inits[i]).ref

    def bind_moving(self, step: LoopStep, trips: int | None) -> None:
        """Choose where the body reads and writes its other carries, and stage their initial values.

        If the number of iterations is known, the last write goes to the final place. Otherwise, the
        value must be copied from where the body would read it next."""
        for i in self.moving:
            if self._updated_in_place(i):
                self._bind_updated(step, i, trips)
            elif i in self.stacks:
                self._bind_stacked(step, i, trips)
            else:
                self._bind_swapped(step, i, trips)

    def _updated_in_place(self, i: int) -> bool:
        """Whether the only reader of a carry is the equation that updates it."""
        out, given = self.body.outputs[i], self.inputs[i]
        if out.__class__ is not Var or any(o is given for o in self.body.outputs):
            return False
        readers = [e for e in self.body.equations if any(a is given for a in e.ins)]
        if len(readers) != 1 or not readers[0].op.updates:
            return False
        (e,) = readers
        once = sum(a is given for a in e.ins) == 1  # the carry must not also be the updates
        return once and e.outs[0] is out and e.ins[0] is given

    def _bind_updated(self, step: LoopStep, i: int, trips: int | None) -> None:
        """Give a carry that is updated in place one buffer."""
        target = self.finals[i]
        if trips is None:
            target = _at(self._begun(i), target)
        else:
            self.plan.copy(target, self.inits[i])
        here = Moving(alignment(target.ref))
        step.starts.append((here, target.ref))
        self._note(step, i, Ref(here), Ref(here), {target.ref.buffer})

    def _bind_swapped(self, step: LoopStep, i: int, trips: int | None) -> None:
        """Give a carry two alternating buffers."""
        out = self.finals[i]
        even = odd = None
        if trips is not None:  # after `trips` steps the value is in the buffer of that parity
            even, odd = (out.ref, None) if trips % 2 == 0 else (None, out.ref)
        if even is None:
            even = self._begun(i)
        else:
            self.plan.copy(_at(even, out), self.inits[i])
        odd = odd or self.plan.scratch(out.size * out.dtype.itemsize)
        shared = gcd(alignment(even), alignment(odd))
        a, b = Moving(shared), Moving(shared)
        step.starts += [(a, even), (b, odd)]
        step.swaps.append((a, b))
        self._note(step, i, Ref(a), Ref(b), {even.buffer, odd.buffer})

    def find_stacks(self, op: Scan) -> None:
        """Find the carries whose values before each turn are stacked."""
        for i in self.moving:
            stack = None if self._updated_in_place(i) else stacked_carries.stack_of(
                self.body, len(self.finals), i, self.inputs[i], op, self.plan)
            if stack is not None:
                self.stacks[i] = stack

    def _bind_stacked(self, step: Any, i: int, trips: int | None) -> None:
        """Let a carry move from row to row of its stack."""
        stack, turns = self.stacks[i], trips or 0
        stacked_carries.begin(stack, self.inits[i], turns, self.plan)
        at, shared = stack.start(turns), gcd(alignment(stack.rows), stack.stride)
        read, write = Moving(shared), Moving(shared)
        step.slices += [(read, at, stack.stride), (write, at.at(stack.stride), stack.stride)]
        self._note(step, i, Ref(read), Ref(write), {stack.rows.buffer})

    def copy_ends(self, turns: int) -> None:
        """Copy the last values that stay in stacks."""
        for i, stack in self.stacks.items():
            out = self.finals[i]
            if not stack.final and self.plan.is_read(out):
                self.plan.begin({out.ref.buffer})
                self.plan.copy(out, _at(stack.end(turns), out))

    def _begun(self, i: int) -> Ref:
        """A buffer with the initial value: the one where it was computed if nothing else reads it,
        else a copy."""
        if self.plan.may_take(self.start + i):
            return self.inits[i].ref
        out = self.finals[i]
        ref = self.plan.scratch(out.size * out.dtype.itemsize)
        self.plan.copy(_at(ref, out), self.inits[i])
        return ref

    def _note(self, step: LoopStep, i: int, read: Ref, write: Ref, buffers: set[Any]) -> None:
        self.refs[i] = read
        self.writes.append(write)
        step.reads |= buffers
        step.writes |= buffers

    def in_order(self) -> list[Ref]:
        """Where the body reads its carries, in order."""
        return [self.refs[i] for i in range(len(self.finals))]

    def unchanged(self, consts: Sequence[Operand]) -> set[Any]:
        """The buffers of constants and of carries that do not change."""
        return {x.ref.buffer for x in consts} | {self.refs[i].buffer for i in self.fixed}

    def kept(self) -> Program:
        """The body without results that are unchanged carries."""
        body = self.body
        ys = body.outputs[len(self.finals):]
        outputs = [body.outputs[i] for i in self.moving]
        outputs += [y for j, y in enumerate(ys) if j not in self.in_stacks]
        return Program(body.inputs, body.equations, outputs, body.name)

    @property
    def in_stacks(self) -> set[int]:
        """The numbers of the stacked results that are rows of carries."""
        return {j for s in self.stacks.values() for j in (s.given, s.made) if j is not None}


def _at(ref: Ref, like: Operand) -> Operand:
    return dense(ref, like.shape, like.dtype)


def lower_scan(op: Scan, ins: list[Operand], outs: list[Operand], plan: Plan) -> bool:
    """Lower a scan to a loop of steps."""
    if op.length == 0 or any(x.size == 0 for x in ins):
        return False
    c, n = op.consts, op.carry
    consts = [plan.contiguous(x) for x in ins[:c]]
    step = ScanStep(op.length)
    carries = _Carries(plan, prepared(op.program, plan.target.choose), c, ins[c:c + n], outs[:n],
                       c)
    for i in carries.fixed:
        carries.bind_fixed(i)
        plan.copy(outs[i], ins[c + i])
    carries.find_stacks(op)
    plan.stacks[step] = carries.stacks
    carries.bind_moving(step, op.length)
    inputs = [x.ref for x in consts] + carries.in_order()
    inputs += [_slice(step, _slices_dense(x, plan), op) for x in ins[c + n:]]
    ys = [y for j, y in enumerate(outs[n:]) if j not in carries.in_stacks]
    stacked = [_slice(step, y, op) for y in ys]
    step.writes |= {y.ref.buffer for y in ys}
    step.body = plan.inner(carries.kept(), inputs, carries.writes + stacked,
                           carries.unchanged(consts), op.length)
    step.reads |= {r.buffer for _, r, _ in step.slices} | {r.buffer for _, r in step.starts}
    step.touch(step.children)
    plan.steps.append(step)
    carries.copy_ends(op.length)
    return True


def _slices_dense(x: Operand, plan: Plan) -> Operand:
    """The operand, copied unless its slices along the first axis are row-major without gaps."""
    inner = Operand(x.ref, x.shape[1:], x.strides[1:], x.dtype)
    return x if inner.contiguous else plan.contiguous(x)


def _slice(step: ScanStep, x: Operand, op: Scan) -> Ref:
    """The slice of an array as a moving pointer."""
    ref, stride = x.ref, x.strides[0] * x.dtype.itemsize
    here = Moving(gcd(alignment(ref), stride))
    if op.reverse:
        step.slices.append((here, ref.at((op.length - 1) * stride), -stride))
    else:
        step.slices.append((here, ref, stride))
    return Ref(here)


def lower_while(op: While, ins: list[Operand], outs: list[Operand], plan: Plan) -> bool:
    """Lower a while loop; the last values of the carries that are read are copied out."""
    if any(x.size == 0 for x in ins):
        return False
    condition, body = prepared(op.cond, plan.target.choose), prepared(op.body, plan.target.choose)
    a, b = op.cond_consts, op.cond_consts + op.body_consts
    consts = [plan.contiguous(x) for x in ins[:b]]
    carries = _Carries(plan, body, op.body_consts, ins[b:], outs, b)
    for i in carries.fixed:
        carries.bind_fixed(i)
    step = WhileStep(plan.scratch(1))
    carries.bind_moving(step, None)
    carried = carries.in_order()
    step.condition = plan.inner(condition, [x.ref for x in consts[:a]] + carried, [step.predicate])
    step.body = plan.inner(carries.kept(), [x.ref for x in consts[a:]] + carried, carries.writes,
                           carries.unchanged(consts[a:]))
    step.reads |= {r.buffer for _, r in step.starts} | {step.predicate.buffer}
    step.touch(step.children)
    plan.steps.append(step)
    held = {r.buffer for _, r in step.starts}
    read = [(out, r) for out, r in zip(outs, carried, strict=True) if plan.is_read(out)]
    plan.begin({out.ref.buffer for out, _ in read})
    before = len(plan.steps)
    for out, r in read:
        plan.copy(out, _at(r, out))
    for after in plan.steps[before:]:  # the buffers behind the moving pointers are still in use
        after.reads |= held
    return True


def lower_cond(op: Cond, ins: list[Operand], outs: list[Operand], plan: Plan) -> bool:
    """Lower a switch; every branch writes the results to their places."""
    index, *rest = ins
    if index.dtype != np.int32 or any(x.size == 0 for x in ins):
        return False
    step = SwitchStep(Moving())
    operands = [plan.contiguous(x).ref for x in rest]
    step.starts.append((step.index, index.ref))
    for branch in op.branches:
        body = prepared(branch, plan.target.choose)
        step.children.append(plan.inner(body, operands, [x.ref for x in outs]))
    step.reads |= {index.ref.buffer} | {r.buffer for r in operands}
    step.writes |= {x.ref.buffer for x in outs}
    step.touch(step.children)
    plan.steps.append(step)
    return True
