"""Lifted transformations: those of toile for classes, methods and functions of modules.

A plain `toile.vmap` knows nothing of variables and random streams; `nn.vmap` is told what becomes
of each collection and stream.
"""

from toile.core.lift import In, InOutAxis, InOutScanAxis, Out
from toile.linen.transforms import derivatives as _derivatives
from toile.linen.transforms import functions as _functions
from toile.linen.transforms.derivatives import *  # noqa: F403
from toile.linen.transforms.functions import *  # noqa: F403
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
    "In", "InOutAxis", "InOutScanAxis", "Out", "Target", "TransformTarget", "fork_rngs",
    "lift_direct_transform", "lift_transform", "lift_transform_cached",
]  # fmt: skip
__all__ += _derivatives.__all__ + _functions.__all__
