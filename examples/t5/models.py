"""T5 1.1: an encoder and a decoder with relative positions and gated GELUs, without dense biases.

Attention logits are not divided by the square root of the depth; instead, the initial query weights
are smaller by this factor. Positions are represented by attention biases, which are learned for
buckets of distances in one table for all layers of a stack. Embeddings and logits have separate
parameters, as in version 1.1.
"""

import dataclasses

import numpy as np

import toile.numpy as jnp
from toile import lax
from toile import linen as nn


@dataclasses.dataclass(frozen=True)
class T5Config:
    """The sizes of a model; the defaults are T5 1.1 base (configs/*.gin has the others)."""

    vocabulary: int = 32_128
    features: int = 768
    layers: int = 12  # in the encoder, and as many in the decoder
    heads: int = 12
    depth: int = 64  # features of each head
    mlp_features: int = 2048
    buckets: int = 32  # number of buckets for distances
    farthest: int = 128  # longer distances share one bucket
    dropout: float = 0.0
    remat: bool = False


def bucket(distance, bidirectional: bool, buckets: int, farthest: int):
    """Return the bucket of a distance (key - query): exact when small, logarithmic when large.

    If attention is bidirectional, half of the buckets are for keys after the query.
    """
    n, offset = -distance, 0
    if bidirectional:
        buckets //= 2
        offset = (n < 0) * buckets
        n = abs(n)
    n = jnp.maximum(n, 0)
    exact = buckets // 2
    scale = (buckets - exact) / np.log(farthest / exact)
    far = exact + (jnp.log(jnp.maximum(n, 1) / exact) * scale).astype(jnp.int32)
    return offset + jnp.where(n < exact, n, jnp.minimum(far, buckets - 1))


class RelativeBias(nn.Module):
    """Attention biases by the distance of query and key, [1, heads, queries, keys]."""

    config: T5Config
    bidirectional: bool

    @nn.compact
    def __call__(self, queries: int, keys: int):
        c = self.config
        init = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform")
        table = self.param("embedding", init, (c.heads, c.buckets))
        distance = jnp.arange(keys)[None, :] - jnp.arange(queries)[:, None]
        return table[:, bucket(distance, self.bidirectional, c.buckets, c.farthest)][None]


class Attention(nn.Module):
    """Attention with queries from `x` and keys and values from `y`."""

    config: T5Config
    deterministic: bool

    @nn.compact
    def __call__(self, x, y, bias):
        c = self.config

        def heads(name, z, scale=1.0):
            init = nn.initializers.variance_scaling(scale, "fan_in", "normal")
            shape = (c.heads, c.depth)
            return nn.DenseGeneral(shape, use_bias=False, kernel_init=init, name=name)(z)

        query, key, value = heads("query", x, 1 / c.depth), heads("key", y), heads("value", y)
        weights = jnp.einsum("bqhd,bkhd->bhqk", query, key).astype(jnp.float32) + bias
        weights = nn.softmax(weights, axis=-1).astype(x.dtype)
        weights = nn.Dropout(c.dropout, deterministic=self.deterministic)(weights)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, value)
        init = nn.initializers.variance_scaling(1.0, "fan_in", "normal")
        return nn.DenseGeneral(
            c.features, axis=(-2, -1), use_bias=False, kernel_init=init, name="out"
        )(mixed)


class GatedMLP(nn.Module):
    """The product of two projections, one of them through a GELU, and a projection back."""

    config: T5Config
    deterministic: bool

    @nn.compact
    def __call__(self, x):
        c = self.config

        def dense(features, name):
            init = nn.initializers.variance_scaling(1.0, "fan_in", "normal")
            return nn.Dense(features, use_bias=False, kernel_init=init, name=name)

        gate = nn.gelu(dense(c.mlp_features, "wi_0")(x), approximate=True)
        y = gate * dense(c.mlp_features, "wi_1")(x)
        y = nn.Dropout(c.dropout, deterministic=self.deterministic)(y)
        return dense(c.features, "wo")(y)


class Layer(nn.Module):
    """Self-attention, attention to the encoder's output (if there is one), and an MLP."""

    config: T5Config
    deterministic: bool

    @nn.compact
    def __call__(self, x, bias, encoded=None, encoded_bias=None):
        c = self.config
        norm = lambda name: nn.RMSNorm(epsilon=1e-6, name=name)
        drop = lambda y: nn.Dropout(c.dropout, deterministic=self.deterministic)(y)
        y = norm("attention_norm")(x)
        x = x + drop(Attention(c, self.deterministic, name="attention")(y, y, bias))
        if encoded is not None:
            y = norm("cross_norm")(x)
            cross = Attention(c, self.deterministic, name="cross_attention")
            x = x + drop(cross(y, encoded, encoded_bias))
        y = norm("mlp_norm")(x)
        return x + drop(GatedMLP(c, self.deterministic, name="mlp")(y))


class Stack(nn.Module):
    """The layers of the encoder or the decoder; in the decoder, self-attention is causal."""

    config: T5Config
    causal: bool
    deterministic: bool

    @nn.compact
    def __call__(self, x, mask, encoded=None, encoded_mask=None):
        """Apply the layers; `mask` and `encoded_mask` [batch, length] are False for padding."""
        c, length = self.config, x.shape[1]
        never = jnp.float32(-1e9)
        hidden = lambda mask: jnp.where(mask[:, None, None, :], 0.0, never)
        bias = RelativeBias(c, not self.causal, name="relative_bias")(length, length)
        bias = bias.astype(jnp.float32) + hidden(mask)
        if self.causal:
            at = lax.broadcasted_iota(jnp.int32, (length, length), 0)
            bias = bias + jnp.where(at >= at.T, 0.0, never)
        behind = None if encoded is None else hidden(encoded_mask)
        layer = nn.remat(Layer) if c.remat else Layer
        x = nn.Dropout(c.dropout, deterministic=self.deterministic)(x)
        for i in range(c.layers):
            x = layer(c, self.deterministic, name=f"layer_{i}")(x, bias, encoded, behind)
        x = nn.RMSNorm(epsilon=1e-6, name="norm")(x)
        return nn.Dropout(c.dropout, deterministic=self.deterministic)(x)


class T5(nn.Module):
    """A text-to-text model, which predicts the spans missing from `inputs`."""

    config: T5Config

    @nn.compact
    def __call__(self, inputs, targets, train=False):
        """Return logits [batch, length, vocabulary]; token 0 is padding.

        The decoder sees the targets before each position, starting from 0.
        """
        c = self.config
        init = nn.initializers.normal(stddev=1.0)
        embed = nn.Embed(c.vocabulary, c.features, embedding_init=init, name="embedding")
        real = inputs > 0
        encoded = Stack(c, False, not train, name="encoder")(embed(inputs), real)
        before = jnp.pad(targets, ((0, 0), (1, 0)))[:, :-1]
        everywhere = jnp.ones(targets.shape, bool)  # padding is at the end, and the loss ignores it
        x = Stack(c, True, not train, name="decoder")(embed(before), everywhere, encoded, real)
        init = nn.initializers.variance_scaling(1.0, "fan_in", "truncated_normal")
        return nn.Dense(c.vocabulary, use_bias=False, kernel_init=init, name="logits")(x)
