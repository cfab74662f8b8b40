"""`jax.extend.core`: primitives defined outside JAX, as operations of toile.

A `Primitive` has an implementation and a rule for its result types. Its derivative, transpose and
batching rules are in the tables of `jax.interpreters`. Each call to `bind` creates a `Foreign`
operation. Its methods look up those rules, so toile's transforms treat it like any other operation.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from toile.compat.faces.jax.interpreters import ad, batching, mlir
from toile.compat.jax_core import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    ShapedArray,
    Var,
    eval_jaxpr,
    plain_aval,
)
from toile.engine.avals import Aval, Zero, aval_of
from toile.engine.conversion import as_array, raw_operand, wrap_aval
from toile.engine.operation import Axis, Dim, Operation, OperationType
from toile.engine.platform_registry import platform_of
from toile.engine.program import ClosedProgram, Program, trace_program
from toile.engine.source import here
from toile.engine.trace import Array, Trace, runs_at_once, state
from toile.engine.trace import current as set_current_trace

__all__ = [
    "ClosedJaxpr", "DropVar", "Effect", "Jaxpr", "JaxprEqn", "Literal", "Primitive", "Var",
    "find_top_trace", "get_opaque_trace_state", "jaxpr_as_fun", "mapped_aval", "primitives",
    "set_current_trace", "take_current_trace", "unmapped_aval", "valid_jaxtype",
]


class Effect:
    """Base class of effects that packages define; toile keeps effects as names."""


class _PrimitiveType(type):
    """Makes `isinstance` true for toile's own operations, and for their classes."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return super().__instancecheck__(instance) or isinstance(
            instance, (Operation, OperationType))


class Primitive(metaclass=_PrimitiveType):
    """An operation whose rules are functions; `bind` applies it."""

    multiple_results = False
    call_primitive = map_primitive = False

    def __init__(self, name: str):
        self.name = name
        self.impl: Callable[..., Any] = self._missing("implementation (def_impl)")
        self.abstract_eval: Callable[..., Any] = self._missing("type rule (def_abstract_eval)")

    def def_impl(self, impl: Callable[..., Any]) -> Callable[..., Any]:
        """Set the function that computes the primitive on arrays."""
        self.impl = impl
        return impl

    def def_abstract_eval(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Set the rule that computes the avals of the results from the avals of the operands."""
        self.abstract_eval = rule
        return rule

    def def_effectful_abstract_eval(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Like `def_abstract_eval`, for a rule that also returns effects."""
        self.abstract_eval = lambda *avals, **params: rule(*avals, **params)[0]
        return rule

    @staticmethod
    def get_bind_params(params: dict[str, Any]) -> dict[str, Any]:
        """The parameters to pass to `bind`."""
        return params

    def bind(self, *args: Any, **params: Any) -> Any:
        """Apply the primitive in the current trace."""
        arrays = [a if isinstance(a, Array) else as_array(a) for a in args]
        return Foreign(self, params, [aval_of(a) for a in arrays])(*arrays)

    def _missing(self, what: str) -> Callable[..., Any]:
        def rule(*args: Any, **params: Any) -> Any:
            raise NotImplementedError(f"{self.name}: has no {what}{here()}")

        return rule

    def __repr__(self) -> str:
        return self.name


class Foreign(Operation):
    """One application of a Primitive with its parameters."""

    interned = False
    handles_zeros = True

    def __init__(self, primitive: Primitive, params: dict[str, Any], avals: Sequence[Aval]):
        self.primitive, self.params, self.avals = primitive, params, avals
        # Other operations have these in their class.
        self.__dict__.update(multiple=primitive.multiple_results, name=primitive.name)

    def __call__(self, *args: Any) -> Any:
        if runs_at_once():  # traces that check values check what the implementation calls
            return self.primitive.impl(*args, **self.params)
        assert state.trace is not None
        return state.trace.process(self, args)

    def as_primitive(self) -> Primitive:
        return self.primitive

    def as_params(self) -> dict[str, Any]:
        return dict(self.params)

    @functools.cached_property
    def lowered(self) -> Program | None:
        """The Program of the function that `lower_fun` received; None if there is no such function,
        or if it closes over arrays."""
        lowering = mlir.lowerings.get(self.primitive)
        if lowering is None:
            return None
        program, consts = trace_program(
            lambda *xs: lowering.results(*xs, **self.params), self.avals, self.name)
        return None if consts else program

    @property
    def is_inlined(self) -> bool:
        return self.lowered is not None

    def programs(self) -> Sequence[Program]:
        return () if self.lowered is None else (self.lowered,)

    def infer(self, *avals: Aval) -> Any:
        out = self.primitive.abstract_eval(*map(ShapedArray.of, avals), **self.params)
        return [*map(plain_aval, out)] if self.multiple else plain_aval(out)

    def eager(self, xp: Any, *xs: Any) -> Any:
        out = self.primitive.impl(*[as_array(x) for x in xs], **self.params)
        return [_host_buffer(o) for o in out] if self.multiple else _host_buffer(out)

    def physical(self, *avals: Aval) -> Operation:
        return _OnKeys(self, avals)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        rule = ad.primitive_jvps.get(self.primitive)
        if rule is None:
            return super().jvp(primals, tangents)
        return rule(tuple(primals), tuple(tangents), **self.params)

    def transpose(self, ct: Any, *xs: Any) -> Any:
        rule = ad.primitive_transposes.get(self.primitive)
        if rule is None:
            return super().transpose(ct, *xs)
        xs = tuple(ad.UndefinedPrimal(x) if type(x) is Aval else x for x in xs)
        out = rule(ct, *xs, **self.params)
        if out is Zero or out is None:  # the class stands for zeros of all operands
            return (None,) * len(xs)
        return tuple(out)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        name, size = axis
        simple = batching.primitive_batchers.get(self.primitive)
        if simple is not None:
            return simple(tuple(xs), tuple(dims), **self.params)
        with_axis = batching.axis_primitive_batchers.get(self.primitive)
        if with_axis is not None:
            return with_axis(size, name, None, tuple(xs), tuple(dims), **self.params)
        return super().vmap(axis, xs, dims)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Foreign)
            and self.primitive is other.primitive
            and self.params is other.params
        )

    def __hash__(self) -> int:
        return hash((id(self.primitive), id(self.params)))

    def __repr__(self) -> str:
        return self.primitive.name

    __str__ = __repr__


def _host_buffer(x: Any) -> Any:
    """The buffer of a result; a copy if an implementation computed it on another device."""
    data = raw_operand(x)
    owner = platform_of(data)
    return data if owner is None else owner.get(data)


class _OnKeys(Operation):
    """A Foreign operation on the buffers behind arrays of keys."""

    interned = False

    def __init__(self, op: Foreign, avals: Sequence[Aval]):
        self.op, self.avals = op, avals
        self.__dict__["multiple"] = op.multiple

    def eager(self, xp: Any, *xs: Any) -> Any:
        given = [wrap_aval(x, a) for x, a in zip(xs, self.avals, strict=True)]
        out = self.op.primitive.impl(*given, **self.op.params)
        return [_host_buffer(o) for o in out] if self.multiple else _host_buffer(out)


class DropVar(Var):
    """A result that nothing reads; it does not occur, because toile names every result."""


@dataclass(frozen=True, slots=True)
class OpaqueTraceState:
    """The innermost trace at some moment, for comparisons."""

    trace: Trace | None


def get_opaque_trace_state(convention: Any = None) -> OpaqueTraceState:
    """The current trace, for a later comparison."""
    return OpaqueTraceState(state.trace)


def find_top_trace(xs: Any = ()) -> Trace | None:
    """The innermost trace."""
    return state.trace


@contextlib.contextmanager
def take_current_trace() -> Iterator[Trace | None]:
    """Yield the innermost trace, and trace nothing in the block."""
    trace = state.trace
    with set_current_trace(None):
        yield trace


def valid_jaxtype(x: Any) -> bool:
    """Whether a value can be an argument of a transformed function."""
    try:
        aval_of(x)
    except TypeError:
        return False
    return True


def jaxpr_as_fun(jaxpr: ClosedProgram) -> Callable[..., list[Any]]:
    """A function that evaluates a Program on its inputs."""
    return functools.partial(eval_jaxpr, jaxpr.jaxpr, jaxpr.consts)


def mapped_aval(size: int, axis: int | None, aval: Aval) -> Aval:
    """The aval of one example of a batch."""
    if axis is None:
        return aval
    if aval.shape[axis] != size:
        raise ValueError(
            f"mapped_aval: needed {size} examples along axis {axis}, got shape {aval.shape}"
        )
    return ShapedArray(aval.shape[:axis] + aval.shape[axis + 1 :], aval.dtype, aval.weak_type)


def unmapped_aval(size: int, axis: int | None, aval: Aval) -> Aval:
    """The aval of a batch of values."""
    if axis is None:
        return aval
    return ShapedArray((*aval.shape[:axis], size, *aval.shape[axis:]), aval.dtype, aval.weak_type)


from toile.compat.faces.jax.extend.core import primitives  # noqa: E402  it needs Primitive
