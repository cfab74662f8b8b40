"""Reorder equations so that independent all-reduces follow each other.

Devices synchronize for each collective, and `buckets` joins equal all-reduces that are neighbors.
Here, every equation that needs no all-reduce goes first. Then all all-reduces of one kind that are
ready go together, starting with the kind that came first. This module may import primitives and the
layers below it.
"""

from __future__ import annotations

from toile.engine.program import Equation, Literal, Program


def together(program: Program) -> Program:
    """The Program with its all-reduces as late and as close to each other as possible."""
    if sum(e.op.together is not None for e in program.equations) < 2 or program.effects:
        return program
    known = set(program.inputs)
    done: list[Equation] = []

    def emit(e: Equation) -> None:
        done.append(e)
        known.update(e.outs)

    def ready(e: Equation) -> bool:
        return all(a.__class__ is Literal or a in known for a in e.ins)

    rest = program.equations
    while rest:
        blocked: list[Equation] = []
        for e in rest:
            if ready(e) and e.op.together is None:
                emit(e)
            else:
                blocked.append(e)
        waiting = [e for e in blocked if ready(e)]
        taken = {id(e) for e in waiting if e.op == waiting[0].op}
        for e in waiting:
            if id(e) in taken:
                emit(e)
        rest = [e for e in blocked if id(e) not in taken]
    return Program(program.inputs, done, program.outputs, program.name)
