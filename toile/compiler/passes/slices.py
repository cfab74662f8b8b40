"""Elementwise results of which only slices are used are computed slice by slice.

    slice(f(x, y)) = f(slice(x), slice(y))
    slice(pad(x))  = pad(slice(x))           for slices along axes that are not padded

A slice of an operand is a view, but a slice of a result needs that result in memory. The gates of a
recurrent cell are slices of one product plus a bias; after this pass they fuse with their readers.
Nothing is computed twice: the slices together have no more elements than the sliced array.
"""

from __future__ import annotations

from typing import Any

from toile.compiler.passes.rewriter import Replacement, Rewriter, readers_of, rewrite
from toile.compiler.scalar.fusible import by_element
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
