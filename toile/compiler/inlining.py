"""Calls of Programs replaced by their equations.

What jit leaves behind and functions with rules of their own are plain code once everything has
been differentiated. What is to be computed again in a backward pass stands behind an
`optimization_barrier`, which later passes respect.
"""

from __future__ import annotations

from toile.control.call import Call
from toile.control.custom import CustomJVPCall, CustomVJPCall
from toile.control.remat import Remat
from toile.engine.program import Atom, Equation, Program, Var

INLINED = (Call, Remat, CustomJVPCall, CustomVJPCall)  # exactly these, no derived classes


def inline_calls(program: Program) -> Program:
    """The Program without calls."""
    if not any(e.op.__class__ in INLINED for e in program.equations):
        return program
    equations: list[Equation] = []
    env: dict[Var, Atom] = {}
    _inline(program, env, equations, (), fresh=False)
    outputs = [_mapped(env, o) for o in program.outputs]
    return Program(program.inputs, equations, outputs, program.name)


def _mapped(env: dict[Var, Atom], a: Atom) -> Atom:
    return env.get(a, a) if a.__class__ is Var else a


def _inline(
    program: Program,
    env: dict[Var, Atom],
    equations: list[Equation],
    scope: tuple[str, ...],
    fresh: bool,
) -> None:
    """Append the equations of a Program whose inputs `env` maps; `fresh`: with new variables."""
    for e in program.equations:
        ins = [_mapped(env, a) for a in e.ins]
        if e.op.__class__ in INLINED:
            called = e.op.program
            inner: dict[Var, Atom] = dict(zip(called.inputs, ins, strict=True))
            _inline(called, inner, equations, scope + e.scope, fresh=True)
            results = [_mapped(inner, o) for o in called.outputs]
            env.update(zip(e.outs, results, strict=True))
            continue
        outs = e.outs
        if fresh:
            outs = [Var(o.aval) for o in e.outs]
            env.update(zip(e.outs, outs, strict=True))
        equations.append(Equation(e.op, ins, outs, e.source, scope + e.scope))
