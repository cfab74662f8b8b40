"""Cuts: between which equations a chain of stencils is cut into kernels.

Fusion computes each equation as early as it can. A stencil reads neighbors of what an earlier
kernel stores, and a chain of stencils over two or more arrays may then be cut in the middle of each
step, where more values must be stored than between two steps:

    a' = f(neighbors of a, b)    b' = g(neighbors of b, a')     gradients of such steps

Each equation has a level. Kernels run in the order of their levels, and an equation is computed by
a kernel of its level. Moving a set of equations to the next level changes what must be stored and
loaded. The best set is one side of a minimum cut through a network of the equations: an edge whose
ends are on different sides costs the bytes of a value. Sets are moved until nothing is saved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from toile.compiler.ir.groups import Fused, Group
from toile.compiler.ir.views import View, row_major
from toile.compiler.plan.fuse import bits, fuse
from toile.compiler.plan.minimum_cut import SINK, SOURCE, Network
from toile.engine.program import Atom, Equation, Var
from toile.engine.records import dataclass

LEAST_ELEMENTS = 1 << 14  # of arrays whose chains are worth the time
KERNEL = 1 << 16  # bytes that take as long as another kernel
MOST_ROUNDS = 8  # each moves equations by one level
Domain = tuple[int, ...]


def better_cuts(fused: Fused, can_fuse: Callable[[Equation], bool]) -> Fused:
    """The groups, changed where chains of stencils are cut badly."""
    tried: set[Domain] = set()
    while True:
        found = next((d for d in _chains(fused) if _domain(d[0]) not in tried), None)
        if found is None:
            return fused
        tried.add(_domain(found[0]))
        levels = _Levels(fused, found)
        if levels.settle():
            whole = {g.id: g for g in fused.groups if g.fusible and g.id not in levels.chain}
            other = fuse(fused.program, can_fuse, fused.limits, levels.homes(), whole)
            if _cost(other) < _cost(fused):
                fused = other


def moved_bytes(fused: Fused) -> int:
    """The bytes that loop nests load and store."""
    total = 0
    for g in fused.groups:
        if g.fusible:
            loads = {base for m in g.members for base in _bases(fused, m.equation)
                     if fused.group_of.get(base) is not g}
            total += sum(a.aval.nbytes for a in loads)
            total += sum(v.aval.nbytes for v in g.maps if v in fused.stored)
    return total


def _cost(fused: Fused) -> int:
    return moved_bytes(fused) + KERNEL * len(fused.groups)


def _bases(fused: Fused, e: Equation) -> Iterator[Atom]:
    """What the operands of an equation are stored in."""
    for a in e.ins:
        base = fused.bases.get(a, a)
        if base.__class__ is Var:
            yield base


def _domain(g: Group) -> Domain:
    return tuple(g.extents[a] for a in g.order)


def _chains(fused: Fused) -> list[list[Group]]:
    """The groups over each large domain in which a group reads neighbors of what another computes.
    """
    found: dict[Domain, list[Group]] = {}
    chained: set[Domain] = set()
    for g in fused.groups:
        if g.fusible and g.size(g.order) >= LEAST_ELEMENTS:
            domain = _domain(g)
            found.setdefault(domain, []).append(g)
            if domain not in chained and any(
                    _has_neighbors(fused, g, domain, m.equation) for m in g.members):
                chained.add(domain)
    return [groups for domain, groups in found.items() if domain in chained]


def _has_neighbors(fused: Fused, g: Group, domain: Domain, e: Equation) -> bool:
    """Whether an equation reads elements at other positions of what another group over the same
    domain computes."""
    for i, a in enumerate(e.ins):
        base = fused.bases.get(a, a)
        home = fused.group_of.get(base)
        if home is not None and home is not g and home.fusible and _moves(fused, e, i):
            if base.aval.size == g.size(g.order) and _domain(home) == domain:
                return True
    return False


def _moves(fused: Fused, e: Equation, i: int) -> bool:
    """Whether an equation reads elements of an operand's base at other positions."""
    a = e.ins[i]
    if e.op.picks and not i:
        return True
    return a in fused.bases and not _is_in_order(fused.view(a))


def _is_in_order(view: View) -> bool:
    """Whether a view has the elements of its base in their order."""
    return view.offset == 0 and all(
        n == 1 or s == t
        for n, s, t in zip(view.shape, view.strides, row_major(view.shape), strict=True))


@dataclass
class _Value:
    """A value that equations of a chain compute or read; equations have numbers."""

    nbytes: int
    maker: int | None  # None: something else computes it
    stored: bool  # wherever its readers are
    readers: dict[int, None]  # in order


class _Levels:
    """The levels of the equations of a chain, and of all other groups."""

    def __init__(self, fused: Fused, chain: Sequence[Group]):
        self.fused = fused
        self.chain = {g.id for g in chain}
        self.size = chain[0].size(chain[0].order)
        self.numbers: dict[int, int] = {}  # of equations of the chain and of other groups, by id
        self.levels: list[int] = []
        self.values: dict[Atom, _Value] = {}
        self.delays: dict[tuple[int, int], int] = {}  # least differences of levels
        self.returned = {fused.bases.get(o, o) for o in fused.program.outputs}
        first: dict[int, int] = {}
        for g in fused.groups:
            level = first[g.id] = max(
                (first[i] + (i in self.chain) for i in bits(g.direct)), default=0)
            self._add(g, level)
        for g in fused.groups:
            for member in g.members:
                self._read(g, member.equation)

    def _add(self, g: Group, level: int) -> None:
        """Number a group, or its equations if it is in the chain."""
        if g.id not in self.chain:
            self.numbers[id(g)] = len(self.levels)
            self.levels.append(level)
            return
        for member in g.members:
            e, n = member.equation, len(self.levels)
            self.numbers[id(e)] = n
            for o in e.outs:
                self.values[o] = _Value(o.aval.nbytes, n, o in self.returned, {})
            self.levels.append(level)

    def _read(self, g: Group, e: Equation) -> None:
        """Record what an equation reads, and which equations it must follow."""
        fused, inside = self.fused, g.id in self.chain
        reader = self.numbers[id(e if inside else g)]
        for i, a in enumerate(e.ins):
            base = fused.bases.get(a, a)
            home = fused.group_of.get(base)
            if base.__class__ is not Var:
                continue
            value = self.values.get(base)
            if inside and value is None:
                value = self.values[base] = _Value(base.aval.nbytes, None, True, {})
            if inside and value is not None:
                value.readers[reader] = None
            if value is not None and value.maker is not None:
                apart = not inside or home is not g and (
                    base.aval.size != self.size or _moves(fused, e, i))
                value.stored |= apart
                self._follow(value.maker, reader, int(apart))
            elif home is not None and home is not g:
                self._follow(self.numbers[id(home)], reader, 0)

    def _follow(self, first: int, last: int, delay: int) -> None:
        self.delays[first, last] = max(delay, self.delays.get((first, last), 0))

    def homes(self) -> dict[Atom, int]:
        """Where to compute each result: the number of its group or, below zero, its level."""
        return {
            o: -1 - self.levels[self.numbers[id(m.equation)]] if g.id in self.chain else g.id
            for g in self.fused.groups for m in g.members for o in m.equation.outs
        }

    # ---- moving equations to the next level
    def settle(self) -> bool:
        """Move equations until nothing is saved; False if none were moved."""
        rounds = 0
        while rounds < MOST_ROUNDS and self._improve():
            rounds += 1
        return rounds > 0

    def _improve(self) -> bool:
        """Move the equations that save the most bytes; False if none do."""
        self.network = Network(len(self.levels))
        for (first, last), delay in self.delays.items():
            if self.levels[last] - self.levels[first] == delay:
                self.network.require(first, last)
        for value in self.values.values():
            self._price(value)
        moved = self.network.chosen()[:len(self.levels)]
        self.levels = [level + is_moved for level, is_moved in zip(self.levels, moved, strict=True)]
        return any(moved)

    def _price(self, v: _Value) -> None:
        """Add what it costs to store and load a value, depending on the equations that move.

        The costs are exact if nothing moves, and otherwise never too low."""
        network, at = self.network, self._readers_by_level(v)
        first = -1 if v.maker is None else self.levels[v.maker]  # at which it need not be loaded
        if v.maker is not None:
            same, following = at.pop(first, []), at.get(first + 1, [])
            removable = not v.stored and all(k == first + 1 for k in at)
            if following:
                network.cost(SOURCE, v.maker, v.nbytes * (1 + removable))
                if removable:
                    network.cost(self._any(following), SINK, v.nbytes)
            elif same:
                network.cost(self._any(same), v.maker, v.nbytes * (1 + removable))
            first += 1
        for k in sorted({*at, *(k + 1 for k in at)}):
            if k > first or v.maker is None:
                self._price_loads(v, at.get(k, []), at.get(k - 1, []))

    def _readers_by_level(self, v: _Value) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for r in v.readers:
            found.setdefault(self.levels[r], []).append(r)
        return found

    def _price_loads(self, v: _Value, here: list[int], before: list[int]) -> None:
        """Add what it costs to load a value at a level, which `here` read now, and `before` if they
        move. If there are both, it is loaded in most cases."""
        if here and not before:
            every = self.network.node()
            self.network.cost(SOURCE, every, v.nbytes)
            for r in here:
                self.network.require(every, r)
        elif before and not here:
            self.network.cost(self._any(before), SINK, v.nbytes)

    def _any(self, equations: list[int]) -> int:
        """A node that is chosen if one of the equations is."""
        if len(equations) == 1:
            return equations[0]
        node = self.network.node()
        for e in equations:
            self.network.require(e, node)
        return node
