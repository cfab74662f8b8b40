"""Elementwise results of which only slices are used are computed slice by slice.

    slice(f(x, y))      = f(slice(x), slice(y))
    slice(pad(x))       = pad(slice(x))      with margins without what the slice leaves out
    slice(transpose(x)) = transpose(slice(x))

A slice of an operand is a view, but a slice of a result needs that result in memory. The gates of a
recurrent cell are slices of one product plus a bias; after this pass they fuse with their readers.
Nothing is computed twice: the slices together have no more elements than the sliced array.

Slices that are joined are read in place, if what they are slices of is in memory. An array that is
scaled before is scaled afterwards instead, as in the derivatives of stencils:

    concatenate(slice(c x), slice(c x)) = c concatenate(slice(x), slice(x))
    pad(c x)                            = c pad(x)          for a padding of zeros and a finite c
                                        (c < 0 only in sums: 0 becomes -0)

Several of such arrays, such as c x and d x, then need only x in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from toile.compiler.passes.rewriter import Replacement, Rewriter, is_zero, readers_of, rewrite
from toile.compiler.scalar.fusible import by_element
from toile.engine import dtypes
from toile.engine.avals import Aval
from toile.engine.program import Atom, Equation, Literal, Program, Var
from toile.primitives.shapes import Pad


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
    """Move the scaling of an array behind the concatenations of its slices, and behind padding."""
    readers, returned = readers_of(program), set(program.outputs)
    scaled: dict[Var, Equation] = {}
    for e in reversed(program.equations):
        if _is_scaling(e) and e.outs[0] not in returned and _is_moved(e.outs[0], readers, scaled):
            scaled[e.outs[0]] = e
    if not scaled:
        return program

    def rule(new: Rewriter, e: Equation) -> Replacement:
        if _pads_zeros(e) and e.ins[0] in scaled:
            return _scaled_after_padding(new, e, scaled)
        cuts = None if e.op.joined_axis is None else _cuts_of_one(new, e.ins)
        return None if cuts is None else _scaled_later(new, e, cuts, scaled)

    return rewrite(program, rule)


def _pads_zeros(e: Equation) -> bool:
    return e.op.margins is not None and is_zero(e.ins[1])


def _scaled_after_padding(
    new: Rewriter, e: Equation, scaled: dict[Var, Equation]
) -> Replacement:
    """What pads an array before it is scaled by known numbers: with the zero, 0 or -0, that becomes
    the zero around the scaled array."""
    x, scalings = e.ins[0], []
    while x.__class__ is Var and x in scaled and _is_known(scaled[x]):
        scalings.append(scaled[x])
        x = new.atom(scaled[x].ins[_array(scaled[x])])
    fill = _fill_before(scalings, e.ins[1]) if scalings else None
    if fill is None:
        return None
    return [_scaled(new, new.add(e.op, [x, fill], e), scalings, e)]


def _is_known(scaling: Equation) -> bool:
    """Whether a scaling multiplies by a known finite number."""
    return all(isinstance(a, Literal) and bool(np.isfinite(a.val).all())
               for a in scaling.ins if not a.aval.shape)


def _fill_before(scalings: Sequence[Equation], wanted: Atom) -> Literal | None:
    """The zero that scalings, the last of which comes first, turn into a given zero."""
    if not isinstance(wanted, Literal):
        return None
    first = scalings[-1]
    dtype = first.ins[_array(first)].aval.dtype
    for fill in (0.0, -0.0):
        x = np.asarray(fill, dtype)
        for scaling in scalings[::-1]:
            ins = [a.val if isinstance(a, Literal) else x for a in scaling.ins]
            x = np.asarray(scaling.op.eager(np, *ins))
        if x == 0 and bool(np.signbit(x)) == bool(np.signbit(wanted.val)):
            return Literal(np.asarray(fill, dtype), Aval((), dtype))
    return None


def _scaled(new: Rewriter, out: Atom, scalings: Sequence[Equation], at: Equation) -> Atom:
    """An atom, scaled by the last of these equations first."""
    for scaling in scalings[::-1]:
        ins = [new.atom(a) for a in scaling.ins]
        ins[_array(scaling)] = out
        out = new.add(scaling.op, ins, at)
    return out


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
    joined = new.add(e.op, [new.add(m.op, [base], e) for m in cuts], e)
    return [_scaled(new, joined, scalings, e)]


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


def _is_moved(
    a: Atom, readers: dict[Atom, list[Equation]], scaled: dict[Var, Equation]
) -> bool:
    """Whether an array has slices that are only joined, is padded with zeros or scaled before that,
    and else is read element by element."""
    moved = [e for e in readers.get(a, ())
             if e.op.views_part or _pads_zeros(e) or e.outs and e.outs[0] in scaled]
    return bool(moved) and all(by_element(e) for e in readers[a] if e not in moved) and all(
        e.op.joined_axis is not None for part in moved if part.op.views_part
        for e in readers.get(part.outs[0], ()))


def _only_sliced(program: Program) -> dict[Atom, Equation]:
    """The equations whose results are read only by slices, or by equations of this kind."""
    readers, returned = readers_of(program), set(program.outputs)
    found: dict[Atom, Equation] = {}
    slices: dict[Var, dict[Any, None]] = {}  # the slices of a result that are used
    for e in reversed(program.equations):
        moves = _is_transpose(e)
        if not (moves or by_element(e) or e.op.margins is not None) or e.outs[0] in returned:
            continue
        out = e.outs[0]
        taken = _slices_of(readers.get(out, []), slices) if out.aval.shape else {}
        if e.op.margins is not None:
            taken = _slices_before_padding(e, taken)
        if moves:
            taken = {_before_transpose(e.op, s): None for s in taken}
        if taken and sum(prod(_shape(s)) for s in taken) <= out.aval.size:
            found[out], slices[out] = e, taken
    return found


def _slices_of(uses: Sequence[Equation], known: dict[Var, dict[Any, None]]) -> dict[Any, None]:
    """The slices that equations take of an operand, or that are taken of their results; none if
    more of it is used."""
    taken: dict[Any, None] = {}
    for u in uses:
        found = {u.op: None} if u.op.views_part else known.get(u.outs[0]) if u.outs else None
        if found is None:
            return {}
        taken |= found
    return taken


def _slices_before_padding(e: Equation, slices: dict[Any, None]) -> dict[Any, None]:
    """The slices of an array that are needed for slices of the padded array. None at all if one of
    those needs all of it, or if several need margins of their own."""
    found = {s: before_padding(e, s) for s in slices}
    margins = {s for s, f in found.items() if f is not None and f[1] != e.op.margins}
    parts = {f[0]: None for f in found.values() if f is not None}
    return parts if None not in found.values() and len(margins) < 2 else {}


def before_padding(e: Equation, s: Any) -> tuple[Any, tuple[tuple[int, int, int], ...]] | None:
    """The slice of an array, and the padding, that give a slice of the padded array.

    None if that slice contains only margins, or skips elements of a padded axis."""
    starts, limits, config = list(s.starts), list(s.limits), []
    ends = e.outs[0].aval.shape
    for d, (low, high, between) in enumerate(e.op.margins or ()):
        start, limit, whole = s.starts[d], s.limits[d], e.ins[0].aval.shape[d]
        if (start, limit, s.strides[d]) == (0, ends[d], 1):
            limits[d] = whole
        elif low or high or between:
            low, high = low - start, high - (ends[d] - limit)
            starts[d], limits[d] = max(0, -low), whole - max(0, -high)
            if between or s.strides[d] != 1 or starts[d] >= limits[d]:
                return None
            low, high = max(0, low), max(0, high)
        config.append((low, high, between))
    return type(s)(tuple(starts), tuple(limits), s.strides), tuple(config)


def padded(new: Rewriter, x: Atom, fill: Atom, config: Any, at: Equation) -> Atom:
    """An array with margins, if there are any."""
    return new.add(Pad(config), [x, fill], at) if any(map(any, config)) else x


def _is_transpose(e: Equation) -> bool:
    return e.op.moves_axes and e.op.is_always_view and hasattr(e.op, "perm")


def _before_transpose(op: Any, s: Any) -> Any:
    """The slice of an array whose transpose is a slice of the transposed array."""
    place = sorted(range(len(op.perm)), key=op.perm.__getitem__)
    return type(s)(*(tuple(some[i] for i in place) for some in (s.starts, s.limits, s.strides)))


def _shape(s: Any) -> tuple[int, ...]:
    """The shape of a slice."""
    return tuple(limit - start if stride == 1 else len(range(start, limit, stride))
                 for start, limit, stride in zip(s.starts, s.limits, s.strides, strict=True))


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
        before = before_padding(e, op)
        assert before is not None
        part, config = before
        return padded(new, _cut(new, part, x, cut, at), fill, config, e)
    if _is_transpose(e):
        op = _before_transpose(e.op, op)
    return new.add(e.op, [_cut(new, op, new.atom(x), cut, at) for x in e.ins], e)
