"""The decoder-only transformer of Flax's lm1b example, with packed rows, remat and a KV cache.

Layer norms come before attention and MLP; positions are sinusoidal. `scan_layers` runs the layers
as one loop over stacked parameters, so the size of the compiled code does not depend on their
number.
"""

import numpy as np

import toile.numpy as jnp
from toile import linen as nn

xavier = nn.initializers.xavier_uniform()
near_zero = nn.initializers.normal(stddev=1e-6)


def sines(length: int, features: int, shortest: float = 1.0, longest: float = 10_000.0):
    """Encode positions as sines and cosines [length, features] at geometric frequencies."""
    half = features // 2
    steps = np.arange(half) * -np.log(longest / shortest) / max(half - 1, 1)
    angles = np.arange(length)[:, None] * shortest * np.exp(steps)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


class Block(nn.Module):
    """Causal attention and an MLP, with the signature of an nn.scan step."""

    heads: int
    qkv_features: int
    mlp_features: int
    dropout: float
    deterministic: bool
    decode: bool

    @nn.compact
    def __call__(self, x, mask):
        """Map features [batch, length, features], with a mask [batch, 1, length, length]."""
        drop = lambda y: nn.Dropout(self.dropout, deterministic=self.deterministic)(y)
        y = nn.LayerNorm()(x)
        y = nn.MultiHeadDotProductAttention(
            self.heads, qkv_features=self.qkv_features, kernel_init=xavier, use_bias=False,
            dropout_rate=self.dropout, broadcast_dropout=False,
            deterministic=self.deterministic, decode=self.decode,
        )(y, mask=mask)  # fmt: skip
        x = x + drop(y)
        y = nn.LayerNorm()(x)
        y = nn.Dense(self.mlp_features, kernel_init=xavier, bias_init=near_zero)(y)
        y = drop(nn.relu(y))
        y = nn.Dense(x.shape[-1], kernel_init=xavier, bias_init=near_zero)(y)
        return x + drop(y), None


class TransformerLM(nn.Module):
    """A model of the next token at every position of packed rows."""

    vocabulary: int
    features: int = 512
    layers: int = 6
    heads: int = 8
    qkv_features: int = 512
    mlp_features: int = 2048
    longest: int = 2048
    dropout: float = 0.1
    tied: bool = False  # compute logits with the transposed embedding
    remat: bool = False
    scan_layers: bool = False

    @nn.compact
    def __call__(self, inputs, positions, segments=None, train=False, decode=False):
        """Return logits [batch, length, vocabulary]; in `decode`, for one token, with a cache.

        `inputs` are tokens shifted by one, `positions` count within documents, and `segments` are
        the documents of a row (0 for padding); without them, a row is one document.
        """
        embed = nn.Embed(self.vocabulary, self.features, embedding_init=nn.initializers.normal(1.0))
        x = embed(inputs)
        x = x + jnp.asarray(sines(self.longest, self.features), x.dtype)[positions]
        x = nn.Dropout(self.dropout, deterministic=not train)(x)
        mask = None if decode else nn.make_causal_mask(inputs)
        if segments is not None:
            same = nn.make_attention_mask(segments, segments, jnp.equal)
            mask = nn.combine_masks(mask, same)

        # scan already prevents the compiler from merging layers, so remat's barriers are not
        # needed.
        block = nn.remat(Block, prevent_cse=not self.scan_layers) if self.remat else Block
        options = {
            "heads": self.heads, "qkv_features": self.qkv_features, "dropout": self.dropout,
            "mlp_features": self.mlp_features, "deterministic": not train, "decode": decode,
        }  # fmt: skip
        if self.scan_layers:
            stack = nn.scan(
                block, variable_axes={"params": 0, "cache": 0}, in_axes=nn.broadcast,
                split_rngs={"params": True, "dropout": True}, length=self.layers,
            )  # fmt: skip
            x, _ = stack(**options, name="layers")(x, mask)
        else:
            for i in range(self.layers):
                x, _ = block(**options, name=f"layer_{i}")(x, mask)

        x = nn.LayerNorm()(x)
        if self.tied:
            return embed.attend(x) / np.sqrt(self.features)
        return nn.Dense(self.vocabulary, kernel_init=xavier, bias_init=near_zero, name="logits")(x)
