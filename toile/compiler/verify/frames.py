"""What the variables of a body mean while the plan verifier executes it.

A `Frame` is one execution of a plan; `meanings` are the values in memory that count as an atom:
what was computed for it, what was passed to the body for it, or what it is a view of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from toile.compiler.ir.operands import Scratch
from toile.compiler.ir.steps import LoopStep
from toile.compiler.verify.commands import Work
from toile.compiler.verify.contents import Content
from toile.engine.program import Atom, Equation, Literal

Meaning = tuple[Content, int | None]  # a value, and an offset in it; None: any, as of a view


class Frame:
    """One execution of a plan: of the whole Program, or of a body in one iteration."""

    def __init__(self, plan: Any, where: str, given: Mapping[Any, list[Meaning]]):
        self.plan, self.where, self.given = plan, where, given
        self.values: dict[Any, Content] = {}  # of variables that have been computed
        self.parts: dict[Any, int] = {}  # of those that are parts of a value: where they begin
        self.rooms: dict[Scratch, Content] = {}
        self.copied: dict[int, Content] = {}  # results that have been copied, by number
        self.made = {o: e for e in plan.program.equations for o in e.outs}
        self.owners: dict[Any, Owner] = {}
        # Loops that have not ended: until then, their copies of initial values are in `begun`.
        self.loops = {group for group, lowered in plan.staged.items()
                      if any(isinstance(x, LoopStep) for x in lowered)}
        self.begun: dict[Any, Content] = {}
        self.finals: list[tuple[Any, list[Meaning]]] = []  # results, and what they are copies of

    def is_read(self, a: Atom) -> bool:
        """Whether the program returns an atom or has an equation that reads it."""
        program = self.plan.program
        return any(x is a for e in program.equations for x in e.ins) or any(
            o is a for o in program.outputs)

    def meanings(self, a: Atom) -> list[Meaning]:
        """The values in memory that count as an atom, or as what it is a view of."""
        if a.__class__ is Literal:
            return [(Content.constant(np.asarray(a.val)), None)]
        found = list(self.given.get(a, ()))
        if a in self.values:
            found.append((self.values[a], self.parts.get(a, 0)))
        viewed = self._viewed(a)
        if viewed is not None:
            found += [(c, None) for c, _ in self.meanings(viewed)]
        return found

    def _viewed(self, a: Atom) -> Atom | None:
        """The operand that an atom is a view of."""
        e = self.made.get(a)
        if e is None:
            return None
        if e.op.is_barrier:
            return e.ins[e.outs.index(a)]
        return e.ins[0] if e.op.is_view or e.op.forwards_operand or _is_sum_of_one(e) else None

    def base(self, a: Atom) -> Atom:
        """What an atom is a view of, after all views are resolved."""
        while (viewed := self._viewed(a)) is not None:
            a = viewed
        return a

    def name(self, v: Any) -> str:
        """A description of a variable."""
        e = self.made.get(v)
        made = f" of {e.op.name}" if e is not None else ""
        return f"{v.aval.short()}{made} in {self.where}"


class Owner:
    """What is known about the equations that some works compute in a frame."""

    def __init__(self, frame: Frame, equations: Sequence[Equation]):
        self.equations = equations
        self.atoms = needed(equations) if equations else list(frame.plan.program.outputs)
        self.more: list[Meaning] = []  # allowed besides the operands: the final values of a loop
        self.works: list[Work] = []
        self.read: set[Content] = set()
        self.replaced: set[Content] = set()  # what was stored where an update's result goes


def needed(equations: Sequence[Equation]) -> list[Atom]:
    """What the equations read that none of them computes."""
    made = {o for e in equations for o in e.outs}
    return [a for e in equations for a in e.ins
            if a.aval.nbytes and (a.__class__ is Literal or a not in made)]


def _is_sum_of_one(e: Equation) -> bool:
    return e.op.is_reduction and e.ins[0].aval.size == e.outs[0].aval.size


def matches(content: Content, offset: int, meant: Iterable[Meaning], copies: bool) -> bool:
    """Whether a content, from an offset on, is one of the values that are meant."""
    meant = list(meant)
    if any((content is c or content.same_constant(c)) and o in (None, offset) for c, o in meant):
        return True
    if not content.sources or not (copies or content.scratch):
        return False
    return all(any(s is c or s.same_constant(c) for c, _ in meant) for s in content.sources)
