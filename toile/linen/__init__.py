"""Modules as Flax users know them: every public name of `flax.linen`.

Each family of layers loads when one of it is first used.
"""
# ruff: noqa: F401, F403

import typing as _typing

from toile.engine.garbage import paused as _paused
from toile.engine.lazy import attach as _attach
from toile.engine.lazy import names_of as _names_of

with _paused():
    from toile.linen.module import (
        Module,
        apply,
        compact,
        compact_name_scope,
        disable_named_call,
        enable_named_call,
        init,
        init_with_output,
        intercept_methods,
        merge_param,
        nowrap,
        override_named_call,
        share_scope,
    )

if _typing.TYPE_CHECKING:
    from toile.core import DenyList, FrozenDict, broadcast, meta, unbox
    from toile.core.meta import (
        PARTITION_NAME,
        Partitioned,
        get_partition_spec,
        get_sharding,
        with_partitioning,
    )
    from toile.core.scope import Variable
    from toile.core.spmd import get_logical_axis_rules, logical_axis_rules, set_logical_axis_rules
    from toile.linen.activation import *
    from toile.linen.attention import (
        MultiHeadAttention,
        MultiHeadDotProductAttention,
        SelfAttention,
        combine_masks,
        dot_product_attention,
        dot_product_attention_weights,
        make_attention_mask,
        make_causal_mask,
    )
    from toile.linen.batch_apply import BatchApply
    from toile.linen.combinators import Sequential
    from toile.linen.fp8_ops import (
        Fp8DirectDotGeneralOp,
        Fp8DotGeneral,
        Fp8DotGeneralOp,
        Fp8Einsum,
        NANOOFp8DotGeneralOp,
    )
    from toile.linen.initializers import ones, ones_init, zeros, zeros_init
    from toile.linen.linear import (
        Conv,
        ConvLocal,
        ConvTranspose,
        Dense,
        DenseGeneral,
        Einsum,
        Embed,
    )
    from toile.linen.normalization import (
        BatchNorm,
        GroupNorm,
        InstanceNorm,
        LayerNorm,
        RMSNorm,
        SpectralNorm,
        WeightNorm,
    )
    from toile.linen.pooling import avg_pool, max_pool, pool
    from toile.linen.recurrent import (
        RNN,
        Bidirectional,
        ConvLSTMCell,
        GRUCell,
        LSTMCell,
        MGUCell,
        OptimizedLSTMCell,
        RNNCellBase,
        SimpleCell,
    )
    from toile.linen.spmd import (
        LogicallyPartitioned,
        logical_to_mesh,
        logical_to_mesh_axes,
        logical_to_mesh_sharding,
        with_logical_constraint,
        with_logical_partitioning,
    )
    from toile.linen.stochastic import Dropout
    from toile.linen.summary import tabulate
    from toile.linen.transforms.derivatives import *
    from toile.linen.transforms.functions import *

_FROM = {
    "toile.core": "DenyList FrozenDict broadcast meta unbox",
    "toile.core.meta": (
        "PARTITION_NAME Partitioned get_partition_spec get_sharding with_partitioning"
    ),
    "toile.core.scope": "Variable",
    "toile.core.spmd": "get_logical_axis_rules logical_axis_rules set_logical_axis_rules",
    "activation": "PReLU",
    "toile.core.nn.activation": (
        "celu elu gelu glu hard_sigmoid hard_silu hard_swish hard_tanh leaky_relu "
        "log_sigmoid log_softmax logsumexp normalize one_hot relu relu6 selu sigmoid silu "
        "soft_sign softmax softplus standardize swish tanh"
    ),
    "attention": (
        "MultiHeadAttention MultiHeadDotProductAttention SelfAttention combine_masks "
        "dot_product_attention dot_product_attention_weights make_attention_mask make_causal_mask"
    ),
    "batch_apply": "BatchApply",
    "combinators": "Sequential",
    "fp8_ops": "Fp8DirectDotGeneralOp Fp8DotGeneral Fp8DotGeneralOp Fp8Einsum NANOOFp8DotGeneralOp",
    "initializers": "ones ones_init zeros zeros_init",
    "convolution": "Conv ConvLocal ConvTranspose",
    "embedding": "Embed",
    "linear": "Dense DenseGeneral Einsum",
    "normalization": "BatchNorm GroupNorm InstanceNorm LayerNorm RMSNorm",
    "weight_normalization": "SpectralNorm WeightNorm",
    "pooling": "avg_pool max_pool pool",
    "recurrent": (
        "RNN Bidirectional ConvLSTMCell GRUCell LSTMCell MGUCell OptimizedLSTMCell RNNCellBase "
        "SimpleCell"
    ),
    "spmd": (
        "LogicallyPartitioned logical_to_mesh logical_to_mesh_axes logical_to_mesh_sharding "
        "with_logical_constraint with_logical_partitioning"
    ),
    "stochastic": "Dropout",
    "summary": "tabulate",
    "transforms": (
        "add_metadata_axis checkpoint cond custom_vjp fold_rngs grad jit jvp map_variables "
        "named_call remat remat_scan scan switch value_and_grad vjp vmap while_loop"
    ),
}
_MODULES = (
    "activation adoption attention attention_masks attention_weights batch_apply combinators "
    "context convolution dataclass dtypes embedding fingerprints fp8_ops initializers "
    "kw_only_dataclasses linear methods module module_functional module_summaries "
    "module_variables normalization pooling recurrent recurrent_cells reprs spmd stochastic "
    "summary transforms weight_normalization weights yaml_text"
)
__getattr__, __dir__ = _attach(__name__, _FROM, _MODULES)

__all__ = [  # noqa: PLE0604
    "Module", "apply", "compact", "compact_name_scope", "disable_named_call", "enable_named_call",
    "init", "init_with_output", "intercept_methods", "merge_param", "nowrap",
    "override_named_call", "share_scope", *_names_of(_FROM),
]  # fmt: skip
