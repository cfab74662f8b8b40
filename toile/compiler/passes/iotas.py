"""Iotas are computed where they are read, which costs less than loading them.

Every reader of an iota, or of one that was transposed, broadcast or reshaped around axes of size 1,
gets an iota of its own of the shape it reads, which then becomes part of its kernel.
"""

from __future__ import annotations

from toile.engine.avals import Aval
from toile.engine.operation import Operation
from toile.engine.program import Atom, Equation, Program, Var, without_dead_code
from toile.primitives.families import BroadcastInDim, Reshape, Transpose
from toile.primitives.shapes import Iota


def inline_iotas(program: Program) -> Program:
    """The Program with iotas next to their readers."""
    if not any(isinstance(e.op, Iota) for e in program.equations):
        return program
    counted: dict[Atom, Iota] = {}
    equations: list[Equation] = []
    for e in program.equations:
        if isinstance(e.op, Iota):
            counted[e.outs[0]] = e.op
        elif len(e.ins) == 1 and e.ins[0] in counted:
            moved = _moved(e.op, counted[e.ins[0]])
            if moved is not None:
                counted[e.outs[0]] = moved
        if any(a in counted for a in e.ins) and not (e.outs and e.outs[0] in counted):
            equations += _own(e, counted)
        else:
            equations.append(e)
    return without_dead_code(Program(program.inputs, equations, program.outputs, program.name))


def _own(e: Equation, counted: dict[Atom, Iota]) -> list[Equation]:
    """The equation after iotas that only it reads."""
    fresh: dict[Atom, Var] = {}
    before = []
    for a in e.ins:
        if a in counted and a not in fresh:
            op = counted[a]
            fresh[a] = Var(Aval(op.shape, op.dtype, a.aval.weak_type))
            before.append(Equation(op, [], [fresh[a]], e.source, e.scope))
    return [*before, Equation(e.op, [fresh.get(a, a) for a in e.ins], e.outs, e.source, e.scope)]


def _moved(op: Operation, x: Iota) -> Iota | None:
    """The iota that `op` makes of an iota; None if it makes something else."""
    match op:
        case Transpose(perm):
            return Iota(x.dtype, tuple(x.shape[p] for p in perm), perm.index(x.axis))
        case BroadcastInDim(shape, dims):
            if x.shape[x.axis] == shape[dims[x.axis]]:
                return Iota(x.dtype, shape, dims[x.axis])
        case Reshape(shape):
            n = x.shape[x.axis]
            outside = [m for i, m in enumerate(x.shape) if i != x.axis]
            if n != 1 and all(m == 1 for m in outside) and shape.count(n) == 1:
                return Iota(x.dtype, shape, shape.index(n))
    return None
