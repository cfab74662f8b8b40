"""Loop nests: what a group computes, in a form that is equal for equal code.

A `LoopNest` holds no extents, strides or constants: those are arguments of the kernel, so that
equal layers and other batch sizes share one. Its axes are numbered from the outside in:

  map      every axis is an output axis; the innermost is the vector loop
  row      `outer` output axes, then the axes summed over; several passes over a row
  partial  as row, one pass, over a part of the first axis summed over; gives partial sums
  column   `outer` output axes, the axes summed over, then the output axes inside them
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from toile.compiler.fusion import Fused
from toile.compiler.groups import REDUCTIONS, Group, Map, Member
from toile.engine.operation import Operation
from toile.engine.program import Literal, Var
from toile.primitives import special, transcendental
from toile.primitives.elementwise import Pow
from toile.primitives.families import Elementwise
from toile.primitives.shapes import Iota


@dataclass(frozen=True, slots=True)
class Load:
    """The element of a memory operand."""

    operand: int


@dataclass(frozen=True, slots=True)
class Constant:
    """A scalar argument of the kernel."""

    index: int
    dtype: np.dtype


@dataclass(frozen=True, slots=True)
class Index:
    """The coordinate along an axis, as a number."""

    axis: int
    dtype: np.dtype


@dataclass(frozen=True, slots=True)
class Apply:
    """An elementwise operation on other nodes."""

    op: Operation
    args: tuple[int, ...]
    dtype: np.dtype


@dataclass(frozen=True, slots=True)
class Reduce:
    """A node combined over the axes summed over: reduce_sum, reduce_max ..."""

    kind: str
    arg: int
    dtype: np.dtype


Node = Load | Constant | Index | Apply | Reduce


class Access(NamedTuple):
    """How the kernel reaches a memory operand."""

    dtype: np.dtype
    inner: int  # stride along the innermost axis: 0, 1, or 2 for any other
    varies: bool  # along the axes of the inner loops (those summed over; in maps the innermost)


@dataclass(frozen=True)
class LoopNest:
    """The structure of a kernel: everything that its code depends on."""

    kind: str
    outer: int
    reduced: int  # how many axes are summed over
    inner: int  # output axes inside of them
    nodes: tuple[Node, ...]
    loads: tuple[Access, ...]
    stores: tuple[tuple[int, Access], ...]  # node and where it goes
    constants: tuple[np.dtype, ...]
    scratch: frozenset[int] = frozenset()  # nodes kept in a row buffer from one pass to the next
    rounds: frozenset[str] = frozenset()  # narrow dtypes that every operation rounds to

    @property
    def rank(self) -> int:
        return self.outer + self.reduced + self.inner


class Place(NamedTuple):
    """A memory operand of one launch: elements from `offset` on, strides by axis, in elements."""

    base: Var
    offset: int
    strides: tuple[int, ...]
    dtype: np.dtype


@dataclass
class Loops:
    """A loop nest with what it is applied to."""

    nest: LoopNest
    extents: tuple[int, ...]
    loads: list[Place]
    stores: list[Place]
    constants: list[Any]
    group: Group


class _Builder:
    """Collects the nodes and operands of one group."""

    def __init__(self, fused: Fused, group: Group):
        self.fused, self.group = fused, group
        self.nodes: list[Node] = []
        self.numbers: dict[Any, int] = {}
        self.loads: list[tuple[Any, int, dict[int, int], np.dtype]] = []
        self.constants: list[Any] = []
        self.of_var: dict[Var, int] = {}

    def node(self, node: Node) -> int:
        found = self.numbers.get(node)
        if found is None:
            found = self.numbers[node] = len(self.nodes)
            self.nodes.append(node)
        return found

    def strides(self, m: Map, strides: tuple[int, ...]) -> dict[int, int]:
        """Strides by domain axis of an array whose axes have the map `m`."""
        out = {}
        for t, s in zip(m, strides, strict=True):
            for a in reversed(t):
                out[a] = s
                s *= self.group.extents[a]
        return out

    def operand(self, a: Any, m: Map) -> int:
        """The node for an operand of a member."""
        base = a if a.__class__ is Literal else self.fused.bases.get(a, a)
        if base.__class__ is Literal:
            return self._constant(base)
        if self.fused.group_of.get(base) is self.group:  # type: ignore
            return self.of_var[base]  # type: ignore
        view = self.fused.view(a)
        base = view.base
        by_axis = self.strides(m, view.strides)
        key = (base, view.offset, tuple(sorted(by_axis.items())))
        found = self.numbers.get(key)
        if found is None:
            self.loads.append((base, view.offset, by_axis, np.dtype(base.aval.dtype)))
            found = self.numbers[key] = self.node(Load(len(self.loads) - 1))
        return found

    def _constant(self, a: Literal) -> int:
        value = np.asarray(a.val)
        key = ("constant", str(value.dtype), value.tobytes())
        found = self.numbers.get(key)
        if found is None:
            self.constants.append(value)
            found = self.node(Constant(len(self.constants) - 1, value.dtype))
            self.numbers[key] = found
        return found

    def member(self, member: Member) -> None:
        e = member.equation
        out = e.outs[0]
        dtype = np.dtype(out.aval.dtype)
        if isinstance(e.op, Iota):
            n = self._index(member.out[e.op.axis], dtype)
        elif isinstance(e.op, REDUCTIONS):
            arg = self.operand(e.ins[0], member.ins[0])
            n = self.node(Reduce(e.op.name, arg, dtype))
        else:
            args = tuple(self.operand(a, m) for a, m in zip(e.ins, member.ins, strict=True))
            n = self.node(Apply(e.op, args, dtype))
        self.of_var[out] = n

    def _index(self, axes: tuple[int, ...], dtype: np.dtype) -> int:
        if not axes:
            return self._constant(Literal(np.zeros((), dtype), None))  # type: ignore[arg-type]
        assert len(axes) == 1, "an axis that an iota runs along was split"
        return self.node(Index(axes[0], dtype))


def build(fused: Fused, group: Group, stages: bool) -> Loops:
    """The loop nest of a group; `stages`: reduced values are used within it, row by row."""
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
    """Order and collapse the axes, and name everything by its place."""
    group = b.group
    reduced = [a for a in group.order if a in (group.reduced or ())]
    kept = [a for a in group.order if a not in reduced]
    last = group.order[-1] if group.order else None
    inner: list[int] = []
    if group.reduced is None:
        kind = "map"
        first = stores[0][2]
        kept.sort(key=lambda a: -abs(first.get(a, 0)))
    elif last in group.reduced:
        kind = "row" if stages else "partial"
    else:
        kind = "column"
        start = max(group.order.index(a) for a in reduced) + 1
        inner = group.order[start:]
        kept = [a for a in kept if a not in inner]
    named = {n.axis for n in b.nodes if isinstance(n, Index)}
    every = [s for _, _, s, _ in b.loads] + [s for _, _, s, _ in stores]
    sections = [_collapsed(axes, group.extents, every, named) for axes in (kept, reduced, inner)]
    axes = [a for section in sections for a in section]
    if not axes:  # scalars: one axis of one element
        sections, axes = [[(-1, 1)], [], []], [(-1, 1)]
    position = {a: i for i, (a, _) in enumerate(axes)}
    moving = {a for a, _ in (axes[-1:] if kind == "map" else sections[1])}
    innermost = axes[-1][0]

    def access(by_axis: dict[int, int], dtype: np.dtype) -> Access:
        s = by_axis.get(innermost, 0)
        return Access(dtype, s if s in (0, 1) else 2, any(by_axis.get(a, 0) for a in moving))

    def place(base: Var, offset: int, by_axis: dict[int, int], dtype: np.dtype) -> Place:
        return Place(base, offset, tuple(by_axis.get(a, 0) for a, _ in axes), dtype)

    nodes = tuple(
        Index(position[n.axis], n.dtype) if isinstance(n, Index) else n for n in b.nodes
    )
    nest = LoopNest(
        kind,
        len(sections[0]), len(sections[1]), len(sections[2]),
        nodes,
        tuple(access(s, d) for _, _, s, d in b.loads),
        tuple((n, access(s, d)) for n, _, s, d in stores),
        tuple(c.dtype for c in b.constants),
    )
    nest = with_row_buffers(nest, axes[-1][1])
    return Loops(
        nest,
        tuple(n for _, n in axes),
        [place(*load) for load in b.loads],
        [place(v.base, v.offset, s, d) for _, v, s, d in stores],
        b.constants,
        group,
    )


def _collapsed(
    axes: list[int], extents: dict[int, int], every: list[dict[int, int]], named: set[int]
) -> list[tuple[int, int]]:
    """Axes with extents; neighbours that all operands run through as one are made one."""
    out: list[tuple[int, int]] = []
    for a in axes:
        n = extents[a]
        if out:
            before, m = out[-1]
            joined = before not in named and a not in named and all(
                s.get(before, 0) == s.get(a, 0) * n for s in every
            )
            if joined:
                out[-1] = (a, m * n)
                continue
        out.append((a, n))
    return out


def levels(nest: LoopNest) -> tuple[list[int], list[bool]]:
    """For each node after how many passes it is known, and whether it varies along a row."""
    level: list[int] = []
    varies: list[bool] = []
    first = nest.outer - (nest.kind == "map")
    for node in nest.nodes:
        match node:
            case Load(operand):
                level.append(0)
                varies.append(nest.loads[operand].varies)
            case Index(axis, _):
                level.append(0)
                varies.append(axis >= first)
            case Constant():
                level.append(0)
                varies.append(False)
            case Apply(_, args, _):
                level.append(max((level[a] for a in args), default=0))
                varies.append(any(varies[a] for a in args))
            case Reduce(_, arg, _):
                level.append(level[arg] + 1)
                varies.append(False)
    return level, varies


# Operations that cost more than storing their result and loading it again.
EXPENSIVE = tuple(
    c for m in (transcendental, special) for c in vars(m).values()
    if isinstance(c, type) and issubclass(c, Elementwise) and c.__module__ == m.__name__
    and c not in (transcendental.Sqrt, transcendental.Rsqrt, transcendental.OneMinusSquare,
                  special.FusedMultiplyAdd)
) + (Pow,)


def with_row_buffers(nest: LoopNest, row: int) -> LoopNest:
    """The nest with row buffers for what is costly and needed in more than one pass."""
    if nest.kind != "row" or nest.reduced != 1 or row > LONGEST_BUFFER:
        return nest
    level, varies = levels(nest)
    costly: list[bool] = []
    for node in nest.nodes:
        costly.append(isinstance(node, Apply) and (
            isinstance(node.op, EXPENSIVE) or any(costly[a] for a in node.args)))
    stages: list[set[int]] = [set() for _ in nest.nodes]

    def need(n: int, stage: int) -> None:
        if stage in stages[n] or not varies[n]:
            return
        stages[n].add(stage)
        node = nest.nodes[n]
        if isinstance(node, Apply):
            for a in node.args:
                need(a, stage)

    for node in nest.nodes:
        if isinstance(node, Reduce):
            need(node.arg, level[node.arg])
    for n, access in nest.stores:
        if varies[n] or access.varies:
            need(n, level[n])
    again = [n for n in range(len(nest.nodes)) if costly[n] and len(stages[n]) > 1]
    # Of a chain only the last link that all later passes start from is kept.
    kept = {n for n in again if not any(
        isinstance(m, Apply) and n in m.args and i in again and stages[i] == stages[n]
        for i, m in enumerate(nest.nodes))}
    return replace(nest, scratch=frozenset(sorted(kept)[:MOST_BUFFERS]))


def rounding(nest: LoopNest, excess: bool) -> LoopNest:
    """The nest that rounds narrow floats after each operation.

    float16 always: without, what overflows it would not be seen to. bfloat16 has float32's range;
    it is rounded where it is stored, or everywhere when no excess precision is allowed."""
    wanted = {"float16"} if excess else {"float16", "bfloat16"}
    found = {n.dtype.name for n in nest.nodes if isinstance(n, Apply)} & wanted
    return replace(nest, rounds=frozenset(found)) if found else nest


LONGEST_BUFFER = 1 << 14  # elements of a row buffer
MOST_BUFFERS = 4
