"""Sums of messages along the edges of a graph, without an array that holds every message.

    scatter_add(x, targets, gather(h, sources))   is   x[targets[e]] += h[sources[e]] for all e

The edges are sorted by their targets once for each pair of index arrays; then each row of the
result is a sum of rows of h, formed where it is written. Terms keep the order of their edges, so
the sums are those of the scatter. (A gather that fills by zero only leaves out what it would add.)
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from toile.compiler.rewriting import Replacement, Rewriter, rewrite
from toile.engine.avals import Aval
from toile.engine.operation import Operation
from toile.engine.program import Atom, Equation, Literal, Program, Var
from toile.primitives import arrays
from toile.primitives.addressing import GatherScatterMode, ScatterDimensionNumbers, fill_number
from toile.primitives.families import BroadcastInDim
from toile.primitives.indexing import Gather, Scatter

FEW = 1 << 12  # numbers in all messages, below which nothing is gained
_FLOATS = ("float32", "float64", "bfloat16", "float16")
_INT32 = np.dtype(np.int32)
_MOST = 2**31 - 1


@dataclass(frozen=True)
class EdgesByTarget(Operation):
    """Edges in the order of their targets: where those of each target end, and their sources.

    Index arrays are [..., 1]. An edge counts if its ends are rows, or are moved to the nearest
    row where an end `clips`; what follows the last edge is 0."""

    sources: int  # rows there are
    targets: int
    clips_sources: bool
    clips_targets: bool
    multiple = True

    def infer(self, sources: Aval, targets: Aval) -> list[Aval]:
        return [Aval((self.targets,), _INT32), Aval((sources.size,), _INT32)]

    def eager(self, xp: Any, sources: Any, targets: Any) -> Any:
        s, ok_s = _rows(xp, sources, self.sources, self.clips_sources)
        t, ok_t = _rows(xp, targets, self.targets, self.clips_targets)
        ok = ok_s & ok_t
        order = xp.argsort(xp.where(ok, t, self.targets), kind="stable")
        ends = xp.cumsum(xp.bincount(t[ok], minlength=self.targets))
        ordered = xp.where(xp.arange(s.size) < ok.sum(), s[order], 0)
        return ends.astype(np.int32), ordered.astype(np.int32)


def _rows(xp: Any, indices: Any, count: int, clips: bool) -> tuple[Any, Any]:
    """Rows that indices name, 0 for those that name none, and which do."""
    top = count - 1
    flat = xp.clip(indices.reshape(-1), None, min(count, np.iinfo(indices.dtype).max))
    flat = flat.astype(np.int64)
    if clips:
        return xp.clip(flat, 0, top), xp.ones(flat.shape, bool)
    ok = (flat >= 0) & (flat <= top)
    return xp.where(ok, flat, 0), ok


@dataclass(frozen=True)
class GatherScatter(Operation):
    """Rows that are sums of rows of h, as sorted edges tell; added to x where it is given."""

    def infer(self, h: Aval, ends: Aval, sources: Aval, *x: Aval) -> Aval:
        return x[0] if x else Aval((*ends.shape, *h.shape[1:]), h.dtype)

    def eager(self, xp: Any, h: Any, ends: Any, sources: Any, *x: Any) -> Any:
        counts = xp.diff(ends, prepend=0)
        targets = xp.repeat(xp.arange(ends.size), counts)
        messages = h[sources[: targets.size]]
        start = x[0] if x else xp.zeros((*ends.shape, *h.shape[1:]), h.dtype)
        rows = ScatterDimensionNumbers(tuple(range(1, h.ndim)), (0,), (0,))
        return arrays.scatter(xp, start, targets[:, None], messages, *rows, "drop", "add")


def sum_messages(program: Program) -> Program:
    """The Program with sums of gathered rows replaced."""
    if not any(e.op.__class__ is Scatter for e in program.equations):
        return program
    uses = Counter(a for e in program.equations for a in e.ins if a.__class__ is Var)
    uses.update(o for o in program.outputs if o.__class__ is Var)
    sorted_edges: dict[Any, list[Var]] = {}

    def rule(new: Rewriter, e: Equation) -> Replacement:
        if not isinstance(e.op, Scatter) or not _adds_rows(e.op, e.ins):
            return None
        x, targets, updates = e.ins
        made = new.producer(updates)
        if made is None or uses[updates] != 1 or not _takes_rows(made):  # type: ignore[index]
            return None
        start = _start(new, x, targets)
        if start is None:
            return None
        h, sources = made.ins
        op = EdgesByTarget(
            h.aval.shape[0], x.aval.shape[0], made.op.mode is not GatherScatterMode.FILL_OR_DROP,  # type: ignore[attr-defined]
            e.op.mode is GatherScatterMode.CLIP,
        )  # fmt: skip
        edges = sorted_edges.get((op, sources, targets))
        if edges is None:
            edges = [Var(a) for a in op.infer(sources.aval, targets.aval)]
            new.keep(Equation(op, [sources, targets], edges, e.source, e.scope))
            sorted_edges[op, sources, targets] = edges
        out = Var(e.outs[0].aval)
        new.keep(Equation(GatherScatter(), [h, *edges, *start], [out], e.source, e.scope))
        return [out]

    return rewrite(program, rule)


def _adds_rows(op: Scatter, ins: list[Atom]) -> bool:
    """Whether a scatter adds whole rows, at least a few."""
    x, indices, updates = (a.aval for a in ins)
    windows, inserted, mapped, batching, _ = op.dimension_numbers
    batch = len(indices.shape) - 1
    return (
        op.combine == "add" and _summed(x.dtype) and inserted == mapped == (0,) and not batching
        and windows == tuple(range(batch, len(updates.shape)))
        and updates.shape[batch:] == x.shape[1:] and FEW <= updates.size
        and indices.size <= _MOST and x.shape[0] <= _MOST and _integral(indices)
        and ins[1].__class__ is Var and ins[2].__class__ is Var
    )  # fmt: skip


def _takes_rows(e: Equation) -> bool:
    """Whether an equation is a gather of whole rows, without a fill value that would count."""
    if not isinstance(e.op, Gather):
        return False
    operand, indices = (a.aval for a in e.ins)
    offset, collapsed, mapped, batching, _ = e.op.dimension_numbers
    batch = len(indices.shape) - 1
    fits = (
        collapsed == mapped == (0,) and not batching and operand.shape[0] > 0
        and offset == tuple(range(batch, batch + len(operand.shape) - 1))
        and e.op.slice_sizes == (1, *operand.shape[1:]) and operand.shape[0] <= _MOST
        and _integral(indices) and e.ins[1].__class__ is Var
    )  # fmt: skip
    if not fits or e.op.mode is not GatherScatterMode.FILL_OR_DROP:
        return fits
    return e.op.fill_value is not None and fill_number(e.op.fill_value, operand.dtype) == 0


def _summed(dtype: Any) -> bool:
    """Whether backends sum rows of a dtype."""
    if not isinstance(dtype, np.dtype):
        return False
    return dtype.kind in "iu" or dtype.name in _FLOATS


def _integral(a: Aval) -> bool:
    return isinstance(a.dtype, np.dtype) and a.dtype.kind in "iu"


def _start(new: Rewriter, x: Atom, targets: Atom) -> list[Atom] | None:
    """What sums start from: nothing for zeros; None where x is better updated in place."""
    made = new.producer(x)
    if made is not None and made.op.__class__ is BroadcastInDim:
        value = made.ins[0]
        if value.__class__ is Literal and not any(value.val.tobytes()):
            return []
    few = prod(targets.aval.shape) < x.aval.shape[0]
    return None if few or made is None else [x]
