"""Algebraic identities as rules of operations, exact for NaN, infinities and -0.0 too.

A rule is the `simplified` method of an operation: given the equations so far and an equation, it
returns the atoms that replace the results, or None if the identity does not hold. May import the
engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.operation import Operation
from toile.engine.program import Atom, Equation, Literal, Var

# Arguments: the operation, the preceding equations (a Rewriter) and the equation.
Rule = Callable[[Any, Any, Equation], list[Atom] | None]


def _same_type(a: Atom, e: Equation) -> bool:
    """Whether an atom has the shape and dtype of the result."""
    out = e.outs[0].aval
    return a.aval.shape == out.shape and a.aval.dtype == out.dtype


def _is(a: Atom, value: float) -> bool:
    """Whether an atom is this number; 0.0 and -0.0 differ."""
    if a.__class__ is not Literal or dtypes.kind(a.aval.dtype) not in "biuf":
        return False  # a complex product with 1 + 0j is not exact: inf * 0 is NaN
    x = float(a.val)
    return x == value and np.signbit(x) == np.signbit(value)


def _twice(op: Operation, new: Any, e: Equation) -> Equation | None:
    """The equation of the operand, if its operation is of the same kind."""
    inner = new.producer(e.ins[0])
    return inner if inner is not None and inner.op.__class__ is op.__class__ else None


def operand(op: Operation, new: Any, e: Equation) -> list[Atom] | None:
    """stop_gradient(x) = x, name(x) = x: they matter to transformations only."""
    return [e.ins[0]]


def unchanged(op: Operation, new: Any, e: Equation) -> list[Atom] | None:
    """convert(x, dtype(x)) = x, broadcast_in_dim(x, shape(x), (0, 1, …)) = x."""
    return [e.ins[0]] if _same_type(e.ins[0], e) else None


def undone(op: Operation, new: Any, e: Equation) -> list[Atom] | None:
    """-(-x) = x."""
    inner = _twice(op, new, e)
    return None if inner is None else [inner.ins[0]]


def reshaped_once(op: Operation, new: Any, e: Equation) -> list[Atom] | None:
    """reshape(x, shape(x)) = x, reshape(reshape(x, s), t) = reshape(x, t)."""
    if _same_type(e.ins[0], e):
        return [e.ins[0]]
    inner = _twice(op, new, e)
    if inner is None:
        return None
    x = inner.ins[0]
    return [x if _same_type(x, e) else new.add(op, [x], e, e.outs[0].aval)]


def transposed_once(op: Any, new: Any, e: Equation) -> list[Atom] | None:
    """transpose(x, (0, 1, …)) = x, transpose(transpose(x, p), q) = transpose(x, p[q])."""
    same = tuple(range(len(op.perm)))
    if op.perm == same:
        return [e.ins[0]]
    inner: Any = _twice(op, new, e)
    if inner is None:
        return None
    joined = tuple(inner.op.perm[i] for i in op.perm)
    if joined == same:
        return [inner.ins[0]]
    return [new.add(op.__class__(joined), inner.ins, e, e.outs[0].aval)]


def without_neutral(value: float, commutes: bool = False) -> Rule:
    """x * 1 = x, 1 * x = x, x / 1 = x, x + -0.0 = x, -0.0 + x = x, x - 0 = x.

    (x + 0.0 would turn -0.0 into 0.0; integers have one zero.)"""

    def simplified(op: Any, new: Any, e: Equation) -> list[Atom] | None:
        x, y = e.ins
        integral = dtypes.kind(e.outs[0].aval.dtype) in "biu"
        neutral = abs(value) if integral else value
        if _is(y, neutral) and _same_type(x, e):
            return [x]
        return [y] if commutes and _is(x, neutral) and _same_type(y, e) else None

    return simplified


def all_equal(first: int) -> Rule:
    """select(p, x, x) = x, max(x, x) = x, min(x, x) = x; operands from the `first` on."""

    def simplified(op: Any, new: Any, e: Equation) -> list[Atom] | None:
        x, *rest = e.ins[first:]
        return [x] if x.__class__ is Var and all(y is x for y in rest) else None

    return simplified


def first_case(op: Any, new: Any, e: Equation) -> list[Atom] | None:
    """select(p, x, x) = x, select(i < 0, x, y) = x if i counts from 0, as row numbers do."""
    same = all_equal(1)(op, new, e)
    which = new.producer(e.ins[0])
    if same is not None or which is None or which.op.name != "lt":
        return same
    count, limit = new.producer(which.ins[0]), new.fill_of(which.ins[1])
    if count is None or count.op.counted_axis is None or limit is None or (limit > 0).any():
        return None
    aval = count.outs[0].aval
    if dtypes.kind(aval.dtype) != "i" or (
            aval.shape[count.op.counted_axis] - 1 > np.iinfo(aval.dtype).max):
        return None
    return [e.ins[1]] if _same_type(e.ins[1], e) else None


def sliced_inside(op: Any, new: Any, e: Equation) -> list[Atom] | None:
    """slice(x) of all of x = x, slice(pad(x)) = slice(x) where no padding is taken."""
    x = e.ins[0]
    if _same_type(x, e):
        return [x]
    made = new.producer(x)
    margins = None if made is None else made.op.margins
    if margins is None or any(low < 0 or high < 0 or inner for low, high, inner in margins):
        return None
    inside = made.ins[0]
    starts, limits = [], []
    for a, b, n, (low, _, _) in zip(op.starts, op.limits, inside.aval.shape, margins, strict=True):
        if a < low or b > low + n:
            return None
        starts.append(a - low)
        limits.append(b - low)
    if _same_type(inside, e):
        return [inside]
    return [new.add(op.__class__(tuple(starts), tuple(limits), op.strides), [inside], e,
                    e.outs[0].aval)]
