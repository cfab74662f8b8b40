"""Names for users who look inside: Programs, tracers and avals, and containers of variables."""
# ruff: noqa: F401, F403

import typing as _typing

from toile.engine.lazy import attach as _attach
from toile.engine.lazy import names_of as _names_of

if _typing.TYPE_CHECKING:
    from toile.core._jax_names import *
    from toile.core.axes_scan import broadcast
    from toile.core.filters import DenyList
    from toile.core.frozen_dict import FrozenDict, copy, freeze, pop, pretty_repr, unfreeze
    from toile.core.lift import custom_vjp, jit, jvp, remat, remat_scan, scan, vjp, vmap, while_loop
    from toile.core.meta import AxisMetadata, map_axis_meta, unbox
    from toile.core.scope import Scope, apply, bind, init, lazy_init
    from toile.core.tracers import check_trace_level, current_trace
    from toile.engine.trace import Array

_FROM = {
    "_jax_names": (
        "AbstractValue Atom ClosedJaxpr Equation Jaxpr JaxprEqn Literal ShapedArray Trace Tracer "
        "Var eval_jaxpr get_aval is_concrete trace_state_clean"
    ),
    "axes_scan": "broadcast",
    "filters": "DenyList",
    "frozen_dict": "FrozenDict copy freeze pop pretty_repr unfreeze",
    "lift": "custom_vjp jit jvp remat remat_scan scan vjp vmap while_loop",
    "meta": "AxisMetadata map_axis_meta unbox",
    "scope": "Scope apply bind init lazy_init",
    "tracers": "check_trace_level current_trace",
    "toile.engine.trace": "Array",
}
_MODULES = (
    "_jax_names axes_scan filters frozen_dict lift meta nn partial_eval rng scope scope_class spmd "
    "tracers variables"
)
__getattr__, __dir__ = _attach(__name__, _FROM, _MODULES)

__all__ = list(_names_of(_FROM))
