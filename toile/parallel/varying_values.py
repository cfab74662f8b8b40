"""Find which values differ between devices inside shard_map with `check_vma`, for reverse mode.

With `check_vma`, a value that is equal on all devices counts as one value: its cotangent is summed
over devices, and a result that is equal on all devices has one cotangent, not one for each device.
Inside a mapped function, the transpose of psum is psum, which yields the gradient of the *sum* of
all results over devices with respect to the arguments of each device. `shared` corrects the
difference at the ends of a differentiated function, along axes where values do not vary: cotangents
of results are divided by the number of devices, and cotangents of arguments are summed. Variation
is inferred from the equations traced so far. This module may import control and the layers below
it.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from toile.engine import dtypes
from toile.engine.avals import Zero, aval_of
from toile.engine.operation import Operation
from toile.engine.program import Equation, Program, ProgramTrace, ProgramTracer, Var, trace_program
from toile.engine.records import dataclass
from toile.engine.trace import Tracer, state
from toile.primitives.collectives import AllReduce
from toile.primitives.families import Identity, bdim_at, mul, scalar
from toile.transforms.jvp import JVPTracer
from toile.transforms.vmap import BatchTracer, vmap_flat

Names = frozenset[Any]
NONE: Names = frozenset()


class _Mode(threading.local):
    """The checked axes of the current trace, and what is known about the inputs of traces."""

    axes: tuple[tuple[Any, int], ...] = ()
    traces: weakref.WeakKeyDictionary[Any, _Variation]
    # The axes that the next trace's inputs vary over, and that trace once it is seen.
    pending: list[list[Any]]

    def __init__(self) -> None:
        self.traces = weakref.WeakKeyDictionary()
        self.pending = []


mode = _Mode()


@contextmanager
def checked(axes: Sequence[tuple[Any, int]], inputs: Sequence[Names]) -> Iterator[None]:
    """A block that traces a function whose inputs vary over these axes of a mesh."""
    before, inlines = mode.axes, state.inlines
    mode.axes, state.inlines = (*before, *axes), True
    mode.pending.append([list(inputs), None])
    try:
        yield
    finally:
        mode.axes, state.inlines = before, inlines
        mode.pending.pop()


@contextmanager
def beginning_as(values: Sequence[Any]) -> Iterator[None]:
    """A block that traces a Program (such as a loop's body) whose inputs vary like these values."""
    mode.pending.append([[varying(v) for v in values], None])
    try:
        yield
    finally:
        mode.pending.pop()


# ------------------------------------------------------------------------------------ operations


@dataclass(frozen=True)
class Varying(Identity):
    """The operand itself, which from here on counts as one value per device along `axes`."""

    axes: tuple[Any, ...]
    name = "pvary"

    def varies_over(self, names: Names, bound: Names) -> Names:
        return names | (bound & set(self.axes))


class _End(Identity):
    """One end of a differentiated function: applied only to values differentiated here, so that a
    derivative of the derivative does not apply it again."""

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        (dx,) = tangents
        return primals[0], dx if dx.__class__ is Zero else self(dx)

    @classmethod
    def at(cls, x: Any, *parameters: Any) -> Any:
        """Apply this operation to a value only if the innermost trace differentiates it."""
        mine = isinstance(x, JVPTracer) and x._trace is state.trace
        return cls(*parameters)(x) if mine and parameters[0] else x


@dataclass(frozen=True)
class _Argument(_End):
    """The operand itself, which is equal on all devices: its cotangents are summed."""

    axes: tuple[Any, ...]
    name = "shared_argument"

    def transpose(self, ct: Any, x: Any) -> Any:
        return AllReduce("sum", self.axes)(ct)


@dataclass(frozen=True)
class _Result(_End):
    """The operand itself, which is equal on n devices: each gets 1/n of its cotangent."""

    axes: tuple[Any, ...]
    size: int
    name = "shared_result"

    def transpose(self, ct: Any, x: Any) -> Any:
        return mul(ct, scalar(1 / self.size, ct.dtype))


def shared(fun: Callable[..., Any], args: Sequence[Any]) -> Callable[..., Any]:
    """A flat function to be differentiated in which values equal on all devices count once."""
    if not mode.axes:
        return fun
    sizes = dict(mode.axes)
    alike = [_alike(a) for a in args]

    def run(*xs: Any) -> list[Any]:
        outs = fun(*[_Argument.at(x, n) for x, n in zip(xs, alike, strict=True)])
        return [_Result.at(o, n, math.prod(sizes[a] for a in n))
                for o, n in zip(outs, map(_alike, outs), strict=True)]

    return run


def _alike(x: Any) -> tuple[Any, ...]:
    """The axes along which a floating-point value is equal on all devices."""
    if not dtypes.is_inexact(aval_of(x).dtype):
        return ()
    found = varying(x)
    return tuple(n for n, _ in mode.axes if n not in found)


# -------------------------------------------------------------------------------------- analysis


def varying(x: Any) -> Names:
    """The checked axes along which a value may differ."""
    everywhere = frozenset(n for n, _ in mode.axes)
    while True:
        if isinstance(x, JVPTracer):
            x = x.primal
        elif isinstance(x, BatchTracer):
            x = x.value
        elif isinstance(x, ProgramTracer):
            trace = x._trace
            assert isinstance(trace, ProgramTrace)
            known = mode.traces.get(trace)
            if known is None:
                known = mode.traces[trace] = _Variation(trace, everywhere)
            return known.of(x._var)
        else:
            return everywhere if isinstance(x, Tracer) else NONE


class _Variation:
    """The axes that the values of a trace vary over, for the equations traced so far."""

    __slots__ = ("trace", "env", "done", "unknown")

    def __init__(self, trace: ProgramTrace, unknown: Names):
        self.trace, self.unknown = weakref.ref(trace), unknown
        self.env: dict[Var, Names] = {}
        self.done = 0
        entry = mode.pending[-1] if mode.pending else None
        if entry is not None and entry[1] is None and len(entry[0]) == len(trace.inputs):
            entry[1] = trace
            self.env.update(zip(trace.inputs, entry[0], strict=True))

    def of(self, var: Var) -> Names:
        trace = self.trace()
        assert trace is not None
        for v, value in trace.consts:
            if v not in self.env:
                self.env[v] = varying(value)
        for v in trace.inputs:
            self.env.setdefault(v, self.unknown)
        while self.done < len(trace.equations):
            _propagate(trace.equations[self.done], self.env)
            self.done += 1
        return self.env[var]


def _propagate(e: Equation, env: dict[Var, Names]) -> None:
    ins = [env[a] if isinstance(a, Var) else NONE for a in e.ins]
    env.update(zip(e.outs, _results(e, ins), strict=True))


def _results(e: Equation, ins: Sequence[Names]) -> Sequence[Names]:
    op, called = e.op, e.op.called_program()
    if called is not None:
        return program_variation(called, ins)
    if op.carries_programs and not op.divided:
        return _by_mapping(op, [a.aval for a in e.ins], ins)
    bound = frozenset([n for n, _ in mode.axes])
    return [op.varies_over(NONE.union(*ins), bound)] * len(e.outs)


def program_variation(program: Program, ins: Sequence[Names]) -> list[Names]:
    """The axes that the results of a Program vary over."""
    env = dict(zip(program.inputs, ins, strict=True))
    for e in program.equations:
        _propagate(e, env)
    return [env[o] if isinstance(o, Var) else NONE for o in program.outputs]


def _by_mapping(op: Operation, avals: Sequence[Any], ins: Sequence[Names]) -> list[Names]:
    """The same for an operation with Programs; its vmap rule shows which results are mapped."""
    mapped = [[n for n, _ in mode.axes if n in names] for names in ins]
    found: list[Names] = []
    sizes = dict(mode.axes)

    def flat(*xs: Any) -> list[Any]:
        outs, names = nested_maps(lambda *ys: op(*ys), xs, mapped, mode.axes)
        found[:] = [frozenset(n) for n in names]
        return outs

    whole = [a.with_shape((*(sizes[n] for n in m), *a.shape))
             for a, m in zip(avals, mapped, strict=True)]
    trace_program(flat, whole, op.name)
    return found


def nested_maps(
    fun: Callable[..., Any], xs: Sequence[Any], mapped: Sequence[Sequence[Any]],
    axes: Sequence[tuple[Any, int]],
) -> tuple[list[Any], list[list[Any]]]:
    """A flat function mapped over named axes; results have the axes they vary over in front.

    For each argument, `mapped` lists the mapped axes, which are in front in the order of `axes`."""
    if not axes:
        outs = list(fun(*xs))
        return outs, [[] for _ in outs]
    (name, size), *rest = axes
    dims = [0 if name in m else None for m in mapped]
    inner: list[list[Any]] = []

    def one(*parts: Any) -> list[Any]:
        outs, names = nested_maps(fun, parts, mapped, rest)
        inner[:] = names
        return outs

    outs, found = vmap_flat(one, (name, size), xs, dims)
    results, names = [], []
    for o, d, v in zip(outs, found, inner, strict=True):
        results.append(o if d is None else bdim_at(o, d, size, 0))
        names.append(list(v) if d is None else [name, *v])
    return results, names
