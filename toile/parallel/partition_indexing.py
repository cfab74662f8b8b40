"""How gathers, scatters and slices at traced positions are divided.

Axes whose windows are all of them, batching axes and the axes of the indices may be divided; an
axis that indices point into is whole on every device. What devices add to one place is a sum still
to be taken. May import control and below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from toile.engine.avals import Aval
from toile.parallel.partition_rules import gathering, rule, undivided
from toile.parallel.partition_values import Frame, Names, Placed, Value
from toile.parallel.spmd import Layout
from toile.primitives.families import add, zeros
from toile.primitives.indexing import DynamicSlice, DynamicUpdateSlice, Gather, Scatter


class _Claims:
    """Which mesh axes divide which axes of the operands; each of them only once."""

    def __init__(self) -> None:
        self.used: set[Any] = set()

    def take(self, *candidates: Names) -> Names:
        """The first entry that divides anything and is still free."""
        for names in candidates:
            if names and not self.used & set(names):
                self.used |= set(names)
                return names
        return ()


@rule(Gather)
def gathered(f: Frame, op: Any, ins: Sequence[Value], outs: Sequence[Aval]) -> list[Value]:
    (x, indices), (out,) = ins, outs
    offset, collapsed, starts, batching, index_batching = op.dimension_numbers
    claims = _Claims()
    index_layout: list[Names] = [()] * indices.aval.ndim
    x_layout: list[Names] = [()] * x.aval.ndim
    for d, j in zip(batching, index_batching, strict=True):
        x_layout[d] = index_layout[j] = claims.take(indices.layout[j], x.layout[d])
    for j in range(indices.aval.ndim - 1):
        if j not in index_batching:
            index_layout[j] = claims.take(indices.layout[j])
    window = [d for d in range(x.aval.ndim) if d not in collapsed and d not in batching]
    for d in window:
        if d not in starts and op.slice_sizes[d] == x.aval.shape[d]:
            x_layout[d] = claims.take(x.layout[d])
    args = f.to(x, tuple(x_layout)), f.to(indices, tuple(index_layout))
    sizes = tuple(args[0].shape[d] if x_layout[d] and d in window else n
                  for d, n in enumerate(op.slice_sizes))
    of_window, of_index = iter(window), iter(index_layout)
    layout = tuple(x_layout[next(of_window)] if d in offset else next(of_index)
                   for d in range(out.ndim))
    return [Placed(out, layout, replace(op, slice_sizes=sizes)(*args))]


@rule(Scatter)
def scattered(f: Frame, op: Any, ins: Sequence[Value], outs: Sequence[Aval]) -> list[Value]:
    (x, indices, updates), (out,) = ins, outs
    windows, inserted, starts, batching, index_batching = op.dimension_numbers
    claims = _Claims()
    x_layout: list[Names] = [()] * x.aval.ndim
    index_layout: list[Names] = [()] * indices.aval.ndim
    update_layout: list[Names] = [()] * updates.aval.ndim
    # The axes of the updates that are not of windows are those of the indices, in order.
    others = [d for d in range(updates.aval.ndim) if d not in windows]
    for d, j in zip(batching, index_batching, strict=True):
        x_layout[d] = index_layout[j] = update_layout[others[j]] = claims.take(
            updates.layout[others[j]], indices.layout[j], x.layout[d])
    summed: list[Any] = []
    for j, d in enumerate(others):
        if j not in index_batching and op.combine == "add":
            names = claims.take(updates.layout[d], indices.layout[j])
            index_layout[j] = update_layout[d] = names
            summed += names
    window = [d for d in range(x.aval.ndim) if d not in inserted and d not in batching]
    for d, u in zip(window, windows, strict=True):
        if d not in starts and updates.aval.shape[u] == x.aval.shape[d]:
            x_layout[d] = update_layout[u] = claims.take(updates.layout[u], x.layout[d])
    given = f.to(indices, tuple(index_layout)), f.to(updates, tuple(update_layout))
    left, layout = f.ordered(summed), tuple(x_layout)
    if not left:
        return [Placed(out, layout, op(f.to(x, layout), *given))]
    nothing = zeros(Aval(f.local(x.aval.shape, layout), out.dtype))
    found = Placed(out, layout, op(nothing, *given), left)
    if x.zero:
        return [found]
    return [Placed(out, layout, add(f.to(x, layout), f.to(found, layout)))]


@rule(DynamicSlice)
def slice_at(f: Frame, op: Any, ins: Sequence[Value], outs: Sequence[Aval]) -> list[Value]:
    x, *starts = ins
    cut = [i for i, n in enumerate(x.aval.shape) if op.sizes[i] != n]
    layout = undivided(x.layout, cut)
    part = f.to(x, layout)
    sizes = tuple(n if i in cut else part.shape[i] for i, n in enumerate(op.sizes))
    return [Placed(outs[0], layout, DynamicSlice(sizes)(part, *_scalars(f, starts)))]


@rule(DynamicUpdateSlice)
def update_at(f: Frame, op: Any, ins: Sequence[Value], outs: Sequence[Aval]) -> list[Value]:
    x, update, *starts = ins
    if x.aval.ndim == 0:
        return gathering(f, op, ins, outs)
    cut = [i for i, n in enumerate(x.aval.shape) if update.aval.shape[i] != n]
    layout: Layout = undivided(f.common([x, update]), cut)
    args = f.to(x, layout), f.to(update, layout)
    return [Placed(outs[0], layout, op(*args, *_scalars(f, starts)))]


def _scalars(f: Frame, starts: Sequence[Value]) -> list[Any]:
    return [f.to(s, ()) for s in starts]
