"""Parts that the architectures share: attention, a transformer layer, and losses."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import toile
import toile.numpy as jnp
from toile import linen as nn

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "gelu": functools.partial(nn.gelu, approximate=False),
    "gelu_new": nn.gelu,
    "gelu_pytorch_tanh": nn.gelu,
    "quick_gelu": lambda x: x * nn.sigmoid(1.702 * x),
    "relu": nn.relu,
    "silu": nn.silu,
}


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


class Attention(nn.Module):
    """Attention of a sequence [batch, length, features] to itself."""

    heads: int
    bias: bool = True  # of queries, keys and values
    dropout: float = 0.0  # of the weights

    @nn.compact
    def __call__(self, x, mask=None, train=False):
        features = x.shape[-1]
        shape = (self.heads, features // self.heads)
        query, key, value = (
            nn.DenseGeneral(shape, use_bias=self.bias, name=name)(x)
            for name in ("query", "key", "value")
        )
        rng = self.make_rng("dropout") if train and self.dropout else None
        mixed = attend(query, key, value, mask, dropout=self.dropout if train else 0.0, rng=rng)
        return nn.DenseGeneral(features, (-2, -1), name="out")(mixed)


class TransformerLayer(nn.Module):
    """Attention and an MLP, each after a layer norm and with a residual connection."""

    heads: int
    mlp_features: int
    epsilon: float
    activation: str
    bias: bool = True
    dropout: float = 0.0
    attention_dropout: float = 0.0

    @nn.compact
    def __call__(self, x, mask=None, train=False):
        drop = lambda y: nn.Dropout(self.dropout, deterministic=not train)(y)
        norm = lambda name: nn.LayerNorm(self.epsilon, name=name)
        attention = Attention(self.heads, self.bias, self.attention_dropout, name="attention")
        x = x + drop(attention(norm("attention_norm")(x), mask, train))
        y = nn.Dense(self.mlp_features, name="up")(norm("mlp_norm")(x))
        y = nn.Dense(x.shape[-1], name="down")(ACTIVATIONS[self.activation](y))
        return x + drop(y)


def number_of_labels(config: dict) -> int:
    """Return the number of classes; transformers leaves out the names of two classes."""
    return len(config.get("id2label") or range(config.get("num_labels", 2)))


def pair(size) -> tuple[int, int]:
    """Return the height and the width of a size, which may be one number."""
    height, width = (size, size) if isinstance(size, int) else size
    return height, width


def check_images(images, size: tuple[int, int], channels: int):
    """Check that images have the size for which a model has positions."""
    if images.shape[1:] != (*size, channels):
        raise ValueError(
            f"needed images [batch, {size[0]}, {size[1]}, {channels}], got {list(images.shape)} "
            "(resize them, as images.prepare does, and put the channels last)"
        )


def label_loss(logits, labels):
    """Return the mean cross-entropy of labels [batch]."""
    scores = nn.log_softmax(logits.astype(jnp.float32), axis=-1)
    return -jnp.mean(jnp.take_along_axis(scores, jnp.asarray(labels)[:, None], axis=-1))


def matching_loss(similarity):
    """Return the loss of similarities [n, n], where row i and column i belong together."""
    order = np.arange(len(similarity))
    return (label_loss(similarity, order) + label_loss(similarity.T, order)) / 2
