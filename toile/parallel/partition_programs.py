"""The Program of one device: a Program divided equation by equation.

Each operation has a rule for its division (`Operation.divide`); loops and branches divide their
bodies. This module may import control and the layers below it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from toile.compiler.passes.calls import inline_calls
from toile.control.division import LOOSE, SETTLED, State
from toile.engine.avals import Aval
from toile.engine.operation import Operation, infer_list
from toile.engine.program import Literal, Program, Var, derive
from toile.engine.records import dataclass
from toile.engine.trace import state
from toile.parallel.meshes import Mesh
from toile.parallel.partition_values import Frame, Placed, Value
from toile.parallel.spmd import Grid, tracing_on
from toile.primitives.division import Layout


@dataclass(frozen=True)
class Part:
    """The Program of one device, and the layouts of its outputs."""

    program: Program
    outs: tuple[State, ...]
    notes: tuple[str, ...]


class Dividing(Frame):
    """A Frame that caches the nested Programs it has divided."""

    def __init__(self, mesh: Mesh, memo: dict[Any, Part]):
        super().__init__(mesh)
        self.memo = memo

    def inside(self, program: Program, ins: Sequence[State], wanted: Sequence[Any]) -> Part:
        """Divide a Program that an operation carries."""
        key = (program, tuple(ins), tuple(wanted))
        found = self.memo.get(key)
        if found is None:
            found = self.memo[key] = divided(self.mesh, program, ins, wanted, self.memo)
        return found


def inlined(program: Program) -> Program:
    """The Program without calls; cached."""
    return program.memoized("inlined", lambda: inline_calls(program))


def divided(
    mesh: Mesh, program: Program, ins: Sequence[State], wanted: Sequence[Any],
    memo: dict[Any, Part],
) -> Part:
    """The Program of one device, for given layouts of inputs and wanted layouts of outputs.

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
            outs = e.op.divide(f, [read(a) for a in e.ins], [o.aval for o in e.outs])
            env.update(zip(e.outs, outs, strict=True))
    finally:
        state.source, state.scope = before
    f.equation = None
    return [read(a) for a in program.outputs]


@functools.lru_cache(4096)
def result_layout(
    op: Operation, mesh: Mesh, layouts: tuple[Layout, ...], avals: tuple[Aval, ...]
) -> Layout:
    """The layout of an operation's result over a mesh, for operands in these layouts."""
    found: list[Layout] = []

    def run(*xs: Any) -> list[Any]:
        frame = Dividing(mesh, {})
        frame.single = [False] * len(xs)
        values = list(map(Placed, avals, layouts, xs))
        (out,) = op.divide(frame, values, infer_list(op, avals))
        found.append(out.layout)
        return [frame.natural(out)]

    local = [a.with_shape(Frame(mesh).local(a.shape, layout))
             for a, layout in zip(avals, layouts, strict=True)]
    with tracing_on(Grid(mesh.shape_tuple, mesh), list(mesh.devices.flat)):
        derive(run, local, op.name)
    return found[0]
