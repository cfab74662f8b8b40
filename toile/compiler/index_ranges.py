"""Ranges of integers in a Program, found from the equations that compute them.

Indices that are in bounds whatever the inputs are, such as positions, results of argmax and clipped
numbers, need no test. Operations have `value_range` rules. This module may import primitives and
the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toile.engine import dtypes
from toile.engine.program import Atom, Equation, Literal
from toile.primitives.integer_ranges import Range

_ANY = -(1 << 64), 1 << 64
_DEPTH = 12  # equations that are followed


class Ranges:
    """The ranges of a Program's variables; `made` maps variables to their equations."""

    def __init__(self, made: Mapping[Any, Equation]):
        self.made = made
        self.depth = 0

    def producer(self, a: Atom) -> Equation | None:
        """The equation that computes a variable; None for inputs and literals."""
        return self.made.get(a)

    def of(self, a: Atom) -> Range:
        """The lowest and the highest value that an array of integers can have."""
        if isinstance(a, Literal):
            return (int(a.val), int(a.val)) if dtypes.kind(a.aval.dtype) in "iub" else _ANY
        if dtypes.kind(a.aval.dtype) not in "iu":
            return (0, 1) if dtypes.kind(a.aval.dtype) == "b" else _ANY
        limits = dtypes.iinfo(a.aval.dtype)
        every = int(limits.min), int(limits.max)
        e = self.producer(a)
        if e is None or self.depth == _DEPTH:
            return every
        self.depth += 1
        found = self._computed(e, a)
        self.depth -= 1
        if found is None or found[0] < every[0] or found[1] > every[1]:
            return every  # not known, or the arithmetic may overflow
        return found

    def _computed(self, e: Equation, a: Any) -> Range | None:
        op: Any = e.op
        if op.value_range is not None:
            return op.value_range(self, e, a)
        if op.counted_axis is not None:
            return 0, max(a.aval.shape[op.counted_axis] - 1, 0)
        if op.is_sum:
            (low, high), (least, most) = map(self.of, e.ins)
            return low + least, high + most
        if op.combines == "places":
            return 0, max(e.ins[0].aval.shape[op.axis] - 1, 0)
        moved = op.forwards_operand or op.moves_axes or op.views_part or op.only_rounds
        return self.of(e.ins[0]) if moved else None
