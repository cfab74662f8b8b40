"""`flax.nn`, later `flax.deprecated.nn`: the modules that Flax had before `flax.linen`.

A module is a class whose method `apply` declares its parameters. Calling the class in the `apply`
of another module runs it. Parameters have the names, shapes and initial values that Flax gave them.
"""

from toile.compat.removed.flax_nn import attention as attention
from toile.compat.removed.flax_nn import base, linear, normalization, recurrent
from toile.compat.removed.flax_nn.attention import (
    MultiHeadDotProductAttention,
    SelfAttention,
    dot_product_attention,
)
from toile.compat.removed.flax_nn.base import (
    Collection,
    Model,
    Module,
    capture_module_outputs,
    get_state,
    is_stateful,
    module,
    module_method,
    stateful,
)
from toile.compat.removed.flax_nn.linear import Conv, ConvTranspose, Dense, DenseGeneral, Embed
from toile.compat.removed.flax_nn.normalization import BatchNorm, GroupNorm, LayerNorm
from toile.compat.removed.flax_nn.recurrent import ConvLSTM, GRUCell, LSTMCell, OptimizedLSTMCell
from toile.compat.removed.flax_nn.stochastic import dropout, is_stochastic, make_rng, stochastic
from toile.core.nn import activation, initializers, pooling
from toile.core.nn.activation import (
    celu,
    elu,
    gelu,
    glu,
    leaky_relu,
    log_sigmoid,
    log_softmax,
    relu,
    sigmoid,
    silu,
    soft_sign,
    softmax,
    softplus,
    swish,
    tanh,
)
from toile.core.nn.pooling import avg_pool, max_pool

__all__ = [
    "BatchNorm", "Collection", "Conv", "ConvLSTM", "ConvTranspose", "Dense", "DenseGeneral",
    "Embed", "GRUCell", "GroupNorm", "LSTMCell", "LayerNorm", "Model", "Module",
    "MultiHeadDotProductAttention", "OptimizedLSTMCell", "SelfAttention", "activation",
    "attention", "avg_pool", "base", "capture_module_outputs", "celu", "dot_product_attention",
    "dropout", "elu", "gelu", "get_state", "glu", "initializers", "is_stateful", "is_stochastic",
    "leaky_relu", "linear", "log_sigmoid", "log_softmax", "make_rng", "max_pool", "module",
    "module_method", "normalization", "pooling", "recurrent", "relu", "sigmoid", "silu",
    "soft_sign", "softmax", "softplus", "stateful", "stochastic", "swish", "tanh",
]
