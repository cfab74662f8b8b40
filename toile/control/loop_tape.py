"""The Program that runs a while loop, and then visits its iterations from the last to the first.

The number of iterations is not known in advance, but the size of every array is. So the Program
keeps a bounded number of values. The first run keeps carries at equal distances; when there is no
room for another one, every second one is dropped. The tape holds the values that the visits of the
last iterations need. For earlier ones, the loop runs again from a kept carry and refills the tape;
on the way, it keeps carries at smaller distances, so that the next runs are shorter. All distances
are powers of 2. This module may import the engine and primitives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from toile.engine.avals import Aval, aval_of
from toile.engine.program import Program, derive, evaluate
from toile.engine.trees import flatten, unflatten
from toile.primitives.bits import and_, eq, ge, gt, lt, shift_left, shift_right_arithmetic
from toile.primitives.choices import select
from toile.primitives.dynamic_slices import DynamicSlice, dynamic_update_slice
from toile.primitives.elementwise import max_, min_
from toile.primitives.families import add, reshape, scalar, sub
from toile.primitives.random import blank
from toile.primitives.shapes import slice_axis

Values = Sequence[Any]

_MOST = 2**31 - 1  # the largest number of iterations that can be counted


class Room(NamedTuple):
    """How much is kept: `1 << carries` carries at each of `levels` distances, and the values that
    the visits of `1 << tape` iterations need."""

    carries: int
    tape: int
    levels: int


class Visits(NamedTuple):
    """A loop, and what to do with its iterations.

    The loop has the condition `cond`, (constants, carry) -> bool, and the body `body`, (constants,
    carry) -> (carry, saved values). `visit`, (constants, saved values, state) -> state, is called
    for each iteration, the last one first. `loop` creates the operation of a while loop."""

    loop: Callable[..., Any]
    cond: Program
    body: Program
    visit: Program
    cond_consts: int
    body_consts: int
    visit_consts: int
    room: Room

    @property
    def carry(self) -> int:
        return len(self.body.inputs) - self.body_consts

    @property
    def saved(self) -> list[Aval]:
        return self.body.out_avals[self.carry :]

    def parts(self, xs: Values) -> list[list[Any]]:
        """The constants of the three Programs, the carry and the state."""
        return cut(xs, self.cond_consts, self.body_consts, self.visit_consts, self.carry)

    def program(self) -> Program:
        """The Program that maps (three groups of constants, carry, state) to the final state."""

        def run(*xs: Any) -> list[Any]:
            cond_consts, body_consts, visit_consts, carry, state = self.parts(xs)
            kept = _first_run(self, cond_consts, body_consts, carry)
            return _visit_all(self, body_consts, visit_consts, kept, state)

        a, b, c = self.cond_consts, self.body_consts, self.visit_consts
        ins = self.body.in_avals
        avals = [*self.cond.in_avals[:a], *ins[:b], *self.visit.in_avals[:c], *ins[b:],
                 *self.visit.in_avals[c + len(self.saved) :]]
        avals = [x.strip_weak_type() for x in avals]
        return self.body.memoized(("visits", self), lambda: derive(run, avals, "visits"))


def cut(xs: Values, *sizes: int) -> list[list[Any]]:
    """Pieces of the given sizes, and the rest."""
    pieces, start = [], 0
    for n in sizes:
        pieces.append(list(xs[start : start + n]))
        start += n
    return [*pieces, list(xs[start:])]


class _Kept(NamedTuple):
    """The results of the first run: how many iterations it had, the exponent of the distance
    between the carries that it kept, these carries, and the tape."""

    count: Any
    exponent: Any
    carries: Values
    tape: Values


def _first_run(v: Visits, cond_consts: Values, body_consts: Values, carry: Values) -> _Kept:
    """Run the loop in stretches, each of which doubles the distance between kept carries."""
    rows = 1 << v.room.carries
    carries = [_buffer(rows + 1, aval_of(x)) for x in carry]  # the last row is never read
    tape = [_buffer(1 << v.room.tape, a) for a in v.saved]

    def stretch(consts: Any, state: Any) -> Any:
        (cond_consts, body_consts), (_, carry, kept) = consts, state
        first = eq(kept.count, _int(0))
        half = [dynamic_update_slice(c, slice_axis(c, 0, rows, 0, 2), *_starts(c, _int(0)))
                for c in kept.carries]
        carries = [select(first, c, h) for c, h in zip(kept.carries, half, strict=True)]
        exponent = select(first, kept.exponent, add(kept.exponent, _int(1)))
        kept = _Kept(kept.count, exponent, carries, kept.tape)
        carry, kept = _stretch(v, cond_consts, body_consts, carry, kept)
        return evaluate(v.cond, [*cond_consts, *carry])[0], carry, kept

    start = scalar(True, np.bool_), list(carry), _Kept(_int(0), _int(0), carries, tape)
    return _while(v, lambda _, state: state[0], (), stretch, (cond_consts, body_consts), start)[2]


def _stretch(v: Visits, cond_consts: Values, body_consts: Values, carry: Values,
             kept: _Kept) -> tuple[Values, _Kept]:
    """Run the loop until it ends or there is no room for another carry."""
    room, exponent = v.room.carries, kept.exponent
    full = shift_left(_int(1 << room), exponent)
    limit = select(lt(exponent, _int(31 - room)), full, _int(_MOST))

    def going(consts: Any, state: Any) -> Any:
        (cond_consts, limit), (count, carry, *_) = consts, state
        return and_(evaluate(v.cond, [*cond_consts, *carry])[0], lt(count, limit))

    def step(consts: Any, state: Any) -> Any:
        (body_consts, exponent), (count, carry, carries, tape) = consts, state
        row = _row(count, exponent, _int(0), _int(1 << room))
        return add(count, _int(1)), *_recorded(v, body_consts, count, carry, carries, tape, row)

    start = kept.count, list(carry), kept.carries, kept.tape
    count, carry, carries, tape = _while(
        v, going, (cond_consts, limit), step, (body_consts, exponent), start)
    return carry, _Kept(count, exponent, carries, tape)


def _recorded(v: Visits, body_consts: Values, count: Any, carry: Values, carries: Values,
              tape: Values, row: Any) -> tuple[Values, Values, Values]:
    """Run an iteration; its carry goes to a row of the kept ones, its saved values to the tape."""
    carries = [_put(c, x, row) for c, x in zip(carries, carry, strict=True)]
    outs = evaluate(v.body, [*body_consts, *carry])
    turn = and_(count, _int((1 << v.room.tape) - 1))
    tape = [_put(t, x, turn) for t, x in zip(tape, outs[v.carry :], strict=True)]
    return outs[: v.carry], carries, tape


def _row(count: Any, exponent: Any, first: Any, unused: Any) -> Any:
    """The row, counted from `first`, for the carry of an iteration; `unused` if it is not kept."""
    position = shift_right_arithmetic(count, exponent)
    kept = eq(shift_left(position, exponent), count)
    return select(kept, add(first, position), unused)


class _Level(NamedTuple):
    """Carries kept by a later run: its first iteration and the exponent of their distance."""

    first: Any
    exponent: Any


class _Position(NamedTuple):
    """Where the visits are: iterations from `end` on have been visited, those from `first` to `end`
    are on the tape, and `depth` levels (beyond the first run's) have carries."""

    end: Any
    first: Any
    depth: Any
    levels: list[_Level]
    carries: Values
    tape: Values


def _visit_all(v: Visits, body_consts: Values, visit_consts: Values, kept: _Kept,
               state: Values) -> list[Any]:
    rows = ((v.room.levels - 1) << v.room.carries) + 1
    carries = [_buffer(rows, aval_of(c).with_shape(c.shape[1:])) for c in kept.carries]

    def stretch(consts: Any, here: Any) -> Any:
        (body_consts, visit_consts, exponent, first_carries), (at, state) = consts, here
        state = _visit_tape(v, visit_consts, at, state)
        return _refilled(v, body_consts, exponent, first_carries, at), state

    last = max_(sub(kept.count, _int(1)), _int(0))
    levels = [_Level(_int(0), _int(0)) for _ in range(v.room.levels - 1)]
    start = _Position(kept.count, _tape_start(v, last), _int(0), levels, carries, kept.tape)
    consts = body_consts, visit_consts, kept.exponent, kept.carries
    going = lambda _, here: gt(here[0].end, _int(0))
    return _while(v, going, (), stretch, consts, (start, list(state)))[1]


def _visit_tape(v: Visits, visit_consts: Values, at: _Position, state: Values) -> Values:
    """Visit the iterations that are on the tape."""

    def step(consts: Any, here: Any) -> Any:
        (visit_consts, tape), (turn, state) = consts, here
        turn = sub(turn, _int(1))
        saved = [_get(t, turn) for t in tape]
        return turn, evaluate(v.visit, [*visit_consts, *saved, *state])

    going = lambda _, here: gt(here[0], _int(0))
    start = sub(at.end, at.first), list(state)
    return _while(v, going, (), step, (visit_consts, at.tape), start)[1]


def _refilled(v: Visits, body_consts: Values, exponent: Any, first_carries: Values,
              at: _Position) -> _Position:
    """Run the loop again for iterations before those that were on the tape."""
    room, end = v.room, at.first
    depth, level = _int(0), _Level(_int(0), exponent)
    for i, inner in enumerate(at.levels):  # the last one that starts before `end`
        found = and_(ge(at.depth, _int(i + 1)), lt(inner.first, end))
        depth = select(found, _int(i + 1), depth)
        level = _Level(*(select(found, a, b) for a, b in zip(inner, level, strict=True)))
    # The first kept carry from which all iterations before `end` fit on the tape, or else the last
    # kept carry before `end`.
    ahead = max_(sub(sub(end, level.first), _int(1 << room.tape)), _int(0))
    k = shift_right_arithmetic(ahead, level.exponent)
    k = select(lt(shift_left(k, level.exponent), ahead), add(k, _int(1)), k)
    k = min_(k, shift_right_arithmetic(sub(sub(end, _int(1)), level.first), level.exponent))
    first = add(level.first, shift_left(k, level.exponent))
    row = add(shift_left(sub(depth, _int(1)), _int(room.carries)), k)
    carry = [_get(c, k) for c in first_carries]
    if at.levels:
        inside = [_get(c, row) for c in at.carries]
        carry = [select(gt(depth, _int(0)), a, b) for a, b in zip(inside, carry, strict=True)]
    keeps = and_(lt(depth, _int(room.levels - 1)), gt(level.exponent, _int(room.tape)))
    fine = max_(sub(level.exponent, _int(room.carries)), _int(0))
    count = select(gt(end, _int(0)), sub(end, first), _int(0))
    carries, tape = _run_again(v, body_consts, carry, count, at, (keeps, fine, depth))
    levels = []
    for i, inner in enumerate(at.levels):
        new = and_(keeps, eq(depth, _int(i)))
        levels.append(_Level(*(select(new, a, b) for a, b in
                               zip((first, fine), inner, strict=True))))
    depth = add(depth, select(keeps, _int(1), _int(0)))
    start = add(first, _tape_start(v, max_(sub(count, _int(1)), _int(0))))
    return _Position(end, start, depth, levels, carries, tape)


def _run_again(v: Visits, body_consts: Values, carry: Values, count: Any, at: _Position,
               keeping: tuple[Any, Any, Any]) -> tuple[Values, Values]:
    """Run `count` iterations. `keeping` contains a flag (whether to keep carries), the exponent of
    their distance, and their level."""
    unused = _int((v.room.levels - 1) << v.room.carries)

    def step(consts: Any, state: Any) -> Any:
        (body_consts, (keeps, exponent, depth)), (turn, carry, carries, tape) = consts, state
        first = shift_left(depth, _int(v.room.carries))
        row = select(keeps, _row(turn, exponent, first, unused), unused)
        return add(turn, _int(1)), *_recorded(v, body_consts, turn, carry, carries, tape, row)

    going = lambda count, state: lt(state[0], count)
    start = _int(0), list(carry), at.carries, at.tape
    _, _, carries, tape = _while(v, going, count, step, (body_consts, keeping), start)
    return carries, tape


def _tape_start(v: Visits, last: Any) -> Any:
    """The first iteration of a run that is still on the tape, given the last one."""
    return shift_left(shift_right_arithmetic(last, _int(v.room.tape)), _int(v.room.tape))


# ------------------------------------------------------------------------------- loops and buffers


def _while(v: Visits, going: Callable[[Any, Any], Any], going_consts: Any,
           step: Callable[[Any, Any], Any], step_consts: Any, start: Any) -> Any:
    """Run a while loop; `going` and `step` take a tree of constants and a tree, the state."""
    state, tree = flatten(start)
    state_avals = [aval_of(x).strip_weak_type() for x in state]

    def staged(f: Callable[[Any, Any], Any], consts: Any) -> tuple[Program, list[Any]]:
        leaves, consts_tree = flatten(consts)
        n = len(leaves)

        def run(*xs: Any) -> list[Any]:
            return flatten(f(unflatten(consts_tree, xs[:n]), unflatten(tree, xs[n:])))[0]

        avals = [aval_of(x).strip_weak_type() for x in leaves]
        return derive(run, [*avals, *state_avals], "visits"), leaves

    cond, cond_consts = staged(going, going_consts)
    body, body_consts = staged(step, step_consts)
    op = v.loop(cond, body, len(cond_consts), len(body_consts))
    return unflatten(tree, op(*cond_consts, *body_consts, *state))


def _int(value: int) -> Any:
    return scalar(value, np.int32)


def _starts(buffer: Any, row: Any) -> list[Any]:
    return [row] + [_int(0)] * (buffer.ndim - 1)


def _buffer(rows: int, aval: Aval) -> Any:
    """Room for values; what it contains is never read."""
    return blank(Aval((rows, *aval.shape), aval.dtype))


def _put(buffer: Any, x: Any, row: Any) -> Any:
    return dynamic_update_slice(buffer, reshape(x, (1, *x.shape)), *_starts(buffer, row))


def _get(buffer: Any, row: Any) -> Any:
    shape = buffer.shape[1:]
    return reshape(DynamicSlice((1, *shape))(buffer, *_starts(buffer, row)), shape)
