"""Builds the loop nest of a group: its axes, their order, and its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from toile.compiler.ir.groups import Fused, Group, Map, Member
from toile.compiler.ir.loop_nests import (
    Access,
    Apply,
    Constant,
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
)
from toile.compiler.plan import picks
from toile.compiler.plan.row_buffers import with_row_buffers
from toile.engine.operation import Operation
from toile.engine.program import Equation, Literal, Var
from toile.primitives.families import Add, Mul


class _Builder:
    """Collects the nodes and operands of one group."""

    def __init__(self, fused: Fused, group: Group):
        self.fused, self.group = fused, group
        self.nodes: list[Node] = []
        self.numbers: dict[Any, int] = {}
        self.loads: list[tuple[Any, int, dict[int, int], np.dtype, bool]] = []
        self.constants: list[Any] = []
        self.of_var: dict[Any, int] = {}

    def node(self, node: Node) -> int:
        found = self.numbers.get(node)
        if found is None:
            found = self.numbers[node] = len(self.nodes)
            self.nodes.append(node)
        return found

    def strides(self, m: Map, strides: tuple[int, ...]) -> dict[int, int]:
        """Strides, by domain axis, of an array whose axes have the map `m`."""
        out = {}
        for t, s in zip(m, strides, strict=True):
            for a in reversed(t):
                out[a] = s
                s *= self.group.extents[a]
        return out

    def operand(self, a: Any, m: Map) -> int:
        """The node of a member's operand."""
        base = a if a.__class__ is Literal else self.fused.bases.get(a, a)
        if base.__class__ is Literal:
            return self._constant(base)
        if self.fused.group_of.get(base) is self.group:
            return self.of_var[base]
        return self.node(Load(self._load(a, m, False)))

    def _load(self, a: Any, m: Map, picked: bool) -> int:
        """The number of an operand in memory."""
        view = self.fused.view(a)
        by_axis = self.strides(m, view.strides)
        key = (view.base, view.offset, tuple(sorted(by_axis.items())), picked)
        found = self.numbers.get(key)
        if found is None:
            dtype = np.dtype(view.base.aval.dtype)
            self.loads.append((view.base, view.offset, by_axis, dtype, picked))
            found = self.numbers[key] = len(self.loads) - 1
        return found

    def _constant(self, a: Literal) -> int:
        value = np.asarray(a.val)
        key = ("constant", value.dtype, value.tobytes())
        found = self.numbers.get(key)
        if found is None:
            self.constants.append(value)
            found = self.node(Constant(len(self.constants) - 1, value.dtype))
            self.numbers[key] = found
        return found

    # ---- elements at computed places
    def number(self, value: Any, dtype: np.dtype) -> int:
        """The node of a number that is an argument of the kernel."""
        return self._constant(Literal(np.asarray(value, dtype), None))  # type: ignore[arg-type]

    def apply(self, op: Operation, dtype: np.dtype, *args: int) -> int:
        """The node of an elementwise operation."""
        return self.node(Apply(op, args, dtype))

    def picked(self, member: Member, places: Sequence[tuple[int, int]], index: np.dtype) -> int:
        """The node of an element of the first operand: `places` pairs axes of the operand with
        nodes of positions along them, which are inside the operand."""
        a = member.equation.ins[0]
        operand = self._load(a, member.ins[0], True)
        strides, far = self.fused.view(a).strides, None
        for axis, place in places:
            step = self.apply(Mul(), index, place, self.number(strides[axis], index))
            far = step if far is None else self.apply(Add(), index, far, step)
        assert far is not None
        return self.node(Pick(operand, far, _dtype(member.equation)))

    def padded(self, member: Member) -> int:
        return picks.padded(self, member)

    def rotated(self, member: Member) -> int:
        return picks.rotated(self, member)

    def extended(self, member: Member) -> int:
        return picks.extended(self, member)

    def gathered(self, member: Member) -> int:
        return picks.gathered(self, member)

    # ---- members, according to the rules of their operations
    def member(self, member: Member) -> None:
        """Add the node of a member."""
        e = member.equation
        node = e.op.nest_node
        self.of_var[e.outs[0]] = self._applied(member) if node is None else node(self, member)

    def _applied(self, member: Member) -> int:
        e = member.equation
        inside = e.op.code_operands
        args = [
            self._number(a) if i in inside and isinstance(a, Literal) else self.operand(a, m)
            for i, (a, m) in enumerate(zip(e.ins, member.ins, strict=True))
        ]
        return self.node(Apply(e.op, tuple(args), _dtype(e)))

    def _number(self, a: Literal) -> int:
        value = np.asarray(a.val)
        return self.node(Number(int(value), value.dtype))

    def reduced(self, member: Member) -> int:
        """The node of a reduction."""
        e = member.equation
        arg = self.operand(e.ins[0], member.ins[0])
        node = Total if e.outs[0] in self.group.totals else Reduce
        return self.node(node(e.op.name, arg, _dtype(e)))

    def counted(self, member: Member, axis: int) -> int:
        """The node for the position along an axis of the result."""
        axes, dtype = member.out[axis], _dtype(member.equation)
        if not axes:
            return self.number(0, dtype)
        return self.node(Index(axes, dtype))


def _dtype(e: Equation) -> np.dtype:
    return np.dtype(e.outs[0].aval.dtype)


def build(fused: Fused, group: Group, stages: bool) -> Loops:
    """The loop nest of a group; `stages`: reduced values are used inside it, row by row."""
    b = _Builder(fused, group)
    for member in group.members:
        b.member(member)
    stores = []
    for var, m in group.maps.items():
        if var in fused.stored:
            view = fused.view(var)
            by_axis = b.strides(m, view.strides)
            stores.append((b.of_var[var], view, by_axis, np.dtype(var.aval.dtype)))
    return _arrange(b, stores, stages)


def _arrange(b: _Builder, stores: list[Any], stages: bool) -> Loops:
    """Order and collapse the axes, and replace references by numbers."""
    kind, sections = _sections(b.group, stores, stages)
    counts = [n.axes for n in b.nodes if isinstance(n, Index)]
    every = [s for _, _, s, _, _ in b.loads] + [s for _, _, s, _ in stores]
    axes = _Axes(kind, [_collapsed(s, b.group.extents, every, counts) for s in sections])
    nest = LoopNest(
        kind, *axes.counts, tuple(map(axes.numbered, b.nodes)),
        tuple(axes.access(s, d)._replace(picked=p) for _, _, s, d, p in b.loads),
        tuple((n, axes.access(s, d)) for n, _, s, d in stores),
        tuple(c.dtype for c in b.constants))
    extents = tuple(n for _, n in axes.axes)
    return Loops(with_row_buffers(nest, extents[-1]), extents,
                 [axes.place(*load[:4]) for load in b.loads],
                 [axes.place(v.base, v.offset, s, d) for _, v, s, d in stores],
                 b.constants, b.group)


def _sections(group: Group, stores: list[Any], stages: bool) -> tuple[str, list[list[int]]]:
    """The kind of a nest and its axes: the outer ones, the reduced ones, those inside them."""
    reduced = [a for a in group.order if a in (group.reduced or ())]
    kept = [a for a in group.order if a not in reduced]
    if group.reduced is None:
        first = stores[0][2]
        return "map", [sorted(kept, key=lambda a: -abs(first.get(a, 0))), [], []]
    if group.order and group.order[-1] in group.reduced:
        return "row" if stages else "partial", [kept, reduced, []]
    inner = group.order[max(group.order.index(a) for a in reduced) + 1:]
    return "column", [[a for a in kept if a not in inner], reduced, inner]


Section = list[tuple[int, int]]  # axes with their extents


class _Axes:
    """The axes of a nest, from the outside in."""

    def __init__(self, kind: str, sections: list[Section]):
        if not any(sections):  # scalars: one axis of one element
            sections = [[(-1, 1)], [], []]
        self.axes = [a for section in sections for a in section]
        self.counts = len(sections[0]), len(sections[1]), len(sections[2])
        self.position = {a: i for i, (a, _) in enumerate(self.axes)}
        self.moving = [a for a, _ in (self.axes[-1:] if kind == "map" else sections[1])]

    def access(self, by_axis: dict[int, int], dtype: np.dtype) -> Access:
        """How a kernel accesses an operand with these strides."""
        s = by_axis.get(self.axes[-1][0], 0)
        return Access(dtype, s if s in (0, 1) else 2, any(by_axis.get(a, 0) for a in self.moving))

    def place(self, base: Var, offset: int, by_axis: dict[int, int], dtype: np.dtype) -> Place:
        """A memory operand with its strides in the order of the axes."""
        return Place(base, offset, tuple(by_axis.get(a, 0) for a, _ in self.axes), dtype)

    def numbered(self, node: Node) -> Node:
        """A node, changed so that it refers to axes by position."""
        if not isinstance(node, Index):
            return node
        return Index(tuple(self.position[a] for a in node.axes if a in self.position), node.dtype)


def _collapsed(axes: list[int], extents: dict[int, int], every: list[dict[int, int]],
               counts: list[tuple[int, ...]]) -> Section:
    """The axes with their extents; neighbors that all operands and counts traverse as one axis are
    merged under the name of the inner one."""
    out: Section = []
    for a in axes:
        n = extents[a]
        if out:
            before, m = out[-1]
            joined = all(s.get(before, 0) == s.get(a, 0) * n for s in every) and all(
                _follow(before, a, count) for count in counts
            )
            if joined:
                out[-1] = (a, m * n)
                continue
        out.append((a, n))
    return out


def _follow(before: int, a: int, count: tuple[int, ...]) -> bool:
    """Whether a count traverses two axes as if they were one, or traverses neither."""
    if before not in count:
        return a not in count
    place = count.index(before) + 1
    return place < len(count) and count[place] == a


def rounding(nest: LoopNest, excess: bool) -> LoopNest:
    """The nest, changed so that it rounds narrow floats after each operation.

    float16 is always rounded: otherwise an overflow would go unnoticed. bfloat16 has float32's
    range; it is rounded when stored, or after each operation if no excess precision is allowed."""
    wanted = {"float16"} if excess else {"float16", "bfloat16"}
    dtypes = {n.dtype for n in nest.nodes if isinstance(n, (Apply, Reduce))}
    found = {d.name for d in dtypes} & wanted
    return replace(nest, rounds=frozenset(found)) if found else nest
