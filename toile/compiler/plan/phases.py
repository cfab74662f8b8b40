"""Which pass each equation of a Program belongs to: forward, backward or update.

The backward pass marks the locations of its equations (`engine.source`). The update is what follows
it and what it does not need, such as the step of an optimizer. This module may import the engine.
"""

from __future__ import annotations

from typing import Any

from toile.engine.program import Equation, Program

FORWARD, BACKWARD, UPDATE = "forward", "backward", "update"
PHASES = (FORWARD, BACKWARD, UPDATE)


class Phases:
    """The pass of each equation; `around` is the pass of the loop whose body the Program is."""

    def __init__(self, program: Program, around: str = FORWARD):
        self.around = around
        self.found: dict[int, str] = {}
        follows: set[Any] = set()  # variables that depend on the backward pass
        for e in program.equations:
            if is_backward(e) or any(a in follows for a in e.ins):
                follows.update(e.outs)
        needed: set[Any] = set()  # variables that the backward pass depends on
        for e in reversed(program.equations):
            before = any(o in needed for o in e.outs)
            if is_backward(e) or before:
                needed.update(e.ins)
            self.found[id(e)] = self._phase(e, any(o in follows for o in e.outs), before)

    def _phase(self, e: Equation, after: bool, before: bool) -> str:
        if is_backward(e):
            return BACKWARD
        if after and not before:
            return UPDATE
        if after and e.source is None:  # added by a compiler pass
            return BACKWARD
        return self.around

    def of(self, e: Equation) -> str:
        """The pass of an equation that is in the Program or in the body of one of its loops."""
        return self.found.get(id(e)) or (BACKWARD if is_backward(e) else self.around)


def is_backward(e: Equation) -> bool:
    """Whether a backward pass created an equation."""
    return e.source is not None and e.source.backward
