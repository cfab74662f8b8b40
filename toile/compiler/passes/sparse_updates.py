"""Update only the rows of a table that a step has used.

The gradient of `table[ids]` is zero except in the rows `ids`. Some rules change no other rows:

    g = zeros.at[ids].add(u);  p' = p - 0.1 g    becomes    p' = p.at[ids].set(p[ids] - 0.1 g[ids])

A sum of scattered updates is replaced in this way if all that is computed from it, element by
element, ends in results that equal one of their operands wherever the sum is zero, as with SGD and
Adagrad. A step then reads and writes the used rows of parameters and states, and if they are
donated, nothing else of them. An index may occur twice: both write the same values. The sum is then
computed for these rows only: an array of numbers, one for each row of the table, says which of the
updates collects those of its row.

In rows that are not used, a product of zero and an infinity counts as zero here, not as NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from heapq import heappop, heappush
from math import prod
from typing import Any

import numpy as np

from toile.compiler.passes.random_bits import spliced
from toile.compiler.passes.rewriter import Rewriter
from toile.compiler.scalar.fusible import by_element
from toile.engine import dtypes
from toile.engine.program import Atom, Equation, Literal, Program, Var
from toile.primitives.addresses import (
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
)
from toile.primitives.families import broadcast_in_dim, reshape, scalar
from toile.primitives.gathers import Gather, Scatter
from toile.primitives.shapes import Concatenate, iota

LEAST = 1 << 14  # elements of a table
SHARE = 4  # the elements of the table for each one that is updated, at least
LEAST_ROW = 4  # elements of a row; fewer are summed up in an array with the table's shape
MOST = 48  # equations that are computed for rows instead

_ZERO, _UNKNOWN = object(), object()


def update_used_rows(program: Program) -> Program:
    """Replace updates of whole tables by updates of the rows that were used."""
    sums = [e for e in program.equations if _is_sum(e)]
    if not sums:
        return program
    finder = _Finder(program, sums)
    found: list[_Update] = []
    for e in sums:
        if not any(e in u.sums for u in found) and (update := finder.update(e)) is not None:
            found.append(update)
    return _rewritten(program, found) if found else program


def _is_sum(e: Equation) -> bool:
    """Whether an equation adds up a few updates of a large array of zeros."""
    if not (e.op.updates and e.op.by_blocks) or getattr(e.op, "combine", "") != "add":
        return False
    table, _, updates = (a.aval for a in e.ins)
    return (table.size >= max(LEAST, SHARE * updates.size) and updates.size > 0
            and dtypes.kind(table.dtype) == "f")


def _scatter(e: Equation) -> Scatter:
    op: Any = e.op
    return op


class _Update:
    """What is computed for rows: sums of one shape, the equations that depend on them and those
    that they also need, and the results, each with the array that it changes."""

    def __init__(self, sums: list[Equation]):
        self.sums = sums
        self.members: dict[Atom, Equation] = {}
        self.needed: dict[Atom, Equation] = {}
        self.results: dict[Atom, Var] = {}


class _Finder:
    def __init__(self, program: Program, sums: Sequence[Equation]):
        self.program, self.outputs = program, set(program.outputs)
        self.made: dict[Atom, Equation] = {o: e for e in program.equations for o in e.outs}
        self.readers: dict[Atom, list[int]] = {}
        for i, e in enumerate(program.equations):
            for a in dict.fromkeys(e.ins):
                if a.__class__ is Var:
                    self.readers.setdefault(a, []).append(i)
        self.sums: dict[Atom, Equation] = {
            e.outs[0]: e for e in sums if self._value(e.ins[0]) is _ZERO}

    def update(self, e: Equation) -> _Update | None:
        """The update that uses a sum; None if it changes whole arrays, or nothing."""
        sums = [e] if e.outs[0] in self.sums else []
        while sums:
            found = _Update(sums)
            more = self._follow(found)
            if more.__class__ is not Equation:
                return found if more and found.results and _joins(sums) else None
            sums = [*sums, more]
        return None

    def _follow(self, u: _Update) -> Any:
        """Add what depends on the sums. Returns another sum that it also needs, True if there is
        none, or False if this is no update of rows."""
        states: dict[Atom, Any] = {e.outs[0]: _ZERO for e in u.sums}
        shape = u.sums[0].outs[0].aval.shape
        read: set[Atom] = set()
        todo = sorted({i for a in states for i in self.readers.get(a, ())})  # a heap
        while todo and len(u.members) + len(u.needed) <= MOST:
            e = self.program.equations[heappop(todo)]
            if not by_element(e) or e.outs[0].aval.shape != shape:
                read.update(a for a in e.ins if a in states)
            elif e.outs[0] not in u.members:  # else it reads several results
                more = self._take(e, u, states)
                if more is not True:
                    return more
                for i in self.readers.get(e.outs[0], ()):
                    heappush(todo, i)
        return len(u.members) + len(u.needed) <= MOST and self._ends(u, states, read)

    def _take(self, e: Equation, u: _Update, states: dict[Atom, Any]) -> Any:
        """Add an equation. Returns another sum that it needs, True if there is none, or False if it
        needs more than rows."""
        shape = e.outs[0].aval.shape
        others = [a for a in e.ins if a not in states]
        more = [a for a in others if a in self.sums and a.aval.shape == shape]
        if more:
            return self.sums[more[0]]
        if not all(self._needs(a, shape, u) for a in others):
            return False
        u.members[e.outs[0]] = e
        states[e.outs[0]] = self._state(e, states)
        return True

    def _ends(self, u: _Update, states: dict[Atom, Any], read: set[Atom]) -> bool:
        """Find the results; False if one of them changes whole arrays."""
        for a in states:
            if a in read or a in self.outputs:
                base = states[a]
                if base.__class__ is not Var or base.aval != a.aval or base in states:
                    return False
                u.results[a] = base
        return True

    def _needs(self, a: Atom, shape: tuple[int, ...], u: _Update) -> bool:
        """Whether rows of an operand can be had: it is in memory, or computed from what is."""
        e = self.made.get(a)
        if not a.aval.shape or e is None or a in u.needed:
            return True
        if e.op.is_view:
            return not e.ins[0].aval.shape
        if by_element(e):
            u.needed[a] = e
            return all(self._needs(x, shape, u) for x in e.ins)
        return True

    def _value(self, a: Atom) -> Any:
        """An atom, or the number that all of its elements are."""
        e = self.made.get(a)
        if e is not None and e.op.is_view and not e.ins[0].aval.shape:
            a = e.ins[0]
        return _ZERO if a.__class__ is Literal and not np.any(a.val) else a

    def _state(self, e: Equation, states: dict[Atom, Any]) -> Any:
        """What a result is where the sums are zero: zero, another array, or unknown."""
        ins = [states[a] if a in states else self._value(a) for a in e.ins]
        zeros = [x is _ZERO for x in ins]
        same = e.op.at_zeros(zeros)
        if same is not None:
            return ins[same]
        if all(x is _ZERO or x.__class__ is Literal and x.val.size == 1 for x in ins):
            values = [np.zeros((), a.aval.dtype) if x is _ZERO else x.val.reshape(())
                      for a, x in zip(e.ins, ins, strict=True)]
            with np.errstate(all="ignore"):
                return _UNKNOWN if np.any(e.op.eager(np, *values)) else _ZERO
        return _UNKNOWN


def _joins(sums: Sequence[Equation]) -> bool:
    """Whether the rows of all sums can be joined to one array, and are still few."""
    first, *others = sums
    total = sum(e.ins[2].aval.size for e in sums)
    if SHARE * total > first.outs[0].aval.size:
        return False
    op, indices = _scatter(first), first.ins[1].aval
    numbers = op.dimension_numbers
    along_rows = 0 not in (*numbers.update_window_dims, *numbers.scatter_indices_batching_dims)
    return not others or along_rows and all(
        _scatter(e).dimension_numbers == op.dimension_numbers and _scatter(e).mode is op.mode
        and e.ins[1].aval.shape[1:] == indices.shape[1:] and e.ins[1].aval.dtype == indices.dtype
        and e.ins[2].aval.shape[1:] == first.ins[2].aval.shape[1:] for e in others)


class _Rows:
    """The equations for the rows of an update; they are added where the originals were."""

    def __init__(self, new: Rewriter, u: _Update):
        self.new, self.u = new, u
        self.rows: dict[Atom, Atom] = {}
        self.indices: Atom | None = None
        first = u.sums[0].ins[2].aval
        self.shape = first.shape if len(u.sums) == 1 else (
            sum(e.ins[2].aval.shape[0] for e in u.sums), *first.shape[1:])
        op = _scatter(u.sums[0])
        # What is outside is dropped in the end.
        mode = op.mode if op.clips else GatherScatterMode.PROMISE_IN_BOUNDS
        self.read = replace(op._reader(self.shape), mode=mode, fill_value=None)
        self.write = replace(op, combine="set", unique_indices=True)

    def add(self, e: Equation) -> None:
        """Compute the rows of a result, and store them if it leaves the update."""
        if self.indices is None:
            found = [self.new.atom(s.ins[1]) for s in self.u.sums]
            self.indices = found[0] if len(found) == 1 else self.new.add(Concatenate(0), found, e)
        a = e.outs[0]
        rows = self._computed(e)
        self.rows[a] = rows
        if a in self.u.results:
            base = self.new.atom(self.u.results[a])
            self.new.env[a] = self.new.add(self.write, [base, self.indices, rows], e, a.aval)

    def _computed(self, e: Equation) -> Atom:
        return self.new.add(e.op, [self._of(a, e) for a in e.ins], e)

    def _of(self, a: Atom, at: Equation) -> Atom:
        """The rows of an operand."""
        if not a.aval.shape:
            return self.new.atom(a)
        found = self.rows.get(a)
        if found is None:
            found = self.rows[a] = self._new(a, at)
        return found

    def _new(self, a: Atom, at: Equation) -> Atom:
        (first, *others) = self.u.sums
        if a is first.outs[0] and not others and _has_long_rows(first):
            return spliced(self.new, first, _summed, [self.new.atom(x) for x in first.ins])
        made = self.new.producer(self.new.atom(a))
        if a in self.u.needed:
            return self._computed(self.u.needed[a])
        if made is not None and made.op.is_view and not made.ins[0].aval.shape:
            repeated: Any = made.op
            return self.new.add(replace(repeated, shape=self.shape), made.ins, at)
        assert self.indices is not None
        return self.new.add(self.read, [self.new.atom(a), self.indices], at)


def _has_long_rows(e: Equation) -> bool:
    """Whether a scatter updates rows along the first axis, and they have several elements."""
    table, indices, updates = (a.aval for a in e.ins)
    row, lead = table.shape[1:], indices.shape[:-1]
    windows = tuple(range(len(lead), len(lead) + len(row)))
    rows = ScatterDimensionNumbers(windows, (0,), (0,))
    return (prod(row) >= LEAST_ROW and _scatter(e).dimension_numbers == rows
            and updates.shape == (*lead, *row))


def _summed(op: Scatter, table: Any, indices: Any, updates: Any) -> Any:
    """For each update, the sum of all updates of its row."""
    row, n = table.shape[1:], prod(indices.shape[:-1])
    mode = op.mode if op.clips else GatherScatterMode.FILL_OR_DROP
    ids, int32 = reshape(indices, (n, 1)), np.dtype(np.int32)
    numbers = ScatterDimensionNumbers((), (0,), (0,))
    nowhere = broadcast_in_dim(scalar(0, int32), table.shape[:1], ())
    last = Scatter("max", numbers, mode=mode)(nowhere, ids, iota(int32, (n,), 0))
    reading = GatherDimensionNumbers((), (0,), (0,))
    place = Gather(reading, (1,), mode=mode, fill_value=str(n))(last, ids)  # n is dropped
    place = reshape(place, (n, 1))
    windows = tuple(range(1, 1 + len(row)))
    collect = Scatter("add", ScatterDimensionNumbers(windows, (0,), (0,)))
    zeros = broadcast_in_dim(scalar(0, updates.dtype), (n, *row), ())
    sums = collect(zeros, place, reshape(updates, (n, *row)))
    reading = GatherDimensionNumbers(windows, (0,), (0,))
    mode = GatherScatterMode.PROMISE_IN_BOUNDS
    return reshape(Gather(reading, (1, *row), mode=mode)(sums, place), updates.shape)


def _rewritten(program: Program, updates: Sequence[_Update]) -> Program:
    new = Rewriter(program)
    rows: dict[Any, _Rows] = {}
    for u in updates:
        rows.update(dict.fromkeys(u.members, _Rows(new, u)))
    for e in program.equations:
        place = rows.get(e.outs[0]) if e.outs else None
        if place is not None:
            place.add(e)
        else:
            new.keep(Equation(e.op, [new.atom(a) for a in e.ins], e.outs, e.source, e.scope))
    return new.finish()
