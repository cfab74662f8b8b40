"""What passes share: they go through the equations of a Program and replace some of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toile.engine.avals import Aval
from toile.engine.operation import Operation, infer_list
from toile.engine.program import Atom, Equation, Literal, Program, Var

# Replaces the results of an equation: one atom for each result, or None to keep the equation.
Replacement = Sequence[Atom] | None


class Rewriter:
    """The new equations of a Program, and what replaces the variables of the old one."""

    __slots__ = ("program", "env", "equations", "producers")

    def __init__(self, program: Program):
        self.program = program
        self.env: dict[Var, Atom] = {}
        self.equations: list[Equation] = []
        self.producers: dict[Var, Equation] = {}

    def atom(self, a: Atom) -> Atom:
        """What replaces an atom of the old Program."""
        return self.env.get(a, a) if a.__class__ is Var else a

    def keep(self, e: Equation) -> None:
        """Add an equation whose operands belong to the new Program."""
        self.equations.append(e)
        for o in e.outs:
            self.producers[o] = e

    def add(self, op: Operation, ins: Sequence[Atom], at: Equation,
            aval: Aval | None = None) -> Var:
        """Add an equation with one result in the place of the equation `at`; returns the result.

        `aval` is that of the result, if it is known."""
        out = Var(infer_list(op, [a.aval for a in ins])[0] if aval is None else aval)
        self.keep(Equation(op, list(ins), [out], at.source, at.scope))
        return out

    def producer(self, a: Atom) -> Equation | None:
        """The new equation that computes an atom; None for inputs and literals."""
        return self.producers.get(a) if a.__class__ is Var else None

    def fill_of(self, a: Atom) -> Any:
        """The value of all elements of an array made from a literal; None if it is not known."""
        made = self.producer(a)
        if made is None or not made.op.is_view or made.ins[0].__class__ is not Literal:
            return None
        return made.ins[0].val

    def finish(self) -> Program:
        """The new Program."""
        outputs = [self.atom(o) for o in self.program.outputs]
        return Program(self.program.inputs, self.equations, outputs, self.program.name)


def is_zero(a: Atom) -> bool:
    """Whether an atom is a literal whose elements are all zero."""
    return isinstance(a, Literal) and not a.val.any()


Rule = Callable[[Rewriter, Equation], Replacement]


def rewrite(program: Program, rule: Rule) -> Program:
    """Apply `rule` to the equations in order; operands are already replaced."""
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
        if found is None:  # does the same as `new.keep`
            keep(e)
            for o in e.outs:
                producers[o] = e
        else:
            changed = True
            env.update(zip(e.outs, found, strict=True))
    return new.finish() if changed else program


def splice(program: Program, args: Sequence[Atom], keep: Callable[[Equation], None],
           at: Equation, nested: bool = False) -> list[Atom]:
    """Add the equations of a Program in the place of another equation; returns its results.

    If `nested`, they keep their own sources, and their scopes are inside the other equation's."""
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
    """The equations that read each variable, each listed once: x + x is one reader."""
    found: dict[Atom, list[Equation]] = {}
    for e in program.equations:
        for a in dict.fromkeys(e.ins):
            if a.__class__ is Var:
                found.setdefault(a, []).append(e)
    return found


def literal_key(a: Literal) -> tuple[Any, bytes]:
    """A key that is equal for literals with equal bits."""
    return a.aval.dtype, a.val.tobytes()
