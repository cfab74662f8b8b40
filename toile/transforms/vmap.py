"""Vectorization: values with a mapped axis.

A `BatchTracer` holds a value of the parent trace and the position of its mapped axis. An operation
that names the mapped axis is dispatched even when no operand is mapped. This module may import the
engine and primitives.families.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toile.engine.avals import Aval, aval_of
from toile.engine.config import flags
from toile.engine.conversion import as_array
from toile.engine.operation import Axis, Dim, Operation
from toile.engine.program import Program, derive, evaluate
from toile.engine.trace import Trace, Tracer, bound_axis, check_leaks, opened, state
from toile.primitives.families import bdim_at


class BatchTracer(Tracer):
    """A batch of values that appears as one example to the mapped function."""

    __slots__ = ("value", "dim")
    _trace: BatchTrace

    def __init__(self, trace: BatchTrace, value: Any, dim: int):
        self._trace, self.value, self.dim = trace, value, dim

    @property
    def aval(self) -> Aval:
        full = aval_of(self.value)
        d = self.dim
        return Aval(full.shape[:d] + full.shape[d + 1 :], full.dtype, full.weak_type)

    @property
    def shape(self) -> tuple[int, ...]:
        full, d = self.value.shape, self.dim
        return full[:d] + full[d + 1 :]

    @property
    def dtype(self) -> Any:
        return self.value.dtype

    @property
    def ndim(self) -> int:
        return self.value.ndim - 1

    def __str__(self) -> str:
        return repr(self) if state.stepper is None else str(self.value)

    def __repr__(self) -> str:
        return f"BatchTracer<{self.aval.str_short()}>(batch={self.value!r}, axis={self.dim})"

    def describe(self) -> str:
        return f"\n  it is one example of a batch of {self._trace.axis[1]} that vmap maps over"


class BatchTrace(Trace):
    """Runs the vmap rules in the parent trace.

    Traces with the same `level` map the same axis. A custom rule is called under its own trace, and
    may close over values that the enclosing trace has mapped."""

    __slots__ = ("axis", "level")
    stored = ("vmapped value on an unbatched", "to the vmapped function")

    def __init__(self, parent: Trace | None, axis: Axis, level: Any = None):
        super().__init__(parent)
        self.axis = axis
        self.level = object() if level is None else level

    def split(self, args: Sequence[Any]) -> tuple[list[Any], list[Dim], bool]:
        values: list[Any] = []
        dims: list[Dim] = []
        mapped = False
        for a in args:
            if a.__class__ is BatchTracer and a._trace.level is self.level:
                values.append(a.value)
                dims.append(a.dim)
                mapped = True
            else:
                values.append(a)
                dims.append(None)
        return values, dims, mapped

    def wrap(self, value: Any, dim: Dim) -> Any:
        return value if dim is None else BatchTracer(self, value, dim)

    def process(self, op: Operation, args: Sequence[Any]) -> Any:
        values, dims, mapped = self.split(args)
        name = self.axis[0]
        state.trace = self.parent
        try:
            if not mapped and (name is None or name not in op.axis_names):
                return op(*values)
            if mapped:
                values = [v if hasattr(v, "ndim") else as_array(v) for v in values]
            out, dim = op.vmap(self.axis, values, dims)
        finally:
            state.trace = self
        if op.multiple:
            return [self.wrap(o, d) for o, d in zip(out, dim, strict=True)]
        return self.wrap(out, dim)

    def process_custom_jvp(self, call: Any, args: Sequence[Any]) -> list[Any]:
        values, dims, _ = self.split(args)
        state.trace = self.parent
        try:
            batched, out_dims = call.batched(self.axis, dims, self.level)
            outs = batched(*values)
        finally:
            state.trace = self
        return [self.wrap(o, d) for o, d in zip(outs, out_dims(), strict=True)]

    process_custom_vjp = process_custom_jvp


def vmap_flat(fun: Callable[..., Sequence[Any]], axis: Axis, args: Sequence[Any],
              dims: Sequence[Dim], level: Any = None) -> tuple[list[Any], list[Dim]]:
    """Results of a flat function over mapped arguments, and the positions of their mapped axes."""
    trace = BatchTrace(state.trace, axis, level)
    tracers = [trace.wrap(a, d) for a, d in zip(args, dims, strict=True)]
    with opened(trace), bound_axis(*axis):
        outs = fun(*tracers)
    values, out_dims, _ = trace.split(outs)
    if flags.check_tracer_leaks:
        del tracers, outs
        check_leaks(trace)
    return values, out_dims


def vmap_program(program: Program, axis: Axis, dims: Sequence[Dim],
                 wanted: Sequence[bool] | bool = False) -> tuple[Program, list[Dim]]:
    """The Program over mapped inputs, with mapped axes first; dims are None or 0, in and out.

    `wanted` specifies which outputs must have the axis even if they depend on no mapped input."""
    forced = (wanted,) * len(program.outputs) if isinstance(wanted, bool) else tuple(wanted)
    key = ("vmap", axis, tuple(dims), forced)
    return program.memoized(key, lambda: _vmap_program(program, axis, tuple(dims), forced))


def _vmap_program(program: Program, axis: Axis, dims: tuple[Dim, ...],
                  forced: tuple[bool, ...]) -> tuple[Program, list[Dim]]:
    out_dims: list[Dim] = []

    def run(*args: Any) -> list[Any]:
        outs, found = vmap_flat(lambda *xs: evaluate(program, xs), axis, args, dims)
        results = []
        for o, d, force in zip(outs, found, forced, strict=True):
            mapped = force or d is not None
            out_dims.append(0 if mapped else None)
            results.append(bdim_at(o, d, axis[1]) if mapped else o)
        return results

    avals = [
        a if d is None else Aval((axis[1], *a.shape), a.dtype, a.weak_type)
        for a, d in zip(program.in_avals, dims, strict=True)
    ]
    return derive(run, avals, f"vmap_{program.name}"), out_dims
