"""What passes share: walk through a Program's equations and put others in their place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toile.engine.avals import Aval
from toile.engine.operation import Operation, infer_list
from toile.engine.program import Atom, Equation, Literal, Program, Var

# What stands for the results of an equation: atoms (one for each result), or None to keep it.
Replacement = Sequence[Atom] | None


class Rewriter:
    """The new equations of a Program, and what became of the variables of the old one."""

    __slots__ = ("program", "env", "equations", "producers")

    def __init__(self, program: Program):
        self.program = program
        self.env: dict[Var, Atom] = {}
        self.equations: list[Equation] = []
        self.producers: dict[Var, Equation] = {}

    def atom(self, a: Atom) -> Atom:
        """What stands for an atom of the old Program."""
        return self.env.get(a, a) if a.__class__ is Var else a

    def keep(self, e: Equation) -> None:
        """Add an equation, whose operands are of the new Program."""
        self.equations.append(e)
        for o in e.outs:
            self.producers[o] = e

    def add(self, op: Operation, ins: Sequence[Atom], at: Equation,
            aval: Aval | None = None) -> Var:
        """Add an equation with one result, in the place of another; its result.

        `aval`: that of the result, if it is known."""
        out = Var(infer_list(op, [a.aval for a in ins])[0] if aval is None else aval)
        self.keep(Equation(op, list(ins), [out], at.source, at.scope))
        return out

    def producer(self, a: Atom) -> Equation | None:
        """The new equation that gives an atom; None for inputs and literals."""
        return self.producers.get(a) if a.__class__ is Var else None

    def fill_of(self, a: Atom) -> Any:
        """The number that is everywhere in an array made of a literal; None: it is not known."""
        made = self.producer(a)
        if made is None or not made.op.is_view or made.ins[0].__class__ is not Literal:
            return None
        return made.ins[0].val

    def finish(self) -> Program:
        """The new Program."""
        outputs = [self.atom(o) for o in self.program.outputs]
        return Program(self.program.inputs, self.equations, outputs, self.program.name)


Rule = Callable[[Rewriter, Equation], Replacement]


def rewrite(program: Program, rule: Rule) -> Program:
    """Apply `rule` to the equations in order; it sees those before with their replacements."""
    new = Rewriter(program)
    env: dict[Any, Atom] = new.env
    changed = False
    keep, producers = new.equations.append, new.producers
    for e in program.equations:
        if env:
            ins = [env.get(a, a) for a in e.ins]
            if ins != e.ins:
                e = Equation(e.op, ins, e.outs, e.source, e.scope)
        found = rule(new, e)
        if found is None:  # as `new.keep` does
            keep(e)
            for o in e.outs:
                producers[o] = e
        else:
            changed = True
            env.update(zip(e.outs, found, strict=True))
    return new.finish() if changed else program


def splice(program: Program, args: Sequence[Atom], keep: Callable[[Equation], None],
           at: Equation, nested: bool = False) -> list[Atom]:
    """Add the equations of a Program in the place of another equation; its results.

    `nested`: they keep their own sources, and their scopes are inside of the other's."""
    env: dict[Any, Atom] = dict(zip(program.inputs, args, strict=True))
    source, scope = at.source, at.scope
    for e in program.equations:
        if nested:
            source, scope = e.source or at.source, (*at.scope, *e.scope)
        outs = [Var(o.aval) for o in e.outs]
        keep(Equation(e.op, [env.get(a, a) for a in e.ins], outs, source, scope))
        env.update(zip(e.outs, outs, strict=True))
    return [env.get(o, o) for o in program.outputs]


def readers_of(program: Program) -> dict[Atom, list[Equation]]:
    """The equations that read each variable."""
    found: dict[Atom, list[Equation]] = {}
    for e in program.equations:
        for a in e.ins:
            if a.__class__ is Var:
                found.setdefault(a, []).append(e)
    return found


def literal_key(a: Literal) -> tuple[Any, bytes]:
    """Equal for literals of equal bits."""
    return a.aval.dtype, a.val.tobytes()
