"""The public names of this package: loaded when they are first used, and known to type checkers."""

from toile.core.lift import (
    In as In,
    InOutAxis as InOutAxis,
    InOutScanAxis as InOutScanAxis,
    Out as Out,
)
from toile.linen.transforms.derivatives import (
    custom_vjp as custom_vjp,
    grad as grad,
    jvp as jvp,
    value_and_grad as value_and_grad,
    vjp as vjp,
)
from toile.linen.transforms.functions import (
    add_metadata_axis as add_metadata_axis,
    checkpoint as checkpoint,
    cond as cond,
    fold_rngs as fold_rngs,
    jit as jit,
    map_variables as map_variables,
    named_call as named_call,
    remat as remat,
    remat_scan as remat_scan,
    scan as scan,
    switch as switch,
    vmap as vmap,
    while_loop as while_loop,
)
from toile.linen.transforms.lifting import (
    Target as Target,
    TransformTarget as TransformTarget,
    fork_rngs as fork_rngs,
    lift_direct_transform as lift_direct_transform,
    lift_transform as lift_transform,
    lift_transform_cached as lift_transform_cached,
)
