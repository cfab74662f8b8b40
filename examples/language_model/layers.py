"""Parts that the architectures share: masks, the cache, rotary positions, attention and losses.

A cache has one slot for each token of a sequence, including padding. `slots` stores the mask of all
tokens so far and the number of used slots; `remember` stores the keys and values of one layer. A
call with `decode=True` and no cache creates one with as many slots as there are tokens in a row.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import toile
import toile.numpy as jnp
from toile import lax
from toile import linen as nn

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "gelu": functools.partial(nn.gelu, approximate=False),
    "gelu_new": nn.gelu,
    "gelu_pytorch_tanh": nn.gelu,
    "relu": nn.relu,
    "silu": nn.silu,
    "swish": nn.silu,
}


class Slots(NamedTuple):
    """The place of the current tokens in their sequences."""

    start: int  # slot of the first current token; an array if there is a cache
    mask: jnp.ndarray  # which slots contain a token that is not padding, [batch, slots]
    positions: jnp.ndarray  # positions of the tokens, not counting padding, [batch, length]
    segments: jnp.ndarray | None = None  # numbers of packed texts, [batch, length]; 0: padding

    def visible(self, window=None):
        """Return a mask [batch, 1, length, slots]: each token attends to those up to itself.

        `window` limits attention to the last tokens, including the token itself. Tokens of packed
        texts do not attend to other texts.
        """
        queries = self.start + jnp.arange(self.positions.shape[1])[:, None]
        keys = jnp.arange(self.mask.shape[1])[None, :]
        seen = keys <= queries
        if window is not None:
            seen = seen & (queries - keys < window)
        if self.segments is not None:
            query, key = self.segments[:, None, :, None], self.segments[:, None, None, :]
            seen = seen & ((query == key) | (query == 0))
        return seen & self.mask[:, None, None, :]


def slots(module, tokens, mask=None, positions=None, decode=False) -> Slots:
    """Compute the slots of `tokens` [batch, length]; `mask` is False for padding.

    If several texts share a row, `mask` contains their numbers, from 1, and `positions` must be
    given. If `decode` is True, the tokens continue those of earlier calls, which are in the cache.
    Padding may be on either side of a prompt.
    """
    batch, length = tokens.shape
    segments = None
    if mask is not None and positions is not None and not decode:
        segments = jnp.asarray(mask) if jnp.asarray(mask).dtype != bool else None
    mask = jnp.ones((batch, length), bool) if mask is None else jnp.asarray(mask, bool)
    start = 0
    if decode:
        ready = module.has_variable("cache", "mask")
        seen = module.variable("cache", "mask", jnp.zeros, (batch, length), bool)
        used = module.variable("cache", "used", jnp.zeros, (), jnp.int32)
        start = used.value
        if ready:
            seen.value = lax.dynamic_update_slice(seen.value, mask, (0, start))
            used.value = start + length
        mask = seen.value
    if positions is None:
        counted = jnp.cumsum(mask, axis=1)
        positions = lax.dynamic_slice_in_dim(counted, start, length, axis=1) - 1
    return Slots(start, mask, jnp.maximum(positions, 0), segments)


def remember(module, start, key, value):
    """Store keys and values [batch, length, heads, depth] in a layer's cache; return all of it."""
    ready = module.has_variable("cache", "keys")
    keys = module.variable("cache", "keys", jnp.zeros, key.shape, key.dtype)
    values = module.variable("cache", "values", jnp.zeros, value.shape, value.dtype)
    if ready:
        place = (0, start, 0, 0)
        keys.value = lax.dynamic_update_slice(keys.value, key, place)
        values.value = lax.dynamic_update_slice(values.value, value, place)
    return keys.value, values.value


def attend(
    query, key, value, mask=None, bias=None, *, scale=None, cap=None, dropout=0.0,
    rng: Any = None,
):
    """Average values [batch, keys, kv_heads, depth], weighted by attention of queries to keys.

    Groups of query heads share a head of keys and values. `cap` is a soft cap for the logits.
    `dropout` (with a key `rng`) sets some of the weights to 0.
    """
    if cap is None and not dropout:
        return toile.nn.dot_product_attention(query, key, value, bias, mask, scale=scale)
    batch, length, heads, depth = query.shape
    grouped = query.reshape(batch, length, key.shape[2], heads // key.shape[2], depth)
    logits = jnp.einsum("bqkgd,bskd->bkgqs", grouped, key).astype(jnp.float32)
    logits = logits.reshape(batch, heads, length, key.shape[1])
    logits = logits * (depth**-0.5 if scale is None else scale)
    if cap is not None:
        logits = soft_cap(logits, cap)
    logits = logits if bias is None else logits + bias
    if mask is not None:
        logits = jnp.where(mask, logits, jnp.finfo(jnp.float32).min)
    weights = nn.softmax(logits, axis=-1).astype(value.dtype)
    if dropout:
        kept = toile.random.bernoulli(rng, 1 - dropout, weights.shape)
        weights = jnp.where(kept, weights / (1 - dropout), 0)
    weights = weights.reshape(batch, key.shape[2], heads // key.shape[2], length, key.shape[1])
    return jnp.einsum("bkgqs,bskd->bqkgd", weights, value).reshape(batch, length, heads, depth)


def soft_cap(x, cap):
    """Limit values smoothly to the interval from -cap to cap."""
    return jnp.tanh(x / cap) * cap


def frequencies(config: dict, depth: int, theta: float = 10_000.0) -> tuple[float, ...]:
    """Return the angles by which one position rotates each pair of features of a head.

    `config` is the content of config.json. It contains `rope_parameters` or, in older files,
    `rope_theta` and `rope_scaling`.
    """
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    base = scaling.get("rope_theta", config.get("rope_theta", theta))
    angles = 1 / np.float32(base) ** (np.arange(0, depth, 2, dtype=np.float32) / depth)
    if kind == "linear":
        angles = angles / np.float32(scaling["factor"])
    elif kind == "llama3":
        angles = _stretched(angles, **{name: scaling[name] for name in _LLAMA3})
    elif kind != "default":
        raise ValueError(f"needed default, linear or llama3 as rope_type, got {kind!r}")
    return tuple(angles.tolist())


_LLAMA3 = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")


def _stretched(
    angles, factor, low_freq_factor, high_freq_factor, original_max_position_embeddings
):
    """Divide small angles by `factor`, keep large ones, and interpolate between them."""
    turns = original_max_position_embeddings * angles / (2 * np.float32(np.pi))
    kept = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor)
    kept = np.clip(kept, 0, 1).astype(np.float32)
    return (1 - kept) * angles / np.float32(factor) + kept * angles


def rotate(x, positions, angles):
    """Rotate the features of heads [batch, length, heads, depth] by their positions.

    Feature i forms a pair with feature i + depth / 2.
    """
    turn = positions[:, :, None, None].astype(jnp.float32) * jnp.asarray(angles, jnp.float32)
    cos, sin = jnp.cos(turn).astype(x.dtype), jnp.sin(turn).astype(x.dtype)
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def token_loss(logits, labels):
    """Return the mean cross-entropy of labels [batch, length]; labels of -100 are ignored."""
    real = labels != -100
    scores = nn.log_softmax(logits.astype(jnp.float32), axis=-1)
    chosen = jnp.take_along_axis(scores, jnp.where(real, labels, 0)[..., None], axis=-1)[..., 0]
    return -jnp.sum(jnp.where(real, chosen, 0)) / jnp.sum(real)


def next_token_loss(logits, labels):
    """Return the mean cross-entropy of each label, given the tokens before it."""
    return token_loss(logits[:, :-1], labels[:, 1:])
