"""Inlining: calls of Programs are replaced by the equations of those Programs.

Once everything has been differentiated, calls of jitted functions and of functions with derivative
rules are plain code, and so is a branch that is known to be taken. Values that a backward pass
recomputes are behind an `optimization_barrier`, which later passes respect. A backend may replace a
call by equations of its own choice, such as its own kernel for attention.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toile.compiler.passes.constants import fold_constants
from toile.compiler.passes.rewriter import Replacement, Rewriter, rewrite, splice
from toile.engine.program import Atom, Equation, Literal, Program, Var, without_dead_code
from toile.engine.source import in_backward

# Maps an attention equation and the ones before it to the Program that replaces it.
Choice = Callable[[Equation, Sequence[Equation]], Program]


def plain(e: Equation, before: Sequence[Equation]) -> Program:
    """Attention as products around a softmax."""
    return e.op.programs()[0]


def inline_calls(program: Program, choose: Choice = plain) -> Program:
    """The Program without calls."""
    if not any(e.op.is_inlined for e in program.equations):
        return program
    equations: list[Equation] = []
    env: dict[Atom, Atom] = {}
    attends = _inline(program, env, equations, (), choose, fresh=False)
    outputs = [env.get(o, o) for o in program.outputs]
    inlined = Program(program.inputs, equations, outputs, program.name)
    return without_dead_code(inlined) if attends else inlined


def take_known_branches(program: Program, choose: Choice = plain) -> Program:
    """The Program with conditionals replaced by the branch that a literal selects."""
    while (taken := rewrite(program, _branch)) is not program:
        program = fold_constants(inline_calls(taken, choose))
    return program


def _branch(new: Rewriter, e: Equation) -> Replacement:
    if not e.op.chooses_program or e.ins[0].__class__ is not Literal:
        return None
    op: Any = e.op
    return splice(op.taken(e.ins[0].val), e.ins[1:], new.keep, e, nested=True)


def _inline(program: Program, env: dict[Atom, Atom], equations: list[Equation],
            scope: tuple[str, ...], choose: Choice, fresh: bool, backward: bool = False) -> bool:
    """Append the equations of a Program whose inputs `env` maps; `fresh`: use new variables.

    `backward`: a backward pass calls the Program, for example to recompute a forward pass. Returns
    whether an attention was found, since some of its results may be unused."""
    attends = False
    for e in program.equations:
        ins = [env.get(a, a) for a in e.ins]
        if e.op.is_inlined:
            called = e.op.programs()[0]
            if e.op.backend_chooses:
                attends = True
                called = choose(Equation(e.op, ins, e.outs, e.source, e.scope), equations)
            inner: dict[Atom, Atom] = dict(zip(called.inputs, ins, strict=True))
            again = backward or e.source is not None and e.source.backward
            attends |= _inline(called, inner, equations, scope + e.scope, choose, True, again)
            env.update(zip(e.outs, [inner.get(o, o) for o in called.outputs], strict=True))
            continue
        outs = e.outs
        if fresh:
            outs = [Var(o.aval) for o in e.outs]
            env.update(zip(e.outs, outs, strict=True))
        source = in_backward(e.source) if backward else e.source
        equations.append(Equation(e.op, ins, outs, source, scope + e.scope))
    return attends
