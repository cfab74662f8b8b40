"""Loop nests: what a group computes, in a form that is equal for equal code.

A `LoopNest` holds no extents, strides or constants: those are arguments of the kernel, so that
equal layers and other batch sizes share one. Its axes are numbered from the outside in:

  map      every axis is an output axis; the innermost is the vector loop
  row      `outer` output axes, then the axes summed over; several passes over a row
  partial  as row, one pass, over a part of the first axis summed over; gives partial sums
  column   `outer` output axes, the axes summed over, then the output axes inside them

A row nest may have totals: sums over its rows, each an array with the axes that rows have.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from toile.compiler.ir.groups import REDUCTIONS, Fused, Group, Map, Member
from toile.compiler.ir.operands import Ref
from toile.engine.operation import Operation
from toile.engine.program import Literal, Var
from toile.engine.records import dataclass
from toile.primitives.bits import ShiftLeft, ShiftRightArithmetic, ShiftRightLogical
from toile.primitives.elementwise import Div
from toile.primitives.families import Add, Mul, Neg, Sub
from toile.primitives.shapes import Iota
from toile.primitives.transcendental import Rsqrt, Sqrt

LONGEST_BUFFER = 1 << 14  # elements of a row buffer
MOST_BUFFERS = 4
SHIFTS = (ShiftLeft, ShiftRightArithmetic, ShiftRightLogical)
ARITHMETIC = (Add, Sub, Mul, Div, Neg)


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
class Number:
    """A constant that is part of the code: shifts by a known count are faster."""

    value: int
    dtype: np.dtype


@dataclass(frozen=True, slots=True)
class Index:
    """The position along some axes, the last of which runs fastest, as a number."""

    axes: tuple[int, ...]
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


@dataclass(frozen=True, slots=True)
class Total:
    """A node combined over the outer axes, of a nest that works row by row."""

    kind: str
    arg: int
    dtype: np.dtype


Node = Load | Constant | Number | Index | Apply | Reduce | Total


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

    base: Var | Ref
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
        self.of_var: dict[Any, int] = {}

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
        if self.fused.group_of.get(base) is self.group:
            return self.of_var[base]
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
        key = ("constant", value.dtype, value.tobytes())
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
            node = Total if out in self.group.totals else Reduce
            n = self.node(node(e.op.name, arg, dtype))
        else:
            args = [
                self._number(a) if i == 1 and isinstance(e.op, SHIFTS) and isinstance(a, Literal)
                else self.operand(a, m)
                for i, (a, m) in enumerate(zip(e.ins, member.ins, strict=True))
            ]
            n = self.node(Apply(e.op, tuple(args), dtype))
        self.of_var[out] = n

    def _number(self, a: Literal) -> int:
        value = np.asarray(a.val)
        return self.node(Number(int(value), value.dtype))

    def _index(self, axes: tuple[int, ...], dtype: np.dtype) -> int:
        if not axes:
            return self._constant(Literal(np.zeros((), dtype), None))  # type: ignore[arg-type]
        return self.node(Index(axes, dtype))


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
    """Order and collapse the axes, and refer to everything by its number."""
    kind, sections = _sections(b.group, stores, stages)
    counts = [n.axes for n in b.nodes if isinstance(n, Index)]
    every = [s for _, _, s, _ in b.loads] + [s for _, _, s, _ in stores]
    axes = _Axes(kind, [_collapsed(s, b.group.extents, every, counts) for s in sections])
    nest = LoopNest(
        kind, *axes.counts, tuple(map(axes.numbered, b.nodes)),
        tuple(axes.access(s, d) for _, _, s, d in b.loads),
        tuple((n, axes.access(s, d)) for n, _, s, d in stores),
        tuple(c.dtype for c in b.constants))
    extents = tuple(n for _, n in axes.axes)
    return Loops(with_row_buffers(nest, extents[-1]), extents,
                 [axes.place(*load) for load in b.loads],
                 [axes.place(v.base, v.offset, s, d) for _, v, s, d in stores],
                 b.constants, b.group)


def _sections(group: Group, stores: list[Any], stages: bool) -> tuple[str, list[list[int]]]:
    """The kind of a nest and its axes: the outer ones, those summed over, those inside of them."""
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
        """How a kernel reaches an operand that has these strides."""
        s = by_axis.get(self.axes[-1][0], 0)
        return Access(dtype, s if s in (0, 1) else 2, any(by_axis.get(a, 0) for a in self.moving))

    def place(self, base: Var, offset: int, by_axis: dict[int, int], dtype: np.dtype) -> Place:
        """An operand with its strides in the order of the axes."""
        return Place(base, offset, tuple(by_axis.get(a, 0) for a, _ in self.axes), dtype)

    def numbered(self, node: Node) -> Node:
        """A node that refers to axes by their positions."""
        if not isinstance(node, Index):
            return node
        return Index(tuple(self.position[a] for a in node.axes if a in self.position), node.dtype)


def _collapsed(axes: list[int], extents: dict[int, int], every: list[dict[int, int]],
               counts: list[tuple[int, ...]]) -> Section:
    """Axes with extents; neighbors that all operands and counts run through as one are merged,
    under the name of the inner one."""
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
    """Whether a count runs through two axes as through one, or through neither."""
    if before not in count:
        return a not in count
    place = count.index(before) + 1
    return place < len(count) and count[place] == a


def levels(nest: LoopNest) -> tuple[list[int], list[bool]]:
    """For each node after how many passes it is known, and whether it varies along a row."""
    level: list[int] = []
    varies: list[bool] = []
    first = nest.outer - (nest.kind == "map")
    for node in nest.nodes:
        known, differs = 0, False  # of constants
        match node:
            case Load(operand):
                differs = nest.loads[operand].varies
            case Index(axes, _):
                differs = any(a >= first for a in axes)
            case Apply(_, args, _):
                known = max((level[a] for a in args), default=0)
                differs = any(varies[a] for a in args)
            case Reduce(_, arg, _):
                known = level[arg] + 1
            case Total(_, arg, _):
                known, differs = level[arg], True
        level.append(known)
        varies.append(differs)
    return level, varies


def reciprocal_products(nest: LoopNest) -> frozenset[int]:
    """The divisions, all along a row by one number, that may be products with its reciprocal.

    That is one more rounding, allowed where the result has those of a root or of a transcendental
    function anyway: the numerator has them, or everything that is made of the quotient."""
    if nest.kind == "column":
        return frozenset()
    _, varies = levels(nest)
    inexact = _inexact(nest)
    passes = _only_inexact_users(nest, inexact)
    return frozenset(
        n for n, node in enumerate(nest.nodes)
        if isinstance(node, Apply) and isinstance(node.op, Div)
        and varies[node.args[0]] and not varies[node.args[1]]
        and (inexact[node.args[0]] or passes[n]))


def _inexact(nest: LoopNest) -> list[bool]:
    """Which nodes have the rounding errors of a root or of a transcendental function."""
    found: list[bool] = []
    for node in nest.nodes:
        found.append(isinstance(node, Apply) and (
            node.op.costly or isinstance(node.op, (Sqrt, Rsqrt))
            or isinstance(node.op, ARITHMETIC) and any(found[a] for a in node.args)))
    return found


def _only_inexact_users(nest: LoopNest, inexact: list[bool]) -> list[bool]:
    """Which nodes only inexact results are made of."""
    users: list[list[int]] = [[] for _ in nest.nodes]
    for n, node in enumerate(nest.nodes):
        match node:
            case Apply(_, args, _):
                for a in args:
                    users[a].append(n)
            case Reduce(_, arg, _) | Total(_, arg, _):
                users[arg].append(n)
    found = [False] * len(nest.nodes)
    stored = {n for n, _ in nest.stores}
    for n in reversed(range(len(nest.nodes))):
        found[n] = n not in stored and all(
            isinstance(m := nest.nodes[u], Apply) and (
                inexact[u] or isinstance(m.op, (Mul, Div, Neg)) and found[u])
            for u in users[n])
    return found


def with_row_buffers(nest: LoopNest, row: int) -> LoopNest:
    """The nest with row buffers for what is costly and needed in more than one pass."""
    if nest.kind != "row" or nest.reduced != 1 or row > LONGEST_BUFFER:
        return nest
    costly: list[bool] = []
    for node in nest.nodes:
        costly.append(isinstance(node, Apply) and (
            node.op.costly or any(costly[a] for a in node.args)))
    stages = _passes_with(nest)
    again = [n for n in range(len(nest.nodes)) if costly[n] and len(stages[n]) > 1]
    # Of a chain only the last link that all later passes start from is kept.
    kept = {n for n in again if not any(
        isinstance(m, Apply) and n in m.args and i in again and stages[i] == stages[n]
        for i, m in enumerate(nest.nodes))}
    return replace(nest, scratch=frozenset(sorted(kept)[:MOST_BUFFERS]))


def _passes_with(nest: LoopNest) -> list[set[int]]:
    """The passes over a row that need each node which varies along it."""
    level, varies = levels(nest)
    stages: list[set[int]] = [set() for _ in nest.nodes]
    needed = [(node.arg, level[node.arg]) for node in nest.nodes if isinstance(node, Reduce)]
    needed += [(n, level[n]) for n, access in nest.stores if varies[n] or access.varies]
    while needed:
        n, stage = needed.pop()
        if stage in stages[n] or not varies[n]:
            continue
        stages[n].add(stage)
        node = nest.nodes[n]
        if isinstance(node, Apply):
            needed += [(a, stage) for a in node.args]
        elif isinstance(node, Total):
            needed.append((node.arg, stage))
    return stages


def rounding(nest: LoopNest, excess: bool) -> LoopNest:
    """The nest that rounds narrow floats after each operation.

    float16 always: without, what overflows it would not be seen to. bfloat16 has float32's range;
    it is rounded where it is stored, or everywhere when no excess precision is allowed."""
    wanted = {"float16"} if excess else {"float16", "bfloat16"}
    dtypes = {n.dtype for n in nest.nodes if isinstance(n, (Apply, Reduce))}
    found = {d.name for d in dtypes} & wanted
    return replace(nest, rounds=frozenset(found)) if found else nest


def rounds_total(nest: LoopNest, n: int) -> bool:
    """Whether a reduction is rounded before other nodes read it, as its array would be.

    A total that is only stored is not: it may be part of a larger one."""
    node = nest.nodes[n]
    return (isinstance(node, Reduce) and node.dtype.name in nest.rounds
            and any(n in x.args for x in nest.nodes if isinstance(x, Apply)))
