"""Computes some residuals of scans again, in the loop that reads them, instead of storing them.

    forward:   stack t_i = tanh(a_i)  and  s_i = 1 - t_i^2
    backward:  reads t_i and s_i                                  now computes s_i from t_i

A stacked result is not stored if only scans read its slices and a few elementwise operations
compute a slice from slices of other stacked values and from constants of the loop.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from toile.compiler.scalar.fusible import by_element
from toile.engine.program import Atom, Equation, Literal, Program, Var

MOST_EQUATIONS = 3  # that compute a slice
LEAST_BYTES = 1 << 16  # of a stacked value that is worth this


class Source(NamedTuple):
    """A value of a body that can be read outside the loop."""

    outside: Atom
    differs: bool  # from step to step


class Recipe(NamedTuple):
    """How to compute a slice: equations of the body, and what they read."""

    equations: list[Equation]
    sources: dict[Atom, Source]


class Residuals:
    """What the scans of a Program stack, and how some of it is computed again."""

    def __init__(self, program: Program, is_scan: Any):
        self.recipes: dict[Atom, tuple[Var, Recipe]] = {}  # by stacked result
        self.elsewhere: set[Atom] = set(program.outputs)  # what is not read by slices alone
        for e in program.equations:
            op: Any = e.op
            self.elsewhere.update(e.ins[:op.consts + op.carry] if is_scan(e) else e.ins)

    def note(self, loop: Any) -> None:
        """Find what a scan, taken apart, need not stack."""
        made = loop.producers()
        sources = {v: Source(a, False) for v, a in loop.consts}
        sources |= {v: Source(a, True) for v, a in loop.xs}
        sources |= {v: Source(a, True) for v, a in loop.ys if v.__class__ is Var}
        kept: set[Atom] = set()
        self.elsewhere |= _read_outside(loop)
        for y, result in loop.ys:
            large = y.aval.nbytes * loop.op.length >= LEAST_BYTES
            if not large or y in kept or result in self.elsewhere or y not in made:
                continue
            recipe = _recipe(y, made, {v: s for v, s in sources.items() if v is not y})
            if recipe is not None and _moves_less(y, recipe):
                self.recipes[result] = y, recipe
                kept |= recipe.sources.keys()
                sources.pop(y, None)  # it may be stacked more than once

    def compute(self, loop: Any) -> None:
        """Let the body of a scan compute slices of what need not be stacked."""
        given = {(a, differs): v for pairs, differs in ((loop.consts, False), (loop.xs, True))
                 for v, a in pairs}
        xs, first = [], []
        outside = _read_outside(loop)
        for inside, value in loop.xs:
            found = self.recipes.get(value)
            if found is None or value in outside:
                xs.append((inside, value))
            else:
                first.append((inside, *found))
        loop.xs = xs
        equations: list[Equation] = []
        for inside, y, recipe in first:
            env: dict[Atom, Var] = {}
            for v, source in recipe.sources.items():
                if source not in given:
                    given[source] = Var(v.aval)
                    (loop.xs if source.differs else loop.consts).append(
                        (given[source], source.outside))
                env[v] = given[source]
            for e in recipe.equations:
                (out,) = e.outs
                env[out] = inside if out is y else Var(out.aval)
                equations.append(Equation(e.op, [env.get(a, a) for a in e.ins], [env[out]],
                                          e.source, e.scope))
        loop.equations = equations + loop.equations


def _read_outside(loop: Any) -> set[Atom]:
    """The operands of the equations that were moved out of a loop."""
    return {a for e in (*loop.before, *loop.after) for a in e.ins}


def _recipe(y: Var, made: dict[Atom, Equation], sources: dict[Atom, Source]) -> Recipe | None:
    """How to compute a variable of a body from sources; None if that takes too much."""
    found = Recipe([], {})

    def visit(a: Atom) -> bool:
        if a.__class__ is Literal or any(a is e.outs[0] for e in found.equations):
            return True
        if a in sources:
            found.sources[a] = sources[a]
            return True
        e = made.get(a)
        if e is None or not by_element(e) or e.op.costly or not all(map(visit, e.ins)):
            return False
        found.equations.append(e)
        return len(found.equations) <= MOST_EQUATIONS

    return found if visit(y) and found.sources else None


def _moves_less(y: Var, recipe: Recipe) -> bool:
    """Whether reading the sources of a slice moves at most as many bytes as storing and reading the
    slice."""
    return sum(v.aval.nbytes for v in recipe.sources) <= 2 * y.aval.nbytes
