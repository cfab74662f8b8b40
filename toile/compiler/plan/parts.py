"""Parts of a concatenation are computed directly in their place in the result.

    c = concatenate(f(x), g(y))     f and g store into c, and nothing is copied

A part is moved if a loop nest computes it and if its other readers can read it there.
"""

from __future__ import annotations

from toile.compiler.ir import views
from toile.compiler.ir.groups import Fused
from toile.compiler.ir.views import View
from toile.engine.program import Atom


def write_parts_in_place(fused: Fused) -> None:
    """Let the parts of concatenations be computed in place."""
    given = {fused.bases.get(o, o) for o in fused.program.outputs}
    placed: set[Atom] = set()  # parts, and the concatenations that they are parts of
    for e in reversed(fused.program.equations):
        axis = e.op.joined_axis
        if axis is None or e.outs[0] in placed:
            continue
        whole = views.whole(e.outs[0])
        start = 0
        for a in e.ins:
            offset, start = start, start + a.aval.shape[axis]
            group = fused.group_of.get(a)
            fits = (
                group is not None and group.fusible and a in fused.stored
                and a not in given and a not in placed and e.ins.count(a) == 1
            )
            if not fits or a.aval.dtype != e.outs[0].aval.dtype:
                continue
            start_of = offset * whole.strides[axis]
            _move(fused, a, View(e.outs[0], start_of, a.aval.shape, whole.strides))
            placed.update((a, e.outs[0]))


def _move(fused: Fused, a: Atom, place: View) -> None:
    """Make `place` the storage of a variable, for its readers and views, too."""
    moved = {v: _through(x, place) for v, x in fused.views.items() if x.base is a}
    if all(x is not None for x in moved.values()):
        fused.views.update({v: x for v, x in moved.items() if x is not None})
        fused.views[a] = place


def _through(view: View, place: View) -> View | None:
    """A view of a variable that has moved; None if its strides do not determine its order."""
    base = view.base.aval.shape
    dense = views.row_major(base)
    if view.offset or view.shape != base:
        return None  # only views of all elements, in order or permuted
    order = []
    for s, n in zip(view.strides, view.shape, strict=True):
        found = [i for i, (d, m) in enumerate(zip(dense, base, strict=True))
                 if d == s and m == n and i not in order]
        if not found:
            return None
        order.append(found[0])
    return View(place.base, place.offset, view.shape, tuple(place.strides[i] for i in order))
