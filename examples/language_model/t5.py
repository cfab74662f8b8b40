"""T5 and T5 1.1 (FLAN-T5): an encoder and a decoder with biases for relative positions.

The layers have root mean square norms, dense layers without biases, and attention whose logits are
not scaled. T5 1.1 has gated MLPs and a separate table for the logits; T5 uses the embedding table.
"""

import dataclasses

import numpy as np

import toile.numpy as jnp
from toile import linen as nn
from toile.interop.huggingface import Table

from . import layers

MODEL_TYPES = ("t5",)


@dataclasses.dataclass(frozen=True)
class Config:
    """The sizes and options of a model."""

    vocabulary: int
    features: int
    layers: int  # layers of the encoder
    decoder_layers: int
    heads: int
    depth: int  # features of each head
    mlp_features: int
    buckets: int = 32  # number of buckets for distances
    farthest: int = 128  # longer distances share one bucket
    epsilon: float = 1e-6
    activation: str = "relu"
    gated: bool = False
    tied: bool = True
    dropout: float = 0.1

    @classmethod
    def from_dict(cls, c: dict) -> "Config":
        """Read the contents of config.json."""
        kind = c.get("feed_forward_proj", "relu")
        gated, name = kind.startswith("gated-"), kind.removeprefix("gated-")
        tied = c.get("scale_decoder_outputs", c.get("tie_word_embeddings", True))
        return cls(
            vocabulary=c["vocab_size"], features=c["d_model"], layers=c["num_layers"],
            decoder_layers=c.get("num_decoder_layers") or c["num_layers"], heads=c["num_heads"],
            depth=c["d_kv"], mlp_features=c["d_ff"], tied=tied,
            buckets=c.get("relative_attention_num_buckets", 32),
            farthest=c.get("relative_attention_max_distance", 128),
            epsilon=c.get("layer_norm_epsilon", 1e-6), gated=gated,
            activation="gelu_new" if kind == "gated-gelu" else name,
            dropout=c.get("dropout_rate", 0.1),
        )  # fmt: skip


def bucket_table(buckets: int, farthest: int) -> np.ndarray:
    """Return the buckets of distances 0 to `farthest`: exact if small, logarithmic if large."""
    distance = np.arange(farthest + 1)
    exact = buckets // 2
    share = np.log(np.maximum(distance, 1).astype(np.float32) / exact) / np.log(farthest / exact)
    large = exact + (share.astype(np.float32) * (buckets - exact)).astype(np.int32)
    return np.where(distance < exact, distance, np.minimum(large, buckets - 1)).astype(np.int32)


class RelativeBias(nn.Module):
    """Attention biases that depend on the distance of query and key, [1, heads, queries, keys]."""

    config: Config
    bidirectional: bool

    @nn.compact
    def __call__(self, start, queries: int, keys: int):
        c = self.config
        away = jnp.arange(keys)[None, :] - (start + jnp.arange(queries))[:, None]
        if self.bidirectional:  # half of the buckets are for keys after the query
            table = bucket_table(c.buckets // 2, c.farthest)
            distance, later = jnp.abs(away), (away > 0) * (c.buckets // 2)
        else:
            table = bucket_table(c.buckets, c.farthest)
            distance, later = jnp.maximum(-away, 0), 0
        buckets = jnp.asarray(table)[jnp.minimum(distance, c.farthest)] + later
        biases = nn.Embed(c.buckets, c.heads, name="buckets")(buckets)
        return biases.transpose(2, 0, 1)[None]


class Attention(nn.Module):
    """Attention without scaled logits, to the same sequence or to the encoder's output."""

    config: Config

    @nn.compact
    def __call__(self, x, encoded, mask, bias, start, decode, train, cross=False):
        c = self.config

        def heads(z, name):
            return nn.DenseGeneral((c.heads, c.depth), use_bias=False, name=name)(z)

        query = heads(x, "query")
        if cross and encoded is None:  # an earlier call has stored the keys and values
            key, value = self.get_variable("cache", "keys"), self.get_variable("cache", "values")
        else:
            source = encoded if cross else x
            key, value = heads(source, "key"), heads(source, "value")
            if decode:
                key, value = layers.remember(self, 0 if cross else start, key, value)
        rng = self.make_rng("dropout") if train and c.dropout else None
        mixed = layers.attend(
            query, key, value, mask, bias, scale=1.0, dropout=c.dropout if train else 0.0, rng=rng
        )
        return nn.DenseGeneral(c.features, (-2, -1), use_bias=False, name="out")(mixed)


class MLP(nn.Module):
    """Two projections with an activation between them; T5 1.1 adds a gate."""

    config: Config

    @nn.compact
    def __call__(self, x, train):
        c = self.config
        dense = lambda features, name: nn.Dense(features, use_bias=False, name=name)
        y = dense(c.mlp_features, "gate" if c.gated else "up")(x)
        y = layers.ACTIVATIONS[c.activation](y)
        y = y * dense(c.mlp_features, "up")(x) if c.gated else y
        return dense(c.features, "down")(nn.Dropout(c.dropout, deterministic=not train)(y))


class Layer(nn.Module):
    """Self-attention, attention to the encoder's output (in a decoder), and an MLP."""

    config: Config
    decoder: bool

    @nn.compact
    def __call__(self, x, encoded, masks, bias, start, decode, train):
        c = self.config
        norm = lambda name: nn.RMSNorm(c.epsilon, name=name)
        drop = lambda y: nn.Dropout(c.dropout, deterministic=not train)(y)
        y = norm("attention_norm")(x)
        attention = Attention(c, name="attention")
        x = x + drop(attention(y, None, masks[0], bias, start, decode, train))
        if self.decoder:
            y = norm("cross_norm")(x)
            cross = Attention(c, name="cross_attention")
            x = x + drop(cross(y, encoded, masks[1], None, start, decode, train, cross=True))
        return x + drop(MLP(c, name="mlp")(norm("mlp_norm")(x), train))


class Stack(nn.Module):
    """The layers of the encoder or of the decoder."""

    config: Config
    decoder: bool

    @nn.compact
    def __call__(self, x, encoded, masks, start, decode, train):
        c = self.config
        keys = masks[0].shape[-1]
        bias = RelativeBias(c, not self.decoder, name="distances")(start, x.shape[1], keys)
        x = nn.Dropout(c.dropout, deterministic=not train)(x)
        for i in range(c.decoder_layers if self.decoder else c.layers):
            layer = Layer(c, self.decoder, name=f"layer_{i}")
            x = layer(x, encoded, masks, bias, start, decode, train)
        x = nn.RMSNorm(c.epsilon, name="norm")(x)
        return nn.Dropout(c.dropout, deterministic=not train)(x)


class T5(nn.Module):
    """A text-to-text model."""

    config: Config

    def setup(self):
        c = self.config
        self.embedding = nn.Embed(c.vocabulary, c.features)
        self.encoder = Stack(c, decoder=False)
        self.decoder = Stack(c, decoder=True)
        if not c.tied:
            self.output = nn.Dense(c.vocabulary, use_bias=False)

    def __call__(self, inputs, tokens, mask=None, token_mask=None, train=False):
        """Return logits [batch, length, vocabulary] of the token after each of `tokens`.

        `tokens` are the targets, shifted by one; the first token is the decoder's start token.
        The masks are False for padding.
        """
        encoded = self.encode(inputs, mask, train)
        return self.decode(tokens, encoded, mask, token_mask, train=train)

    def encode(self, inputs, mask=None, train=False):
        """Return the features [batch, length, features] of the inputs."""
        seen = jnp.ones(inputs.shape, bool) if mask is None else jnp.asarray(mask, bool)
        masks = (seen[:, None, None, :], None)
        return self.encoder(self.embedding(inputs), None, masks, 0, False, train)

    @nn.compact
    def decode(
        self, tokens, encoded=None, mask=None, token_mask=None, decode=False, last=False,
        train=False,
    ):  # fmt: skip
        """Return the logits of the next tokens, given the encoder's output and its mask.

        If `decode` is True, the tokens continue those of earlier calls, which are in the cache.
        The cache also contains the keys and values of `encoded`, which only the first call needs.
        """
        slots = layers.slots(self, tokens, token_mask, decode=decode)
        behind = None if mask is None else jnp.asarray(mask, bool)[:, None, None, :]
        masks = (slots.visible(), behind)
        x = self.embedding(tokens)
        x = self.decoder(x, encoded, masks, slots.start, decode, train)
        x = x[:, -1:] if last else x
        if not self.config.tied:
            return self.output(x)
        return self.embedding.attend(x * self.config.features**-0.5)


def model(config: dict) -> T5:
    """Return the module for a config.json."""
    return T5(Config.from_dict(config))


def table(config: dict) -> Table:
    """Return the names that the tensors have in files."""
    c = Config.from_dict(config)
    attention = {"q": "query", "k": "key", "v": "value", "o": "out"}
    mlp = {"wi_0": "gate", "wi_1": "up", "wo": "down"} if c.gated else {"wi": "up", "wo": "down"}
    names = {"shared": "embedding"}
    for stack, last in (("encoder", 1), ("decoder", 2)):
        block = f"{stack}.block.{{i}}.layer"
        layer = f"{stack}/layer_{{i}}"
        kinds = {f"{block}.0.SelfAttention": "attention"}
        norms = {f"{block}.0": "attention_norm", f"{block}.{last}": "mlp_norm"}
        if stack == "decoder":
            kinds[f"{block}.1.EncDecAttention"] = "cross_attention"
            norms[f"{block}.1"] = "cross_norm"
        names |= {f"{theirs}.{q}": f"{layer}/{ours}/{query}"
                  for theirs, ours in kinds.items() for q, query in attention.items()}
        names |= {f"{theirs}.layer_norm": f"{layer}/{ours}" for theirs, ours in norms.items()}
        names |= {f"{block}.{last}.DenseReluDense.{theirs}": f"{layer}/mlp/{ours}"
                  for theirs, ours in mlp.items()}
        first = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias"
        names |= {first: f"{stack}/distances/buckets", f"{stack}.final_layer_norm": f"{stack}/norm"}
    tied = {f"{stack}.embed_tokens.weight": "shared.weight" for stack in ("encoder", "decoder")}
    defaults = {}
    if c.tied:
        tied["lm_head.weight"] = "shared.weight"
    else:
        names["lm_head"], defaults = "output", {"lm_head.weight": "shared.weight"}
    unused = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    return Table(names, tied=tied, ignore=(unused,), defaults=defaults)
