"""Constant folding: scalars that depend on literals only are computed at compile time, and so are
arrays whose elements are all equal.

Arrays without elements are constants as well: whatever computes them is dropped."""

from __future__ import annotations

from typing import Any

import numpy as np

from toile.compiler.passes.rewriter import Replacement, Rewriter, rewrite
from toile.compiler.scalar.fusible import by_element
from toile.engine import dtypes
from toile.engine.fp_errors import ignore_errors, restore_errors
from toile.engine.program import Atom, Equation, Literal, Program
from toile.primitives.families import BroadcastInDim


def fold_constants(program: Program) -> Program:
    """Replace results that are known at compile time, and arrays without elements, by literals."""
    return rewrite(program, _rule)


def _rule(new: Rewriter, e: Equation) -> Replacement:
    if _is_empty(e):
        return [_full(new, e, o.aval, 0) for o in e.outs]
    if e.op.turns == 0 and not e.effects:
        return _unchanged(new, e)
    if e.op.is_reduction and not e.ins[0].aval.size:
        return [_full(new, e, e.outs[0].aval, _of_nothing(e))]
    return _number(new, e)


def _number(new: Rewriter, e: Equation) -> Replacement:
    """What replaces a number, or an array of equal numbers, that is computed from literals."""
    if not e.ins or e.effects or e.op.multiple or e.op.axis_names:
        return None  # over named axes each device has its own result
    aval = e.outs[0].aval
    equal = bool(aval.shape)
    if dtypes.is_extended(aval.dtype) or equal and not by_element(e):
        return None
    known = [_known(new, a, equal) for a in e.ins]
    if any(x is None for x in known):
        return None
    token = ignore_errors()
    try:
        value = np.asarray(e.op.eager(np, *known))
    finally:
        restore_errors(token)
    if value.dtype != aval.dtype:
        return None
    return [_full(new, e, aval, value) if equal else Literal(value, aval)]


def _known(new: Rewriter, a: Atom, equal: bool) -> Any:
    """The value of a literal or, if `equal`, of all elements of an array; None if unknown."""
    if not isinstance(a, Literal):
        return new.fill_of(a) if equal else None
    return None if equal and a.aval.shape else a.val


def _is_empty(e: Equation) -> bool:
    """Whether an equation computes arrays without elements, and does nothing else."""
    return not e.effects and not e.op.axis_names and bool(e.outs) and not e.op.is_view and all(
        not o.aval.size and not dtypes.is_extended(o.aval.dtype) for o in e.outs)


def _full(new: Rewriter, e: Equation, aval: Any, value: Any) -> Atom:
    """A number, broadcast to a shape."""
    number = Literal(np.asarray(value, aval.dtype), aval.with_shape(()))
    return new.add(BroadcastInDim(aval.shape, ()), [number], e, aval)


def _unchanged(new: Rewriter, e: Equation) -> list[Atom]:
    """The results of a loop that never runs: what it carries, and arrays without elements."""
    op: Any = e.op
    carry = e.ins[op.consts : op.consts + op.carry]
    return [*carry, *(_full(new, e, o.aval, 0) for o in e.outs[op.carry:])]


def _of_nothing(e: Equation) -> Any:
    """The number that a reduction gives if there are no elements."""
    op: Any = e.op
    shape = [n if d in op.axes else 1 for d, n in enumerate(e.ins[0].aval.shape)]
    return np.asarray(op.eager(np, np.zeros(shape, e.ins[0].aval.dtype))).reshape(())
