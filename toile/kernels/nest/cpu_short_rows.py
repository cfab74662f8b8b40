"""Rows of a few elements: the loop over a row is unrolled, and the vector loop runs over rows.

A loop over three coordinates is too short for vectors. Each node that varies along a row becomes
one node per element, a reduction becomes a chain of operations, and the nest becomes a map over the
rows. Operands are copied so that the same coordinate of neighboring rows is dense.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from toile.compiler.ir.geometry import is_plain, room
from toile.compiler.ir.loop_nests import (
    Access,
    Apply,
    Index,
    Load,
    LoopNest,
    Loops,
    Node,
    Number,
    Pick,
    Place,
    Reduce,
    Total,
    levels,
)
from toile.compiler.ir.operands import Operand
from toile.compiler.scalar.totals import accumulator
from toile.engine.operation import Operation
from toile.kernels.nest.shared import address
from toile.primitives.bits import And, Or
from toile.primitives.elementwise import Max, Min
from toile.primitives.families import Add, Mul

LONGEST = 8  # elements of a row
_ROWS = 16  # the fewest rows along the innermost axis
_COMBINED: dict[str, Operation] = {
    "reduce_sum": Add(), "reduce_prod": Mul(), "reduce_max": Max(), "reduce_min": Min(),
    "reduce_and": And(), "reduce_or": Or(),
}  # fmt: skip


def unrolled(x: Loops, plan: Any) -> Loops:
    """The nest as a map over rows, if rows are short; else the nest itself."""
    return _Unrolled(x, plan).result() if _applies(x) else x


def _applies(x: Loops) -> bool:
    nest = x.nest
    if nest.kind != "row" or nest.reduced != 1 or nest.inner or nest.rounds or not nest.outer:
        return False
    if not 1 < x.extents[-1] <= LONGEST or x.extents[nest.outer - 1] < _ROWS:
        return False
    return all(is_plain(p.dtype) for p in (*x.loads, *x.stores)) and not any(
        _prevents(node, nest.rank - 1) for node in nest.nodes)


def _prevents(node: Node, last: int) -> bool:
    """Whether a node has no form for each element of a row, the axis `last`."""
    match node:
        case Total() | Pick():
            return True
        case Index(axes, dtype):
            return last in axes[:-1] or last in axes and dtype.kind not in "iu"
        case Reduce(kind, _, dtype):
            return kind not in _COMBINED or accumulator(dtype) != dtype
    return False


class _Unrolled:
    """The parts of the map that replaces a nest."""

    def __init__(self, x: Loops, plan: Any):
        self.x, self.plan, self.length = x, plan, x.extents[-1]
        self.extents = x.extents[:-1]
        self.nodes: list[Node] = []
        self.loads: list[Place] = []
        self.places = [self._load(p) for p in x.loads]

    def _load(self, p: Place) -> list[int]:
        """Add the operands that are the elements of a row; returns their numbers."""
        first = len(self.loads)
        step = p.strides[-1]
        if not step:
            self.loads.append(Place(p.base, p.offset, p.strides[:-1], p.dtype))
            return [first] * self.length
        moving = [bool(s) for s in p.strides[:-1]]
        if moving[-1]:
            p = self._by_coordinates(p, moving)
            step = p.strides[-1]
        self.loads += [Place(p.base, p.offset + r * step, p.strides[:-1], p.dtype)
                       for r in range(self.length)]
        return list(range(first, first + self.length))

    def _by_coordinates(self, p: Place, moving: list[bool]) -> Place:
        """A copy of an operand in which the elements of rows are the outermost axis."""
        shape = [n if moves else 1 for n, moves in zip(self.extents, moving, strict=True)]
        made = room(self.plan, (self.length, *shape), p.dtype)
        source = Operand(address(p, self.plan), (self.length, *shape),
                         (p.strides[-1], *p.strides[:-1]), p.dtype)
        self.plan.copy(made, source)
        strides = [s if moves else 0 for s, moves in zip(made.strides[1:], moving, strict=True)]
        return Place(made.ref, 0, (*strides, prod(shape)), p.dtype)

    def _add(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def result(self) -> Loops:
        """The map."""
        nest = self.x.nest
        _, varies = levels(nest)
        found: list[list[int]] = []  # for each node, its nodes along a row
        for node, differs in zip(nest.nodes, varies, strict=True):
            count = self.length if differs else 1
            made = [self._add(self._at(node, found, r)) for r in range(count)
                    ] if not isinstance(node, Reduce) else [self._reduced(node, found)]
            found.append(made if differs else made * self.length)
        stores, places = [], []
        for (n, _), p in zip(nest.stores, self.x.stores, strict=True):
            for r in range(self.length if p.strides[-1] else 1):
                place = Place(p.base, p.offset + r * p.strides[-1], p.strides[:-1], p.dtype)
                stores.append((found[n][r], _access(place)))
                places.append(place)
        new = LoopNest("map", nest.outer, 0, 0, tuple(self.nodes),
                        tuple(map(_access, self.loads)), tuple(stores), nest.constants)
        return replace(self.x, nest=new, extents=self.extents, loads=self.loads, stores=places)

    def _at(self, node: Node, found: list[list[int]], r: int) -> Node:
        """A node for element r of a row."""
        match node:
            case Load(operand):
                return Load(self.places[operand][r])
            case Apply(op, args, dtype):
                return Apply(op, tuple(found[a][r] for a in args), dtype)
            case Index((*outer, last), dtype) if last == len(self.extents):
                own = Number(r, dtype)
                if not outer:
                    return own
                row, length = Index(tuple(outer), dtype), Number(self.length, dtype)
                start = Apply(Mul(), (self._add(row), self._add(length)), dtype)
                return Apply(Add(), (self._add(start), self._add(own)), dtype)
        return node

    def _reduced(self, node: Reduce, found: list[list[int]]) -> int:
        """The last node of the chain that combines the elements of a row."""
        total, *rest = found[node.arg]
        for other in rest:
            total = self._add(Apply(_COMBINED[node.kind], (total, other), node.dtype))
        return total


def _access(p: Place) -> Access:
    stride = p.strides[-1]
    return Access(p.dtype, stride if stride in (0, 1) else 2, bool(stride))
