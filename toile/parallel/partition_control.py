"""How loops, branches and mapped functions are divided: by dividing the Programs they carry.

A carry keeps one layout through a loop: that of its first value, along axes that it divides and the
body does too, and that of the body's result along axes where the first value is whole. A carry that
starts from zeros and only has sums added to it is summed over devices once, after the loop. May
import control and below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toile.compiler.inlining import inline_calls
from toile.control.cond import Cond
from toile.control.scan import Scan
from toile.control.while_loop import While
from toile.engine import dtypes
from toile.engine.avals import Aval
from toile.engine.program import Literal, Program, Var, derive, evaluate
from toile.engine.records import dataclass
from toile.engine.tracing import state
from toile.parallel.meshes import Mesh
from toile.parallel.partition_rules import gathering, rule, rule_for
from toile.parallel.partition_values import Frame, Names, Placed, Value
from toile.parallel.spmd import Layout, Spmd

ATTEMPTS = 8  # at a layout that a loop keeps


@dataclass(frozen=True)
class State:
    """How an input or output of a Program lies."""

    layout: Layout
    partial: Names = ()
    zero: bool = False


LOOSE: Any = object()  # an output as it lies, with the sums that are left
SETTLED: Any = object()  # an output as it lies, all sums taken


@dataclass(frozen=True)
class Part:
    """The Program of one device, and how its outputs lie."""

    program: Program
    outs: tuple[State, ...]
    notes: tuple[str, ...]


class Dividing(Frame):
    """A Frame that remembers the Programs inside which it has divided."""

    def __init__(self, mesh: Mesh, memo: dict[Any, Part]):
        super().__init__(mesh)
        self.memo = memo

    def inside(self, program: Program, ins: Sequence[State], wanted: Sequence[Any]) -> Part:
        """A Program that an operation carries, divided."""
        key = (program, tuple(ins), tuple(wanted))
        found = self.memo.get(key)
        if found is None:
            found = self.memo[key] = divided(self.mesh, program, ins, wanted, self.memo)
        return found


def inlined(program: Program) -> Program:
    """The Program without calls, made once."""
    return program.memoized("inlined", lambda: inline_calls(program))


def divided(
    mesh: Mesh, program: Program, ins: Sequence[State], wanted: Sequence[Any],
    memo: dict[Any, Part],
) -> Part:
    """The Program of one device for inputs that lie so and outputs that are wanted so.

    The axes of the mesh are in scope."""
    plain = inlined(program)
    frame = Dividing(mesh, memo)
    states: list[State] = []

    def run(*xs: Any) -> list[Any]:
        values = [Placed(v.aval, s.layout, x, s.partial, s.zero)
                  for v, s, x in zip(plain.inputs, ins, xs, strict=True)]
        outs = interpret(frame, plain, values)
        found = [_output(frame, v, w) for v, w in zip(outs, wanted, strict=True)]
        states[:] = [s for _, s in found]
        return [x for x, _ in found]

    avals = [v.aval.with_shape(frame.local(v.aval.shape, s.layout))
             for v, s in zip(plain.inputs, ins, strict=True)]
    made = derive(run, avals, program.name)
    return Part(made, tuple(states), tuple(dict.fromkeys(frame.notes)))


def _output(f: Frame, v: Value, wanted: Any) -> tuple[Any, State]:
    if wanted is LOOSE and isinstance(v, Placed) and v.partial:
        return v.value, State(v.layout, v.partial)
    if wanted is LOOSE or wanted is SETTLED:
        value = f.natural(v)
        return value, State(v.layout)
    if isinstance(v, Placed) and wanted.partial:
        assert (v.partial, v.layout) == (wanted.partial, wanted.layout)
        return v.value, wanted
    return f.to(v, wanted.layout), wanted


def interpret(f: Frame, program: Program, values: Sequence[Value]) -> list[Value]:
    """Divide a Program equation by equation."""
    env: dict[Any, Value] = dict(zip(program.inputs, values, strict=True))
    uses: dict[Any, int] = {}
    for a in [*(a for e in program.equations for a in e.ins), *program.outputs]:
        uses[a] = uses.get(a, 0) + 1

    def read(a: Any) -> Value:
        return env[a] if a.__class__ is Var else Placed(a.aval, (), a.value())

    before = state.source, state.scope
    try:
        for e in program.equations:
            state.source, state.scope = e.source, before[1] + e.scope
            f.equation = e
            f.single = [a.__class__ is Literal or uses[a] == 1 for a in e.ins]
            outs = rule_for(e.op)(f, e.op, [read(a) for a in e.ins], [o.aval for o in e.outs])
            env.update(zip(e.outs, outs, strict=True))
    finally:
        state.source, state.scope = before
    f.equation = None
    return [read(a) for a in program.outputs]


# ------------------------------------------------------------------------------------------- loops


def _merged(have: Layout, got: Layout) -> Layout:
    """The layout of a carry that has one before the body and another one after it."""
    layout = [a if a == b or b else () for a, b in zip(have, got, strict=True)]
    used = {n for e in layout for n in e}
    for i, names in enumerate(got):
        if names and not have[i] and not used & set(names):
            layout[i] = names
            used |= set(names)
    return tuple(layout)


def _next(old: State, got: State) -> State:
    """What to try for a carry after a body that has made this of it."""
    partial = got.partial if old.zero or got.partial == old.partial else ()
    return State(_merged(old.layout, got.layout), partial)


def _settled_carry(
    carry: list[State], divide: Callable[[list[State]], Sequence[State]]
) -> list[State]:
    """The layouts of carries that the body keeps."""
    for _ in range(ATTEMPTS):
        found = divide(carry)
        again = [_next(old, got) for old, got in zip(carry, found, strict=True)]
        if again == carry:
            if all(not s.partial or s == g for s, g in zip(again, found, strict=True)):
                return again
            again = [State(s.layout) for s in again]
        carry = again
    return [State(s.layout) for s in carry]


@rule(Scan)
def scanned(f: Any, op: Any, ins: Sequence[Value], outs: Sequence[Aval]) -> list[Value]:
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
    made = Scan(part.program, op.consts, op.carry, op.length, op.reverse, op.unroll)
    found: list[Value] = []
    for i, (a, s, x) in enumerate(zip(outs, part.outs, made(*args), strict=True)):
        layout = s.layout if i < op.carry else ((), *s.layout)
        found.append(Placed(a, layout, x, s.partial))
    return found


@rule(While)
def repeated(f: Any, op: Any, ins: Sequence[Value], outs: Sequence[Aval]) -> list[Value]:
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
    made = While(cond.program, body.program, op.cond_consts, op.body_consts)
    return [Placed(a, s.layout, x) for a, s, x in zip(outs, kept, made(*args), strict=True)]


@rule(Cond)
def chosen(f: Any, op: Any, ins: Sequence[Value], outs: Sequence[Aval]) -> list[Value]:
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
    made = Cond(tuple(p.program for p in final))
    return [Placed(a, s.layout, x) for a, s, x in zip(outs, wanted, made(*args), strict=True)]


@rule(Spmd)
def mapped(f: Any, op: Any, ins: Sequence[Value], outs: Sequence[Aval]) -> list[Value]:
    """What shard_map leaves: it says itself what a device does."""
    if op.grid.mesh is not f.mesh or op.grid.owners is not None:
        return gathering(f, op, ins, outs)
    found = evaluate(op.program, [f.to(v, x) for v, x in zip(ins, op.ins, strict=True)])
    return [Placed(a, layout, x) for a, layout, x in zip(outs, op.outs, found, strict=True)]
