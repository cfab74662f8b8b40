"""The linear tape: partial evaluation with respect to linear inputs.

A `LinearTrace` runs operations that do not depend on its linear inputs in the parent trace and
records the others. Under a JVPTrace whose tangents are linear inputs, the record is the derivative
at a point; with a function's own arguments as linear inputs, it is a linear function to be
transposed. Operations that carry Programs are split: `split(linear, args)` runs their known part
and returns the linear operation.
This module may import the engine, transforms.jvp and transforms.masks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toile.engine.arrays import DeviceArray
from toile.engine.avals import Aval, aval_of
from toile.engine.operation import Operation, infer_list
from toile.engine.program import Equation, Literal, Program, Var, derive, evaluate
from toile.engine.source import Source
from toile.engine.trace import Trace, Tracer, current_source, opened, state
from toile.transforms.jvp import JVPTrace
from toile.transforms.masks import fill, merge, pick


class LinearTracer(Tracer):
    """A value on the tape; `slot` is its index in the environments of the tape's readers."""

    __slots__ = ("aval", "slot")
    aval: Aval

    def __init__(self, trace: LinearTrace, aval: Aval, slot: int):
        self._trace, self.aval, self.slot = trace, aval, slot


class Entry:
    """One recorded operation; linear operands are LinearTracers, the others are values."""

    __slots__ = ("op", "args", "outs", "source", "scope")

    def __init__(self, op: Operation, args: Sequence[Any], outs: Sequence[LinearTracer],
                 source: Source | None):
        self.op, self.args, self.outs = op, args, outs
        self.source, self.scope = source, state.scope


class LinearTrace(Trace):
    """Records the operations that depend on linear inputs, and runs the others in the parent."""

    __slots__ = ("entries", "slots")
    differentiates = True
    stored = JVPTrace.stored

    def __init__(self, parent: Trace | None):
        super().__init__(parent)
        self.entries: list[Any] = []  # Entry objects, or those of transforms.remembered
        self.slots = 0

    def new_tracer(self, aval: Aval) -> LinearTracer:
        slot = self.slots
        self.slots = slot + 1
        return LinearTracer(self, aval, slot)

    def is_linear(self, x: Any) -> bool:
        return x.__class__ is LinearTracer and x._trace is self

    def process(self, op: Operation, args: Sequence[Any]) -> Any:
        linear = False
        for a in args:
            if a.__class__ is LinearTracer and a._trace is self:
                linear = True
                break
        if not linear:
            state.trace = self.parent
            try:
                return op(*args)
            finally:
                state.trace = self
        if hasattr(op, "split"):
            return self.process_split(op, args)
        outs = self.record(op, args)
        return outs if op.multiple else outs[0]

    def record(self, op: Operation, args: Sequence[Any]) -> list[LinearTracer]:
        avals = infer_list(op, [aval_of(a) for a in args])
        outs = [self.new_tracer(a) for a in avals]
        source = current_source() if self.locates else None
        self.entries.append(Entry(op, args, outs, source))
        return outs

    def process_split(self, op: Any, args: Sequence[Any]) -> list[Any]:
        state.trace = self.parent
        try:
            known, linear_op, linear_args = op.split([self.is_linear(a) for a in args], args)
        finally:
            state.trace = self
        if linear_op is None:
            return list(known)
        recorded = iter(self.record(linear_op, linear_args))
        return [next(recorded) if k is None else k for k in known]

    def process_custom_jvp(self, call: Any, args: Sequence[Any]) -> list[Any]:
        if any(self.is_linear(a) for a in args):
            return call.run(*args)
        state.trace = self.parent
        try:
            return call(*args)
        finally:
            state.trace = self

    process_custom_vjp = process_custom_jvp


class Tape:
    """A recorded linear function from slots `inputs` to `outputs`.

    An output is a LinearTracer, or a symbolic zero where it does not depend on the inputs."""

    __slots__ = ("entries", "slots", "inputs", "outputs")

    def __init__(self, trace: LinearTrace, inputs: Sequence[LinearTracer], outputs: Sequence[Any]):
        self.entries, self.slots = trace.entries, trace.slots
        trace.entries = []  # breaks the cycle: entries hold tracers, which hold the trace
        self.inputs, self.outputs = list(inputs), list(outputs)

    def is_linear(self, x: Any) -> bool:
        return x.__class__ is LinearTracer and x._trace is self.inputs[0]._trace


def linearize_flat(fun: Callable[..., Sequence[Any]], primals: Sequence[Any],
                   moving: Sequence[bool] | None = None,
                   forward: Callable[[LinearTrace], JVPTrace] = JVPTrace) -> tuple[list[Any], Tape]:
    """Results of a flat function and the tape of its derivative at `primals`.

    `moving` specifies which arguments are differentiated (by default, all of them), and `forward`
    makes the trace that records the tape."""
    tape = LinearTrace(state.trace)
    stepper = None if tape.staging else state.stepper
    trace = forward(tape) if stepper is None else stepper.tracer_of(tape)
    args, inputs = [], []
    for i, p in enumerate(primals):
        if moving is None or moving[i]:
            tangent = tape.new_tracer(aval_of(p).to_tangent_aval())
            inputs.append(tangent)
            args.append(trace.pair(p, tangent))
        else:
            args.append(p)
    with opened(trace):
        outs = fun(*args)
    results, tangents, _ = trace.split(outs)
    tape.close()
    return results, Tape(tape, inputs, tangents)


def record_linear(fun: Callable[..., Sequence[Any]],
                  avals: Sequence[Aval]) -> tuple[list[Any], Tape]:
    """Run a linear flat function on linear inputs; outputs are on the tape or known values."""
    trace = LinearTrace(state.trace)
    inputs = [trace.new_tracer(a) for a in avals]
    with opened(trace):
        outs = list(fun(*inputs))
    return outs, Tape(trace, inputs, outs)


def tape_to_program(
    tape: Tape, outputs: Sequence[Any], literals: bool = True
) -> tuple[Program, list[Any]]:
    """Return the Program of a tape and the values of its residuals.

    The Program has the form (residuals..., inputs...) -> outputs. With `literals`, numbers are part
    of the Program; without, they are residuals. Entries that the outputs do not need are dropped.
    Outputs must be on the tape."""
    env: dict[int, Var] = {x.slot: Var(x.aval) for x in tape.inputs}
    inputs = [env[x.slot] for x in tape.inputs]
    residuals: list[Any] = []
    found: dict[int, Var] = {}
    residual_vars: list[Var] = []

    def atom(x: Any) -> Any:
        if tape.is_linear(x):
            return env[x.slot]
        aval = aval_of(x)
        if literals and x.__class__ is DeviceArray and not aval.shape:
            return Literal(x._data, aval)
        var = found.get(id(x))
        if var is None:
            var = found[id(x)] = Var(aval)
            residual_vars.append(var)
            residuals.append(x)
        return var

    equations = []
    for e in _needed_entries(tape, outputs):
        ins = [atom(a) for a in e.args]
        env.update({o.slot: Var(o.aval) for o in e.outs})
        equations.append(Equation(e.op, ins, [env[o.slot] for o in e.outs], e.source, e.scope))
    results = [env[o.slot] for o in outputs]
    return Program([*residual_vars, *inputs], equations, results, "linear"), residuals


def _needed_entries(tape: Tape, outputs: Sequence[Any]) -> list[Entry]:
    """The entries of a tape that some outputs depend on."""
    needed = {o.slot for o in outputs}
    entries = []
    for e in reversed(tape.entries):
        if any(o.slot in needed for o in e.outs):
            entries.append(e)
            needed.update(a.slot for a in e.args if tape.is_linear(a))
    return entries[::-1]


class Split:
    """A Program split by which inputs are linear.

    `known` maps the nonlinear inputs to the known outputs and the saved residuals, and `linear`
    maps the residuals and the linear inputs to the linear outputs. `is_linear` specifies, for each
    output of the original, which of the two Programs has it. `forwarded` contains, for each
    residual, the nonlinear input that it equals, or None if it is saved."""

    __slots__ = ("known", "linear", "is_linear", "residuals", "forwarded")

    def __init__(self, known: Program, linear: Program, is_linear: list[bool],
                 residuals: list[Aval], forwarded: list[int | None]):
        self.known, self.linear, self.is_linear = known, linear, is_linear
        self.residuals, self.forwarded = residuals, forwarded

    def residual_values(self, args: Sequence[Any], saved: Sequence[Any]) -> list[Any]:
        """The residuals in order, from the known inputs and the saved results."""
        rest = iter(saved)
        return [next(rest) if f is None else args[f] for f in self.forwarded]

    def known_outputs(self, outs: Sequence[Any]) -> list[Any]:
        """The original's outputs in order, None for the linear ones."""
        return fill(outs, [not z for z in self.is_linear])


def split_program(program: Program, linear: Sequence[bool],
                  instantiated: Sequence[bool] | None = None,
                  saved: Sequence[bool] | None = None) -> Split:
    """Split a Program into a known part and a linear part.

    Outputs for which `instantiated` is True count as linear even if they are known. An input for
    which `saved` is True always becomes a residual of its own; the original input is not used in
    its place, because the carry of a scan changes in each step, and because each branch of a cond
    has its own residuals."""
    forced = tuple(instantiated) if instantiated is not None else (False,) * len(program.outputs)
    passing = tuple(saved) if saved is not None else (False,) * len(linear)
    key = ("split", tuple(linear), forced, passing)
    return program.memoized(key, lambda: _split_program(program, *key[1:]))


def _split_program(program: Program, linear: Sequence[bool], forced: Sequence[bool],
                   passing: Sequence[bool]) -> Split:
    made: list[Any] = []

    def run(*known: Any) -> list[Any]:
        body = lambda *tangents: evaluate(program, merge(linear, tangents, known))
        outs, tape = record_linear(body, pick(program.in_avals, linear))
        outs = [_constant_on(tape, o) if force and not tape.is_linear(o) else o
                for o, force in zip(outs, forced, strict=True)]
        on_tape = [tape.is_linear(o) for o in outs]
        linear_program, residuals = tape_to_program(tape, pick(outs, on_tape))
        position = {id(k): i for i, (k, p) in enumerate(
            zip(known, pick(passing, linear, False), strict=True)) if not p}
        forwarded = [position.get(id(r)) for r in residuals]
        made.extend((linear_program, on_tape, [aval_of(r) for r in residuals], forwarded))
        saved = [r for r, f in zip(residuals, forwarded, strict=True) if f is None]
        return [*pick(outs, on_tape, False), *saved]

    known = derive(run, pick(program.in_avals, linear, False), f"known_{program.name}")
    return Split(known, *made)


def _constant_on(tape: Tape, x: Any) -> LinearTracer:
    """Put a known value on the tape, as a residual that is an output."""
    trace = tape.inputs[0]._trace
    assert isinstance(trace, LinearTrace)
    out = trace.new_tracer(aval_of(x))
    tape.slots = trace.slots
    tape.entries.append(Entry(Forward(), [x], [out], None))
    return out


class Forward(Operation):
    """The operand itself; a residual that a linear Program returns."""

    name = "forward"
    handles_zeros = True

    def infer(self, x: Aval) -> Aval:
        return x

    def eager(self, xp: Any, x: Any) -> Any:
        return x

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        return primals[0], tangents[0]

    def transpose(self, ct: Any, x: Any) -> Any:
        return ct

    def vmap(self, axis: Any, xs: Sequence[Any], dims: Sequence[Any]) -> tuple[Any, Any]:
        return xs[0], dims[0]

    def physical(self, *avals: Aval) -> Operation:
        return self

