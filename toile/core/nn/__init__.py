"""Functional layers: plain functions of a Scope, its inputs and the layer's options.

They are what Linen's layers would be without Modules: parameters are declared on the scope at hand,
and a caller gives each layer a scope of its own with `scope.child(layer, name)`.
"""
# ruff: noqa: F401

import typing as _typing

from toile.engine.lazy import attach as _attach
from toile.engine.lazy import names_of as _names_of

if _typing.TYPE_CHECKING:
    from toile.core.nn import activation, initializers
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
    from toile.core.nn.attention import dot_product_attention, multi_head_dot_product_attention
    from toile.core.nn.linear import (
        Embedding,
        conv,
        conv_transpose,
        dense,
        dense_general,
        embedding,
    )
    from toile.core.nn.normalization import batch_norm, group_norm, layer_norm
    from toile.core.nn.pooling import avg_pool, max_pool
    from toile.core.nn.stochastic import dropout

_FROM = {
    "activation": (
        "celu elu gelu glu leaky_relu log_sigmoid log_softmax relu sigmoid silu soft_sign softmax "
        "softplus swish tanh"
    ),
    "attention": "dot_product_attention multi_head_dot_product_attention",
    "linear": "Embedding conv conv_transpose dense dense_general embedding",
    "normalization": "batch_norm group_norm layer_norm",
    "pooling": "avg_pool max_pool",
    "stochastic": "dropout",
}
_MODULES = (
    "activation attention decoding initializers linear masks normalization pooling stochastic"
)
__getattr__, __dir__ = _attach(__name__, _FROM, _MODULES)

__all__ = [*_names_of(_FROM), "activation", "initializers"]  # noqa: PLE0604
