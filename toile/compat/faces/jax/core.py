"""`jax.core`: tracers, avals and Programs under JAX's names, and nothing of Flax's `core`."""

from toile.compat import jax_core as _core
from toile.compat.faces.jax.extend.core import (
    Primitive,
    get_opaque_trace_state,
    mapped_aval,
    unmapped_aval,
)

_OF_CORE = [name for name in _core.__all__ if name != "Equation"]  # which is toile's own
globals().update({name: getattr(_core, name) for name in _OF_CORE})

__all__ = [  # noqa: PLE0604
    *_OF_CORE, "Primitive", "get_opaque_trace_state", "mapped_aval", "unmapped_aval",
]
