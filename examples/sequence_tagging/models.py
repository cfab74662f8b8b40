"""Two taggers: bidirectional LSTMs, and a transformer."""

import functools

import toile.numpy as jnp
from toile import linen as nn

from .input_pipeline import ENDINGS, PAD, SPELLINGS


class Words(nn.Module):
    """Word vectors: the sum of vectors for the word, its ending and its spelling."""

    vocabulary: int
    features: int
    dropout: float

    @nn.compact
    def __call__(self, words, train: bool):
        """Return vectors [batch, length, features] for words [batch, length, 3]."""
        sizes = {"word": self.vocabulary, "ending": ENDINGS, "spelling": SPELLINGS}
        parts = [
            nn.Embed(size, self.features, name=name)(words[..., i])
            for i, (name, size) in enumerate(sizes.items())
        ]
        return nn.Dropout(self.dropout, deterministic=not train)(sum(parts))


class BiLSTM(nn.Module):
    """Layers of two LSTMs, one in each direction."""

    vocabulary: int
    tags: int
    features: int = 128
    layers: int = 2
    heads: int = 4
    dropout: float = 0.1

    @nn.compact
    def __call__(self, words, train: bool = False):
        """Return logits [batch, length, tags] for words [batch, length, 3]."""
        x = Words(self.vocabulary, self.features, self.dropout)(words, train)
        lengths = jnp.maximum((words[..., 0] != PAD).sum(axis=1), 1)
        for number in range(self.layers):
            forward, backward = (
                nn.RNN(nn.OptimizedLSTMCell(self.features), name=f"{name}_{number}")
                for name in ("forward", "backward")
            )
            x = nn.Bidirectional(forward, backward)(x, seq_lengths=lengths)
            x = nn.Dropout(self.dropout, deterministic=not train)(x)
        return nn.Dense(self.tags)(x)


def near_first(key, shape, dtype=jnp.float32):
    """Initialize the attention biases [heads, distances] so that heads favor nearby tokens.

    As in ALiBi (Press et al., 2022), the penalty in each head grows with the distance, and each
    head has a different slope. Half of the heads favor one side, and half favor the other: on the
    side that a head does not favor, the slope is four times as steep.
    """
    heads, distances = shape
    distance = jnp.arange(distances) - distances // 2
    head = jnp.arange(heads)[:, None]
    other_side = jnp.where(head % 2 == 0, distance > 0, distance < 0)
    slope = 2.0 ** -(head // 2) * jnp.where(other_side, 4.0, 1.0)
    return (-slope * jnp.abs(distance)).astype(dtype)


class Block(nn.Module):
    """Attention over the whole sequence and a hidden layer, each with a residual connection.

    A learned bias for each head and each distance up to `reach` is added to the attention logits.
    The network has no other information about positions.
    """

    heads: int
    dropout: float
    reach: int = 32

    @nn.compact
    def __call__(self, x, mask, train: bool):
        """Map vectors [batch, length, features]; `mask` is True for positions that are attended
        to."""
        width, drop = x.shape[-1], nn.Dropout(self.dropout, deterministic=not train)
        place = jnp.arange(x.shape[1])
        distance = jnp.clip(place - place[:, None], -self.reach, self.reach)
        shape = (self.heads, 2 * self.reach + 1)
        bias = self.param("distances", near_first, shape)[:, distance + self.reach]
        attention = nn.MultiHeadDotProductAttention(
            self.heads, dropout_rate=self.dropout, deterministic=not train,
            attention_fn=functools.partial(nn.dot_product_attention, bias=bias[None]),
        )  # fmt: skip
        x = x + drop(attention(nn.LayerNorm()(x), mask=mask))
        y = nn.gelu(nn.Dense(4 * width)(nn.LayerNorm()(x)))
        return x + drop(nn.Dense(width)(y))


class Transformer(nn.Module):
    """An encoder with LayerNorm before each sublayer."""

    vocabulary: int
    tags: int
    features: int = 128
    layers: int = 2
    heads: int = 4
    dropout: float = 0.1

    @nn.compact
    def __call__(self, words, train: bool = False):
        """Return logits [batch, length, tags] for words [batch, length, 3]."""
        x = Words(self.vocabulary, self.features, self.dropout)(words, train)
        real = words[..., 0] != PAD
        mask = nn.make_attention_mask(real, real, dtype=bool)
        for _ in range(self.layers):
            x = Block(self.heads, self.dropout)(x, mask, train)
        return nn.Dense(self.tags)(nn.LayerNorm()(x))


MODELS = {"bilstm": BiLSTM, "transformer": Transformer}
