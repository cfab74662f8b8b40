"""Groups: equations that one loop nest computes together.

A group has a domain, a list of axes with extents. Each value in the group is laid over the domain:
its map names, for each axis of the value, the domain axes that run along it. Values are full (they
have all axes) or reduced (they lack the axes that the group's reductions sum over). A group that
works row by row may also have totals: sums over its rows, which are known when the group ends. Only
maps and extents are decided here; memory is assigned later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from toile.compiler.ir import views
from toile.compiler.ir.views import View
from toile.engine.operation import Operation
from toile.engine.program import Atom, Equation, Program
from toile.engine.records import dataclass

Map = tuple[tuple[int, ...], ...]  # domain axes for each axis of a value
ADJACENT = 32  # elements of neighboring rows that threads read together


@dataclass(frozen=True)
class Limits:
    """Limits of a backend on the size of groups."""

    members: int = 256  # equations in one kernel: compile time grows faster than their number
    costly: int = 1  # how many of them a costly one counts for
    long_row: int = 1 << 16  # elements: rows at least this long deserve more than one thread
    few_rows: int = 8
    total_row: int = 0  # the longest row whose totals are kept while rows are processed; 0: none
    innermost: bool = False  # whether elements at computed places along it can be read
    more_moved: float = 0.0  # extra bytes that may be moved to avoid storing one byte
    # The longest row, and the fewest such rows, that threads process one each, although the
    # elements of a row are not adjacent in memory; those of neighboring rows are.
    strided_rows: tuple[tuple[int, int], ...] = ()

    def weight(self, op: Operation) -> int:
        """The number of ordinary equations that count as much as one with this operation."""
        return self.costly if op.costly else 1


class Member:
    """An equation of a group, with the maps of its operands and of its result."""

    __slots__ = ("equation", "ins", "out")

    def __init__(self, equation: Equation, ins: list[Map], out: Map):
        self.equation, self.ins, self.out = equation, ins, out


class Group:
    """A group while it is being built."""

    __slots__ = ("id", "members", "weight", "maps", "extents", "order", "reduced", "fusible",
                 "before", "direct", "readers", "staged", "totals", "strided")

    def __init__(self, id: int, fusible: bool):
        self.id, self.fusible = id, fusible
        self.members: list[Member] = []
        self.weight = 0  # of all members (see `Limits`)
        self.maps: dict[Any, Map] = {}  # of each variable
        self.extents: dict[int, int] = {}
        self.order: list[int] = []  # domain axes, innermost last
        self.reduced: frozenset[int] | None = None
        self.staged = False  # whether some member uses a reduced value
        self.strided = False  # whether rows are not adjacent in memory (see `Limits.strided_rows`)
        self.totals: set[Atom] = set()  # sums over the axes that are not in `reduced`
        self.direct = 0  # bits of the groups that this one reads from
        self.readers: set[int] = set()  # the groups that read from this one
        self.before = 0  # bits of the groups that must run before this one

    def take_over(self, other: Group) -> None:
        """Take over the members of another group."""
        self.members, self.weight, self.maps = other.members, other.weight, other.maps
        self.extents, self.order, self.reduced = other.extents, other.order, other.reduced
        self.staged, self.totals, self.strided = other.staged, other.totals, other.strided

    # ---- the domain
    def axis(self, extent: int) -> int:
        """Add an innermost axis; returns its number."""
        a = max(self.extents, default=-1) + 1
        self.extents[a] = extent
        self.order.append(a)
        return a

    def spread(self, shape: Sequence[int]) -> Map:
        """Add axes for a value of this shape; axes of size 1 need none."""
        return tuple((self.axis(n),) if n != 1 else () for n in shape)

    def is_reduced(self, m: Map) -> bool:
        """Whether a value lacks the axes that the group sums over."""
        return self.reduced is not None and not any(a in self.reduced for t in m for a in t)

    @property
    def rows(self) -> bool:
        """Whether the axes summed over are exactly the innermost ones."""
        r = self.reduced or ()
        return bool(r) and all(a in r for a in self.order[len(self.order) - len(r):])

    def row_by_row(self, limits: Limits) -> bool:
        """Whether each row that is summed over is processed as a whole by one thread."""
        if self.reduced is None:
            return False
        row = self.size(tuple(self.reduced))
        rows = self.size(tuple(a for a in self.order if a not in self.reduced))
        return row < limits.long_row or rows >= limits.few_rows

    def can_stride(self, limits: Limits) -> bool:
        """Whether threads can process one row each, neighbors reading neighboring elements."""
        reduced = self.reduced or frozenset()
        if not reduced or self.rows:
            return False
        last = max(self.order.index(a) for a in reduced)
        row, inner = self.size(tuple(reduced)), self.size(self.order[last + 1:])
        rows = self.size(tuple(a for a in self.order if a not in reduced))
        return inner >= ADJACENT and any(
            row <= most and rows >= fewest for most, fewest in limits.strided_rows)

    def stride(self) -> None:
        """Make the axes that are summed over the innermost ones."""
        reduced = self.reduced or frozenset()
        self.order.sort(key=lambda a: a in reduced)
        self.strided = True

    def can_reduce_rows(self, row: frozenset[int], rows: frozenset[int], limits: Limits) -> bool:
        """Whether sums over the axes `rows` can be formed while the axes `row` are processed."""
        inner = self.order[len(self.order) - len(row):]
        return (
            bool(row) and not self.strided and set(inner) == row and rows == set(self.order) - row
            and self.size(tuple(row)) <= limits.total_row
            and self.size(tuple(rows)) >= limits.few_rows
        )

    def sums(self) -> set[Atom]:
        """The results of reductions."""
        return {m.equation.outs[0] for m in self.members if m.equation.op.is_reduction}

    def size(self, axes: Sequence[int]) -> int:
        return math.prod(self.extents[a] for a in axes)

    def split(self, axis: int, inner: int) -> tuple[int, int]:
        """Split an axis in two; `inner` is the extent of the inner one."""
        outer_axis = max(self.extents) + 1
        self.extents[outer_axis] = self.extents[axis] // inner
        self.extents[axis] = inner
        self.order.insert(self.order.index(axis), outer_axis)
        if self.reduced is not None and axis in self.reduced:
            self.reduced |= {outer_axis}
        self.rename(lambda t: tuple(b for a in t for b in (
            (outer_axis, axis) if a == axis else (a,))))
        return outer_axis, axis

    def rename(self, each: Callable[[tuple[int, ...]], tuple[int, ...]]) -> None:
        """Apply a function to every map, one axis of a value at a time."""
        def new(m: Map) -> Map:
            return tuple([each(t) for t in m])

        for member in self.members:
            member.ins = [new(m) for m in member.ins]
            member.out = new(member.out)
        self.maps = {v: new(m) for v, m in self.maps.items()}

    # ---- maps of views
    def view(self, op: Operation, m: Map) -> Map | None:
        """The map of `op(x)`, where `m` is that of x; None if the domain cannot express it.

        A reshape may split axes, which changes the maps of all values: look `m` up again."""
        return None if op.domain_axes is None else op.domain_axes(self, m)

    def broadcast(self, shape: Sequence[int], dims: Sequence[int], m: Map) -> Map | None:
        """The map of a value that is repeated along new axes or axes of size 1."""
        given = dict(zip(dims, m, strict=True))
        missing = [i for i, n in enumerate(shape) if n != 1 and not given.get(i)]
        if not missing:
            return tuple(given.get(i, ()) for i in range(len(shape)))
        if not self.is_reduced(m):
            return None
        assert self.reduced is not None
        left = [a for a in self.order if a in self.reduced]
        for i in missing:  # the new axes must be those that were summed over, in the same order
            taken: list[int] = []
            while left and self.size(taken) < shape[i]:
                taken.append(left.pop(0))
            if self.size(taken) != shape[i]:
                return None
            given[i] = tuple(taken)
        return None if left else tuple(given.get(i, ()) for i in range(len(shape)))

    def reshape(self, shape: Sequence[int], m: Map) -> Map | None:
        """The map of a value after a reshape."""
        left = [a for t in m for a in t]
        if not self._fits(shape, left):
            return None
        out: list[tuple[int, ...]] = []
        for n in shape:
            taken: list[int] = []
            while self.size(taken) < n:
                a = left.pop(0)
                over = self.size(taken) * self.extents[a] // n
                if over > 1:  # only a part of this axis is needed
                    a, rest = self.split(a, over)
                    left.insert(0, rest)
                taken.append(a)
            out.append(tuple(taken))
        return tuple(out)

    def _fits(self, shape: Sequence[int], axes: Sequence[int]) -> bool:
        """Whether splitting these axes can give the shape."""
        left = [self.extents[a] for a in axes]
        for n in shape:
            have = 1
            while have < n:
                if not left:
                    return False
                e = left.pop(0)
                have *= e
                if have > n:
                    if have % n or e % (have // n):
                        return False
                    left.insert(0, have // n)
                    have = n
            if have != n:
                return False
        return True


@dataclass
class Fused:
    """The groups of a Program in execution order, and where its variables are in memory."""

    program: Program
    groups: list[Group]
    views: dict[Atom, View]
    group_of: dict[Atom, Group]
    stored: set[Atom] = field(default_factory=set)  # results of groups that are written to memory
    bases: dict[Atom, Atom] = field(default_factory=dict)  # what each view is a view of
    limits: Limits = Limits()

    def view(self, a: Atom) -> View:
        """Where the elements of an atom lie in memory."""
        found = self.views.get(a)  # literals have none
        return views.whole(a) if found is None else found
