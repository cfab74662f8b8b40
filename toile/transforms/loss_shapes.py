"""Find the operations in a loss that broadcast both of their operands.

The rule, `engine.broadcasts.shapes_conflict`, compares the shapes of the operands. An operation is
reported only if the loss is a sum or mean over its result (with elementwise operations in between),
and if the axis of size 1 was not added inside the differentiated function, as in `x[:, None] - x`.
Both facts are read from the tape of `grad`. This module may import the engine, primitives.families
and the transforms linearize and remembered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from toile.engine.broadcasts import Suspect, report_suspect, suspect_at
from toile.engine.operation import Operation
from toile.engine.program import Program
from toile.engine.source import Source
from toile.primitives.families import BroadcastInDim, Reshape
from toile.transforms.linearize import Entry, LinearTracer, Tape
from toile.transforms.remembered import Remembered


class _Step(NamedTuple):
    """An operation on a tape or in a Program, with the keys of its linear operands."""

    op: Operation
    ins: Sequence[Any]  # None for an operand that is not linear
    operand: tuple[int, ...]  # the shape of the first linear operand
    outs: Sequence[Any]
    shape: tuple[int, ...]
    source: Source | None


class _Frame(NamedTuple):
    """A tape or a called Program: what defines its values, and where its inputs come from."""

    steps: dict[Any, _Step]
    inputs: dict[Any, tuple[Any, Any]]  # input -> frame and key of the argument


def check_loss(tape: Tape) -> None:
    """Report operands that were broadcast against each other and then reduced to the loss."""
    out = tape.outputs[0]
    if out.__class__ is not LinearTracer:
        return
    blamed: dict[int, tuple[Suspect, bool]] = {}  # by identity: whether all its operands are blamed
    for suspect, added in _reached(_Frame(_tape_steps(tape), {}), out.slot):
        before = blamed.get(id(suspect), (suspect, True))[1]
        blamed[id(suspect)] = suspect, before and not added
    for suspect, guilty in blamed.values():
        if guilty:
            report_suspect(suspect)


def _tape_steps(tape: Tape) -> dict[Any, _Step]:
    steps: dict[Any, _Step] = {}
    for e in tape.entries:
        if e.__class__ is Entry:
            ins = [a.slot if tape.is_linear(a) else None for a in e.args]
            shape = next(a.aval.shape for a in e.args if tape.is_linear(a))
            outs = [o.slot for o in e.outs]
            made = _Step(e.op, ins, shape, outs, e.outs[0].aval.shape, e.source)
        elif e.__class__ is not Remembered:
            continue  # a mark of `debug.step`
        else:
            of = e.derivative
            made = _Step(of.op, e.slots, of.operand, [e.slot], of.tangent.shape, None)
        steps.update(dict.fromkeys(made.outs, made))
    return steps


def _program_steps(program: Program) -> dict[Any, _Step]:
    return program.memoized("steps by variable", lambda: {
        out: _Step(e.op, e.ins, _first(e.ins), e.outs, out.aval.shape, e.source)
        for e in program.equations for out in e.outs
    })


def _first(atoms: Sequence[Any]) -> tuple[int, ...]:
    return atoms[0].aval.shape if atoms else ()


def _defined(frame: _Frame, key: Any) -> tuple[_Frame, _Step] | None:
    """The step that computes a value; calls are entered, and their inputs are followed."""
    while True:
        step = frame.steps.get(key)
        if step is None:
            if key not in frame.inputs:
                return None
            frame, key = frame.inputs[key]
            continue
        program = step.op.called_program() if step.op.carries_programs else None
        if program is None:
            return frame, step
        inputs = {v: (frame, a) for v, a in zip(program.inputs, step.ins) if a is not None}
        key = program.outputs[list(step.outs).index(key)]
        frame = _Frame(_program_steps(program), inputs)


def _reached(frame: _Frame, key: Any) -> Iterator[tuple[Suspect, bool]]:
    """The suspects that a loss sums up, and whether the axis of size 1 was added on purpose."""
    for at, step in _origins(frame, key, _is_summed):
        if isinstance(step.op, BroadcastInDim):
            suspect = suspect_at(step.source, step.shape)
            if suspect is not None:
                yield suspect, _adds_axis(at, step.ins[0], math.prod(step.operand))


def _is_summed(op: Operation) -> bool:
    """Whether a loss that sums up the result of this operation also sums up its operands."""
    return op.by_element or op.is_reduction or isinstance(op, Reshape)


def _adds_axis(frame: _Frame, key: Any, size: int) -> bool:
    """Whether axes were added to a value of this size; elementwise operations may follow."""
    return any(
        isinstance(step.op, (Reshape, BroadcastInDim))
        and len(step.operand) < len(step.shape)
        and math.prod(step.operand) == math.prod(step.shape) == size
        for _, step in _origins(frame, key, _keeps_elements)
    )


def _keeps_elements(op: Operation) -> bool:
    """Whether this operation computes each element from elements at the same place."""
    return op.by_element or isinstance(op, (Reshape, BroadcastInDim))


def _origins(
    frame: _Frame, key: Any, passes: Callable[[Operation], bool]
) -> Iterator[tuple[_Frame, _Step]]:
    """The steps that compute a value; the search goes backward through operations that pass."""
    stack, seen = [(frame, key)], set()
    while stack:
        found = _defined(*stack.pop())
        if found is None or id(found[1]) in seen:
            continue
        frame, step = found
        seen.add(id(step))
        yield found
        if passes(step.op):
            stack.extend((frame, k) for k in step.ins if k is not None)
