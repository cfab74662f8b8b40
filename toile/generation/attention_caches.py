"""Attention with a cache for keys and values in which each row has its own position."""

from __future__ import annotations

from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.linen.module import Module
from toile.nn import dot_product_attention


def cached_attention(
    module: Module, query: Array, key: Array, value: Array, positions: Array, *,
    window: int | None = None, scale: ArrayLike | None = None,
) -> Array:  # fmt: skip
    """Attend to the keys and values of this call and of all earlier calls.

    The module stores keys, values and their positions in its collection `cache`. The first call
    creates a cache whose number of slots is the length of the inputs. Each later call stores its
    keys and values: position `p` is stored in slot `p % slots`. If there are fewer slots than
    positions, the cache is a ring buffer, which is sufficient for a sliding window.

    A token attends to itself and to tokens at lower positions in its own row. Tokens at negative
    positions are padding: they are not stored, and no token attends to them.

    Args:
        module: the module that contains the cache, usually the caller.
        query: array of shape (batch, length, heads, depth).
        key: array of shape (batch, length, key_heads, depth). `heads` is a multiple of
            `key_heads`; groups of heads share keys and values.
        value: array of the same shape as `key`.
        positions: integers of shape (batch, length): the position of each token in its row.
        window: number of positions to which a token attends, including its own; None for all.
        scale: factor by which the inner products of queries and keys are multiplied; None for
            `1 / sqrt(depth)`.

    Returns:
        An array with the same shape as `query`.

    >>> import toile.linen as nn
    >>> from toile.generation import cached_attention
    >>> class Attention(nn.Module):
    ...     @nn.compact
    ...     def __call__(self, x, positions):
    ...         q, k, v = (nn.DenseGeneral((2, 4), name=name)(x) for name in "qkv")
    ...         return cached_attention(self, q, k, v, positions)
    >>> model, x = Attention(), jnp.ones((1, 5, 3))
    >>> variables = model.init(key(0), x, jnp.arange(5)[None])
    >>> jnp.shape(variables["cache"]["cached_key"])
    (1, 5, 2, 4)
    >>> y, changed = model.apply(variables, x[:, :2], jnp.array([[0, 1]]), mutable=["cache"])
    >>> changed["cache"]["cached_positions"]
    Array([[ 0,  1, -1, -1, -1]], dtype=int32)
    """
    filled = module.has_variable("cache", "cached_key")
    keys = module.variable("cache", "cached_key", jnp.zeros, key.shape, key.dtype)
    values = module.variable("cache", "cached_value", jnp.zeros, value.shape, value.dtype)
    empty = lambda: jnp.full(positions.shape, -1, jnp.int32)
    stored = module.variable("cache", "cached_positions", empty)
    where = positions
    if filled:
        size = keys.value.shape[1]
        rows = jnp.arange(len(positions))[:, None]
        slots = jnp.where(positions < 0, size, positions % size)  # padding is dropped
        put = lambda old, new: old.at[rows, slots].set(new.astype(old.dtype), mode="drop")
        keys.value = key = put(keys.value, key)
        values.value = value = put(values.value, value)
        stored.value = where = put(stored.value, positions)
    mask = visible(positions, where, window)
    return dot_product_attention(query, key, value, mask=mask[:, None], scale=scale)


def visible(queries: Array, keys: Array, window: int | None) -> Array:
    """Compute which keys each query attends to, from positions of shape (batch, length)."""
    q, k = queries[:, :, None], keys[:, None, :]
    seen = (k >= 0) & (k <= q)
    return seen if window is None else seen & (k > q - window)
