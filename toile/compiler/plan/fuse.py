"""Fusion: which equations are computed by one loop nest.

Equations are processed in order. Each joins the group of one of its producers if the group's
domain can hold it and no other group would have to run in between; it then merges the groups of its
other producers into that one. Views have no group: a reader of a view reads its base. Equations
that are not loop nests over one domain (products, gathers, loops ...) are groups of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toile.compiler.ir import views
from toile.compiler.ir.groups import Fused, Group, Limits, Map, Member
from toile.compiler.ir.views import View
from toile.compiler.plan.order import ordered
from toile.compiler.plan.parts import write_parts_in_place
from toile.engine.program import Atom, Equation, Program, Var
from toile.primitives.families import Reshape

SMALL = 1 << 18  # elements
OUTSIDE: Map = ((-1,),)  # the map of operands that a group does not compute


class Fusion:
    """The state of the pass over one Program."""

    def __init__(self, program: Program, can_fuse: Any, limits: Limits,
                 homes: Mapping[Atom, Any] | None, whole: Mapping[Any, Group]):
        self.program, self.can_fuse, self.limits = program, can_fuse, limits
        self.homes = homes  # the home of each result: only results with the same home are fused
        self.whole = whole  # unchanged groups of an earlier fusion, by home
        self.again: dict[Any, Group] = {}  # those of them that were created again, by home
        self.home_of: dict[int, Any] = {}  # by group
        self.groups: dict[int, Group] = {}
        self.group_of: dict[Atom, Group] = {}
        self.views: dict[Atom, View] = {}
        self.chains: dict[Atom, tuple[Atom, tuple[Any, ...]]] = {}  # base and view operations
        self.count = 0
        self.last_effect: Group | None = None  # effects keep their order
        self.position = {id(e): i for i, e in enumerate(program.equations)}

    def run(self) -> Fused:
        for e in self.program.equations:
            if not self._take_view(e):
                self._place(e)
        if self.limits.total_row:
            self._merge_siblings()
        self._merge_interleaved()
        if self.homes is not None:
            self._merge_homes()
        self._leave_alone()
        groups = self._ordered()
        fused = Fused(self.program, groups, self.views, self.group_of, limits=self.limits)
        fused.stored = self._stored(groups)
        fused.bases = {v: base for v, (base, _) in self.chains.items()}
        write_parts_in_place(fused)
        return fused

    # ---- views
    def _chain(self, a: Atom) -> tuple[Atom, tuple[Any, ...]]:
        found = self.chains.get(a)  # literals have none
        return (a, ()) if found is None else found

    def _view(self, a: Atom) -> View:
        found = self.views.get(a)  # literals have none
        return views.whole(a) if found is None else found

    def _take_view(self, e: Equation) -> bool:
        """If the result is a view, record it as a view of its operand's base."""
        if e.op.is_barrier:
            for a, o in zip(e.ins, e.outs, strict=True):
                self.views[o] = self._view(a)
                base, ops = self._chain(a)
                self.chains[o] = (base, (*ops, e.op))  # a barrier has no map in any group
            return True
        if len(e.ins) != 1 or len(e.outs) != 1 or e.outs[0].aval.size == 0:
            return False
        op, before = e.op, self._view(e.ins[0])
        if op.is_reduction and e.ins[0].aval.size == e.outs[0].aval.size:
            op = Reshape(e.outs[0].aval.shape)  # each element is a sum of one element
        identity = op.forwards_operand
        found = before if identity else op.view(before)
        if found is None:
            return False
        base, ops = self._chain(e.ins[0])
        self.views[e.outs[0]] = found
        self.chains[e.outs[0]] = (base, ops if identity else (*ops, op))
        return True

    # ---- placing equations
    def _new_group(self, fusible: bool) -> Group:
        group = Group(self.count, fusible)
        self.groups[self.count] = group
        self.count += 1
        return group

    def _place(self, e: Equation) -> None:
        producers = self._producers(e)
        known = self._known(e) if self.whole else None
        if known is not None:
            group = known
        elif not self.can_fuse(e):
            group = self._new_group(False)
            group.members.append(Member(e, [], ()))
        else:
            group = self._join(e, producers)
        for o in e.outs:
            self.group_of[o] = group
        if e.effects:
            if self.last_effect is not None:
                producers = [*producers, self.last_effect]
            self.last_effect = group
        self._run_before(group, producers)
        if group.fusible and group.members[0].equation is e and e.op.by_index:
            for p in producers:  # what computes the indices of elements may read them, too
                if p.fusible and p.id in self.groups:
                    self._merge(group, p)

    def _known(self, e: Equation) -> Group | None:
        """The unchanged group that an equation is already in, if there is one.

        Its later members are added before they are reached. That creates no cycle: each new group
        is made of equations that were in one group before, and those groups could be ordered."""
        assert self.homes is not None
        home = self.homes.get(e.outs[0]) if e.outs else None
        found = self.again.get(home)
        if found is None and home in self.whole:
            found = self._new_group(True)
            found.take_over(self.whole[home])
            self.again[home], self.home_of[found.id] = found, home
        return found

    def _producers(self, e: Equation) -> list[Group]:
        """The groups that compute the operands, the latest first."""
        found: dict[int, Group] = {}
        chains, group_of = self.chains, self.group_of
        for a in e.ins:
            chain = chains.get(a)
            group = group_of.get(a if chain is None else chain[0])
            if group is not None:
                found[group.id] = group
        if len(found) < 2:
            return list(found.values())
        return [found[i] for i in sorted(found, reverse=True)]

    def _run_before(self, group: Group, producers: list[Group]) -> None:
        """Update `before` of all groups after `group` got these producers."""
        added = group.before
        for p in producers:
            if p is not group and p.id in self.groups:  # it may have been merged into `group`
                added |= p.before | (1 << p.id)
                group.direct |= 1 << p.id
                p.readers.add(group.id)
        if added != group.before:
            group.before = added
            self._pass_on(group)

    def _pass_on(self, group: Group) -> None:
        """Make all groups that wait for `group` wait for its predecessors, too."""
        bits, left = group.before | (1 << group.id), list(group.readers)
        while left:
            g = self.groups[left.pop()]
            if bits & ~g.before:  # otherwise its readers have these bits, too
                g.before |= bits
                left += g.readers

    def _join(self, e: Equation, producers: list[Group]) -> Group:
        home: Group | None = None
        for p in producers:
            if not self._belongs(e, p):
                continue
            if home is None:
                if p.fusible and self._may_follow(p, producers) and self._add(p, e):
                    home = p
                    self._run_before(home, producers)
            elif p.fusible and p.id in self.groups:
                self._merge(home, p)
        if home is None:
            home = self._new_group(True)
            self._begin(home, e)
            if self.homes is not None:
                self.home_of[home.id] = self.homes.get(e.outs[0])
        return home

    def _belongs(self, e: Equation, group: Group) -> bool:
        return self.homes is None or self.homes.get(e.outs[0]) == self.home_of.get(group.id)

    def _may_follow(self, group: Group, producers: list[Group]) -> bool:
        """Whether the group has room and none of the other producers must run after it."""
        if group.weight >= self.limits.members:
            return False
        mine = 1 << group.id
        return not any(p.before & mine for p in producers if p is not group)

    def _append(self, group: Group, member: Member) -> None:
        group.members.append(member)
        group.weight += self.limits.weight(member.equation.op)

    def _begin(self, group: Group, e: Equation) -> None:
        """Build the domain of a new group from its first equation."""
        if e.op.is_reduction:
            self._reduce(group, e, group.spread(e.ins[0].aval.shape))
            return
        m = group.spread(e.outs[0].aval.shape)
        maps = e.op.picked_maps(m) if e.op.picks else [m if a.aval.shape else () for a in e.ins]
        self._append(group, Member(e, maps, m))
        group.maps[e.outs[0]] = m

    def _reduce(self, group: Group, e: Equation, m: Map) -> bool:
        axes = e.op.axes  # type: ignore[attr-defined]
        reduced = frozenset(a for i in axes for a in m[i])
        if group.reduced is None:
            group.reduced = reduced
        elif group.reduced != reduced:
            if group.can_reduce_rows(group.reduced, reduced, self.limits):
                group.totals.add(e.outs[0])
            elif not group.staged and group.can_reduce_rows(reduced, group.reduced, self.limits):
                group.totals, group.reduced = group.sums(), reduced
            else:
                return False
        out = tuple(t for i, t in enumerate(m) if i not in axes)
        self._append(group, Member(e, [m], out))
        group.maps[e.outs[0]] = out
        return True

    def _inside(self, group: Group, a: Atom) -> Map | None:
        """The map of an operand that the group computes, or OUTSIDE; None if it has no map."""
        chain = self.chains.get(a)
        base, ops = (a, ()) if chain is None else chain
        if self.group_of.get(base) is not group:  # literals have none
            return OUTSIDE
        if base in group.totals:
            return None  # it is known only when the group has ended
        m = group.maps[base]
        for op in ops:
            found = group.view(op, m)
            if found is None:
                return None
            m = found
        return m

    def _add(self, group: Group, e: Equation) -> bool:
        """Add an equation to a group if the operands computed there are available where needed."""
        inside = None if e.op.picks else self._operands_inside(group, e)
        if inside is None:
            return False
        staged = self._uses_sums(group, e)
        if staged and not self._can_have_stages(group):
            return False
        if e.op.is_reduction:
            m = inside[0]
            return not group.is_reduced(m) and self._reduce(group, e, m) and (
                not staged or self._stage(group))
        rank = len(e.outs[0].aval.shape)
        full = [m for m in inside if len(m) == rank]
        if not full or full.count(full[0]) != len(full):
            return False
        if staged:
            self._stage(group)
        out = full[0]
        ins = [out if a.aval.shape else () for a in e.ins]
        self._append(group, Member(e, ins, out))
        group.maps[e.outs[0]] = out
        return True

    def _operands_inside(self, group: Group, e: Equation) -> list[Map] | None:
        """The maps of the operands that the group computes; None if one of them has no map."""
        axes = len(group.order)
        found = [self._inside(group, a) for a in e.ins]
        if len(group.order) != axes:  # a reshape has split an axis: maps found before are outdated
            found = [self._inside(group, a) for a in e.ins]
        inside = [m for m in found if m is not None and m is not OUTSIDE]
        return None if None in found else inside

    def _uses_sums(self, group: Group, e: Equation) -> bool:
        """Whether an operand is a reduced value of the group, or a broadcast of one."""
        if group.reduced is None:
            return False
        bases = [self._chain(a)[0] for a in e.ins]
        return any(group.is_reduced(group.maps[b]) for b in bases if self.group_of.get(b) is group)

    def _can_have_stages(self, group: Group) -> bool:
        """Whether reduced values can be used inside the group: if one thread works row by row."""
        return group.rows and group.row_by_row(self.limits) or group.can_stride(self.limits)

    def _stage(self, group: Group) -> bool:
        """Let a group use its reduced values."""
        if not group.rows:
            group.stride()
        group.staged = True
        return True

    # ---- merging groups
    def _merge(self, home: Group, other: Group) -> None:
        """Merge another producer of a member of `home` into `home`, if possible."""
        if self._between(home, other) or self._between(other, home):
            return
        pairs = [*self._crossing(home, other), *((b, a) for a, b in self._crossing(other, home))]
        if not any(a is None or b is None for a, b in pairs):
            self._unite(home, other, pairs)

    def _unite(self, home: Group, other: Group, pairs: list[tuple[Any, Any]]) -> bool:
        """Merge two groups, if the paired maps can be made equal."""
        if home.weight + other.weight > self.limits.members:
            return False
        if self.home_of.get(home.id) != self.home_of.get(other.id):
            return False
        names = _unify(home, other, pairs)
        if names is None:
            return False
        found = self._sums_of_both(home, other, names)
        if found is None:
            return False
        before = home.reduced
        home.reduced, totals = found
        staged = home.staged or other.staged or any(
            self._uses_sums(g, m.equation) for g in (home, other) if g.reduced is not None
            for m in (*home.members, *other.members)
        )
        rows = home.rows and home.row_by_row(self.limits)
        if totals and not rows or staged and not self._can_have_stages(home):
            home.reduced = before
            return False
        home.totals = totals
        if staged:
            self._stage(home)
        self._absorb(home, other, names)
        return True

    def _sums_of_both(self, home: Group, other: Group,
                      names: dict[int, int]) -> tuple[frozenset[int] | None, set[Atom]] | None:
        """The axes that the merged group would sum over, and its totals."""
        mine, theirs = home.reduced, other.reduced
        if theirs is not None:
            theirs = frozenset(names[a] for a in theirs)
        totals = home.totals | other.totals
        if mine is None or theirs is None or mine == theirs:
            return theirs if mine is None else mine, totals
        for row, rows, summing in ((mine, theirs, other), (theirs, mine, home)):
            fits = home.can_reduce_rows(row, rows, self.limits)
            if fits and not (summing.staged or summing.totals):
                added = summing.sums()
                read = {self._chain(a)[0] for m in (*home.members, *other.members)
                        for a in m.equation.ins}
                return None if added & read else (row, totals | added)
        return None

    def _merge_siblings(self) -> None:
        """Move sums over rows into a group that already reads the same rows, and compute different
        sums of one array together."""
        self._merge_sums()
        rows: dict[Any, list[tuple[Group, Map]]] = {}
        columns: list[tuple[Group, Any, Map]] = []
        for group in self.groups.values():
            if group.fusible and group.reduced is not None:
                for chain, m in self._full_reads(group):
                    if group.rows:
                        rows.setdefault(chain, []).append((group, m))
                    elif not group.staged:
                        columns.append((group, chain, m))
        for column, chain, m in columns:
            for row, theirs in rows.get(chain, ()):
                if self._independent(row, column) and self._unite(row, column, [(theirs, m)]):
                    break

    def _merge_sums(self) -> None:
        """Merge groups that sum the same array over the same axes, if one of them does nothing
        else: the smallest and the largest element are found in one pass."""
        known: dict[Any, list[tuple[Group, Map]]] = {}
        for group in list(self.groups.values()):
            if not group.fusible or group.reduced is None or group.totals:
                continue
            for chain, m in list(self._full_reads(group)):
                along = tuple(any(a in group.reduced for a in t) for t in m)
                found = known.setdefault((chain, along), [])
                if any(self._independent(home, group) and not (home.staged and group.staged)
                       and self._unite(home, group, [(theirs, m)]) for home, theirs in found):
                    break
                found.append((group, m))

    def _merge_interleaved(self) -> None:
        """Merge groups that read parts of the same cache lines, such as the x, y and z of points:
        apart, each of them would read the whole array."""
        homes: dict[Any, list[tuple[Group, Map]]] = {}
        for group in list(self.groups.values()):
            found = [] if not group.fusible or group.reduced is not None else [
                (self._chain(a)[0], tuple((axis,) for t in m for axis in t))
                for member in group.members
                for a, m in zip(member.equation.ins, member.ins, strict=True)
                if views.is_interleaved(self._view(a)) and not member.equation.op.picks]
            for base, m in found:
                known = homes.setdefault((base, len(m)), [])
                if any(self._independent(home, group) and self._unite(home, group, [(theirs, m)])
                       for home, theirs in known):
                    break
                known.append((group, m))

    def _merge_homes(self) -> None:
        """Merge groups of one home that read the same values and do not depend on each other."""
        known: dict[Any, list[tuple[Group, Map]]] = {}
        for group in list(self.groups.values()):
            if not group.fusible or group.id not in self.home_of:
                continue
            for chain, m in list(self._full_reads(group)):
                found = known.setdefault((self.home_of[group.id], chain), [])
                if any(self._independent(g, group) and self._unite(g, group, [(theirs, m)])
                       for g, theirs in found):
                    break
                found.append((group, m))

    def _full_reads(self, group: Group) -> Iterator[tuple[Any, Map]]:
        """What a group reads from others along all of its axes: base and views, and the map."""
        for member in group.members:
            for a, m in zip(member.equation.ins, member.ins, strict=True):
                chain = self._chain(a)
                outside = chain[0].__class__ is Var and self.group_of.get(chain[0]) is not group
                if outside and sum(map(len, m)) >= len(group.order):
                    yield chain, m

    def _independent(self, first: Group, second: Group) -> bool:
        """Whether both groups still exist and neither must wait for the other."""
        alive = first is not second and first.id in self.groups and second.id in self.groups
        return alive and not (first.before >> second.id & 1 or second.before >> first.id & 1)

    def _crossing(self, reader: Group, giver: Group) -> list[tuple[Any, Any]]:
        """For each value that `reader` reads from `giver`: the reader's map and the giver's map."""
        found = []
        chains, group_of = self.chains, self.group_of
        for member in reader.members:
            for i, a in enumerate(member.equation.ins):
                chain = chains.get(a)
                if group_of.get(a if chain is None else chain[0]) is giver:
                    apart = i == 0 and member.equation.op.picks  # read from memory
                    found.append((None if apart else member.ins[i], self._inside(giver, a)))
        return found

    def _between(self, first: Group, last: Group) -> bool:
        """Whether a third group must run after `first` and before `last`."""
        mine = 1 << first.id
        # The last group on such a path is one that `last` reads from.
        return any(self.groups[i].before & mine for i in bits(last.direct & ~mine))

    def _absorb(self, home: Group, other: Group, names: dict[int, int]) -> None:
        if any(a != b for a, b in names.items()):
            other.rename(lambda t: tuple([names[a] for a in t]))
        # Members stay in the order of the Program: operands come before their users.
        home.weight += other.weight
        members = [*home.members, *other.members]
        home.members = sorted(members, key=lambda m: self.position[id(m.equation)])
        home.maps.update(other.maps)
        for v in other.maps:
            self.group_of[v] = home
        del self.groups[other.id]
        # Bits of merged groups may remain in `before`: they are never read.
        gone, mine = 1 << other.id, 1 << home.id
        home.before = (home.before | other.before) & ~gone & ~mine
        for i in bits(other.direct):
            self.groups[i].readers.discard(other.id)
            self.groups[i].readers.add(home.id)
        for i in other.readers:
            self.groups[i].direct = (self.groups[i].direct | mine) & ~gone
        home.direct = (home.direct | other.direct) & ~gone & ~mine
        home.readers = (home.readers | other.readers) - {other.id, home.id}
        self._pass_on(home)

    def _leave_alone(self) -> None:
        """Give an equation that picks elements a kernel of its own if it was fused with nothing.

        A small padded array is better computed by one nest than part by part."""
        for group in self.groups.values():
            e = group.members[0].equation
            small = self.limits.innermost and e.op.margins is not None and (
                e.outs[0].aval.size < SMALL)
            nest = small or e.op.kernel_family is None
            if group.fusible and len(group.members) == 1 and e.op.picks and not nest:
                group.fusible = False
                group.members = [Member(group.members[0].equation, [], ())]
                group.maps = {}

    # ---- the end
    def _ordered(self) -> list[Group]:
        """The groups in the order in which they run."""
        return ordered(
            self.groups,
            lambda g: self.position[id(g.members[-1].equation)],
            lambda a: self._chain(a)[0],
        )

    def _stored(self, groups: list[Group]) -> set[Atom]:
        """What must be in memory: results, and what other groups or other kernels read."""
        stored = {self._chain(o)[0] for o in self.program.outputs}
        for g in groups:
            for member in g.members:
                for a in member.equation.ins:
                    base = self._chain(a)[0]
                    if not g.fusible or self.group_of.get(base) is not g:
                        stored.add(base)
        return {a for a in stored if a.__class__ is Var}


def bits(word: int) -> Iterator[int]:
    """The positions of the bits that are set."""
    while word:
        lowest = word & -word
        yield lowest.bit_length() - 1
        word ^= lowest


def _unify(home: Group, other: Group, pairs: Any) -> dict[int, int] | None:
    """Find axes of `home` for the axes of `other`, such that paired values have equal maps."""
    names: dict[int, int] = {}
    for ours, theirs in pairs:
        for t, u in zip(ours, theirs, strict=True):
            if [home.extents[a] for a in t] != [other.extents[a] for a in u]:
                return None
            for a, b in zip(u, t, strict=True):
                if names.setdefault(a, b) != b:
                    return None
    left = [a for a in other.order if a not in names]
    free = [a for a in home.order if a not in names.values()]
    # If axes are left, the pairs are reduced values: both groups must sum over the same extents.
    if [other.extents[a] for a in left] != [home.extents[a] for a in free]:
        return None
    names.update(zip(left, free, strict=True))
    return names


def fuse(
    program: Program, can_fuse: Any, limits: Limits = Limits(),  # noqa: B008 - frozen
    homes: Mapping[Atom, Any] | None = None, whole: Mapping[Any, Group] | None = None,
) -> Fused:
    """Group the equations of a Program; `can_fuse(e)`: whether a loop nest can compute `e`.

    With `homes`, two equations are fused only if their results have the same home; `whole` holds
    the groups that are kept: those of homes in which no equation has changed."""
    return Fusion(program, can_fuse, limits, homes, whole or {}).run()
