"""JAX's names for tracers, avals and Programs."""

from typing import Any

import numpy as np

from toile.engine.avals import Aval
from toile.engine.avals import aval_of as get_aval
from toile.engine.program import ClosedProgram, Equation, Literal, Program, Var, evaluate
from toile.engine.trace import Trace, Tracer, state

AbstractValue = Aval


class _AsAval(type):
    """Turns a shape and a dtype into an aval; every aval counts as an instance."""

    def __call__(cls, shape: Any, dtype: Any, weak_type: bool = False, **_: Any) -> Aval:
        named = dtype if hasattr(dtype, "kind") else np.dtype(dtype)
        return Aval(tuple(shape), named, weak_type)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Aval)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, Aval)


class ShapedArray(Aval, metaclass=_AsAval):
    """Shape, dtype and weak-type flag of an array, made from a shape and a dtype in any form."""

    __slots__ = ()


Atom = Var | Literal
Jaxpr, ClosedJaxpr, JaxprEqn = Program, ClosedProgram, Equation


def eval_jaxpr(jaxpr: Program, consts: Any, *args: Any) -> list[Any]:
    """Run a Program operation by operation, under the current trace."""
    return evaluate(jaxpr, [*consts, *args])


def is_concrete(x: Any) -> bool:
    """Whether a value is known now."""
    return not isinstance(x, Tracer) or x.concrete() is not None


def trace_state_clean() -> bool:
    """Whether nothing is being traced on this thread."""
    return state.trace is None


__all__ = [
    "AbstractValue", "Atom", "ClosedJaxpr", "Equation", "Jaxpr", "JaxprEqn", "Literal",
    "ShapedArray", "Trace", "Tracer", "Var", "eval_jaxpr", "get_aval", "is_concrete",
    "trace_state_clean",
]  # fmt: skip
