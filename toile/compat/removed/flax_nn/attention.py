"""Attention of `flax.nn`, and the collection of keys and values for decoding."""

from __future__ import annotations

from typing import Any

import numpy as np

from toile import numpy as jnp
from toile import tree
from toile.compat.removed.flax_nn.module_class import Module
from toile.compat.removed.flax_nn.module_scope import scope_of
from toile.compat.removed.flax_nn.module_state import Collection
from toile.compat.removed.flax_nn.stochastic import make_rng
from toile.core.nn import attention as functions
from toile.core.nn.decoding import CacheEntry, CacheMaker
from toile.core.nn.masks import _make_causal_mask, make_padding_mask
from toile.jax_utils import scan_in_dim
from toile.tree_util import register_pytree_node_class

__all__ = [
    "Cache", "MultiHeadDotProductAttention", "SelfAttention", "_CacheEntry", "_make_causal_mask",
    "dot_product_attention", "make_padding_mask", "scan_in_dim",
]

_CacheEntry = CacheEntry


class _Keys:
    """The keys of `stochastic` as a Scope."""

    @staticmethod
    def make_rng(name: str) -> Any:
        return make_rng()


def dot_product_attention(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
    """`softmax(query @ key / sqrt(channels) + bias) @ value`."""
    scope: Any = _Keys()
    return functions.dot_product_attention(scope, query, key, value, *args, **kwargs)


@register_pytree_node_class
class Cache(Collection):
    """The keys and values of decoded positions, by the path of the module."""

    def initialize_cache(self, shape: Any, dtype: Any = None) -> Any:
        """A cache with room for the given batch and positions."""

        def empty(described: Any) -> CacheEntry:
            if callable(described):  # as modules of early 2020 describe it: (ndim, tail)
                ndim, tail = described()
            else:
                ndim, *tail = (int(n) for n in np.asarray(described))
            return CacheMaker(ndim, tuple(tail))(tuple(shape), dtype or jnp.float32)

        return Cache(tree.map(empty, self.state))


class MultiHeadDotProductAttention(Module):
    """Attention with several heads, including the projections of the inputs and the result."""

    def apply(self, inputs_q: Any, inputs_kv: Any, num_heads: int, *args: Any,
              cache: Any = None, padding_mask: Any = None, key_padding_mask: Any = None,
              attention_fn: Any = dot_product_attention, **kwargs: Any) -> Any:
        if cache is not None:
            padding_mask = None
        elif padding_mask is None and key_padding_mask is not None:
            padding_mask = jnp.ones((*inputs_q.shape[:-1], 1), jnp.float32)
            if inputs_kv is None or inputs_kv is inputs_q:
                padding_mask = key_padding_mask
        elif padding_mask is not None and key_padding_mask is None and inputs_kv is not None:
            key_padding_mask = jnp.ones((*inputs_kv.shape[:-1], 1), jnp.float32)
        options: dict[str, Any] = {
            **kwargs, "cache": cache is not None, "padding_mask": padding_mask,
            "key_padding_mask": key_padding_mask,
            "attention_fn": lambda _, *xs, **more: attention_fn(*xs, **more)}
        return functions.multi_head_dot_product_attention(
            scope_of(self, cache), inputs_q, inputs_kv, num_heads, *args, **options)


# Attention whose keys and values come from the inputs of the queries.
SelfAttention = MultiHeadDotProductAttention.partial(inputs_kv=None)
