"""Sums of arrays padded with zeros (the derivatives of slices) become concatenations.

    pad(x, 0, n) + pad(y, m, 0)               = concatenate(x, y)       for x of size m, y of size n
    (z + pad(x, 0, n)) + pad(y, m, 0)         = z + concatenate(x, y)
    pad(x, m, n) + pad(y, m, n)               = pad(x + y, m, n)
    concatenate(x, y) + pad(z, m, 0)          = concatenate(x, y + z)
    pad(concatenate(x, y), 0, n)              = concatenate(x, y, zeros)
    dynamic_update_slice(x, y, m) + pad(z, m) = dynamic_update_slice(x, y + z, m)
    dynamic_update_slice(x, x[m : m + n], m)  = x

This is exact except for the sign of zeros: -0 + 0 is 0, but a concatenation keeps -0.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from toile.compiler.passes.rewriter import Replacement, Rewriter, is_zero, readers_of, rewrite
from toile.engine.program import Atom, Equation, Literal, Program
from toile.primitives.families import BroadcastInDim
from toile.primitives.shapes import Concatenate, Pad, Slice

MOST = 64  # parts of one array


class _Parts(NamedTuple):
    """An array that is zero except for parts along an axis; `at` maps starts to parts."""

    axis: int
    at: dict[int, Atom]


def join_pads(program: Program) -> Program:
    """The Program with such sums replaced."""
    if all(e.op.margins is None for e in program.equations):
        return program
    readers = readers_of(program)
    once = {a for a, found in readers.items() if len(found) == 1} - {*program.outputs}
    joined: dict[Atom, _Parts] = {}  # results of this pass that nothing else reads
    sums = set(once)  # also of results of this pass

    def rule(new: Rewriter, e: Equation) -> Replacement:
        if e.op.is_sum:
            if (updated := _updated(new, e, once)) is not None:
                return [updated]
            parts = [joined.get(a) or _padded(new, a) for a in e.ins]
            found = _sum(new, e, parts)
            whole = _completed(new, e, parts, joined, sums) if found is None else None
            if whole is not None:
                return [whole]
        else:
            inside = joined.get(e.ins[0]) if e.op.margins is not None else None
            found = None if inside is None else _outer(e, inside)
        if found is None or not _is_worthwhile(e, found):
            return None
        out = _made(new, e, found)
        if e.outs[0] in once:
            joined[out] = found
        return [out]

    return rewrite(program, rule)


def _completed(
    new: Rewriter, e: Equation, parts: list[_Parts | None], joined: dict[Atom, _Parts],
    sums: set[Atom],
) -> Atom | None:
    """The sum of an array that was added before, in one of the `sums`, and of one that has all its
    missing parts."""
    for a, rest in zip(e.ins[::-1], parts, strict=True):
        made = new.producer(a)
        if rest is None or made is None or not made.op.is_sum or a not in sums:
            continue
        for other, small in (made.ins, made.ins[::-1]):
            found = _sum(new, e, [joined.get(small) or _padded(new, small), rest])
            if found is not None and _is_whole(e, found):
                out = new.add(e.op, [other, _made(new, e, found)], e, e.outs[0].aval)
                sums.update([out] if e.outs[0] in sums else [])
                return out
    return None


def _padded(new: Rewriter, a: Atom) -> _Parts | None:
    """The part that is not padding, if an array is padded with zeros along one axis."""
    made = new.producer(a)
    config = None if made is None else made.op.margins
    if made is None or config is None or not is_zero(made.ins[1]) or not made.ins[0].aval.size:
        return None
    padded = [i for i, (low, high, _) in enumerate(config) if low or high]
    if len(padded) != 1 or any(low < 0 or high < 0 or inner for low, high, inner in config):
        return None
    return _Parts(padded[0], {config[padded[0]][0]: made.ins[0]})


def _updated(new: Rewriter, e: Equation, once: set[Atom]) -> Atom | None:
    """The sum of an updated array and of one that is zero outside the replaced block."""
    for changed, small in (e.ins, e.ins[::-1]):
        made, padded = new.producer(changed), new.producer(small)
        config = None if padded is None else padded.op.margins
        if made is None or padded is None or config is None or not {changed, small} <= once:
            continue
        x, at = made.ins[0], made.op.placed_at(made.ins)
        (y, fill), (low, high, between) = padded.ins, zip(*config, strict=True)
        if at != low or min(*low, *high) < 0 or any(between) or not is_zero(fill):
            continue
        block = made.ins[1]
        if y.aval.shape != block.aval.shape:
            continue
        rest = new.fill_of(block)
        total = y if rest is not None and not rest.any() else new.add(e.op, [block, y], e)
        return x if _is_block(new, total, x, low) else new.add(
            made.op, [x, total, *made.ins[2:]], e, e.outs[0].aval)
    return None


def _is_block(new: Rewriter, a: Atom, x: Atom, start: tuple[int, ...]) -> bool:
    """Whether an array is the block of x that begins at a place."""
    made = new.producer(a)
    return (made is not None and made.op.views_part and made.ins[0] is x
            and made.op == Slice(start, tuple(map(sum, zip(start, a.aval.shape, strict=True))),
                                 (1,) * len(start)))


def _is_worthwhile(e: Equation, parts: _Parts) -> bool:
    """Whether joined parts are better than padded ones, which loop nests read in place unless the
    padding is along the innermost axis."""
    aval = e.outs[0].aval
    return len(parts.at) == 1 or _is_whole(e, parts) or parts.axis == aval.ndim - 1


def _is_whole(e: Equation, parts: _Parts) -> bool:
    """Whether nothing beside the parts is zero."""
    size = sum(a.aval.shape[parts.axis] for a in parts.at.values())
    return size == e.outs[0].aval.shape[parts.axis]


def _sum(new: Rewriter, e: Equation, terms: list[_Parts | None]) -> _Parts | None:
    x, y = terms
    if x is None or y is None or x.axis != y.axis or len(x.at) + len(y.at) > MOST:
        return None
    ends = sorted({(start, start + a.aval.shape[x.axis])
                   for parts in (x, y) for start, a in parts.at.items()})
    if any(end > start for (_, end), (start, _) in pairwise(ends)):
        return None  # parts overlap
    found = x.at | y.at
    for s in sorted(x.at.keys() & y.at.keys()):
        found[s] = new.add(e.op, [x.at[s], y.at[s]], e)
    return _Parts(x.axis, found)


def _outer(e: Equation, inside: _Parts) -> _Parts | None:
    """The parts of a joined array after it is padded along the axis of its parts."""
    config = e.op.margins or ()
    if not is_zero(e.ins[1]) or any(
            low < 0 or high < 0 or inner or (low or high) and d != inside.axis
            for d, (low, high, inner) in enumerate(config)):
        return None
    return _Parts(inside.axis, {config[inside.axis][0] + s: a for s, a in inside.at.items()})


def _made(new: Rewriter, e: Equation, parts: _Parts) -> Atom:
    """The array that has these parts."""
    aval, axis, end = e.outs[0].aval, parts.axis, 0
    zero = Literal(np.zeros((), aval.dtype), aval.with_shape(()))
    if len(parts.at) == 1:
        ((start, x),) = parts.at.items()
        margins = start, aval.shape[axis] - start - x.aval.shape[axis], 0
        config = tuple(margins if d == axis else (0, 0, 0) for d in range(aval.ndim))
        return new.add(Pad(config), [x, zero], e, aval)

    def zeros(n: int) -> list[Atom]:
        shape = (*aval.shape[:axis], n, *aval.shape[axis + 1 :])
        return [new.add(BroadcastInDim(shape, ()), [zero], e)] if n else []

    joined: list[Atom] = []
    for start, x in sorted(parts.at.items()):
        joined += [*zeros(start - end), x]
        end = start + x.aval.shape[axis]
    return new.add(Concatenate(axis), [*joined, *zeros(aval.shape[axis] - end)], e, aval)
