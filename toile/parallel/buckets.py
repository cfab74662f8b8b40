"""Join all-reduces that follow each other, because synchronization costs more than addition.

Gradients are averaged leaf by leaf. Their sums are independent, so they can be computed together.
An all-reduce may be delayed until a later one of its kind if no equation in between needs its
result. This module may import primitives and the layers below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toile.compiler.passes.calls import inline_calls
from toile.engine.program import Equation, Program


def in_buckets(program: Program) -> Program:
    """The Program with neighboring all-reduces joined; it can be run but not transformed."""
    program = inline_calls(program)
    equations: list[Equation] = []
    waiting: list[Equation] = []
    results: set[Any] = set()

    def flush() -> None:
        if len(waiting) == 1:
            equations.append(waiting[0])
        elif waiting:
            equations.append(_joined(waiting))
        waiting.clear()
        results.clear()

    for e in program.equations:
        if any(a in results for a in e.ins if not hasattr(a, "val")):
            flush()
        if e.op.together is not None:
            if waiting and waiting[0].op != e.op:
                flush()
            waiting.append(e)
            results.update(e.outs)
        elif e.op.axis_names:  # another collective: all devices need the same order
            flush()
            equations.append(e)
        else:
            equations.append(e)
    flush()
    if len(equations) == len(program.equations):
        return program
    return Program(program.inputs, equations, program.outputs, program.name)


def _joined(group: Sequence[Equation]) -> Equation:
    first = group[0]
    return Equation(first.op.together(), [a for e in group for a in e.ins],
                    [o for e in group for o in e.outs], first.source, first.scope)
