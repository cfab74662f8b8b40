"""Divide loops and branches among devices by dividing the Programs that they carry.

A carry keeps one layout through a loop. Along array axes that both the first value and the body
divide, it is the layout of the first value. Along axes that the first value does not divide, it is
the layout of the body's result. A carry that starts at zero, and to which only sums are added, is
summed over devices once, after the loop. See `primitives.division` for the other operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from toile.engine import dtypes
from toile.engine.avals import Aval
from toile.engine.records import dataclass
from toile.primitives.division import Layout

ATTEMPTS = 8  # attempts to find a layout that the loop keeps


@dataclass(frozen=True)
class State:
    """The layout and pending sums of an input or output of a Program."""

    layout: Layout
    partial: tuple[Any, ...] = ()
    zero: bool = False


LOOSE: Any = object()  # an output in its own layout, pending sums left
SETTLED: Any = object()  # an output in its own layout, all sums taken


def _merged(have: Layout, got: Layout) -> Layout:
    """The layout of a carry with one layout before the body and another one after it."""
    layout = [a if a == b or b else () for a, b in zip(have, got, strict=True)]
    used = {n for e in layout for n in e}
    for i, names in enumerate(got):
        if names and not have[i] and not used & set(names):
            layout[i] = names
            used |= set(names)
    return tuple(layout)


def _next(old: State, got: State) -> State:
    """The next state to try for a carry, given the state that the body returned."""
    partial = got.partial if old.zero or got.partial == old.partial else ()
    return State(_merged(old.layout, got.layout), partial)


def _settled_carry(
    carry: list[State], divide: Callable[[list[State]], Sequence[State]]
) -> list[State]:
    """The layouts of carries that the body preserves."""
    for _ in range(ATTEMPTS):
        found = divide(carry)
        again = [_next(old, got) for old, got in zip(carry, found, strict=True)]
        if again == carry:
            if all(not s.partial or s == g for s, g in zip(again, found, strict=True)):
                return again
            again = [State(s.layout) for s in again]
        carry = again
    return [State(s.layout) for s in carry]


def scan(op: Any, f: Any, ins: Sequence[Any], outs: Sequence[Aval]) -> list[Any]:
    consts, carry, xs = op._parts(ins)
    args = [f.natural(v) for v in consts]
    of_consts = [State(v.layout) for v in consts]
    stepped = [((), *v.layout[1:]) for v in xs]
    of_xs = [State(layout[1:]) for layout in stepped]
    ys = [LOOSE] * (len(outs) - op.carry)

    def divide(states: list[State]) -> Sequence[State]:
        part = f.inside(op.program, [*of_consts, *states, *of_xs], [LOOSE] * len(outs))
        return part.outs[: op.carry]

    first = [State(v.layout, (), v.zero and dtypes.is_inexact(v.aval.dtype)) for v in carry]
    kept = _settled_carry(first, divide)
    part = f.inside(op.program, [*of_consts, *kept, *of_xs], [*kept, *ys])
    f.notes += part.notes
    args += [f.to(v, s.layout) for v, s in zip(carry, kept, strict=True)]
    args += [f.to(v, layout) for v, layout in zip(xs, stepped, strict=True)]
    made = replace(op, program=part.program)
    found: list[Any] = []
    for i, (a, s, x) in enumerate(zip(outs, part.outs, made(*args), strict=True)):
        layout = s.layout if i < op.carry else ((), *s.layout)
        found.append(f.placed(a, layout, x, s.partial))
    return found


def while_loop(op: Any, f: Any, ins: Sequence[Any], outs: Sequence[Aval]) -> list[Any]:
    cond_consts, body_consts, carry = op._parts(ins)
    args = [f.natural(v) for v in (*cond_consts, *body_consts)]
    of_cond = [State(v.layout) for v in cond_consts]
    of_body = [State(v.layout) for v in body_consts]

    def divide(states: list[State]) -> Sequence[State]:
        return f.inside(op.body, [*of_body, *states], [SETTLED] * len(outs)).outs

    kept = _settled_carry([State(v.layout) for v in carry], divide)
    body = f.inside(op.body, [*of_body, *kept], kept)
    cond = f.inside(op.cond, [*of_cond, *kept], [State(())])
    f.notes += [*cond.notes, *body.notes]
    args += [f.to(v, s.layout) for v, s in zip(carry, kept, strict=True)]
    made = replace(op, cond=cond.program, body=body.program)
    return [f.placed(a, s.layout, x) for a, s, x in zip(outs, kept, made(*args), strict=True)]


def cond(op: Any, f: Any, ins: Sequence[Any], outs: Sequence[Aval]) -> list[Any]:
    index, *operands = ins
    args = [f.to(index, ()), *(f.natural(v) for v in operands)]
    states = [State(v.layout) for v in operands]
    parts = [f.inside(b, states, [SETTLED] * len(outs)) for b in op.branches]
    wanted = []
    for branches in zip(*(p.outs for p in parts), strict=True):
        axes = zip(*(s.layout for s in branches), strict=True)
        wanted.append(State(tuple(a[0] if len(set(a)) == 1 else () for a in axes)))
    final = [f.inside(b, states, wanted) for b in op.branches]
    f.notes += [n for p in final for n in p.notes]
    made = replace(op, branches=tuple(p.program for p in final))
    return [f.placed(a, s.layout, x) for a, s, x in zip(outs, wanted, made(*args), strict=True)]
