"""Rearrangements that undo each other around elementwise operations are removed.

    transpose(f(transpose(x), 2)) = f(x, 2)

Derivatives have such pairs: the cotangent of a transposed array is transposed back. Operands that
were not rearranged then have to be, which costs nothing for transposes and reversals, because these
are views. A product of matrices that is read transposed is computed transposed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from toile.compiler.passes.rewriter import Replacement, Rewriter, readers_of, rewrite
from toile.compiler.scalar.fusible import by_element
from toile.engine.program import Atom, Equation, Literal, Program, Var, without_dead_code
from toile.primitives.families import BroadcastInDim

_MOST = 64  # elementwise operations between two rearrangements


def cancel_moves(program: Program) -> Program:
    """Rearrange operands instead of elementwise results where that undoes other rearrangements."""
    if not any(e.op.rearranges for e in program.equations):
        return program
    returned = set(program.outputs)
    uses = {v: len(found) for v, found in readers_of(program).items() if v not in returned}

    def rule(new: Rewriter, e: Equation) -> Replacement:
        if not e.op.rearranges:
            return None
        between = _Between(new, e, uses)
        ends = between.ends(e.ins[0])
        if ends is None or not ends.undone or ends.others > ends.undone:
            return None
        return [between.moved(e.ins[0])]

    made = rewrite(program, rule)
    return made if made is program else without_dead_code(made)


class _Ends(NamedTuple):
    """Operands at which a search ended: those whose rearrangement is undone, and others."""

    undone: int
    others: int


class _Between:
    """The elementwise operations before a rearrangement `last`."""

    def __init__(self, new: Rewriter, last: Equation, uses: dict[Atom, int]):
        self.new, self.last, self.uses = new, last, uses
        self.through: set[Atom] = set()  # results that are computed from rearranged operands
        self.found: dict[Atom, _Ends | None] = {}
        self.moves: dict[Atom, Atom] = {}

    def ends(self, a: Atom) -> _Ends | None:
        """The ends of the search that begins at an atom; None if the atom cannot be rearranged."""
        if a not in self.found:
            self.found[a] = self._ends(a)
        return self.found[a]

    def _ends(self, a: Atom) -> _Ends | None:
        made = self.new.producer(a)
        if self._is_number(a, made):
            return _Ends(0, 0)
        if made is not None and (self._undoes(made) or self._swapped(a, made) is not None):
            return _Ends(1, 0)
        enough = len(self.through) == _MOST
        if made is None or enough or not by_element(made) or self.uses.get(a) != 1:
            return _Ends(0, 1) if self.last.op.is_always_view else None
        self.through.add(a)
        found = [self.ends(x) for x in made.ins]
        if None in found:
            return None
        return _Ends(sum(x.undone for x in found if x), sum(x.others for x in found if x))

    def moved(self, a: Atom) -> Atom:
        """An atom after the rearrangement; `ends` must not have returned None for it."""
        if a not in self.moves:
            self.moves[a] = self._moved(a)
        return self.moves[a]

    def _moved(self, a: Atom) -> Atom:
        new, last = self.new, self.last
        made = new.producer(a)
        if a.__class__ is Literal or not a.aval.shape:
            return a
        if self._is_number(a, made):
            assert made is not None
            aval = a.aval.with_shape(last.outs[0].aval.shape)
            return new.add(BroadcastInDim(aval.shape, ()), made.ins, made, aval)
        if made is not None and self._undoes(made):
            return made.ins[0]
        swapped = None if made is None else self._swapped(a, made)
        if made is not None and swapped is not None:
            return new.add(swapped, made.ins, made)
        if made is None or a not in self.through:
            return new.add(last.op, [a], last)
        return new.add(made.op, [self.moved(x) for x in made.ins], made)

    def _undoes(self, made: Equation) -> bool:
        return made.op.rearranges and self.last.op.undoes(made.op, made.ins[0].aval)

    def _swapped(self, a: Atom, made: Equation) -> Any:
        """The product that gives the transpose of a product that nothing else reads, or None."""
        op: Any = self.last.op
        if not op.moves_axes or not op.is_always_view or self.uses.get(a) != 1:
            return None
        return made.op.with_swapped_sides(op.perm)

    def _is_number(self, a: Atom, made: Equation | None) -> bool:
        """Whether an atom is a number or an array of equal numbers."""
        if a.__class__ is not Var or not a.aval.shape:
            return True
        if made is None or not made.op.makes_axes or not made.ins:
            return False
        return not made.ins[0].aval.shape
