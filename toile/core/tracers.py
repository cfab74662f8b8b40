"""Finding the transforms around the current code, in particular those that are not lifted."""

from typing import Any

from toile import errors
from toile.engine.program import ProgramTrace
from toile.engine.trace import Trace, state
from toile.transforms.jvp import JVPTrace
from toile.transforms.linearize import LinearTrace
from toile.transforms.vmap import BatchTrace

# For the trace of each raw transform: its name, and the lifted transform to use instead.
_LIFTED: dict[type[Trace], tuple[str, str]] = {
    BatchTrace: ("vmap", "nn.vmap"),
    JVPTrace: ("jvp", "nn.jvp"),
    LinearTrace: ("grad or vjp", "nn.grad or nn.vjp"),
    ProgramTrace: (
        "jit, scan, cond, while_loop or checkpoint",
        "nn.jit, nn.scan, nn.cond, nn.while_loop or nn.remat",
    ),
}


def current_trace() -> Trace | None:
    """Return the current thread's innermost trace.

    Returns:
        The trace; None if operations are executed eagerly.

    >>> from toile.core import current_trace
    >>> print(current_trace())
    None
    """
    return state.trace


def is_inside(base: Trace | None) -> bool:
    """Whether transforms were entered since `base` was obtained from `current_trace`."""
    trace = state.trace
    while trace is not None and trace is not base:
        if trace.__class__ in _LIFTED:
            return True
        trace = trace.parent
    return False


def lifted_transform() -> str:
    """Advice on the lifted transform to use in place of the innermost raw transform."""
    trace = state.trace
    while trace is not None:
        kind: Any = trace.__class__
        if kind in _LIFTED:
            if kind is JVPTrace and trace.parent.__class__ is LinearTrace:
                kind = LinearTrace  # reverse mode is a jvp over a linear tape
            raw, lifted = _LIFTED[kind]
            return f"{lifted} instead of {raw}"
        trace = trace.parent
    return "the one of the same name in toile.linen"


def check_trace_level(base_level: Trace | None) -> None:
    """Raise an error if a transform has been entered since `base_level` was obtained.

    Args:
        base_level: an earlier result of `current_trace`.

    Raises:
        toile.errors.JaxTransformError: a transform was entered.
    """
    if state.trace is not base_level and is_inside(base_level):
        raise errors.JaxTransformError()
