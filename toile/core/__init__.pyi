"""The public names of this package: loaded when they are first used, and known to type checkers."""

from toile.compat.jax_core import (
    AbstractValue as AbstractValue,
    Atom as Atom,
    ClosedJaxpr as ClosedJaxpr,
    Equation as Equation,
    Jaxpr as Jaxpr,
    JaxprEqn as JaxprEqn,
    Literal as Literal,
    ShapedArray as ShapedArray,
    Trace as Trace,
    Tracer as Tracer,
    Var as Var,
    eval_jaxpr as eval_jaxpr,
    get_aval as get_aval,
    is_concrete as is_concrete,
    trace_state_clean as trace_state_clean,
    valid_jaxtype as valid_jaxtype,
)
from toile.core import (
    axes_scan as axes_scan,
    filters as filters,
    frozen_dict as frozen_dict,
    lift as lift,
    meta as meta,
    nn as nn,
    partial_eval as partial_eval,
    rng as rng,
    scope as scope,
    scope_class as scope_class,
    spmd as spmd,
    tracers as tracers,
    variables as variables,
)
from toile.core.axes_scan import broadcast as broadcast
from toile.core.filters import DenyList as DenyList
from toile.core.frozen_dict import (
    FrozenDict as FrozenDict,
    copy as copy,
    freeze as freeze,
    pop as pop,
    pretty_repr as pretty_repr,
    unfreeze as unfreeze,
)
from toile.core.lift import (
    custom_vjp as custom_vjp,
    jit as jit,
    jvp as jvp,
    remat as remat,
    remat_scan as remat_scan,
    scan as scan,
    vjp as vjp,
    vmap as vmap,
    while_loop as while_loop,
)
from toile.core.meta import (
    AxisMetadata as AxisMetadata,
    map_axis_meta as map_axis_meta,
    unbox as unbox,
)
from toile.core.scope import (
    Scope as Scope,
    apply as apply,
    bind as bind,
    init as init,
    lazy_init as lazy_init,
)
from toile.core.tracers import (
    check_trace_level as check_trace_level,
    current_trace as current_trace,
)
from toile.engine.trace import Array as Array
