"""Iotas are recomputed where they are read, which costs less than loading them.

Each reader of an iota (or of an iota that was transposed, broadcast or reshaped around axes of size
1) gets its own iota of the shape that it reads, which is then fused into its kernel.
"""

from __future__ import annotations

from typing import Any

from toile.engine.avals import Aval
from toile.engine.program import Atom, Equation, Program, Var, without_dead_code
from toile.primitives.shapes import Iota


def inline_iotas(program: Program) -> Program:
    """The Program with iotas next to their readers."""
    if all(e.op.counted_axis is None for e in program.equations):
        return program
    counted: dict[Atom, Any] = {}
    equations: list[Equation] = []
    for e in program.equations:
        if e.op.counted_axis is not None:
            counted[e.outs[0]] = e.op
        elif len(e.ins) == 1 and e.ins[0] in counted:
            x = counted[e.ins[0]]
            axis = e.op.moved_axis(x.shape, x.axis)
            if axis is not None:
                counted[e.outs[0]] = Iota(x.dtype, e.outs[0].aval.shape, axis)
        if any(a in counted for a in e.ins) and not (e.outs and e.outs[0] in counted):
            equations += _own(e, counted)
        else:
            equations.append(e)
    return without_dead_code(Program(program.inputs, equations, program.outputs, program.name))


def _own(e: Equation, counted: dict[Atom, Any]) -> list[Equation]:
    """The equation, preceded by its own iotas."""
    fresh: dict[Atom, Var] = {}
    before = []
    for a in e.ins:
        if a in counted and a not in fresh:
            op = counted[a]
            fresh[a] = Var(Aval(op.shape, op.dtype, a.aval.weak_type))
            before.append(Equation(op, [], [fresh[a]], e.source, e.scope))
    return [*before, Equation(e.op, [fresh.get(a, a) for a in e.ins], e.outs, e.source, e.scope)]
