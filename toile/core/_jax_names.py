"""What people who look inside use: tracers, avals, Programs."""

from typing import Any

from toile.engine.avals import Aval
from toile.engine.avals import Aval as ShapedArray
from toile.engine.avals import aval_of as get_aval
from toile.engine.program import ClosedProgram, Equation, Literal, Program, Var, evaluate
from toile.engine.tracing import Trace, Tracer, state

AbstractValue = Aval
Atom = Var | Literal
Jaxpr, ClosedJaxpr, JaxprEqn = Program, ClosedProgram, Equation


def eval_jaxpr(jaxpr: Program, consts: Any, *args: Any) -> list[Any]:
    """Run a Program operation by operation through whatever traces."""
    return evaluate(jaxpr, [*consts, *args])


def is_concrete(x: Any) -> bool:
    """Whether a value is known now."""
    return not isinstance(x, Tracer) or x.concrete() is not None


def trace_state_clean() -> bool:
    """Whether nothing is being traced on this thread."""
    return state.trace is None


__all__ = [
    "AbstractValue",
    "Atom",
    "ClosedJaxpr",
    "Equation",
    "Jaxpr",
    "JaxprEqn",
    "Literal",
    "ShapedArray",
    "Trace",
    "Tracer",
    "Var",
    "eval_jaxpr",
    "get_aval",
    "is_concrete",
    "trace_state_clean",
]
