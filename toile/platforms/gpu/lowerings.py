"""Which operations have CUDA code: the lowering of each class."""

from __future__ import annotations

from toile.kernels.attention.gpu import FusedAttention, FusedAttentionGradient
from toile.kernels.contraction.gpu_fused import FusedProduct
from toile.kernels.families import COMMON, Places, finder
from toile.primitives import collectives, contractions, conv
from toile.primitives import sorts as sorting

_PLACES: Places = {
    **COMMON,
    sorting.Argmax: ("sort.gpu_extrema", "lower_arg_extremum"),
    sorting.Argmin: ("sort.gpu_extrema", "lower_arg_extremum"),
    collectives.AllReduce: ("collectives", "lower_all_reduce"),
    collectives.AllReduceTogether: ("collectives", "lower_all_reduce"),
    collectives.AllReduceBegin: ("collectives", "lower_begin"),
    collectives.AllReduceEnd: ("collectives", "lower_end"),
    collectives.AllGather: ("collectives", "lower_all_gather"),
    collectives.ReduceScatter: ("collectives", "lower_reduce_scatter"),
    collectives.AllToAll: ("collectives", "lower_all_to_all"),
    collectives.PPermute: ("collectives", "lower_permute"),
    collectives.AxisIndex: ("collectives", "lower_axis_index"),
    FusedAttention: ("attention", "lower_forward"),
    FusedAttentionGradient: ("attention", "lower_backward"),
    FusedProduct: ("contraction.gpu_fused", "lower"),
}
# What takes the cases that the library's lowering declines.
_OTHERWISE: Places = {
    contractions.DotGeneral: ("contraction.gpu_tiles", "lower_small_dot"),
    conv.ConvGeneralDilated: ("contraction.gpu_tiles", "lower_direct_conv"),
}

# The function that adds an equation's stages to a plan; None: CuPy computes it.
lowering_of = finder("gpu", _PLACES, _OTHERWISE)
