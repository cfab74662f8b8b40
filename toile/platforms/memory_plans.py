"""The memory that a call needs, from its plan: the peak, and what is in memory at the peak.

While a call runs, its arguments, its results and its constants are in memory, and temporaries share
one arena. The step at which the temporaries need most is the peak. `toile.plan` shows all of this;
errors about memory show its largest buffers. This module may import the compiler, platforms.origins
and the engine.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from toile.compiler.ir.operands import Ref, VariableBuffer
from toile.compiler.ir.steps import EagerStep, MadePlan
from toile.compiler.plan.phases import FORWARD, PHASES, Phases
from toile.compiler.plan.place import aligned, arena_layout
from toile.engine.avals import Aval
from toile.engine.dtypes import name_of
from toile.engine.program import Equation
from toile.platforms.origins import Made, made_by, results_of

ARGUMENT, RESULT, CONSTANT, TEMPORARY = "argument", "result", "constant", "temporary"
GAPS = "unused space between temporaries"
SCRATCH = "working memory"


class Live(NamedTuple):
    """A buffer that is in memory at the peak of a call.

    Args:
        nbytes: size in bytes.
        shape: shape of the array.
        dtype: name of the array's dtype.
        kind: "argument", "result", "constant" or "temporary".
        made: operation, line and module path that the buffer comes from.
        phase: pass that creates the buffer: "forward", "backward" or "update".
        first: first step of the plan that uses the buffer.
        last: last step of the plan that uses the buffer.
    """

    nbytes: int
    shape: tuple[int, ...]
    dtype: str
    kind: str
    made: Made
    phase: str = FORWARD
    first: int = 0
    last: int = 0

    @property
    def what(self) -> str:
        """The dtype and the shape, as in `float32[2,3]`."""
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    @property
    def module(self) -> str:
        """The path of the module that creates the buffer; empty outside modules."""
        return self.made.scope

    @property
    def line(self) -> str:
        """The line of the user's code, as in `model.py:12: x = x @ w`; empty if it is unknown."""
        source = self.made.source
        if source is None:
            return ""
        return f"{os.path.basename(source.file)}:{source.line}: {source.text()}"


@dataclass
class PlannedMemory:
    """The bytes of a call, and the buffers that are in memory at the peak, the largest first."""

    arguments: int
    results: int
    constants: int
    temporaries: int  # the arena
    in_place: int  # results that overwrite donated arguments
    peak_step: int
    steps: int
    live: list[Live]
    highest: dict[str, int]  # temporaries in use at most, in the steps of each pass
    python_steps: list[str]  # operations that allocate memory of their own

    @property
    def total(self) -> int:
        """The peak of the whole call."""
        return (self.arguments + self.results + self.constants + self.temporaries
                - self.in_place)


def planned_memory(
    plan: Any, results: int, labels: Sequence[str] = (), overwriting: Collection[int] = (),
    workspace: int = 0,
) -> PlannedMemory:
    """The memory of a call.

    `results` are the bytes that the device allocates for results, `labels` the names of arguments,
    `overwriting` the numbers of the results that overwrite donated arguments, and `workspace` the
    bytes that libraries keep for themselves."""
    program = plan.given
    arena = arena_layout(plan)[1]
    body = _Body(plan)
    arguments = [
        _of_aval(v.aval, ARGUMENT, Made(label))
        for v, label in zip(program.inputs, _padded(labels, len(program.inputs)), strict=True)
    ]
    outs = _results(program)
    in_place = sum(outs[i].nbytes for i in overwriting)
    rounding = results - sum(b.nbytes for b in outs)
    outs = [b for i, b in enumerate(outs) if i not in overwriting]
    outs.append(_room(rounding, RESULT, Made(GAPS)))
    fixed = [_of_array(c.array) for c in _constants(plan)]
    if workspace:
        fixed.append(_room(workspace, CONSTANT, Made("NVIDIA's libraries")))
    live = sorted([*body.at_peak(arena), *arguments, *outs, *fixed], key=lambda b: -b.nbytes)
    return PlannedMemory(
        sum(b.nbytes for b in arguments), results, sum(b.nbytes for b in fixed), arena, in_place,
        body.peak, len(plan.steps), [b for b in live if b.nbytes], body.highest(),
        [s.equation.op.name for s in plan.all_steps() if isinstance(s, EagerStep)],
    )


def _of_aval(aval: Aval, kind: str, made: Made, phase: str = FORWARD) -> Live:
    return Live(aval.nbytes, aval.shape, name_of(aval.dtype), kind, made, phase)


def _of_array(x: np.ndarray) -> Live:
    return Live(x.nbytes, x.shape, str(x.dtype), CONSTANT, Made("a constant"))


def _room(nbytes: int, kind: str, made: Made, phase: str = FORWARD, at: int = 0) -> Live:
    """Memory that is not an array."""
    return Live(nbytes, (nbytes,), "uint8", kind, made, phase, at, at)


def _results(program: Any) -> list[Live]:
    phases = Phases(program)
    makers = {o: e for e in program.equations for o in e.outs}
    return [
        _of_aval(o.aval, RESULT, made, phases.of(makers[o]) if o in makers else FORWARD)
        for o, made in zip(program.outputs, results_of(program), strict=True)
    ]


def _padded(labels: Sequence[str], n: int) -> list[str]:
    """Names of the inputs; the first ones, which have none, are values of the function itself."""
    other = "a value that the function closes over" if labels else "an argument"
    return [*[other] * (n - len(labels)), *labels]


def _constants(plan: MadePlan) -> Iterator[Any]:
    yield from plan.constants.values()
    for step in plan.steps:
        for child in getattr(step, "children", ()):
            yield from _constants(child)


# ---- temporaries


class _Body:
    """The temporaries of a plan, which may be the body of a loop in the module path `scope`."""

    def __init__(self, plan: Any, around: str = FORWARD, scope: tuple[str, ...] = ()):
        self.plan, self.around, self.scope = plan, around, scope
        self.phases = Phases(plan.program, around)
        self.makers = {o: e for e in plan.program.equations for o in e.outs}
        spans: dict[Any, Live] = {}
        self.bodies: list[list[_Body]] = []  # of each step, if it is a loop
        self.inner: list[list[Live]] = []
        for i, step in enumerate(plan.steps):
            for b in plan.temporaries_of(step):
                spans[b] = spans[b]._replace(last=i) if b in spans else self._temporary(step, b, i)
            self.bodies.append([self._body(step, child) for child in getattr(step, "children", ())])
            self.inner.append([b for body in self.bodies[-1] for b in self._inside(body, step, i)])
        self.buffers = list(spans.values())
        changes = np.zeros(len(plan.steps) + 1, np.int64)
        for b in self.buffers:
            changes[b.first] += b.nbytes
            changes[b.last + 1] -= b.nbytes
        self.outside: list[int] = changes[:-1].cumsum().tolist()  # without those of loop bodies
        self.uses = [n + sum(b.nbytes for b in more)
                     for n, more in zip(self.outside, self.inner, strict=True)]
        self.peak = max(range(len(self.uses)), key=self.uses.__getitem__, default=0)

    def at_peak(self, arena: int) -> list[Live]:
        """The temporaries that are in use at the peak, and the space left between them."""
        at = self.peak
        found = [b for b in self.buffers if b.first <= at <= b.last]
        found += self.inner[at] if self.inner else []
        gaps = arena - sum(b.nbytes for b in found)
        if gaps > 0:
            found.append(_room(gaps, TEMPORARY, Made(GAPS), self.around, at))
        return found

    def highest(self) -> dict[str, int]:
        """The most that temporaries need in the steps of each pass."""
        found = dict.fromkeys(PHASES, 0)
        for i, step in enumerate(self.plan.steps):
            phases = {self.phases.of(e) for e in equations_of(step)} or {self.around}
            most = dict.fromkeys(phases, self.uses[i])
            for body in self.bodies[i]:  # has passes of its own
                for phase, used in body.highest().items():
                    most[phase] = max(most.get(phase, 0), used and used + self.outside[i])
            found = {p: max(n, most.get(p, 0)) for p, n in found.items()}
        return found

    def _temporary(self, step: Any, b: Any, i: int) -> Live:
        """A temporary that a step is the first to use."""
        size = aligned(b.nbytes)
        if isinstance(b, VariableBuffer):
            e = self.makers.get(b.var)
            made = Made("toile") if e is None else made_by(e, self.makers, self.scope)
            phase = self.around if e is None else self.phases.of(e)
            return _of_aval(b.aval, TEMPORARY, made, phase)._replace(nbytes=size, first=i, last=i)
        e = _user_of(step, b)
        if e is None:
            return _room(size, TEMPORARY, Made(SCRATCH), self.around, i)
        made = made_by(e, self.makers, self.scope)
        made = made._replace(by=f"{SCRATCH} of {made.by}")
        return _room(size, TEMPORARY, made, self.phases.of(e), i)

    def _body(self, step: Any, child: Any) -> _Body:
        """One of the bodies of a loop."""
        e = next(equations_of(step))
        return _Body(child, self.phases.of(e), (*self.scope, *e.scope))

    def _inside(self, body: _Body, step: Any, i: int) -> Iterator[Live]:
        """The temporaries of a loop's body at the body's peak."""
        e = next(equations_of(step))
        for b in body.at_peak(arena_layout(body.plan)[1]):
            made = b.made
            if made.source is None:
                made = made._replace(source=e.source, scope=made.scope or "/".join(body.scope))
            yield b._replace(first=i, last=i, made=made)


def _user_of(step: Any, buffer: Any) -> Equation | None:
    """The equation whose launch uses a scratch buffer."""
    for x in getattr(step, "kernels", ()):
        used = any(isinstance(a, Ref) and a.buffer is buffer for a in x.args)
        if used and x.origin is not None:
            return x.origin.members[0].equation
    return next(equations_of(step), None)


def equations_of(step: Any) -> Iterator[Equation]:
    """The equations that a step computes."""
    if isinstance(step, EagerStep):
        yield step.equation
        return
    kernels = getattr(step, "kernels", None)
    groups = [getattr(step, "origin", None)] if kernels is None else [x.origin for x in kernels]
    for group in groups:
        if group is not None:
            yield from (m.equation for m in group.members)
