"""Parts of concatenations, and arrays that are padded, are computed in place in the result.

    c = concatenate(f(x), g(y))     f and g store into c, and nothing is copied
    p = pad(f(x))                   f stores into p, and only the margins are filled
    u = y.at[1:-1].set(f(x))        f stores into u, and only the rest of y is copied

A part is moved if a loop nest or a gather computes it and if its other readers can read it there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from toile.compiler.ir import views
from toile.compiler.ir.groups import Fused
from toile.compiler.ir.views import View
from toile.engine.program import Atom, Equation


def write_parts_in_place(fused: Fused) -> None:
    """Let the parts of concatenations and padded arrays be computed in place."""
    given = {fused.bases.get(o, o) for o in fused.program.outputs}
    placed: set[Atom] = set()  # parts, and the concatenations that they are parts of
    for e in reversed(fused.program.equations):
        if len(e.outs) != 1 or e.outs[0] in placed:
            continue
        whole = views.whole(e.outs[0])
        parts = list(_parts(fused, e, whole))
        for a, offset in parts:
            others = [b for b, _ in parts if b is not a]
            if a in given or a in placed or not _fits(fused, e, a, others):
                continue
            _move(fused, a, View(e.outs[0], offset, a.aval.shape, whole.strides))
            placed.update((a, e.outs[0]))


def _fits(fused: Fused, e: Equation, a: Atom, others: Sequence[Atom]) -> bool:
    """Whether a part may be computed in place: by a loop nest or another kernel that can store it
    there, and beside the other parts."""
    group = fused.group_of.get(a)
    return (
        group is not None and (group.fusible or group.members[0].equation.op.stores_parts)
        and a in fused.stored
        and a.aval.dtype == e.outs[0].aval.dtype
        and sum(fused.bases.get(x, x) is a for x in e.ins) == 1
        and not _slices(fused, others, a)
    )


def _slices(fused: Fused, others: Sequence[Atom], a: Atom) -> bool:
    """Whether a loop nest that computes one of the other parts reads a slice of part `a`. In place,
    it would read and write one buffer, at different places."""
    groups = {id(g): g for b in others if (g := fused.group_of.get(b)) is not None}
    return any(fused.bases.get(x, x) is a and x.aval.size != a.aval.size
               for g in groups.values() if g.fusible and g is not fused.group_of.get(a)
               for m in g.members for x in m.equation.ins)


def _parts(fused: Fused, e: Equation, whole: View) -> Iterator[tuple[Atom, int]]:
    """The operands that are parts of an equation's result, and where each begins, in elements."""
    axis, margins = e.op.joined_axis, e.op.margins
    if axis is not None:
        start = 0
        for a in e.ins:
            yield a, start * whole.strides[axis]
            start += a.aval.shape[axis]
    elif margins is not None and not fused.group_of[e.outs[0]].fusible and all(
            low >= 0 and high >= 0 and not between for low, high, between in margins):
        yield e.ins[0], sum(low * s for (low, _, _), s in zip(margins, whole.strides, strict=True))
    elif e.op.updates and 2 * e.ins[1].aval.size >= e.ins[0].aval.size:  # else updated in place
        at = e.op.placed_at(e.ins)
        if at is not None:
            yield e.ins[1], sum(a * s for a, s in zip(at, whole.strides, strict=True))


def _move(fused: Fused, a: Atom, place: View) -> None:
    """Make `place` the storage of a variable, for its readers and views, too."""
    moved = {v: _through(x, place) for v, x in fused.views.items() if x.base is a}
    if all(x is not None for x in moved.values()):
        fused.views.update({v: x for v, x in moved.items() if x is not None})
        fused.views[a] = place


def _through(view: View, place: View) -> View | None:
    """A view of a variable that has moved; None if it is not a view of a block."""
    base = view.base.aval.shape
    dense = views.row_major(base)
    starts, left = [], view.offset
    for d in dense:
        starts.append(left // d)
        left %= d
    offset = place.offset + sum(n * s for n, s in zip(starts, place.strides, strict=True))
    strides = []
    for s, n in zip(view.strides, view.shape, strict=True):
        if n == 1 or not s:  # this element again and again
            strides.append(s)
            continue
        found = [i for i, (d, m) in enumerate(zip(dense, base, strict=True))
                 if d == s and starts[i] + n <= m]
        if not found:
            return None
        strides.append(place.strides[found[0]])
        starts[found[0]] = base[found[0]]  # each axis is used once
    return View(place.base, offset, view.shape, tuple(strides))
