"""Whisper: an encoder of log-mel spectrograms and a decoder of tokens.

The layers have their norms before each part. The encoder halves the number of frames.
"""

import dataclasses

import toile.numpy as jnp
from toile import lax
from toile import linen as nn
from toile.interop.huggingface import Table

from . import layers

MODEL_TYPES = ("whisper",)


@dataclasses.dataclass(frozen=True)
class Stack:
    """The sizes of the encoder or of the decoder."""

    layers: int
    heads: int
    mlp_features: int


@dataclasses.dataclass(frozen=True)
class Config:
    """The sizes and options of a model."""

    vocabulary: int
    features: int
    encoder: Stack
    decoder: Stack
    bands: int  # of spectrograms
    frames: int  # of the encoder's output; spectrograms have twice as many
    longest: int  # largest number of tokens
    activation: str = "gelu"
    dropout: float = 0.0
    attention_dropout: float = 0.0
    mlp_dropout: float = 0.0

    @classmethod
    def from_dict(cls, c: dict) -> "Config":
        """Read the contents of config.json."""
        encoder, decoder = (
            Stack(c[f"{part}_layers"], c[f"{part}_attention_heads"], c[f"{part}_ffn_dim"])
            for part in ("encoder", "decoder")
        )
        return cls(
            vocabulary=c["vocab_size"], features=c["d_model"], encoder=encoder, decoder=decoder,
            bands=c.get("num_mel_bins", 80), frames=c.get("max_source_positions", 1500),
            longest=c.get("max_target_positions", 448),
            activation=c.get("activation_function", "gelu"), dropout=c.get("dropout", 0.0),
            attention_dropout=c.get("attention_dropout", 0.0),
            mlp_dropout=c.get("activation_dropout", 0.0),
        )  # fmt: skip


class Attention(nn.Module):
    """Attention to the same sequence or to the encoder's output."""

    config: Config
    heads: int

    @nn.compact
    def __call__(self, x, encoded=None, start: int | None = 0, decode=False, train=False,
                 cross=False):  # fmt: skip
        c, causal = self.config, start is not None
        shape = (self.heads, c.features // self.heads)
        query = nn.DenseGeneral(shape, name="query")(x)
        if cross and encoded is None:  # an earlier call has put the encoder's into the cache
            key, value = self.get_variable("cache", "keys"), self.get_variable("cache", "values")
        else:
            source = encoded if cross else x
            key = nn.DenseGeneral(shape, use_bias=False, name="key")(source)
            value = nn.DenseGeneral(shape, name="value")(source)
            if decode:
                key, value = layers.remember(self, 0 if cross else start, key, value)
        mask = layers.past(start, x.shape[1], key.shape[1]) if causal and not cross else None
        rng = self.make_rng("dropout") if train and c.attention_dropout else None
        dropout = c.attention_dropout if train else 0.0
        mixed = layers.attend(query, key, value, mask, dropout=dropout, rng=rng)
        return nn.DenseGeneral(c.features, (-2, -1), name="out")(mixed)


class Layer(nn.Module):
    """Self-attention, attention to the encoder's output (in the decoder), and an MLP."""

    config: Config
    sizes: Stack
    decoder: bool

    @nn.compact
    def __call__(self, x, encoded=None, start=None, decode=False, train=False):
        c = self.config
        norm = lambda name: nn.LayerNorm(1e-5, name=name)
        drop = lambda y, rate: nn.Dropout(rate, deterministic=not train)(y)
        attention = Attention(c, self.sizes.heads, name="attention")
        y = attention(norm("attention_norm")(x), None, start, decode, train)
        x = x + drop(y, c.dropout)
        if self.decoder:
            cross = Attention(c, self.sizes.heads, name="cross_attention")
            y = cross(norm("cross_norm")(x), encoded, start, decode, train, cross=True)
            x = x + drop(y, c.dropout)
        y = nn.Dense(self.sizes.mlp_features, name="up")(norm("mlp_norm")(x))
        y = drop(layers.ACTIVATIONS[c.activation](y), c.mlp_dropout)
        return x + drop(nn.Dense(c.features, name="down")(y), c.dropout)


class Encoder(nn.Module):
    """Two convolutions and layers that attend to all frames."""

    config: Config

    @nn.compact
    def __call__(self, spectrograms, train=False):
        c = self.config
        act = layers.ACTIVATIONS["gelu"]  # whatever the activation of the layers is
        x = act(nn.Conv(c.features, (3,), padding=1, name="conv_0")(spectrograms))
        x = act(nn.Conv(c.features, (3,), strides=2, padding=1, name="conv_1")(x))
        places = nn.Embed(c.frames, c.features, name="positions")(jnp.arange(c.frames))
        x = (x + lax.stop_gradient(places)).astype(places.dtype)  # training keeps the sine waves
        x = nn.Dropout(c.dropout, deterministic=not train)(x)
        for i in range(c.encoder.layers):
            x = Layer(c, c.encoder, decoder=False, name=f"layer_{i}")(x, train=train)
        return nn.LayerNorm(1e-5, name="norm")(x)


class Decoder(nn.Module):
    """Layers that attend to the tokens so far and to the encoder's output."""

    config: Config

    @nn.compact
    def __call__(self, tokens, encoded=None, decode=False, last=False, train=False):
        c = self.config
        if tokens.shape[1] > c.longest:
            raise ValueError(
                f"needed at most {c.longest} tokens, prompt included, got {tokens.shape[1]} "
                "(generate fewer steps)"
            )
        start = layers.count(self, tokens.shape[1]) if decode else 0
        embed = nn.Embed(c.vocabulary, c.features, name="embedding")
        places = start + jnp.arange(tokens.shape[1])
        x = embed(tokens) + nn.Embed(c.longest, c.features, name="positions")(places)
        x = nn.Dropout(c.dropout, deterministic=not train)(x)
        for i in range(c.decoder.layers):
            layer = Layer(c, c.decoder, decoder=True, name=f"layer_{i}")
            x = layer(x, encoded, start, decode, train)
        x = nn.LayerNorm(1e-5, name="norm")(x[:, -1:] if last else x)
        return embed.attend(x)


class Whisper(nn.Module):
    """A model that writes what is said in a recording."""

    config: Config

    def setup(self):
        self.encoder, self.decoder = Encoder(self.config), Decoder(self.config)

    def __call__(self, spectrograms, tokens, train=False):
        """Return logits [batch, length, vocabulary] of the token after each of `tokens`.

        `spectrograms` [batch, 2 * frames, bands] come from `audio.log_mel`. `tokens` are the
        targets, shifted by one and starting with the token of the decoder's start.
        """
        return self.decode(tokens, self.encode(spectrograms, train), train=train)

    def encode(self, spectrograms, train=False):
        """Return the features [batch, frames, features] of spectrograms."""
        c = self.config
        if spectrograms.shape[1:] != (2 * c.frames, c.bands):
            raise ValueError(
                f"needed spectrograms [batch, {2 * c.frames}, {c.bands}], got "
                f"{list(spectrograms.shape)} (pad recordings with silence, as audio.pieces does)"
            )
        return self.encoder(spectrograms, train)

    def decode(self, tokens, encoded=None, decode=False, last=False, train=False):
        """Return the logits of the next tokens, given the encoder's output.

        If `decode` is True, the tokens follow those of earlier calls, which are in the cache. So
        are keys and values of `encoded`, which only the first of these calls needs.
        """
        return self.decoder(tokens, encoded, decode, last, train)


def model(config: dict) -> Whisper:
    """Return the module for a config.json."""
    return Whisper(Config.from_dict(config))


def inputs(config: dict) -> tuple:
    """Return inputs with the shapes that the module needs, for its initialization."""
    c = Config.from_dict(config)
    return jnp.zeros((1, 2 * c.frames, c.bands)), jnp.zeros((1, 2), jnp.int32)


def table(config: dict) -> Table:
    """Return the names that the tensors have in files."""
    attention = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "out"}
    names = {
        "model.encoder.conv1": "encoder/conv_0",
        "model.encoder.conv2": "encoder/conv_1",
        "model.decoder.embed_tokens": "decoder/embedding",
    }
    for stack in ("encoder", "decoder"):
        theirs, ours = f"model.{stack}.layers.{{i}}", f"{stack}/layer_{{i}}"
        kinds = {"self_attn": "attention"}
        kinds |= {"encoder_attn": "cross_attention"} if stack == "decoder" else {}
        for kind, path in kinds.items():
            names |= {
                f"{theirs}.{kind}.{q}": f"{ours}/{path}/{name}" for q, name in attention.items()
            }
            norm = path.replace("attention", "norm") if path.startswith("cross") else f"{path}_norm"
            names[f"{theirs}.{kind}_layer_norm"] = f"{ours}/{norm}"
        names |= {
            f"{theirs}.final_layer_norm": f"{ours}/mlp_norm", f"{theirs}.fc1": f"{ours}/up",
            f"{theirs}.fc2": f"{ours}/down", f"model.{stack}.layer_norm": f"{stack}/norm",
            f"model.{stack}.embed_positions": f"{stack}/positions",
        }  # fmt: skip
    return Table(names, "model.", {"proj_out.weight": "model.decoder.embed_tokens.weight"})
