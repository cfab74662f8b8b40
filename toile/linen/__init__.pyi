"""The public names of this package: loaded when they are first used, and known to type checkers."""

from toile.core import (
    DenyList as DenyList,
    FrozenDict as FrozenDict,
    broadcast as broadcast,
    meta as meta,
    unbox as unbox,
)
from toile.core.meta import (
    PARTITION_NAME as PARTITION_NAME,
    Partitioned as Partitioned,
    get_partition_spec as get_partition_spec,
    get_sharding as get_sharding,
    with_partitioning as with_partitioning,
)
from toile.core.nn.activation import (
    celu as celu,
    elu as elu,
    gelu as gelu,
    glu as glu,
    hard_sigmoid as hard_sigmoid,
    hard_silu as hard_silu,
    hard_swish as hard_swish,
    hard_tanh as hard_tanh,
    leaky_relu as leaky_relu,
    log_sigmoid as log_sigmoid,
    log_softmax as log_softmax,
    logsumexp as logsumexp,
    normalize as normalize,
    one_hot as one_hot,
    relu as relu,
    relu6 as relu6,
    selu as selu,
    sigmoid as sigmoid,
    silu as silu,
    soft_sign as soft_sign,
    softmax as softmax,
    softplus as softplus,
    standardize as standardize,
    swish as swish,
    tanh as tanh,
)
from toile.core.scope import Variable as Variable
from toile.core.spmd import (
    get_logical_axis_rules as get_logical_axis_rules,
    logical_axis_rules as logical_axis_rules,
    set_logical_axis_rules as set_logical_axis_rules,
)
from toile.linen import (
    activation as activation,
    adoption as adoption,
    attention as attention,
    attention_masks as attention_masks,
    attention_weights as attention_weights,
    batch_apply as batch_apply,
    combinators as combinators,
    context as context,
    convolution as convolution,
    dataclass as dataclass,
    dtypes as dtypes,
    embedding as embedding,
    fingerprints as fingerprints,
    fp8_ops as fp8_ops,
    initializers as initializers,
    kw_only_dataclasses as kw_only_dataclasses,
    linear as linear,
    methods as methods,
    module as module,
    module_functional as module_functional,
    module_summaries as module_summaries,
    module_variables as module_variables,
    normalization as normalization,
    pooling as pooling,
    recurrent as recurrent,
    recurrent_cells as recurrent_cells,
    reprs as reprs,
    spmd as spmd,
    stochastic as stochastic,
    summary as summary,
    transforms as transforms,
    weight_normalization as weight_normalization,
    weights as weights,
    yaml_text as yaml_text,
)
from toile.linen.activation import PReLU as PReLU
from toile.linen.attention import (
    MultiHeadAttention as MultiHeadAttention,
    MultiHeadDotProductAttention as MultiHeadDotProductAttention,
    SelfAttention as SelfAttention,
    combine_masks as combine_masks,
    dot_product_attention as dot_product_attention,
    dot_product_attention_weights as dot_product_attention_weights,
    make_attention_mask as make_attention_mask,
    make_causal_mask as make_causal_mask,
)
from toile.linen.batch_apply import BatchApply as BatchApply
from toile.linen.combinators import Sequential as Sequential
from toile.linen.convolution import (
    Conv as Conv,
    ConvLocal as ConvLocal,
    ConvTranspose as ConvTranspose,
)
from toile.linen.embedding import Embed as Embed
from toile.linen.fp8_ops import (
    Fp8DirectDotGeneralOp as Fp8DirectDotGeneralOp,
    Fp8DotGeneral as Fp8DotGeneral,
    Fp8DotGeneralOp as Fp8DotGeneralOp,
    Fp8Einsum as Fp8Einsum,
    NANOOFp8DotGeneralOp as NANOOFp8DotGeneralOp,
)
from toile.linen.initializers import (
    ones as ones,
    ones_init as ones_init,
    zeros as zeros,
    zeros_init as zeros_init,
)
from toile.linen.linear import Dense as Dense, DenseGeneral as DenseGeneral, Einsum as Einsum
from toile.linen.module import (
    Module as Module,
    apply as apply,
    compact as compact,
    compact_name_scope as compact_name_scope,
    disable_named_call as disable_named_call,
    enable_named_call as enable_named_call,
    init as init,
    init_with_output as init_with_output,
    intercept_methods as intercept_methods,
    merge_param as merge_param,
    nowrap as nowrap,
    override_named_call as override_named_call,
    share_scope as share_scope,
)
from toile.linen.normalization import (
    BatchNorm as BatchNorm,
    GroupNorm as GroupNorm,
    InstanceNorm as InstanceNorm,
    LayerNorm as LayerNorm,
    RMSNorm as RMSNorm,
)
from toile.linen.pooling import avg_pool as avg_pool, max_pool as max_pool, pool as pool
from toile.linen.recurrent import (
    Bidirectional as Bidirectional,
    ConvLSTMCell as ConvLSTMCell,
    GRUCell as GRUCell,
    LSTMCell as LSTMCell,
    MGUCell as MGUCell,
    OptimizedLSTMCell as OptimizedLSTMCell,
    RNN as RNN,
    RNNCellBase as RNNCellBase,
    SimpleCell as SimpleCell,
)
from toile.linen.spmd import (
    LogicallyPartitioned as LogicallyPartitioned,
    logical_to_mesh as logical_to_mesh,
    logical_to_mesh_axes as logical_to_mesh_axes,
    logical_to_mesh_sharding as logical_to_mesh_sharding,
    with_logical_constraint as with_logical_constraint,
    with_logical_partitioning as with_logical_partitioning,
)
from toile.linen.stochastic import Dropout as Dropout
from toile.linen.summary import tabulate as tabulate
from toile.linen.transforms import (
    add_metadata_axis as add_metadata_axis,
    checkpoint as checkpoint,
    cond as cond,
    custom_vjp as custom_vjp,
    fold_rngs as fold_rngs,
    grad as grad,
    jit as jit,
    jvp as jvp,
    map_variables as map_variables,
    named_call as named_call,
    remat as remat,
    remat_scan as remat_scan,
    scan as scan,
    switch as switch,
    value_and_grad as value_and_grad,
    vjp as vjp,
    vmap as vmap,
    while_loop as while_loop,
)
from toile.linen.weight_normalization import SpectralNorm as SpectralNorm, WeightNorm as WeightNorm
