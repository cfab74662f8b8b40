"""Forward mode: values paired with tangents.

A `JVPTracer` holds a primal and a tangent of the parent trace (or a symbolic zero). Reverse mode is
forward mode recorded on the linear tape of `transforms.linearize`. This module may import only the
engine, primitives.families and transforms.masks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toile.engine import dtypes
from toile.engine.avals import Aval, Zero, aval_of
from toile.engine.operation import Operation
from toile.engine.program import Program, derive, evaluate
from toile.engine.trace import Trace, Tracer, opened, state
from toile.primitives.families import instantiate
from toile.transforms.masks import pick, spread


class JVPTracer(Tracer):
    """A value with its tangent."""

    __slots__ = ("primal", "tangent")

    def __init__(self, trace: Trace, primal: Any, tangent: Any):
        self._trace, self.primal, self.tangent = trace, primal, tangent

    @property
    def aval(self) -> Aval:
        return aval_of(self.primal)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.primal.shape

    @property
    def dtype(self) -> Any:
        return self.primal.dtype

    @property
    def weak_type(self) -> bool:
        return self.primal.weak_type

    @property
    def ndim(self) -> int:
        return self.primal.ndim

    def concrete(self) -> Any:
        primal = self.primal
        return primal.concrete() if isinstance(primal, Tracer) else primal

    def describe(self) -> str:
        primal = self.primal
        return primal.describe() if isinstance(primal, Tracer) else ""

    def __str__(self) -> str:
        return repr(self) if state.stepper is None else str(self.primal)

    def __repr__(self) -> str:
        return f"JVPTracer(primal={self.primal!r}, tangent={self.tangent!r})"


class JVPTrace(Trace):
    """Runs the jvp rules in the parent trace."""

    __slots__ = ()
    differentiates = True
    stored = ("a differentiated value on a non-differentiated", "of the differentiated function")

    def split(self, args: Sequence[Any]) -> tuple[list[Any], list[Any], bool]:
        """Primals, tangents, and whether any tangent is not zero."""
        primals, tangents, moving = [], [], False
        for a in args:
            if a.__class__ is JVPTracer and a._trace is self:
                primals.append(a.primal)
                t = a.tangent
                tangents.append(t)
                moving = moving or t.__class__ is not Zero
            else:
                primals.append(a)
                tangents.append(Zero(a))
        return primals, tangents, moving

    def process(self, op: Operation, args: Sequence[Any]) -> Any:
        primals, tangents, moving = self.split(args)
        state.trace = self.parent
        try:
            if not moving:
                return op(*primals)
            if not op.handles_zeros:
                tangents = [instantiate(t) for t in tangents]
            if not self.locates or op.carries_programs:
                out, dout = op.jvp(primals, tangents)
            else:
                out, dout = _located(op, primals, tangents)
        finally:
            state.trace = self
        if op.multiple:
            return [self.pair(o, d) for o, d in zip(out, dout, strict=True)]
        if dout.__class__ is Zero:
            return out
        return JVPTracer(self, out, dout)

    def pair(self, primal: Any, tangent: Any) -> Any:
        return primal if tangent.__class__ is Zero else JVPTracer(self, primal, tangent)

    def process_custom_jvp(self, call: Any, args: Sequence[Any]) -> list[Any]:
        return self._custom(args, call, call.jvp_flat)

    def process_custom_vjp(self, call: Any, args: Sequence[Any]) -> list[Any]:
        return self._custom(args, call, call.linear_flat)

    def _custom(self, args: Sequence[Any], call: Any,
                rule: Callable[..., tuple[list[Any], list[Any]]]) -> list[Any]:
        primals, tangents, moving = self.split(args)
        state.trace = self.parent
        try:
            if not moving:
                return call(*primals)
            outs, douts = rule(primals, tangents)
        finally:
            state.trace = self
        return [self.pair(o, d) for o, d in zip(outs, douts, strict=True)]


def _located(op: Operation, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """Apply an operation's rule; what it computes is marked as a derivative (`trace.source_of`)."""
    previous, state.deriving = state.deriving, op
    try:
        return op.jvp(primals, tangents)
    finally:
        state.deriving = previous


def jvp_flat(fun: Callable[..., Sequence[Any]], primals: Sequence[Any],
             tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Results and tangents of a flat function; tangents may be symbolic zeros, in and out."""
    trace = JVPTrace(state.trace)
    args = [trace.pair(p, t) for p, t in zip(primals, tangents, strict=True)]
    with opened(trace):
        outs = fun(*args)
    results, douts, _ = trace.split(outs)
    return results, douts


def jvp_program(program: Program, nonzero: Sequence[bool],
                instantiated: Sequence[bool] | bool = False) -> tuple[Program, list[bool]]:
    """The Program of primals followed by tangents.

    Inputs: all primals, then the tangents where `nonzero`. Outputs: all results, then the tangents
    that are nonzero (or `instantiated`, as arrays); the mask of these is returned too."""
    if isinstance(instantiated, bool):
        instantiated = (instantiated,) * len(program.outputs)
    key = ("jvp", tuple(nonzero), tuple(instantiated))
    return program.memoized(key, lambda: _jvp_program(program, *key[1:]))


def _jvp_program(program: Program, nonzero: tuple[bool, ...],
                 wanted: tuple[bool, ...]) -> tuple[Program, list[bool]]:
    n = len(program.inputs)
    moving: list[bool] = []

    def run(*args: Any) -> list[Any]:
        primals = args[:n]
        tangents = spread(args[n:], nonzero, primals)
        outs, douts = jvp_flat(lambda *xs: evaluate(program, xs), primals, tangents)
        for i, d in enumerate(douts):
            needs = wanted[i] and dtypes.is_inexact(aval_of(outs[i]).dtype)
            moving.append(needs or d.__class__ is not Zero)
        return [*outs, *map(instantiate, pick(douts, moving))]

    tangent_avals = [a.to_tangent_aval() for a in pick(program.in_avals, nonzero)]
    return derive(run, [*program.in_avals, *tangent_avals], f"jvp_{program.name}"), moving
