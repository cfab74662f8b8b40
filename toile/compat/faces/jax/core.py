"""`jax.core`: tracers, avals and Programs under JAX's names, and nothing of Flax's `core`."""

from toile import ensure_compile_time_eval
from toile.compat import jax_core as _core
from toile.compat.faces.jax.extend.core import (
    Primitive,
    find_top_trace,
    get_opaque_trace_state,
    mapped_aval,
    unmapped_aval,
)
from toile.compat.faces.jax.interpreters.xla import pytype_aval_mappings
from toile.engine.program import Var


class DropVar(Var):
    """JAX's variable for a result that is not used; toile has ordinary variables in its place."""


_OF_CORE = [name for name in _core.__all__ if name != "Equation"]  # which is toile's own
globals().update({name: getattr(_core, name) for name in _OF_CORE})

__all__ = [  # noqa: PLE0604
    *_OF_CORE, "DropVar", "Primitive", "ensure_compile_time_eval", "find_top_trace",
    "get_opaque_trace_state", "mapped_aval", "pytype_aval_mappings", "unmapped_aval",
]
