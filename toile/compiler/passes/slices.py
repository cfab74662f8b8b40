"""Elementwise results of which only slices are used are computed slice by slice.

    slice(f(x, y)) = f(slice(x), slice(y))
    slice(pad(x))  = pad(slice(x))           for slices along axes that are not padded

A slice of an operand is a view, but a slice of a result needs that result in memory. The gates of a
recurrent cell are slices of one product plus a bias; after this pass they fuse with their readers.
Nothing is computed twice: the slices together have no more elements than the sliced array.

Slices that are joined are read in place, if what they are slices of is in memory. An array that is
scaled before is scaled afterwards instead, as in the derivatives of stencils:

    concatenate(slice(c x), slice(c x)) = c concatenate(slice(x), slice(x))

Several of such arrays, such as c x and d x, then need only x in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toile.compiler.passes.rewriter import Replacement, Rewriter, readers_of, rewrite
from toile.compiler.scalar.fusible import by_element
from toile.engine import dtypes
from toile.engine.program import Atom, Equation, Literal, Program, Var


def cut_elementwise(program: Program) -> Program:
    """Replace elementwise results that are only sliced by elementwise operations on slices."""
    cut = _only_sliced(program) if any(e.op.views_part for e in program.equations) else {}
    if not cut:
        return program

    def rule(new: Rewriter, e: Equation) -> Replacement:
        if not e.op.views_part or e.ins[0] not in cut:
            return None
        return [_cut(new, e.op, e.ins[0], cut, e)]

    return rewrite(program, rule)


def scale_after_joins(program: Program) -> Program:
    """Move the scaling of an array behind the concatenations of its slices."""
    readers, returned = readers_of(program), set(program.outputs)
    scaled = {e.outs[0]: e for e in program.equations if _is_scaling(e)
              and e.outs[0] not in returned and _joined_only(e.outs[0], readers)}
    if not scaled:
        return program

    def rule(new: Rewriter, e: Equation) -> Replacement:
        cuts = None if e.op.joined_axis is None else _cuts_of_one(new, e.ins)
        return None if cuts is None else _scaled_later(new, e, cuts, scaled)

    return rewrite(program, rule)


def _cuts_of_one(new: Rewriter, parts: Sequence[Atom]) -> list[Equation] | None:
    """The slices that parts are, if all are slices of one array."""
    made = [new.producer(a) for a in parts]
    found = [m for m in made if m is not None and m.op.views_part]
    same = len(found) == len(made) and all(m.ins[0] is found[0].ins[0] for m in found)
    return found if same else None


def _scaled_later(
    new: Rewriter, e: Equation, cuts: Sequence[Equation], scaled: dict[Var, Equation]
) -> Replacement:
    """What joins slices before they are scaled; None if they are slices of no scaled array."""
    scalings, base = [], cuts[0].ins[0]
    while base.__class__ is Var and base in scaled:
        scalings.append(scaled[base])
        base = new.atom(scaled[base].ins[_array(scaled[base])])
    if not scalings:
        return None
    out: Atom = new.add(e.op, [new.add(m.op, [base], e) for m in cuts], e)
    for scaling in scalings[::-1]:
        ins = [new.atom(a) for a in scaling.ins]
        ins[_array(scaling)] = out
        out = new.add(scaling.op, ins, e)
    return [out]


def _is_scaling(e: Equation) -> bool:
    """Whether an equation multiplies an array by a number, or negates it."""
    if not (e.op.is_product or e.op.commutes_with_sums) or not by_element(e):
        return False
    arrays = [a for a in e.ins if a.aval.shape]
    return len(arrays) == 1 and arrays[0].__class__ is Var and dtypes.kind(
        e.outs[0].aval.dtype) == "f"


def _array(e: Equation) -> int:
    """The number of the operand that is an array."""
    return next(i for i, a in enumerate(e.ins) if a.aval.shape)


def _joined_only(a: Atom, readers: dict[Atom, list[Equation]]) -> bool:
    """Whether an array has slices that are only joined, and else is read element by element."""
    slices = [e for e in readers.get(a, ()) if e.op.views_part]
    return bool(slices) and all(by_element(e) for e in readers[a] if not e.op.views_part) and all(
        e.op.joined_axis is not None for part in slices for e in readers.get(part.outs[0], ()))


def _only_sliced(program: Program) -> dict[Atom, Equation]:
    """The equations whose results are read only by slices, or by equations of this kind."""
    readers, returned = readers_of(program), set(program.outputs)
    found: dict[Atom, Equation] = {}
    sizes: dict[Var, int] = {}  # how many elements of a result are used
    slices: dict[Var, list[Any]] = {}  # the slices of it that are used
    for e in reversed(program.equations):
        if not by_element(e) and e.op.margins is None:
            continue
        out = e.outs[0]
        uses = readers.get(out, [])
        if out in returned or not uses or not out.aval.shape:
            continue
        used, taken = 0, []
        for u in uses:
            if u.op.views_part:
                used += u.outs[0].aval.size
                taken.append(u.op)
            elif u.outs and u.outs[0] in found:
                used += sizes[u.outs[0]]
                taken += slices[u.outs[0]]
            else:
                used = out.aval.size + 1
        if used <= out.aval.size and (e.op.margins is None or _beside(e, taken)):
            found[out], sizes[out], slices[out] = e, used, taken
    return found


def _beside(e: Equation, slices: list[Any]) -> bool:
    """Whether slices of a padded array take the whole of each padded axis."""
    shape = e.outs[0].aval.shape
    return all((s.starts[d], s.limits[d], s.strides[d]) == (0, shape[d], 1)
               for d, margins in enumerate(e.op.margins or ()) if any(margins) for s in slices)


def _cut(new: Rewriter, op: Any, a: Atom, cut: dict[Atom, Equation], at: Equation) -> Atom:
    """The slice of an atom.

    If the equation of the atom is to be cut, the slice is computed from slices of operands."""
    if a.__class__ is Literal or not a.aval.shape:
        return a
    e = cut.get(a)
    if e is None:
        return new.add(op, [a], at)
    if e.op.margins is not None:
        x, fill = (new.atom(x) for x in e.ins)
        limits = tuple(n if any(margins) else limit for n, limit, margins in zip(
            x.aval.shape, op.limits, e.op.margins, strict=True))
        part = op.__class__(op.starts, limits, op.strides)
        return new.add(e.op, [_cut(new, part, x, cut, at), fill], e)
    return new.add(e.op, [_cut(new, op, new.atom(x), cut, at) for x in e.ins], e)
