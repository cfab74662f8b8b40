"""Recomputation: cheap values are computed again where they are read instead of stored.

    y = (x - m) s     stored for a later kernel that could read x, m and s instead

Values that fusion would store are considered in the order of the Program. A value is not stored if
only loop nests read it, and if what they read instead (the nearest values that are in memory
anyway) moves fewer bytes than storing it and reading it back. The group of each reader then gets a
copy of the few cheap equations. The normalizations of a deep network keep one array per layer, not
four. If a backend allows it (`more`), small values such as the means of rows are stored for this,
and the choice that needs less memory is preferred: a value is not recomputed from larger ones that
would have to stay in memory for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import field, replace
from itertools import accumulate

from toile.compiler.ir.groups import Fused, Group
from toile.compiler.passes.rewriter import readers_of
from toile.compiler.scalar.builder import BFLOAT16, FLOAT16, FLOAT32
from toile.compiler.scalar.fusible import by_element
from toile.engine.avals import Aval
from toile.engine.operation import Operation
from toile.engine.program import Atom, Equation, Literal, Program, Var, without_dead_code
from toile.engine.records import dataclass
from toile.primitives.shapes import ReducePrecision

MOST_EQUATIONS = 12  # that recomputing a value may take
# The limits if memory matters, as on a GPU, which waits for memory; some costly functions count.
MORE_EQUATIONS, MOST_COSTLY = 15, 2
LEAST_BYTES = 1 << 18  # of a value that is worth recomputing
# The limits for values that are read through views, such as a cache of keys that are converted and
# repeated for several heads: each element may be computed this often, by this many equations. On a
# GPU, conversions of smaller values, such as a norm's parameters, have no limits: a launch takes
# longer than converting them again.
MOST_TIMES, MOST_VIEWED = 16, 2
ROUNDED = {BFLOAT16: ReducePrecision(8, 7), FLOAT16: ReducePrecision(5, 10)}


@dataclass
class _Recipe:
    """How to compute a value from what is in memory."""

    equations: int = 0
    sources: set[Atom] = field(default_factory=set)
    small: set[Atom] = field(default_factory=set)  # sources that are not stored yet
    costly: int = 0  # functions that take many instructions
    most: float = 0.0  # bytes allowed for a small source
    picks: bool = False  # whether it reads elements at computed places

    @property
    def is_tiny(self) -> bool:
        """Whether it may be computed for each element of a view."""
        return self.equations <= MOST_VIEWED and not self.picks


@dataclass
class Recomputed:
    """The new Program, and how to group it (see `fuse`)."""

    program: Program
    homes: dict[Atom, int]  # the groups of the results of loop nests
    whole: dict[int, Group]  # unchanged groups


class _Recomputing:
    def __init__(self, fused: Fused, more: float):
        self.fused, self.program, self.more = fused, fused.program, more
        self.most = MORE_EQUATIONS if more else MOST_EQUATIONS
        self.made: dict[Atom, Equation] = {o: e for e in self.program.equations for o in e.outs}
        self.readers = readers_of(self.program)
        self.returned = set(self.program.outputs)
        self.gone: set[Atom] = set()
        self.viewed: set[Atom] = set()  # those of them that are read through views
        self.recipes: dict[Atom, int] = {}  # how many equations compute each of them
        self.kept: set[Atom] = set()  # small values stored instead, such as the means of rows
        self.loads: dict[int, set[Atom]] = {}
        self.loading: dict[int, Group] = {}  # the groups whose loads are known
        self.last_read = self._last_reads()
        self.sources: dict[Atom, set[Atom]] = {}  # of values that are not stored
        self.denied: set[Atom] = set()
        self.strict = False  # whether each value must need at least as much memory as its sources
        # The new Program.
        self.equations: list[Equation] = []
        self.copies: dict[tuple[int, Atom], Atom] = {}
        self.homes: dict[Atom, int] = {}
        self.changed: set[int] = set()  # changed groups

    def _last_reads(self) -> dict[Atom, int]:
        """The position of the last group that reads each value; inputs and results are kept."""
        last = {}
        for i, g in enumerate(self.fused.groups):
            for member in g.members:
                for a in member.equation.ins:
                    if a.__class__ is Var:
                        last[self.fused.bases.get(a, a)] = i
        forever = len(self.fused.groups)
        return last | dict.fromkeys((*self.program.inputs, *self.program.outputs), forever)

    # ---- what not to store
    def choose(self) -> None:
        """Decide, by the bytes that are moved, which values are not stored. If memory matters,
        decide in two other ways, too, and use the first decision that needs about the least."""
        self._attempt()
        if not self.more or not self.gone:
            return
        ways = [(self._peak(), self.denied, self.strict)]
        denied = self._wasteful()
        for strict in (False, True):
            self._attempt(set() if strict else denied, strict)
            ways.append((self._peak(), self.denied, strict))
        most = min(peak for peak, *_ in ways) * (1 + self.more)
        _, denied, strict = next(way for way in ways if way[0] <= most)
        self._attempt(denied, strict)

    def _attempt(self, denied: set[Atom] | None = None, strict: bool = False) -> None:
        """Decide in the order of the Program, and again where groups read more values then."""
        self.denied, self.strict = denied or set(), strict
        self.gone, self.kept, self.loads, self.sources = set(), set(), {}, {}
        self.viewed, self.recipes, self.loading = set(), {}, {}
        left = [
            e for e in self.program.equations if len(e.outs) == 1
            and e.outs[0] in self.fused.stored and e.outs[0] not in self.denied
        ]
        for _ in range(2 if self.more else 1):
            left = [e for e in left if self._consider(e, e.outs[0])]

    def _longer(self, v: Atom, sources: set[Atom]) -> set[Atom]:
        """The sources that would stay in memory for longer: until the last read of the value."""
        end = self.last_read[v]
        return {a for a in sources if self.last_read.get(a, end) < end}

    def _wasteful(self) -> set[Atom]:
        """Values that are not stored, but whose sources stay in memory for longer and have more
        bytes. Values with common sources are counted together."""
        longer = {v: self._longer(v, sources) for v, sources in self.sources.items()}
        members: dict[Atom, list[Atom]] = {}
        for v, sources in longer.items():
            joined = [v]
            for a in sources:
                if a in members and members[a] is not joined:
                    joined += members[a]
                    for w in members[a]:
                        members.update(dict.fromkeys(longer[w], joined))
                members[a] = joined
        found: set[Atom] = set()
        for joined in {id(m): m for m in members.values()}.values():
            sources = set().union(*(longer[v] for v in joined))
            if _bytes(sources) > _bytes(set(joined)):
                found.update(joined)
        return found

    def _peak(self) -> int:
        """The most bytes of stored values that are needed after any group. What a group is the last
        to read is not counted: its results may take the place."""
        last: dict[Atom, int] = {}
        changes = [0] * (len(self.fused.groups) + 1)
        for i, g in enumerate(self.fused.groups):
            for member in g.members:
                for a in member.equation.ins:
                    base = self.fused.bases.get(a, a)
                    last.update(dict.fromkeys(self.sources.get(base, (base,)), i))
        for i, g in enumerate(self.fused.groups):
            for v in (o for member in g.members for o in member.equation.outs):
                if v in self.kept or v in self.fused.stored and v not in self.gone:
                    changes[i] += v.aval.nbytes
                    changes[max(last.get(v, i), i + 1)] -= v.aval.nbytes
        return max(accumulate(changes))

    def _consider(self, e: Equation, v: Var) -> bool:
        """Decide about a value; True if only the bytes that are moved prevent recomputing it."""
        if not self._is_candidate(e, v):
            return False
        recipe = _Recipe(most=self.more * v.aval.nbytes)
        # Values that are recomputed from it.
        later = [w for w, sources in self.sources.items() if v in sources]
        others = self._others(v, bool(later))
        if not others or not self._collect(v, recipe, first=True):
            return False
        viewed = any(self._is_view(r) for r in self.readers[v])
        if viewed and not recipe.is_tiny or not self._may_precede(later, recipe):
            return False
        if not self._pays(v, recipe, others):
            return True
        self.gone.add(v)
        if viewed:
            self.viewed.add(v)
        self.kept |= recipe.small
        self.sources[v], self.recipes[v] = recipe.sources, recipe.equations
        for w in later:
            self.sources[w] = self.sources[w] - {v} | recipe.sources
            self.recipes[w] += recipe.equations
        for g in others:
            self._loads(g).discard(v)
            self._loads(g).update(recipe.sources)
        return False

    def _others(self, v: Var, indirectly: bool) -> list[Group]:
        """The groups that read a value from memory; `indirectly`: also for values that are
        recomputed from it. Empty if something else reads it."""
        home, users = self.fused.group_of.get(v), self._users(v)
        if home is None or users is None:
            return []
        if indirectly:
            users += [g for g in self.loading.values() if v in self._loads(g)]
        return list({id(g): g for g in users if g is not home}.values())

    def _may_precede(self, later: list[Atom], recipe: _Recipe) -> bool:
        """Whether values that are recomputed may be computed from one with this recipe."""
        return not any(
            w in self.viewed or recipe.picks or recipe.costly
            or self.recipes[w] + recipe.equations > self.most for w in later)

    def _is_candidate(self, e: Equation, v: Var) -> bool:
        """Whether a value is worth recomputing, and only its equation may stand in the way."""
        part = v in self.fused.views  # of a concatenation
        small = v.aval.nbytes < LEAST_BYTES and not (self.more and _is_conversion(e))
        return not (small or part or v in self.returned) and self._is_cheap(e)

    def _pays(self, v: Var, recipe: _Recipe, others: list[Group]) -> bool:
        """Whether reading the sources of a value in other groups is better than storing it."""
        moved = _bytes(recipe.small) - v.aval.nbytes  # saved by not storing v
        for g in others:
            moved += _bytes(recipe.sources - self._loads(g)) - v.aval.nbytes
        if moved >= 0 and moved >= self.more * v.aval.nbytes:
            return False
        return not self.strict or _bytes(self._longer(v, recipe.sources)) <= v.aval.nbytes

    def _is_cheap(self, e: Equation) -> bool:
        if e.op.by_index and e.ins[0].aval.ndim == 1:
            return False  # each element that is read moves a whole sector of memory
        if e.op.picks:
            alone = self.fused.limits.innermost  # as on a GPU
            return e.op.picks([a.aval for a in e.ins], e.outs[0].aval, alone, alone)
        slow = e.op.iterates if self.more else e.op.costly
        return bool(e.ins) and by_element(e) and not slow

    def _users(self, v: Var) -> list[Group] | None:
        """The groups that read a value; None if anything else reads it, or reads a view of it that
        no group can compute for itself."""
        found = []
        for e in self._reading(v):
            group = self.fused.group_of.get(e.outs[0]) if e.outs else None
            if group is None or not group.fusible or e.op.picks and e.ins[0] is v:
                return None
            found.append(group)
        return found

    def _reading(self, v: Var) -> Iterator[Equation]:
        """The equations that read a value. On a GPU, those that read it through views are found,
        too, unless a view repeats the elements too often."""
        most = math.inf if v.aval.nbytes < LEAST_BYTES else MOST_TIMES * v.aval.size
        left: list[Atom] = [v]
        while left:
            for e in self.readers.get(left.pop(), ()):
                if self._is_view(e) and e.outs[0].aval.size <= most:
                    left.append(e.outs[0])
                else:
                    yield e

    def _is_view(self, e: Equation) -> bool:
        """Whether an equation is a view that the groups of its readers can compute."""
        return bool(self.more and e.op.domain_axes is not None and e.outs[0] in self.fused.bases
                    and e.outs[0] not in self.returned)

    def _collect(self, a: Atom, recipe: _Recipe, first: bool = False) -> bool:
        """Add the equations and sources of an atom to a recipe; False if that costs too much."""
        if a.__class__ is Literal:
            return True
        kept = a in self.fused.stored and a not in self.gone or a in self.kept
        e = self.made.get(a)
        if not first and (kept or e is None):
            recipe.sources.add(a)
            return True
        assert e is not None
        if first or not self._is_small(a, recipe):
            return self._collect_inputs(a, e, recipe)
        tried = replace(recipe, sources=set(recipe.sources), small=set(recipe.small))
        if self._collect_inputs(a, e, tried):
            recipe.equations, recipe.sources = tried.equations, tried.sources
            recipe.small, recipe.costly = tried.small, tried.costly
            recipe.picks = tried.picks
        else:
            recipe.sources.add(a)
            recipe.small.add(a)
        return True

    def _is_small(self, a: Atom, recipe: _Recipe) -> bool:
        """Whether a value computed inside a loop nest is small enough to be stored as well."""
        group = self.fused.group_of.get(a)
        return a.aval.nbytes <= recipe.most and group is not None and group.fusible

    def _collect_inputs(self, a: Atom, e: Equation, recipe: _Recipe) -> bool:
        """Add the inputs of an atom's equation to a recipe."""
        if e.op.domain_axes is not None:
            base = self.fused.bases.get(a, a)
            if base.__class__ is Literal:
                return True
            if base not in self.gone and (base in self.fused.stored or base not in self.made):
                recipe.sources.add(base)
                return True
        elif not self._is_cheap(e):
            return False
        recipe.equations += 1
        recipe.costly += e.op.costly
        ins = e.ins
        if e.op.picks:
            recipe.picks = True
            first, *ins = ins
            base = self.fused.bases.get(first, first)
            if base in self.gone or base in self.made and base not in self.fused.stored:
                return False
            recipe.sources.add(base)
        fits = recipe.equations <= self.most and recipe.costly <= MOST_COSTLY
        return fits and all(self._collect(x, recipe) for x in ins)

    def _loads(self, group: Group) -> set[Atom]:
        """The values in memory that a group reads."""
        found = self.loads.get(id(group))
        if found is None:
            found = self.loads[id(group)] = set()
            self.loading[id(group)] = group
            for member in group.members:
                for a in member.equation.ins:
                    base = self.fused.bases.get(a, a)
                    if base.__class__ is Var and self.fused.group_of.get(base) is not group:
                        found.add(base)
        return found

    # ---- the new Program
    def rewritten(self) -> Recomputed:
        """The new Program, and its groups."""
        for e in self.program.equations:
            group = self.fused.group_of.get(e.outs[0]) if e.outs else None
            if group is not None and group.fusible:
                self.homes[e.outs[0]] = group.id
                ins = [self._copied(a, group) for a in e.ins]
                if any(x is not y for x, y in zip(ins, e.ins, strict=True)):
                    e = Equation(e.op, ins, e.outs, e.source, e.scope)
                    self.changed.add(group.id)
            self.equations.append(e)
        new = Program(self.program.inputs, self.equations, self.program.outputs, self.program.name)
        new = without_dead_code(new)
        left = set(map(id, new.equations))
        whole = {
            g.id: g for g in self.fused.groups
            if g.fusible and g.id not in self.changed
            and all(id(m.equation) in left for m in g.members)
        }
        return Recomputed(new, self.homes, whole)

    def _copied(self, a: Atom, group: Group) -> Atom:
        """What replaces an atom in a group: itself, or a copy computed there."""
        if a.__class__ is Literal or not self._needs_copy(a, group):
            return a
        key = id(group), a
        found = self.copies.get(key)
        if found is None:
            e = self.made[a]
            if self._is_view(e) and self.fused.bases[a] in self.viewed:
                found = self._viewed(a, (), group)
            else:
                found = self._computed(a, e, [self._copied(x, group) for x in e.ins], group)
            self.copies[key] = found
        return found

    def _viewed(self, a: Atom, views: tuple[Equation, ...], group: Group) -> Atom:
        """What replaces views of an atom in a group: views of its operands, from which the elements
        are computed. Its domain is then that of the group."""
        e = self.made.get(a)
        if e is not None and self._is_view(e):
            return self._viewed(e.ins[0], (e, *views), group)
        if e is not None and a.aval.shape and self._needs_copy(a, group):
            ins = [self._viewed(x, views, group) if x.aval.shape else self._copied(x, group)
                   for x in e.ins]
            return self._computed(a, e, ins, group)
        a = self._copied(a, group)
        for view in views:
            a = self._add(view.op, [a], view.op.infer(a.aval), view, group)
        return a

    def _computed(self, a: Atom, e: Equation, ins: list[Atom], group: Group) -> Atom:
        """A value computed from these operands, rounded as memory would have rounded it."""
        out = self._add(e.op, ins, e.op.infer(*(x.aval for x in ins)), e, group)
        if a in self.gone and a.aval.dtype in ROUNDED:
            out = self._add(ROUNDED[a.aval.dtype], [out], out.aval, e, group)
        return out

    def _add(self, op: Operation, ins: list[Atom], aval: Aval, e: Equation, group: Group) -> Var:
        out = Var(aval)
        self.equations.append(Equation(op, ins, [out], e.source, e.scope))
        self.homes[out] = group.id
        self.changed.add(group.id)
        return out

    def _needs_copy(self, a: Atom, group: Group) -> bool:
        """Whether a group must compute an atom itself because it is not in memory."""
        if self.fused.group_of.get(a) is group:
            return False
        if a in self.gone:
            return True
        e = self.made.get(a)
        if e is None or a in self.fused.stored or a in self.kept:
            return False
        if e.op.domain_axes is not None:
            return self._needs_copy(e.ins[0], group)
        return self.fused.group_of.get(a) is not None  # computed inside another group


def _is_conversion(e: Equation) -> bool:
    return e.op.only_rounds and all(
        a.aval.dtype in (BFLOAT16, FLOAT16, FLOAT32) for a in (*e.ins, *e.outs))


def _bytes(atoms: set[Atom]) -> int:
    return sum(a.aval.nbytes for a in atoms)


def recompute(fused: Fused, more: float = 0.0) -> Recomputed | None:
    """The Program in which cheap values are recomputed where they are read; None if none are.

    `more` is a fraction of a value's bytes: that many extra bytes may be moved to save memory, and
    each small value that is stored for this may have that many."""
    work = _Recomputing(fused, more)
    work.choose()
    return work.rewritten() if work.gone else None
