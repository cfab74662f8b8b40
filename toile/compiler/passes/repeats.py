"""Sums over axes along which values repeat: n x instead of a sum of n equal numbers.

    sum(f(broadcast(x), 2), new axes) = n f(x, 2)

Gradients of `tile` and `repeat` are such sums if what follows them is elementwise.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from toile.compiler.passes.rewriter import Replacement, Rewriter, readers_of, rewrite
from toile.compiler.scalar.fusible import by_element
from toile.engine import dtypes
from toile.engine.program import Atom, Equation, Literal, Program, Var
from toile.primitives.families import BroadcastInDim, mul

_MOST = 64  # elementwise operations before a sum


def multiply_repeats(program: Program) -> Program:
    """Replace sums over axes along which their operands repeat."""
    if not any(e.op.sums_axes for e in program.equations):
        return program
    uses = {v: len(found) for v, found in readers_of(program).items()}

    def rule(new: Rewriter, e: Equation) -> Replacement:
        if not e.op.sums_axes:
            return None
        found = _Repeats(new, uses)
        op: Any = e.op
        axes = found.axes(e.ins[0]) & {*op.axes}
        count = prod(e.ins[0].aval.shape[d] for d in axes)
        if count == 1 or not found.arrays or not _is_number(count, e.outs[0].aval.dtype):
            return None
        return [found.product(e, axes, count)]

    return rewrite(program, rule)


def _is_number(count: int, dtype: Any) -> bool:
    """Whether a dtype has this number; integers wrap around. A complex product with it may be NaN
    where the sum is infinite."""
    kind = dtypes.kind(dtype)
    return kind in "iu" or kind == "f" and float(np.asarray(count).astype(dtype)) == count


class _Repeats:
    """The elementwise operations before a sum."""

    def __init__(self, new: Rewriter, uses: dict[Atom, int]):
        self.new, self.uses = new, uses
        self.found: dict[Atom, frozenset[int]] = {}
        self.arrays = False  # whether an array is broadcast: sums of numbers cost nothing
        self.made: dict[Atom, Atom] = {}

    def axes(self, a: Atom) -> frozenset[int]:
        """The axes along which the elements of an atom repeat."""
        if a not in self.found:
            self.found[a] = self._axes(a)
        return self.found[a]

    def _axes(self, a: Atom) -> frozenset[int]:
        made, every = self.new.producer(a), frozenset(range(a.aval.ndim))
        if made is None or len(self.found) > _MOST:
            return frozenset()
        op: Any = made.op
        if op.makes_axes and made.ins:
            self.arrays |= bool(op.dims)
            return every.difference(op.dims)
        if not by_element(made) or self.uses.get(a) != 1:
            return frozenset()
        for x in made.ins:
            if x.aval.shape:
                every &= self.axes(x)
        return every

    def without(self, a: Atom, axes: frozenset[int]) -> Atom:
        """An atom without axes along which it repeats."""
        if not a.aval.shape:
            return a
        if a not in self.made:
            self.made[a] = self._without(a, axes)
        return self.made[a]

    def _without(self, a: Atom, axes: frozenset[int]) -> Atom:
        made = self.new.producer(a)
        assert made is not None
        op: Any = made.op
        if not made.op.makes_axes:
            return self.new.add(op, [self.without(x, axes) for x in made.ins], made)
        kept = [d for d in range(a.aval.ndim) if d not in axes]
        shape = tuple(a.aval.shape[d] for d in kept)
        return self.new.add(BroadcastInDim(shape, tuple(map(kept.index, op.dims))), made.ins, made)

    def product(self, e: Equation, axes: frozenset[int], count: int) -> Var:
        """The sum over the axes that do not repeat, times the number of repetitions."""
        op: Any = e.op
        total = self.without(e.ins[0], axes)
        rest = [d for d in range(e.ins[0].aval.ndim) if d not in axes]
        summed = tuple(rest.index(d) for d in op.axes if d not in axes)
        if summed:
            total = self.new.add(op.__class__(summed), [total], e)
        aval = e.outs[0].aval
        number = Literal(np.asarray(count).astype(aval.dtype), aval.with_shape(()))
        return self.new.add(mul, [total, number], e, aval)
