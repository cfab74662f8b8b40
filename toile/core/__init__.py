"""What people who look inside use: Programs, tracers and avals, and the containers of variables."""

from toile.core._jax_names import (
    AbstractValue,
    Atom,
    ClosedJaxpr,
    Equation,
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
from toile.core.axes_scan import broadcast
from toile.core.filters import DenyList
from toile.core.frozen_dict import FrozenDict, copy, freeze, pop, pretty_repr, unfreeze
from toile.core.lift import (
    custom_vjp,
    jit,
    jvp,
    remat,
    remat_scan,
    scan,
    vjp,
    vmap,
    while_loop,
)
from toile.core.meta import AxisMetadata, map_axis_meta, unbox
from toile.core.scope import Scope, apply, bind, init, lazy_init
from toile.core.tracers import check_trace_level, current_trace
from toile.engine.tracing import Array

__all__ = [
    "AbstractValue",
    "Array",
    "Atom",
    "AxisMetadata",
    "ClosedJaxpr",
    "DenyList",
    "Equation",
    "FrozenDict",
    "Jaxpr",
    "JaxprEqn",
    "Literal",
    "Scope",
    "ShapedArray",
    "Trace",
    "Tracer",
    "Var",
    "apply",
    "bind",
    "broadcast",
    "check_trace_level",
    "copy",
    "current_trace",
    "custom_vjp",
    "eval_jaxpr",
    "freeze",
    "get_aval",
    "init",
    "is_concrete",
    "jit",
    "jvp",
    "lazy_init",
    "map_axis_meta",
    "pop",
    "pretty_repr",
    "remat",
    "remat_scan",
    "scan",
    "trace_state_clean",
    "unbox",
    "unfreeze",
    "vjp",
    "vmap",
    "while_loop",
]
