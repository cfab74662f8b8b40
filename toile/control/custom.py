"""custom_jvp and custom_vjp: functions with user-defined derivative rules.

Without a staging trace, the user's Python functions are called directly; a staging trace records a
Program of the function together with its rules. All functions here are flat: lists in, lists out.
This module may import control.call and the modules below it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from toile.control.call import ByIdentity, Carrier
from toile.control.jax_parameters import Subfunction, closed
from toile.engine import dtypes, key_uses
from toile.engine.avals import Aval, Zero, aval_of
from toile.engine.errors import closed_over
from toile.engine.operation import Axis, Dim, Operation
from toile.engine.program import (
    Program,
    ProgramTrace,
    evaluate,
    execute,
    trace_with_refs,
)
from toile.engine.refs import must_run_in_python, store, values_of
from toile.engine.source import here
from toile.engine.trace import state
from toile.primitives.families import bdim_at, instantiate, move_axis, reduce_sum
from toile.primitives.rules import frame_rule
from toile.transforms.masks import merge, nonzero_mask, pick, spread
from toile.transforms.vmap import vmap_flat

Flat = Callable[..., Sequence[Any]]


class _CustomFunction:
    """Base of calls to functions that have derivative rules."""

    __slots__ = ("fun", "label", "symbolic_zeros", "passes_refs")

    def __init__(self, fun: Flat, label: str, symbolic_zeros: bool):
        self.fun, self.label, self.symbolic_zeros = fun, label, symbolic_zeros
        self.passes_refs = False  # whether the function and its rules receive Refs

    def __call__(self, *args: Any) -> list[Any]:
        trace = state.trace
        return list(self.fun(*args)) if trace is None else self.traced(trace, args)

    def traced(self, trace: Any, args: Sequence[Any]) -> list[Any]:
        """The call under a trace, which may use the rule."""
        raise NotImplementedError

    def run(self, *args: Any) -> list[Any]:
        """The function itself, without its rule."""
        return list(self.fun(*args))

    def staged(self, program: Program, consts: int) -> Operation:
        """The operation for a Program of the function."""
        raise NotImplementedError

    def stage(self, trace: Any, args: Sequence[Any]) -> list[Any]:
        """Record the call in a Program, with the rule beside it."""
        made = trace_with_refs(self.fun, [aval_of(a) for a in args], self.label)
        if not made.uses_refs and not self.passes_refs:
            return trace.process(self.staged(made.program, len(made.consts)), [*made.consts, *args])
        must_run_in_python()
        op = WithRefs(made.program, len(made.consts), self)
        outs = trace.process(op, [*values_of(made.consts), *args])
        n = len(outs) - len(made.written)
        store(made.written, outs[n:])
        return outs[:n]


class CustomJVP(_CustomFunction):
    """A call to a function that has a user-defined JVP rule.

    `rule(primals, tangents)` returns the results and their tangents."""

    __slots__ = ("rule", "consts")

    def __init__(self, fun: Flat, rule: Callable[..., Any], symbolic_zeros: bool, label: str,
                 consts: int = 0):
        super().__init__(fun, label, symbolic_zeros)
        self.rule, self.consts = rule, consts  # the first arguments are closed-over values

    def traced(self, trace: Any, args: Sequence[Any]) -> list[Any]:
        return trace.process_custom_jvp(self, args)

    def jvp_flat(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        given = list(tangents)
        if any(nonzero_mask(given[: self.consts])):
            raise closed_over(self.label, "custom_jvp")
        if not self.symbolic_zeros:
            given = [instantiate(t) for t in tangents]
        outs, douts = self.rule(primals, given)
        return list(outs), [_checked_tangent(d) for d in douts]

    def batched(self, axis: Axis, dims: Sequence[Dim],
                level: Any) -> tuple[CustomJVP, Callable[[], Any]]:
        """The call over mapped arguments, and the mapped axes of its results, which are known
        after the call."""
        found: list[Dim] = []

        def fun(*args: Any) -> list[Any]:
            outs, out_dims = vmap_flat(self.fun, axis, args, dims, level)
            found[:] = out_dims
            return outs

        def rule(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
            n, mask = len(primals), nonzero_mask(tangents)
            still: list[bool] = []  # which results' tangents are symbolic zeros

            def both(*args: Any) -> list[Any]:
                outs, douts = self.rule(args[:n], spread(args[n:], mask, args[:n]))
                still[:] = [d.__class__ is Zero for d in douts]
                return [*outs, *pick(douts, still, False)]

            given, t_dims = [*primals, *pick(tangents, mask)], pick(dims, mask)
            results, out_dims = vmap_flat(both, axis, given, [*dims, *t_dims], level)
            return _joined(results, out_dims, axis[1], still, found)

        made = CustomJVP(fun, rule, self.symbolic_zeros, self.label, self.consts)
        return made, lambda: found

    def staged(self, program: Program, consts: int) -> Operation:
        return CustomJVPCall(program, consts, self.rule, self.symbolic_zeros, self.label)


def _checked_tangent(d: Any) -> Any:
    if d.__class__ is Zero:
        return d
    return Zero(d) if aval_of(d).dtype == dtypes.float0 else d


def _joined(results: Sequence[Any], out_dims: Sequence[Dim], size: int, still: Sequence[bool],
            found: list[Dim]) -> Any:
    """Outs and tangents with equal mapped axes: the out's, or 0 if only the tangent has one.

    There are tangents only for outs that are not `still`."""
    n = len(still)
    outs, douts = list(results[:n]), []
    dims: list[Dim] = []
    rest = iter(zip(results[n:], out_dims[n:], strict=True))
    for i, d_out in enumerate(out_dims[:n]):
        tangent, d_tan = (None, None) if still[i] else next(rest)
        to = d_out if d_out is not None or d_tan is None else 0
        if to is not None:
            outs[i] = bdim_at(outs[i], d_out, size, to)
            if tangent is not None and aval_of(tangent).dtype != dtypes.float0:
                tangent = bdim_at(tangent, d_tan, size, to)
        dims.append(to)
        douts.append(Zero(outs[i]) if tangent is None else tangent)
    found[:] = dims
    return outs, douts


class CustomCall(ByIdentity, Carrier):
    """Base of the staged forms: called under a trace, they become custom calls again."""

    program: Program
    consts: int
    is_inlined = True

    key_use = key_uses.uses_all
    checked = frame_rule("custom_call")

    def call(self) -> _CustomFunction:
        """The call that was staged."""
        raise NotImplementedError

    def as_primitive(self) -> Any:
        return type(self)

    def as_params(self) -> dict[str, Any]:
        return {"call_jaxpr": closed(self.program), "num_consts": self.consts,
                "symbolic_zeros": self.call().symbolic_zeros, "call": self}

    @staticmethod
    def get_bind_params(params: dict[str, Any]) -> dict[str, Any]:
        kept = ("call_jaxpr", "call", "symbolic_zeros")
        inner = params["call_jaxpr"]
        fun = lambda *args: evaluate(inner.program, [*inner.consts, *args])
        return {**{name: params[name] for name in kept}, "subfuns": (Subfunction(fun),)}

    @classmethod
    def apply(cls, args: Sequence[Any], params: dict[str, Any]) -> Any:
        call, inner = params["call"], params["call_jaxpr"]
        made = copy.copy(call)
        made.program, made.consts = inner.program, call.consts + len(inner.consts)
        return made(*inner.consts, *args)

    def __call__(self, *args: Any) -> Any:
        trace = state.trace
        if trace is None or trace.__class__ is ProgramTrace:
            return super().__call__(*args)
        return self.call().traced(trace, args)

    def programs(self) -> Sequence[Program]:
        return (self.program,)

    def called_program(self) -> Program:
        return self.program

    def infer(self, *avals: Aval) -> list[Aval]:
        return self.program.out_avals

    def eager(self, xp: Any, *xs: Any) -> Any:
        return execute(self.program, xs)


class CustomJVPCall(CustomCall):
    """A staged call to a function with a custom JVP; its operands are constants and arguments."""

    name = "custom_jvp_call"

    def __init__(self, program: Program, consts: int, rule: Any, symbolic_zeros: bool, label: str):
        self.program, self.consts, self.rule = program, consts, rule
        self.symbolic_zeros, self.label = symbolic_zeros, label

    def call(self) -> CustomJVP:
        k = self.consts

        def rule(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
            return self.rule(primals[k:], tangents[k:])

        fun = lambda *xs: evaluate(self.program, xs)
        return CustomJVP(fun, rule, self.symbolic_zeros, self.label, k)


class WithRefs(CustomCall):
    """A staged call to a function that uses Refs, or that passes them to its rules.

    It can be run and vectorized, but its derivative needs the Python function: the rules change
    Refs, which a Program does not contain."""

    name = "custom_call_with_refs"

    def __init__(self, program: Program, consts: int, original: _CustomFunction):
        self.program, self.consts, self.original = program, consts, original
        self.label = original.label

    def call(self) -> _CustomFunction:
        return self.original

    def __call__(self, *args: Any) -> Any:
        trace = state.trace
        if trace is None or trace.keeps_refs:
            return super().__call__(*args)
        if trace.differentiates:
            raise NotImplementedError(
                f"{self.label}: needed a call that is differentiated while its function runs, "
                "because a rule uses a Ref; got a Program (differentiate the Python function, or "
                f"pass the value of the Ref){here()}")
        return evaluate(self.program, args)


class CustomVJP(_CustomFunction):
    """A call to a function that has a user-defined VJP rule.

    `fwd(nonzero, *args)` returns the results and the residuals; `bwd(residuals, cts)` returns the
    cotangents of the arguments."""

    __slots__ = ("fwd", "bwd")

    def __init__(self, fun: Flat, fwd: Callable[..., Any], bwd: Callable[..., Any], label: str,
                 symbolic_zeros: bool = False):
        super().__init__(fun, label, symbolic_zeros)
        self.fwd, self.bwd = fwd, bwd

    def traced(self, trace: Any, args: Sequence[Any]) -> list[Any]:
        return trace.process_custom_vjp(self, args)

    def linear_flat(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        """The results of the forward rule, and tangents as one operation with only a transpose."""
        mask = nonzero_mask(tangents)
        outs, residuals = map(list, self.fwd(mask, *primals))
        op = CustomLinear(
            self.bwd, len(residuals), tuple(mask),
            tuple(aval_of(p).to_tangent_aval() for p in primals),
            tuple(aval_of(o).to_tangent_aval().strip_weak_type() for o in outs), self.label,
            self.symbolic_zeros,
        )
        tangent_outs = op(*residuals, *pick(tangents, mask))
        return outs, [Zero(o) if aval_of(t).dtype == dtypes.float0 else t
                      for o, t in zip(outs, tangent_outs, strict=True)]

    def batched(self, axis: Axis, dims: Sequence[Dim],
                level: Any) -> tuple[CustomVJP, Callable[[], Any]]:
        found: list[Dim] = []
        kept: dict[str, list[Dim]] = {}

        def fun(*args: Any) -> list[Any]:
            outs, out_dims = vmap_flat(self.fun, axis, args, dims, level)
            found[:] = out_dims
            return outs

        def fwd(mask: Sequence[bool], *args: Any) -> tuple[Any, Any]:
            count: list[int] = []

            def both(*xs: Any) -> list[Any]:
                outs, residuals = self.fwd(mask, *xs)
                count.append(len(outs))
                return [*outs, *residuals]

            results, out_dims = vmap_flat(both, axis, args, dims, level)
            n = count[0]
            found[:] = out_dims[:n]
            kept["residuals"] = out_dims[n:]
            return results[:n], results[n:]

        def bwd(residuals: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
            n, mask = len(residuals), nonzero_mask(cts)
            still = [_row(c, d) for c, m, d in zip(cts, mask, found, strict=True) if not m]

            def back(*xs: Any) -> list[Any]:
                full = merge(mask, xs[n:], still)
                return [instantiate(c) for c in self.bwd(xs[:n], full)]

            given = [*kept["residuals"], *pick(found, mask)]
            outs, out_dims = vmap_flat(back, axis, [*residuals, *pick(cts, mask)], given, level)
            return [_to_dim(o, d, want, axis[1])
                    for o, d, want in zip(outs, out_dims, dims, strict=True)]

        return CustomVJP(fun, fwd, bwd, self.label, self.symbolic_zeros), lambda: found

    def staged(self, program: Program, consts: int) -> Operation:
        return CustomVJPCall(program, consts, self)


def _row(zero: Zero, dim: Dim) -> Zero:
    """The zero of one slice along a mapped axis."""
    if dim is None:
        return zero
    aval = zero.aval
    return Zero(aval.with_shape(aval.shape[:dim] + aval.shape[dim + 1:]))


def _to_dim(ct: Any, dim: Dim, wanted: Dim, size: int) -> Any:
    """A cotangent with the argument's mapped axis; summed over its own if the argument has none."""
    if aval_of(ct).dtype == dtypes.float0:
        return ct
    if wanted is None:
        return ct if dim is None else reduce_sum(ct, (dim,))
    return bdim_at(ct, dim, size, wanted) if dim is None else move_axis(ct, dim, wanted)


class CustomVJPCall(CustomCall):
    """A staged call to a function with a custom VJP; its operands are constants and arguments."""

    name = "custom_vjp_call"

    def __init__(self, program: Program, consts: int, call: CustomVJP):
        self.program, self.consts, self.original = program, consts, call

    def call(self) -> CustomVJP:
        k, original = self.consts, self.original

        def fwd(mask: Sequence[bool], *args: Any) -> Any:
            if any(mask[:k]):
                raise closed_over(original.label, "custom_vjp")
            return original.fwd(mask[k:], *args[k:])

        def bwd(residuals: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
            head = [Zero(a) for a in self.program.in_avals[:k]]
            return [*head, *original.bwd(residuals, cts)]

        fun = lambda *xs: evaluate(self.program, xs)
        return CustomVJP(fun, fwd, bwd, original.label, original.symbolic_zeros)


class CustomLinear(ByIdentity, Operation):
    """The derivative of a custom_vjp call: defined only in reverse mode."""

    name = "custom_lin"
    multiple = True
    interned = False

    def __init__(self, bwd: Any, residuals: int, mask: tuple[bool, ...], args: tuple[Aval, ...],
                 outs: tuple[Aval, ...], label: str, symbolic_zeros: bool):
        self.bwd, self.residuals, self.mask, self.args, self.outs = bwd, residuals, mask, args, outs
        self.label, self.symbolic_zeros = label, symbolic_zeros

    def infer(self, *avals: Aval) -> list[Aval]:
        return list(self.outs)

    def eager(self, xp: Any, *xs: Any) -> Any:
        raise self.forward_error()

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        raise self.forward_error()

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        raise self.forward_error()

    def forward_error(self) -> Exception:
        return TypeError(
            f"can't apply forward-mode autodiff (jvp) to a custom_vjp function: {self.label}"
            " has a reverse rule only (use grad or vjp, or give it a custom_jvp instead)"
            + here()
        )

    def transpose(self, ct: Any, *xs: Any) -> Any:
        n = self.residuals
        cts = list(ct) if self.symbolic_zeros else [instantiate(c) for c in ct]
        moving = pick(self._cotangents(xs[:n], cts), self.mask)
        result = [Zero(a) if c is None or aval_of_ct(c) == dtypes.float0 else c
                  for c, a in zip(moving, pick(self.args, self.mask), strict=True)]
        return (*([None] * n), *result)


    def _cotangents(self, residuals: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
        """The results of the user's rule, whose own lines are the sources of its operations."""
        previous = state.source, state.derived
        state.source, state.derived = None, previous[0]
        try:
            return list(self.bwd(residuals, cts))
        finally:
            state.source, state.derived = previous


def aval_of_ct(c: Any) -> Any:
    return c.aval.dtype if c.__class__ is Zero else aval_of(c).dtype

