"""Lifted transformations: those of toile for classes, methods and functions of modules.

A plain `toile.vmap` knows nothing of variables and random streams; `nn.vmap` is told what becomes
of each collection and stream.
"""

from toile.core.lift import In, InOutAxis, InOutScanAxis, Out
from toile.linen.transforms.derivatives import custom_vjp, grad, jvp, value_and_grad, vjp
from toile.linen.transforms.functions import (
    add_metadata_axis,
    checkpoint,
    cond,
    fold_rngs,
    jit,
    map_variables,
    named_call,
    remat,
    remat_scan,
    scan,
    switch,
    vmap,
    while_loop,
)
from toile.linen.transforms.keys import ModuleKey as _HashableProxy  # noqa: F401
from toile.linen.transforms.lifting import (
    Target,
    TransformTarget,
    fork_rngs,
    lift_direct_transform,
    lift_transform,
    lift_transform_cached,
)

__all__ = [
    "In",
    "InOutAxis",
    "InOutScanAxis",
    "Out",
    "Target",
    "TransformTarget",
    "add_metadata_axis",
    "checkpoint",
    "cond",
    "custom_vjp",
    "fold_rngs",
    "fork_rngs",
    "grad",
    "jit",
    "jvp",
    "lift_direct_transform",
    "lift_transform",
    "lift_transform_cached",
    "map_variables",
    "named_call",
    "remat",
    "remat_scan",
    "scan",
    "switch",
    "value_and_grad",
    "vjp",
    "vmap",
    "while_loop",
]
