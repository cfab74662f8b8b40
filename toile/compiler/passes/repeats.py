"""Values that repeat along axes are computed once, and sums over these axes become products.

    f(broadcast(x), 2) = broadcast(f(x, 2))             if x, like f(x, 2), is computed by element
    sum(f(broadcast(x), 2), new axes) = n f(x, 2)

Gradients of sums are broadcast, and then for example converted to the dtype of the operand.
Gradients of `tile` and `repeat` are sums over repeated values if what follows them is elementwise.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from toile.compiler.passes.rewriter import Replacement, Rewriter, readers_of, rewrite
from toile.compiler.scalar.fusible import by_element
from toile.engine import dtypes
from toile.engine.program import Atom, Equation, Literal, Program, Var, without_dead_code
from toile.primitives.families import BroadcastInDim, mul

_MOST = 64  # elementwise operations before a sum


def compute_once(program: Program) -> Program:
    """Compute values that repeat before they are broadcast, and replace sums of them."""
    if not any(e.op.makes_axes for e in program.equations):
        return program
    uses = {v: len(found) for v, found in readers_of(program).items()}

    def rule(new: Rewriter, e: Equation) -> Replacement:
        found = _Repeats(new, uses)
        if e.op.sums_axes:
            op: Any = e.op
            axes = found.axes(e.ins[0]) & {*op.axes}
            count = prod(e.ins[0].aval.shape[d] for d in axes)
            if count > 1 and found.arrays and _is_number(count, e.outs[0].aval.dtype):
                return [found.product(e, axes, count)]
        elif all(_is_broadcast(new, x) for x in e.ins if x.aval.shape) and by_element(e):
            axes = found.shared_axes(e)
            if axes and found.computed:  # otherwise it would need a kernel of its own
                return [found.broadcast(e, axes)]
        return None

    made = rewrite(program, rule)
    return made if made is program else without_dead_code(made)


def _is_broadcast(new: Rewriter, a: Atom) -> bool:
    made = new.producer(a)
    return made is not None and made.op.makes_axes and bool(made.ins)


def _is_number(count: int, dtype: Any) -> bool:
    """Whether a sum of equal numbers may become a product with their count. The dtype must
    represent the count, unless its integers wrap around. Complex products may be NaN where sums are
    infinite."""
    kind = dtypes.kind(dtype)
    return kind in "iu" or kind == "f" and float(np.asarray(count).astype(dtype)) == count


class _Repeats:
    """The elementwise operations before a sum."""

    def __init__(self, new: Rewriter, uses: dict[Atom, int]):
        self.new, self.uses = new, uses
        self.found: dict[Atom, frozenset[int]] = {}
        self.arrays = False  # whether an array is broadcast: sums of numbers cost nothing
        self.computed = False  # whether such an array is computed element by element
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
        if _is_broadcast(self.new, a):
            self.arrays |= bool(op.dims)
            source = self.new.producer(made.ins[0])
            self.computed |= source is not None and bool(op.dims) and by_element(source)
            return every.difference(op.dims)
        if not by_element(made) or self.uses.get(a) != 1:
            return frozenset()
        return self.shared_axes(made)

    def shared_axes(self, e: Equation) -> frozenset[int]:
        """The axes along which all operands of an elementwise equation repeat."""
        every = frozenset(range(e.outs[0].aval.ndim))
        return every.intersection(*[self.axes(x) for x in e.ins if x.aval.shape])

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

    def broadcast(self, e: Equation, axes: frozenset[int]) -> Var:
        """The result of an elementwise equation, computed once for the axes that repeat."""
        aval = e.outs[0].aval
        once = self.new.add(e.op, [self.without(x, axes) for x in e.ins], e)
        kept = tuple(d for d in range(aval.ndim) if d not in axes)
        return self.new.add(BroadcastInDim(aval.shape, kept), [once], e, aval)

    def product(self, e: Equation, axes: frozenset[int], count: int) -> Var:
        """The sum over the axes along which nothing repeats, times the number of repetitions."""
        op: Any = e.op
        total = self.without(e.ins[0], axes)
        rest = [d for d in range(e.ins[0].aval.ndim) if d not in axes]
        summed = tuple(rest.index(d) for d in op.axes if d not in axes)
        if summed:
            total = self.new.add(op.__class__(summed), [total], e)
        aval = e.outs[0].aval
        number = Literal(np.asarray(count).astype(aval.dtype), aval.with_shape(()))
        return self.new.add(mul, [total, number], e, aval)
