"""Slices of an array in which blocks were replaced are slices of what it consists of.

    slice(update(x, block)) = slice(x)      if the slice takes nothing of the block
    slice(update(x, block)) = slice(block)  if it takes nothing else

The derivative of several such updates, and of values that are written to parts of an array and read
from there, then needs no copies of the array. This applies only if nothing but such slices reads
the updated array: otherwise, the update could no longer happen in place.
"""

from __future__ import annotations

from typing import Any

from toile.compiler.passes.rewriter import Replacement, Rewriter, readers_of, rewrite
from toile.engine.program import Atom, Equation, Program, Var, without_dead_code
from toile.primitives.shapes import Slice


def slice_before_updates(program: Program) -> Program:
    """Slice arrays before blocks in them are replaced."""
    updates = _only_sliced(program)
    if not updates:
        return program

    def rule(new: Rewriter, e: Equation) -> Replacement:
        return [_slice_of(new, e, updates)] if e.op.views_part and e.ins[0] in updates else None

    return without_dead_code(rewrite(program, rule))


def _only_sliced(program: Program) -> dict[Atom, Equation]:
    """The updates whose result is read only by slices that lie in the block or outside it. It may
    also be the operand of another such update, whose slices then count as slices of it."""
    updates = {e.outs[0]: e for e in program.equations
               if e.op.updates and e.op.placed_at(e.ins) is not None}
    if not updates:
        return {}
    readers, returned = readers_of(program), {*program.outputs}
    found: dict[Atom, Equation] = {}
    later: dict[Atom, list[Equation]] = {}  # slices that skip a later update
    for x, e in reversed(updates.items()):
        slices = [r for r in readers.get(x, ()) if not _updates(r, x, found)] + later.get(x, [])
        sides = {id(r): _is_inside(r.op, e) if r.op.views_part else None for r in slices}
        if slices and x not in returned and None not in sides.values():
            found[x] = e
            later.setdefault(e.ins[0], []).extend(r for r in slices if not sides[id(r)])
    return found


def _updates(e: Equation, x: Atom, found: dict[Atom, Equation]) -> bool:
    """Whether an equation only replaces a block of x, and only slices of its result are read."""
    return e.ins[0] is x and bool(e.outs) and e.outs[0] in found and x not in e.ins[1:]


def _is_inside(op: Any, e: Equation) -> bool | None:
    """True if a slice lies in the block of an update, False if it lies outside it, and None if it
    does both."""
    block = list(zip(op.starts, op.limits, *_bounds(e), strict=True))
    if any(limit <= low or start >= high for start, limit, low, high in block):
        return False
    inside = all(low <= start and limit <= high for start, limit, low, high in block)
    return True if inside else None


def _bounds(e: Equation) -> tuple[list[int], list[int]]:
    """Where a block begins and ends along each axis."""
    lows = list(e.op.placed_at(e.ins) or ())
    return lows, [low + n for low, n in zip(lows, e.ins[1].aval.shape, strict=True)]


def _slice_of(new: Rewriter, e: Equation, updates: dict[Atom, Equation]) -> Var:
    """The slice of what an updated array consists of."""
    op: Any = e.op
    x: Atom = e.ins[0]
    while x in updates:
        update = updates[x]
        if _is_inside(op, update):
            lows = _bounds(update)[0]
            starts, limits = (tuple(a - low for a, low in zip(some, lows, strict=True))
                              for some in (op.starts, op.limits))
            op, x = Slice(starts, limits, op.strides), update.ins[1]
            break
        x = update.ins[0]
    return new.add(op, [new.atom(x)], e, e.outs[0].aval)
