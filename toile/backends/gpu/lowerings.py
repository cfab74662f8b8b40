"""Which operations have CUDA code: the lowering of each class, and what loop nests can hold."""

from __future__ import annotations

from toile.backends.gpu.attending import FusedAttention, FusedAttentionGradient
from toile.backends.gpu.fused_products import FusedProduct
from toile.backends.gpu.scalars import Code, Scalars
from toile.compiler import fusible
from toile.compiler.lowering_table import COMMON, Places, finder
from toile.compiler.scalars import BOOL
from toile.primitives import collectives, contractions, conv, sorting

can_fuse = fusible.rule(lambda: Scalars(Code()), lambda dtype: "true" if dtype == BOOL else "x")

_PLACES: Places = {
    **COMMON,
    sorting.Argmax: ("extrema", "lower_arg_extremum"),
    sorting.Argmin: ("extrema", "lower_arg_extremum"),
    collectives.AllReduce: ("collectives", "lower_all_reduce"),
    collectives.AllReduceTogether: ("collectives", "lower_all_reduce"),
    collectives.AllReduceBegin: ("collectives", "lower_begin"),
    collectives.AllReduceEnd: ("collectives", "lower_end"),
    collectives.AllGather: ("collectives", "lower_all_gather"),
    collectives.ReduceScatter: ("collectives", "lower_reduce_scatter"),
    collectives.AllToAll: ("collectives", "lower_all_to_all"),
    collectives.PPermute: ("collectives", "lower_permute"),
    collectives.AxisIndex: ("collectives", "lower_axis_index"),
    FusedAttention: ("attending", "lower_forward"),
    FusedAttentionGradient: ("attending", "lower_backward"),
    FusedProduct: ("fused_products", "lower"),
}
# What takes the cases that the library's lowering declines.
_OTHERWISE: Places = {
    contractions.DotGeneral: ("tiled_products", "lower_small_dot"),
    conv.ConvGeneralDilated: ("tiled_products", "lower_direct_conv"),
}

# The function that adds an equation's stages to a plan; None: CuPy computes it.
lowering_of = finder("toile.backends.gpu", _PLACES, _OTHERWISE)
