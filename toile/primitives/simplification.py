"""Algebraic identities as rules of operations, those of `simplified` exact for NaN, infinities and
-0.0 too.

A rule is the `simplified` method of an operation: given the equations so far and an equation, it
returns the atoms that replace the results, or None if the identity does not hold. This module may
import the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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


def _number(new: Any, a: Atom) -> Any:
    """The number that all elements of an atom are equal to; None if there is none."""
    return a.val if a.__class__ is Literal else new.fill_of(a)


def _filled(new: Any, e: Equation) -> list[Atom] | None:
    """move(broadcast(number)) = broadcast(number), however the elements are moved."""
    inner = new.producer(e.ins[0])
    if inner is None or not inner.op.makes_axes or not inner.ins or inner.ins[0].aval.shape:
        return None
    aval = e.outs[0].aval
    return [new.add(inner.op.__class__(aval.shape, ()), inner.ins, e, aval)]


def operand(op: Operation, new: Any, e: Equation) -> list[Atom] | None:
    """stop_gradient(x) = x, name(x) = x: they matter to transformations only."""
    return [e.ins[0]]


def converted_once(op: Operation, new: Any, e: Equation) -> list[Atom] | None:
    """convert(x, dtype(x)) = x, and so is a conversion to a wider dtype and back."""
    if _same_type(e.ins[0], e):
        return [e.ins[0]]
    inner = _twice(op, new, e)
    if inner is None or not _same_type(inner.ins[0], e):
        return None
    few, many = e.outs[0].aval.dtype, e.ins[0].aval.dtype
    floats = dtypes.kind(few) == dtypes.kind(many) == "f"  # float32 has all numbers of narrow ones
    return [inner.ins[0]] if floats and few.itemsize < many.itemsize >= 4 else None


def undone(op: Operation, new: Any, e: Equation) -> list[Atom] | None:
    """-(-x) = x."""
    inner = _twice(op, new, e)
    return None if inner is None else [inner.ins[0]]


def broadcast_once(op: Any, new: Any, e: Equation) -> list[Atom] | None:
    """broadcast(x, shape(x)) = x, broadcast(broadcast(x, p), q) = broadcast(x, q[p])."""
    if _same_type(e.ins[0], e):
        return [e.ins[0]]
    inner: Any = _twice(op, new, e)
    if inner is None:
        return None
    joined = op.__class__(op.shape, tuple(op.dims[d] for d in inner.op.dims))
    return [new.add(joined, inner.ins, e, e.outs[0].aval)]


def reshaped_once(op: Operation, new: Any, e: Equation) -> list[Atom] | None:
    """reshape(x, shape(x)) = x, reshape(reshape(x, s), t) = reshape(x, t)."""
    if _same_type(e.ins[0], e):
        return [e.ins[0]]
    inner = _twice(op, new, e)
    if inner is None:
        return _filled(new, e)
    x = inner.ins[0]
    return [x if _same_type(x, e) else new.add(op, [x], e, e.outs[0].aval)]


def transposed_once(op: Any, new: Any, e: Equation) -> list[Atom] | None:
    """transpose(x, (0, 1, …)) = x, transpose(transpose(x, p), q) = transpose(x, p[q])."""
    same = tuple(range(len(op.perm)))
    if op.perm == same:
        return [e.ins[0]]
    inner: Any = _twice(op, new, e)
    if inner is None:
        return _filled(new, e)
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


def exact_reciprocal(new: Any, a: Atom) -> Literal | None:
    """The reciprocal of a number 2**n: x / 2**n = x * 2**-n.

    Only for small numbers. Large ones are often batch sizes, and a kernel that contains a batch
    size could not be used for another one."""
    value = _number(new, a)
    if value is None or dtypes.kind(a.aval.dtype) != "f" or abs(float(value)) not in (
            0.125, 0.25, 0.5, 2, 4, 8):
        return None
    return Literal(np.asarray(1 / float(value)).astype(a.aval.dtype), a.aval.with_shape(()))


def all_equal(first: int) -> Rule:
    """select(p, x, x) = x, max(x, x) = x, min(x, x) = x; operands from the `first` on."""

    def simplified(op: Any, new: Any, e: Equation) -> list[Atom] | None:
        x, *rest = e.ins[first:]
        return [x] if x.__class__ is Var and all(y is x for y in rest) else None

    return simplified


def first_case(op: Any, new: Any, e: Equation) -> list[Atom] | None:
    """select(p, x, x) = x, select(false, x, y) = x, select(i < 0, x, y) = x if i counts up from 0,
    as row numbers do."""
    same = all_equal(1)(op, new, e)
    known = _number(new, e.ins[0])
    if known is not None and int(known) in range(len(e.ins) - 1):
        return [e.ins[1 + int(known)]]
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
    """slice(x) of all of x = x, slice(pad(x)) = slice(x) where no padding is taken,
    slice(concatenate(x, y)) = slice(x) where nothing of y is taken, slice(broadcast(x)) =
    broadcast(x) where all of x is taken."""
    x = e.ins[0]
    if _same_type(x, e):
        return [x]
    made = new.producer(x)
    found = _filled(new, e) or _repeated_less(op, new, made, e)
    if found is not None or made is None:
        return found
    for inside, lows in _placed(made):
        starts = [a - low for a, low in zip(op.starts, lows, strict=True)]
        limits = [b - low for b, low in zip(op.limits, lows, strict=True)]
        shape = inside.aval.shape
        if min(starts) >= 0 and all(b <= n for b, n in zip(limits, shape, strict=True)):
            break
    else:
        return None
    if _same_type(inside, e):
        return [inside]
    return [new.add(op.__class__(tuple(starts), tuple(limits), op.strides), [inside], e,
                    e.outs[0].aval)]


def between_numbers(new: Any, e: Equation) -> tuple[int, Atom] | None:
    """Which operand of a concatenation is an array, and the number that fills all others.

    None unless one operand is an array that is in memory: an input or a part of another array."""
    fills = [new.fill_of(a) for a in e.ins]
    (at, *others) = [i for i, fill in enumerate(fills) if fill is None or fill.shape] or [0, 0]
    if others or len(fills) < 2:
        return None
    made = new.producer(e.ins[at])
    numbers = {fill.tobytes() for i, fill in enumerate(fills) if i != at}
    if len(numbers) > 1 or made is not None and not made.op.is_view:
        return None
    return at, new.producer(e.ins[at - 1]).ins[0]


def _repeated_less(op: Any, new: Any, made: Equation | None, e: Equation) -> list[Atom] | None:
    """The part of a broadcast array, if it has all elements of the array that was broadcast."""
    if made is None or not made.op.makes_axes or not made.ins:
        return None
    broadcast: Any = made.op
    x, whole, part = made.ins[0], made.outs[0].aval.shape, e.outs[0].aval.shape
    taken = zip(broadcast.dims, x.aval.shape, strict=True)
    if any(n > 1 and (whole[d] != part[d] or op.strides[d] != 1) for d, n in taken):
        return None
    if _same_type(x, e):
        return [x]
    return [new.add(broadcast.__class__(part, broadcast.dims), [x], e, e.outs[0].aval)]


def _placed(made: Equation) -> Iterator[tuple[Atom, list[int]]]:
    """The arrays that a padding or concatenation places in its result, and where each begins."""
    margins, axis = made.op.margins, made.op.joined_axis
    if margins is not None and all(
            low >= 0 and high >= 0 and not inner for low, high, inner in margins):
        yield made.ins[0], [low for low, _, _ in margins]
    if axis is not None:
        lows = [0] * made.ins[0].aval.ndim
        for x in made.ins:
            yield x, lows
            lows[axis] += x.aval.shape[axis]


# ---- which operand a result equals where some are zero and the others finite (`at_zeros`)


def other_operand(op: Operation, zeros: Sequence[bool]) -> int | None:
    """0 + y = y, x + 0 = x."""
    return zeros.index(True) ^ 1 if any(zeros) else None


def first_operand(op: Operation, zeros: Sequence[bool]) -> int | None:
    """x - 0 = x."""
    return 0 if zeros[1] else None


def zero_operand(op: Operation, zeros: Sequence[bool]) -> int | None:
    """0 y = 0, x 0 = 0, -0 = 0."""
    return zeros.index(True) if any(zeros) else None


def zero_dividend(op: Operation, zeros: Sequence[bool]) -> int | None:
    """0 / y = 0."""
    return 0 if zeros[0] else None


def zero_cases(op: Operation, zeros: Sequence[bool]) -> int | None:
    """select(p, 0, 0) = 0."""
    return 1 if all(zeros[1:]) else None
