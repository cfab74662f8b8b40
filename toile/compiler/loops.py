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

from toile.compiler.groups import REDUCTIONS, Fused, Group, Map, Member
from toile.compiler.operands import Ref
from toile.engine.operation import Operation
from toile.engine.program import Literal, Var
from toile.engine.records import dataclass
from toile.primitives.bits import ShiftLeft, ShiftRightArithmetic, ShiftRightLogical
from toile.primitives.elementwise import Div
from toile.primitives.families import Add, Mul, Neg, Sub
from toile.primitives.shapes import Iota
from toile.primitives.transcendental import Rsqrt, Sqrt


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
    """A constant that is part of the code: processors shift quicker by counts they are told."""

    value: int
    dtype: np.dtype


@dataclass(frozen=True, slots=True)
class Index:
    """A count, as a number: the place along some axes, the last of which runs fastest."""

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
    counts = [n.axes for n in b.nodes if isinstance(n, Index)]
    every = [s for _, _, s, _ in b.loads] + [s for _, _, s, _ in stores]
    sections = [_collapsed(axes, group.extents, every, counts) for axes in (kept, reduced, inner)]
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
        Index(tuple(position[a] for a in n.axes if a in position), n.dtype)
        if isinstance(n, Index) else n for n in b.nodes
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
    axes: list[int], extents: dict[int, int], every: list[dict[int, int]],
    counts: list[tuple[int, ...]],
) -> list[tuple[int, int]]:
    """Axes with extents; neighbours that all operands and counts run through as one are made one,
    which has the inner one's name."""
    out: list[tuple[int, int]] = []
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
        match node:
            case Load(operand):
                level.append(0)
                varies.append(nest.loads[operand].varies)
            case Index(axes, _):
                level.append(0)
                varies.append(any(a >= first for a in axes))
            case Constant() | Number():
                level.append(0)
                varies.append(False)
            case Apply(_, args, _):
                level.append(max((level[a] for a in args), default=0))
                varies.append(any(varies[a] for a in args))
            case Reduce(_, arg, _):
                level.append(level[arg] + 1)
                varies.append(False)
            case Total(_, arg, _):
                level.append(level[arg])
                varies.append(True)
    return level, varies


ARITHMETIC = (Add, Sub, Mul, Div, Neg)


def reciprocal_products(nest: LoopNest) -> frozenset[int]:
    """The divisions, all along a row by one number, that may be products with its reciprocal.

    That is one more rounding, allowed where the result carries those of a root or of a
    transcendental function anyway: the numerator does, or whatever is made of the quotient."""
    if nest.kind == "column":
        return frozenset()
    _, varies = levels(nest)
    inexact: list[bool] = []
    users: list[list[int]] = [[] for _ in nest.nodes]
    for n, node in enumerate(nest.nodes):
        args = node.args if isinstance(node, Apply) else ()
        for a in {*args, *((node.arg,) if isinstance(node, (Reduce, Total)) else ())}:
            users[a].append(n)
        inexact.append(isinstance(node, Apply) and (
            node.op.costly or isinstance(node.op, (Sqrt, Rsqrt))
            or isinstance(node.op, ARITHMETIC) and any(inexact[a] for a in args)))
    stored = {n for n, _ in nest.stores}
    passes = [False] * len(nest.nodes)  # whether nothing but inexact results are made of a node
    for n in reversed(range(len(nest.nodes))):
        passes[n] = n not in stored and all(
            isinstance(m := nest.nodes[u], Apply) and (
                inexact[u] or isinstance(m.op, (Mul, Div, Neg)) and passes[u])
            for u in users[n])
    return frozenset(
        n for n, node in enumerate(nest.nodes)
        if isinstance(node, Apply) and isinstance(node.op, Div)
        and varies[node.args[0]] and not varies[node.args[1]]
        and (inexact[node.args[0]] or passes[n]))


def with_row_buffers(nest: LoopNest, row: int) -> LoopNest:
    """The nest with row buffers for what is costly and needed in more than one pass."""
    if nest.kind != "row" or nest.reduced != 1 or row > LONGEST_BUFFER:
        return nest
    level, varies = levels(nest)
    costly: list[bool] = []
    for node in nest.nodes:
        costly.append(isinstance(node, Apply) and (
            node.op.costly or any(costly[a] for a in node.args)))
    stages: list[set[int]] = [set() for _ in nest.nodes]  # the passes that need each node
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
    dtypes = {n.dtype for n in nest.nodes if isinstance(n, (Apply, Reduce))}
    found = {d.name for d in dtypes} & wanted
    return replace(nest, rounds=frozenset(found)) if found else nest


def rounds_total(nest: LoopNest, n: int) -> bool:
    """Whether a reduction is rounded before other nodes read it, as its array would be.

    A total that is only stored is not: it may be part of a larger one."""
    node = nest.nodes[n]
    return (isinstance(node, Reduce) and node.dtype.name in nest.rounds
            and any(n in x.args for x in nest.nodes if isinstance(x, Apply)))


LONGEST_BUFFER = 1 << 14  # elements of a row buffer
MOST_BUFFERS = 4
SHIFTS = (ShiftLeft, ShiftRightArithmetic, ShiftRightLogical)
