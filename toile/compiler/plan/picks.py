"""Elements at computed places: padding, rotations and gathers, inside loop nests.

A nest that reads a padded array reads the array itself, at a place that it computes, and takes the
padding value where that is outside:

    pad(x, low, interior)[i] = x[(i - low) / (interior + 1)]     where that is an element of x
    rotate(x, shift)[i]      = x[i - shift]                      or x[i - shift + len(x)]
    extend(x, before)[i]     = x[clamp(i - before)]              or a mirrored, or wrapped, place
    x[indices][i, j]         = x[clamp(indices[i]), j]

The padded or gathered array is then never stored. Places are computed by ordinary nodes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from toile.compiler.ir.groups import Member
from toile.compiler.ir.loop_nests import Index, Number
from toile.primitives.addresses import fill_number
from toile.primitives.arrays.gather_arrays import default_fill
from toile.primitives.bits import And, Eq, Ge, Lt, ShiftRightArithmetic
from toile.primitives.elementwise import ConvertElementType, Div, Max, Min, SelectN
from toile.primitives.families import Add, Mul, Sub

BOOL, INT32, INT64 = (np.dtype(x) for x in (np.bool_, np.int32, np.int64))


class _Places:
    """Nodes of places in the first operand of a member, and of whether they are inside it."""

    def __init__(self, b: Any, member: Member, dtype: np.dtype):
        self.b, self.member, self.dtype = b, member, dtype
        self.places: list[tuple[int, int]] = []  # axes, and positions along them
        self.inside: int | None = None  # None if all always are

    def number(self, value: int) -> int:
        return self.b.number(value, self.dtype)

    def apply(self, op: Any, *args: int) -> int:
        return self.b.apply(op, self.dtype, *args)

    def check(self, op: Any, *args: int) -> None:
        """Demand that a comparison holds."""
        found = self.b.apply(op, BOOL, *args)
        if self.inside is not None:
            found = self.b.apply(And(), BOOL, self.inside, found)
        self.inside = found

    def at(self, axis: int, place: int, extent: int, below: bool, above: bool) -> None:
        """A position along an axis, which may be below or above all elements."""
        if below:
            place = self.apply(Max(), place, self.number(0))
        if above:
            place = self.apply(Min(), place, self.number(extent - 1))
        self.places.append((axis, place))

    def value(self, fill: int | None) -> int:
        """The node of the element, or of `fill` for places outside."""
        dtype = np.dtype(self.member.equation.outs[0].aval.dtype)
        found = self.b.picked(self.member, self.places, self.dtype)
        if self.inside is None or fill is None:
            return found
        return self.b.apply(SelectN(), dtype, self.inside, fill, found)


def _index_dtype(size: int, wide: bool = False) -> np.dtype:
    return INT64 if wide or size >= 1 << 31 else INT32


def padded(b: Any, member: Member) -> int:
    """The node of an element of a padded array."""
    e = member.equation
    x, out = e.ins[0].aval, e.outs[0].aval
    found = _Places(b, member, _index_dtype(max(x.size, out.size)))
    for axis, (low, high, between) in enumerate(e.op.margins or ()):
        if low or high or between:
            _along(found, axis, x.shape[axis], low, high, between)
    return found.value(b.operand(e.ins[1], ()))


def _along(found: _Places, axis: int, extent: int, low: int, high: int, between: int) -> None:
    """Add the place along a padded axis."""
    axes = found.member.out[axis]
    place = found.b.node(Index(axes, found.dtype)) if axes else found.number(0)
    if low:
        place = found.apply(Sub(), place, found.number(low))
    if low > 0:
        found.check(Ge(), place, found.number(0))
        place = found.apply(Max(), place, found.number(0))
    if between:
        step, whole = between + 1, place
        if step & (step - 1):
            place = found.apply(Div(), whole, found.number(step))
        else:
            bits = found.b.node(Number(step.bit_length() - 1, found.dtype))
            place = found.apply(ShiftRightArithmetic(), whole, bits)
        found.check(Eq(), found.apply(Mul(), place, found.number(step)), whole)
    if high > 0:
        found.check(Lt(), place, found.number(extent))
    found.at(axis, place, extent, False, high > 0)


def rotated(b: Any, member: Member) -> int:
    """The node of an element of an array whose last `shift` elements along an axis come first."""
    e = member.equation
    op: Any = e.op
    x, axis, shift = e.ins[0].aval, op.axis, op.shift
    found = _Places(b, member, _index_dtype(x.size))
    axes = member.out[axis]
    place = b.node(Index(axes, found.dtype)) if axes else found.number(0)
    before = b.apply(Lt(), BOOL, place, found.number(shift))
    after = found.apply(Sub(), place, found.number(shift))
    wrapped = found.apply(Add(), place, found.number(x.shape[axis] - shift))
    found.places.append((axis, found.apply(SelectN(), before, after, wrapped)))
    return found.value(None)


def extended(b: Any, member: Member) -> int:
    """The node of an element of an array that is continued beyond its ends."""
    e = member.equation
    op: Any = e.op
    x, out = e.ins[0].aval, e.outs[0].aval
    found = _Places(b, member, _index_dtype(2 * max(x.size, out.size)))
    for axis, (start, mode) in enumerate(zip(op.starts, op.modes, strict=True)):
        if mode:
            end = start + out.shape[axis] - x.shape[axis]
            _beyond(found, axis, x.shape[axis], start, start < 0, end > 0)
    return found.value(None)


def _beyond(found: _Places, axis: int, extent: int, start: int, below: bool, above: bool) -> None:
    """Add the place along an axis that is continued, from `start` on."""
    op: Any = found.member.equation.op
    mode, axes = op.modes[axis], found.member.out[axis]
    number, apply = found.number, found.apply
    place = found.b.node(Index(axes, found.dtype)) if axes else number(0)
    if start:
        place = apply(Add(), place, number(start))
    if mode == "wrap":
        for needed, test, step in ((below, (place, number(0)), extent),
                                   (above, (number(extent - 1), place), -extent)):
            if needed:
                wraps = found.b.apply(Lt(), BOOL, *test)
                place = apply(SelectN(), wraps, place, apply(Add(), place, number(step)))
    elif mode != "edge":
        twice = mode == "symmetric"
        if below:
            place = apply(Max(), place, apply(Sub(), number(-twice), place))
        if above:
            place = apply(Min(), place, apply(Sub(), number(2 * (extent - 1) + twice), place))
    found.at(axis, place, extent, mode == "edge" and below, mode == "edge" and above)


def gathered(b: Any, member: Member) -> int:
    """The node of an element of gathered rows."""
    e = member.equation
    x, indices = (a.aval for a in e.ins)
    wide = np.dtype(indices.dtype).itemsize == 8 or indices.dtype == np.uint32
    found = _Places(b, member, _index_dtype(x.size, wide))
    row = b.operand(e.ins[1], member.ins[1])
    if indices.dtype != found.dtype:
        row = b.apply(ConvertElementType(found.dtype), found.dtype, row)
    op: Any = e.op
    fill = None
    if op.fills:
        found.check(Ge(), row, found.number(0))
        found.check(Lt(), row, found.number(x.shape[0]))
        value = fill_number(op.fill_value, x.dtype)
        fill = b.number(default_fill(np.dtype(x.dtype)) if value is None else value,
                        np.dtype(x.dtype))
    found.at(0, row, x.shape[0], True, True)
    return found.value(fill)
