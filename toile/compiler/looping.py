"""Loops and branches as steps: their bodies are plans over the same table of pointers.

A carry has two buffers that take turns: the body reads one and writes the other, and whoever runs
exchanges the pointers after each step. Slices of inputs and outputs of a scan are pointers that
move along. A carry that the body updates in place (a slice or a scatter into it) has one buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

import numpy as np

from toile.compiler.inlining import Choice, plain
from toile.compiler.memory import ALIGNMENT
from toile.compiler.operands import Operand, Ref
from toile.compiler.pipeline import optimize
from toile.compiler.plans import Plan
from toile.compiler.steps import LoopStep, Moving, ScanStep, SwitchStep, WhileStep
from toile.compiler.views import row_major
from toile.control.cond import Cond
from toile.control.scan import Scan
from toile.control.while_loop import While
from toile.engine.program import Program, Var
from toile.primitives.indexing import DynamicUpdateSlice, Scatter


def prepared(program: Program, choose: Choice = plain) -> Program:
    """The body of a loop after the passes."""
    return program.memoized(("optimized", choose), lambda: optimize(program, choose=choose))


def _invariant(program: Program, first: int, count: int) -> list[bool]:
    """Which carries the body gives back as they are."""
    return [program.outputs[i] is program.inputs[first + i] for i in range(count)]


def _updated_in_place(program: Program, first: int, index: int) -> bool:
    """Whether a carry is only updated: by the last equation that reads it."""
    out, given = program.outputs[index], program.inputs[first + index]
    if out.__class__ is not Var or any(o is given for o in program.outputs):
        return False
    readers = [e for e in program.equations if any(a is given for a in e.ins)]
    if not readers or not isinstance(readers[-1].op, (DynamicUpdateSlice, Scatter)):
        return False
    last = readers[-1]
    once = len(readers) == 1 and sum(a is given for a in last.ins) == 1  # not its updates, too
    return once and last.outs[0] is out and last.ins[0] is given


def _carries(
    step: LoopStep,
    plan: Plan,
    inits: Sequence[Operand],
    finals: Sequence[Operand],
    program: Program,
    first: int,
    trips: int | None,
) -> tuple[list[Ref], list[Ref]]:
    """Where the body reads and writes its carries; copies of the initial values are staged.

    With a known number of trips the last write goes to the final place; without, the value must be
    copied from where the body would read it next."""
    reads, writes = [], []
    for i, (x, out) in enumerate(zip(inits, finals, strict=True)):
        nbytes = out.size * out.dtype.itemsize
        if _updated_in_place(program, first, i):
            target = out if trips is not None else _dense(plan.scratch(nbytes), out)
            plan.copy(target, x)
            here = Moving(gcd(ALIGNMENT, target.ref.offset))
            step.starts.append((here, target.ref))
            reads.append(Ref(here))
            writes.append(Ref(here))
            step.reads.add(target.ref.buffer)
            step.writes.add(target.ref.buffer)
            continue
        even = odd = None
        if trips is not None:  # the value after `trips` turns lies in the buffer of that parity
            even, odd = (out.ref, None) if trips % 2 == 0 else (None, out.ref)
        even = even or plan.scratch(nbytes)
        odd = odd or plan.scratch(nbytes)
        plan.copy(_dense(even, out), x)
        shared = gcd(ALIGNMENT, even.offset, odd.offset)
        a, b = Moving(shared), Moving(shared)
        step.starts += [(a, even), (b, odd)]
        step.swaps.append((a, b))
        step.reads |= {even.buffer, odd.buffer}
        step.writes |= {even.buffer, odd.buffer}
        reads.append(Ref(a))
        writes.append(Ref(b))
    return reads, writes


def _dense(ref: Ref, like: Operand) -> Operand:
    return Operand(ref, like.shape, row_major(like.shape), like.dtype)


def lower_scan(op: Scan, ins: list[Operand], outs: list[Operand], plan: Plan) -> bool:
    """A scan as a loop of steps."""
    if op.length == 0 or any(x.size == 0 for x in ins):
        return False
    program = prepared(op.program, plan.choose)
    c, n = op.consts, op.carry
    consts = [plan.contiguous(x) for x in ins[:c]]
    step = ScanStep(op.length)
    fixed = _invariant(program, c, n)
    moving = [i for i in range(n) if not fixed[i]]
    bound: dict[int, Ref] = {}
    for i in range(n):
        if fixed[i]:
            bound[c + i] = plan.contiguous(ins[c + i]).ref
            plan.copy(outs[i], ins[c + i])
    reduced = _without(program, [i for i in range(n) if fixed[i]], c)
    reads, writes = _carries(step, plan, [ins[c + i] for i in moving], [outs[i] for i in moving],
                             reduced, 0, op.length)
    for i, r in zip(moving, reads, strict=True):
        bound[c + i] = r
    inputs = [x.ref for x in consts] + [bound[c + i] for i in range(n)]
    for x in ins[c + n:]:
        x = _slices_dense(x, plan)
        inputs.append(_slice(step, x.ref, x.strides[0] * x.dtype.itemsize, op))
    stacked = []
    for y in outs[n:]:
        stacked.append(_slice(step, y.ref, y.strides[0] * y.dtype.itemsize, op))
        step.writes.add(y.ref.buffer)
    outputs = writes + stacked
    kept = Program(program.inputs, program.equations,
                   [program.outputs[i] for i in moving] + program.outputs[n:], program.name)
    fixed_inputs = [*(x.ref for x in consts), *(bound[c + i] for i in range(n) if fixed[i])]
    step.body = plan.inner(kept, inputs, outputs, {r.buffer for r in fixed_inputs})
    step.reads |= {r.buffer for _, r, _ in step.slices} | {r.buffer for _, r in step.starts}
    step.touch(step.children)
    plan.steps.append(step)
    return True


def _without(program: Program, fixed: list[int], first: int) -> Program:
    """A view of the Program whose inputs and outputs are its moving carries, for `_carries`."""
    n = [i for i in range(len(program.outputs)) if i not in fixed]
    inputs = [program.inputs[first + i] for i in n if first + i < len(program.inputs)]
    return Program(inputs, program.equations, [program.outputs[i] for i in n], program.name)


def _slices_dense(x: Operand, plan: Plan) -> Operand:
    """An operand whose slices along the first axis are row-major without gaps."""
    inner = Operand(x.ref, x.shape[1:], x.strides[1:], x.dtype)
    return x if inner.contiguous else plan.contiguous(x)


def _slice(step: ScanStep, ref: Ref, stride: int, op: Scan) -> Ref:
    """The moving slice of an array."""
    here = Moving(gcd(ALIGNMENT, stride, ref.offset))
    if op.reverse:
        step.slices.append((here, ref.at((op.length - 1) * stride), -stride))
    else:
        step.slices.append((here, ref, stride))
    return Ref(here)


def lower_while(op: While, ins: list[Operand], outs: list[Operand], plan: Plan) -> bool:
    """A while loop of steps; the carries' last values are copied out."""
    if any(x.size == 0 for x in ins):
        return False
    condition, body = prepared(op.cond, plan.choose), prepared(op.body, plan.choose)
    a, b, n = op.cond_consts, op.cond_consts + op.body_consts, len(outs)
    consts = [plan.contiguous(x) for x in ins[:b]]
    fixed = _invariant(body, op.body_consts, n)
    moving = [i for i in range(n) if not fixed[i]]
    bound = {i: plan.contiguous(ins[b + i]).ref for i in range(n) if fixed[i]}
    step = WhileStep(plan.scratch(1))
    reduced = _without(body, [i for i in range(n) if fixed[i]], op.body_consts)
    reads, writes = _carries(step, plan, [ins[b + i] for i in moving], [outs[i] for i in moving],
                             reduced, 0, None)
    unchanged = {x.ref.buffer for x in consts[a:]} | {r.buffer for r in bound.values()}
    bound.update(zip(moving, reads, strict=True))
    carried = [bound[i] for i in range(n)]
    step.condition = plan.inner(condition, [x.ref for x in consts[:a]] + carried, [step.predicate])
    kept = Program(body.inputs, body.equations, [body.outputs[i] for i in moving], body.name)
    step.body = plan.inner(kept, [x.ref for x in consts[a:]] + carried, writes, unchanged)
    step.reads |= {r.buffer for _, r in step.starts} | {step.predicate.buffer}
    step.touch(step.children)
    plan.steps.append(step)
    held = {r.buffer for _, r in step.starts}
    plan.begin({x.ref.buffer for x in outs})
    before = len(plan.steps)
    for out, r in zip(outs, carried, strict=True):
        plan.copy(out, _dense(r, out))
    for after in plan.steps[before:]:  # the buffers behind the moving pointers are still in use
        after.reads |= held
    return True


def lower_cond(op: Cond, ins: list[Operand], outs: list[Operand], plan: Plan) -> bool:
    """A choice of steps; every branch writes the results where they belong."""
    index, *rest = ins
    if index.dtype != np.int32 or any(x.size == 0 for x in ins):
        return False
    step = SwitchStep(Moving())
    operands = [plan.contiguous(x).ref for x in rest]
    step.starts.append((step.index, index.ref))
    for branch in op.branches:
        body = prepared(branch, plan.choose)
        step.children.append(plan.inner(body, operands, [x.ref for x in outs]))
    step.reads |= {index.ref.buffer} | {r.buffer for r in operands}
    step.writes |= {x.ref.buffer for x in outs}
    step.touch(step.children)
    plan.steps.append(step)
    return True
