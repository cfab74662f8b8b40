"""`jax.core`: tracers, avals and Programs, under JAX's names and nothing of Flax's `core`."""

from toile.core import (
    AbstractValue,
    Atom,
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    ShapedArray,
    Trace,
    Tracer,
    Var,
    eval_jaxpr,
    get_aval,
    is_concrete,
    trace_state_clean,
)
from toile.interop.faces.jax.extend.core import (
    Primitive,
    get_opaque_trace_state,
    mapped_aval,
    unmapped_aval,
)

__all__ = [
    "AbstractValue",
    "Atom",
    "ClosedJaxpr",
    "Jaxpr",
    "JaxprEqn",
    "Literal",
    "Primitive",
    "ShapedArray",
    "Trace",
    "Tracer",
    "Var",
    "eval_jaxpr",
    "get_aval",
    "get_opaque_trace_state",
    "is_concrete",
    "mapped_aval",
    "trace_state_clean",
    "unmapped_aval",
]
