"""Sums of messages along the edges of a graph, without an array that holds every message.

    scatter_add(x, targets, gather(h, sources))   is   x[targets[e]] += h[sources[e]] for all e

Each message may have a weight. The edges are sorted by target once for each pair of index arrays;
each row of the result is then a sum of rows of h, computed where it is written. Rows that were not
gathered are summed in the same way: reading them in the order of their targets is faster than
updating the result in the order of the rows. Terms are added in the order of their edges. (Terms
for which a gather fills with zeros are left out.)
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from toile.compiler.ir.element_types import is_float, is_short
from toile.compiler.ir.geometry import integral
from toile.compiler.passes.rewriter import Replacement, Rewriter, rewrite
from toile.engine.avals import Aval
from toile.engine.operation import Operation
from toile.engine.program import Atom, Equation, Program, Var
from toile.engine.records import dataclass
from toile.primitives import arrays
from toile.primitives.addresses import ScatterDimensionNumbers, fill_number

FEW = 1 << 12  # elements of all messages together: with fewer there is no gain
NARROW = 8  # elements of a message: with fewer the scatter is kept
_INT32 = np.dtype(np.int32)
_MOST = 2**31 - 1


@dataclass(frozen=True)
class EdgesByTarget(Operation):
    """Edges sorted by target: where the edges of each target end, and their sources.

    Index arrays are [..., 1]. An edge counts if its ends are valid rows. If an end `clips`, indices
    that are out of bounds are moved to the nearest row. Entries after the last edge are 0. If
    `numbered`, edges are given by their own positions instead of their sources; there may then be
    no array of sources."""

    sources: int  # number of source rows
    targets: int
    clips_sources: bool
    clips_targets: bool
    numbered: bool = False
    kernel_family = "messages.edges"
    multiple = True

    def infer(self, *indices: Aval) -> list[Aval]:
        return [Aval((self.targets,), _INT32), Aval((indices[-1].size,), _INT32)]

    def eager(self, xp: Any, *indices: Any) -> Any:
        t, ok = _rows(xp, indices[-1], self.targets, self.clips_targets)
        given = xp.arange(t.size)
        if len(indices) == 2:
            s, known = _rows(xp, indices[0], self.sources, self.clips_sources)
            ok = ok & known
            given = given if self.numbered else s
        order = xp.argsort(xp.where(ok, t, self.targets), kind="stable")
        ends = xp.cumsum(xp.bincount(t[ok], minlength=self.targets))
        ordered = xp.where(xp.arange(t.size) < ok.sum(), given[order], 0)
        return ends.astype(np.int32), ordered.astype(np.int32)


def _rows(xp: Any, indices: Any, count: int, clips: bool) -> tuple[Any, Any]:
    """The row of each index (0 if it is out of bounds), and whether it is in bounds."""
    top = count - 1
    flat = xp.clip(indices.reshape(-1), None, min(count, np.iinfo(indices.dtype).max))
    flat = flat.astype(np.int64)
    if clips:
        return xp.clip(flat, 0, top), xp.ones(flat.shape, bool)
    ok = (flat >= 0) & (flat <= top)
    return xp.where(ok, flat, 0), ok


@dataclass(frozen=True)
class GatherScatter(Operation):
    """Sums of rows of the first operand, h, along sorted edges, added to the last operand if given.

    If `weighted`, the numbers of the sorted edges and the weights of all edges follow the sources.
    A row has `heads` equal parts, and an edge has a weight for each part."""

    weighted: bool = False
    heads: int = 1

    kernel_family = "messages"
    stores_parts = True

    def infer(self, h: Aval, ends: Aval, sources: Aval, *rest: Aval) -> Aval:
        start = rest[2:] if self.weighted else rest
        return start[0] if start else Aval((*ends.shape, *h.shape[1:]), h.dtype)

    def eager(self, xp: Any, h: Any, ends: Any, sources: Any, *rest: Any) -> Any:
        targets = xp.repeat(xp.arange(ends.size), xp.diff(ends, prepend=0))
        messages = h[sources[: targets.size]]
        if self.weighted:
            order, weights, rest = rest[0], rest[1], rest[2:]
            weights = weights.reshape(-1, self.heads, 1)[order[: targets.size]]
            parts = messages.reshape(targets.size, self.heads, -1)
            messages = (parts * weights).reshape(messages.shape)
        start = rest[0] if rest else xp.zeros((*ends.shape, *h.shape[1:]), h.dtype)
        rows = ScatterDimensionNumbers(tuple(range(1, h.ndim)), (0,), (0,))
        return arrays.scatter(xp, start, targets[:, None], messages, *rows, "drop", "add")


class Message(NamedTuple):
    """What is sent along the edges: rows of an array, selected by `sources` if given."""

    rows: Atom
    sources: Atom | None
    clips: bool = True
    weights: Atom | None = None
    heads: int = 1  # weights of each row


def sum_messages(program: Program) -> Program:
    """Replace scatters that add whole rows by sums over sorted edges."""
    if not any(map(_adds_rows, program.equations)):
        return program
    sorted_edges: dict[Any, list[Var]] = {}

    def rule(new: Rewriter, e: Equation) -> Replacement:
        if not _adds_rows(e):
            return None
        op: Any = e.op
        x, targets, updates = e.ins
        start = _start(new, x, targets)
        if start is None:
            return None
        message = _message(new, updates)
        indices = [targets] if message.sources is None else [message.sources, targets]

        def edges(numbered: bool) -> list[Var]:
            rows = 0 if message.sources is None else message.rows.aval.shape[0]
            order = EdgesByTarget(rows, x.aval.shape[0], message.clips, op.clips, numbered)
            found = sorted_edges.get((order, *indices))
            if found is None:
                found = [Var(a) for a in order.infer(*[i.aval for i in indices])]
                new.keep(Equation(order, indices, found, e.source, e.scope))
                sorted_edges[order, *indices] = found
            return found

        ins: list[Atom] = [message.rows, *edges(message.sources is None)]
        if message.weights is not None:
            ins += [edges(True)[1], message.weights]
        sums = GatherScatter(message.weights is not None, message.heads)
        return [new.add(sums, [*ins, *start], e, e.outs[0].aval)]

    return rewrite(program, rule)


def _message(new: Rewriter, updates: Atom) -> Message:
    """Where the rows of updates come from."""
    made = new.producer(updates)
    plain = Message(updates, None)
    if made is None:
        return plain
    if _takes_rows(made):
        return _gathered(made)
    if not made.op.is_product or is_short(updates.aval.dtype):
        return plain
    for rows, weights in (made.ins, made.ins[::-1]):
        gather, spread = new.producer(rows), new.producer(weights)
        if gather is None or spread is None or not _takes_rows(gather):
            continue
        given, row = spread.ins[0].aval.shape, rows.aval.shape
        n = gather.ins[1].aval.ndim - 1
        if spread.op.is_view and n <= len(given) < len(row) and given == row[: len(given)] and all(
                spread.op.moved_axis(given, i) == i for i in range(len(given))):
            return _gathered(gather)._replace(weights=spread.ins[0], heads=prod(given[n:]))
    return plain


def _gathered(e: Equation) -> Message:
    op: Any = e.op
    return Message(e.ins[0], e.ins[1], not op.fills)


def _moves_rows(e: Equation, updates: bool) -> bool:
    """Whether an equation reads or updates whole rows that 32-bit indices can number."""
    if not e.op.by_blocks or e.op.updates != updates:
        return False
    avals = [a.aval for a in e.ins]
    numbered = avals[0].ndim > 0 and avals[0].shape[0] <= _MOST and integral(avals[1].dtype)
    return numbered and e.ins[1].__class__ is Var and e.op.by_rows(*avals)


def _adds_rows(e: Equation) -> bool:
    """Whether a scatter adds whole rows, and enough of them."""
    if not _moves_rows(e, updates=True):
        return False
    x, indices, updates = (a.aval for a in e.ins)
    return (
        (integral(x.dtype) or is_float(x.dtype)) and FEW <= updates.size
        and prod(x.shape[1:]) >= NARROW and indices.size <= _MOST and e.ins[2].__class__ is Var
    )


def _takes_rows(e: Equation) -> bool:
    """Whether an equation is a gather of whole rows whose fill value, if any, adds nothing."""
    if not _moves_rows(e, updates=False) or not e.ins[0].aval.shape[0]:
        return False
    op: Any = e.op
    return not op.fills or fill_number(op.fill_value, e.ins[0].aval.dtype) == 0


def _start(new: Rewriter, x: Atom, targets: Atom) -> list[Atom] | None:
    """What the sums start from: [] for zeros; None if x is better updated in place."""
    fill = new.fill_of(x)
    if fill is not None and not any(fill.tobytes()):
        return []
    few = prod(targets.aval.shape) < x.aval.shape[0]
    return None if few or new.producer(x) is None else [x]
