"""Attention, its cache, and a loss.

A cache has one slot for each token. A call with `decode=True` and no cache makes one with as many
slots as there are tokens in a row.
"""

import functools
from collections.abc import Callable
from typing import Any

import toile
import toile.numpy as jnp
from toile import lax
from toile import linen as nn

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "gelu": functools.partial(nn.gelu, approximate=False),
    "gelu_new": nn.gelu,
    "relu": nn.relu,
    "silu": nn.silu,
}


def count(module, length: int):
    """Return the number of tokens of earlier calls, and count those of this call."""
    ready = module.has_variable("cache", "used")
    used = module.variable("cache", "used", jnp.zeros, (), jnp.int32)
    start = used.value
    if ready:
        used.value = start + length
    return start


def remember(module, start, key, value):
    """Put keys and values [batch, length, heads, depth] into a layer's cache; return all of it."""
    ready = module.has_variable("cache", "keys")
    keys = module.variable("cache", "keys", jnp.zeros, key.shape, key.dtype)
    values = module.variable("cache", "values", jnp.zeros, value.shape, value.dtype)
    if ready:
        place = (0, start, 0, 0)
        keys.value = lax.dynamic_update_slice(keys.value, key, place)
        values.value = lax.dynamic_update_slice(values.value, value, place)
    return keys.value, values.value


def past(start, length: int, slots: int):
    """Return a mask [1, 1, length, slots]: each token attends to those up to itself."""
    return (jnp.arange(slots)[None, :] <= start + jnp.arange(length)[:, None])[None, None]


def attend(query, key, value, mask=None, *, dropout=0.0, rng: Any = None):
    """Mix values [batch, keys, heads, depth] by the similarity of queries and keys.

    `dropout` (with a key `rng`) leaves out some of the weights.
    """
    if not dropout:
        return toile.nn.dot_product_attention(query, key, value, None, mask)
    logits = jnp.einsum("bqhd,bkhd->bhqk", query, key).astype(jnp.float32)
    logits = logits * query.shape[-1] ** -0.5
    if mask is not None:
        logits = jnp.where(mask, logits, jnp.finfo(jnp.float32).min)
    weights = nn.softmax(logits, axis=-1).astype(value.dtype)
    kept = toile.random.bernoulli(rng, 1 - dropout, weights.shape)
    weights = jnp.where(kept, weights / (1 - dropout), 0)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, value)


def token_loss(logits, labels):
    """Return the mean cross-entropy of labels [batch, length]; labels of -100 are left out."""
    real = labels != -100
    scores = nn.log_softmax(logits.astype(jnp.float32), axis=-1)
    chosen = jnp.take_along_axis(scores, jnp.where(real, labels, 0)[..., None], axis=-1)[..., 0]
    return -jnp.sum(jnp.where(real, chosen, 0)) / jnp.sum(real)
