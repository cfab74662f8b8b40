"""`jax.core`: tracers, avals and Programs, under JAX's names and nothing of Flax's `core`."""

from toile import core as _core
from toile.interop.faces.jax.extend.core import (
    Primitive,
    get_opaque_trace_state,
    mapped_aval,
    unmapped_aval,
)

_OF_CORE = (
    "AbstractValue", "Atom", "ClosedJaxpr", "Jaxpr", "JaxprEqn", "Literal", "ShapedArray", "Trace",
    "Tracer", "Var", "eval_jaxpr", "get_aval", "is_concrete", "trace_state_clean",
)
globals().update({name: getattr(_core, name) for name in _OF_CORE})

__all__ = [  # noqa: PLE0604
    *_OF_CORE, "Primitive", "get_opaque_trace_state", "mapped_aval", "unmapped_aval",
]
