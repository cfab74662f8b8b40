"""The public names of this package: loaded when they are first used, and known to type checkers."""

from toile.core.nn import activation as activation, initializers as initializers
from toile.core.nn.activation import (
    celu as celu,
    elu as elu,
    gelu as gelu,
    glu as glu,
    leaky_relu as leaky_relu,
    log_sigmoid as log_sigmoid,
    log_softmax as log_softmax,
    relu as relu,
    sigmoid as sigmoid,
    silu as silu,
    soft_sign as soft_sign,
    softmax as softmax,
    softplus as softplus,
    swish as swish,
    tanh as tanh,
)
from toile.core.nn.attention import (
    dot_product_attention as dot_product_attention,
    multi_head_dot_product_attention as multi_head_dot_product_attention,
)
from toile.core.nn.linear import (
    Embedding as Embedding,
    conv as conv,
    conv_transpose as conv_transpose,
    dense as dense,
    dense_general as dense_general,
    embedding as embedding,
)
from toile.core.nn.normalization import (
    batch_norm as batch_norm,
    group_norm as group_norm,
    layer_norm as layer_norm,
)
from toile.core.nn.pooling import avg_pool as avg_pool, max_pool as max_pool
from toile.core.nn.stochastic import dropout as dropout
