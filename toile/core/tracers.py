"""Which transforms run around the code that asks; how raw transforms around modules are noticed."""

from typing import Any

from toile import errors
from toile.engine.tracing import Trace, state

# The lifted transform to use instead of the raw one whose trace is of a class with this name.
_LIFTED = {
    "BatchTrace": ("vmap", "nn.vmap"),
    "JVPTrace": ("jvp", "nn.jvp"),
    "LinearTrace": ("grad or vjp", "nn.grad or nn.vjp"),
    "ProgramTrace": (
        "jit, scan, cond, while_loop or checkpoint",
        "nn.jit, nn.scan, nn.cond, nn.while_loop or nn.remat",
    ),
}


def current_trace() -> Trace | None:
    """The innermost trace; None when operations run at once."""
    return state.trace


def is_inside(base: Trace | None) -> bool:
    """Whether transforms were entered since `base` was the current trace."""
    trace = state.trace
    while trace is not None and trace is not base:
        if trace.__class__.__name__ in _LIFTED:
            return True
        trace = trace.parent
    return False


def lifted_transform() -> str:
    """The lifted transform to use in place of the raw one that is innermost now."""
    trace = state.trace
    while trace is not None:
        name = trace.__class__.__name__
        if name in _LIFTED:
            if name == "JVPTrace" and trace.parent.__class__.__name__ == "LinearTrace":
                name = "LinearTrace"  # reverse mode is a jvp over a linear tape
            raw, lifted = _LIFTED[name]
            return f"{lifted} in place of {raw}"
        trace = trace.parent
    return "the one of toile.linen that is named like it"


def check_trace_level(base_level: Any) -> None:
    """An error if transforms were entered since `base_level` was the current trace."""
    if state.trace is not base_level and is_inside(base_level):
        raise errors.JaxTransformError()
