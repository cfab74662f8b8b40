"""GPT-2: a decoder with learned positions and with a layer norm before each part."""

import dataclasses
from typing import Any

from toile import linen as nn
from toile.interop.huggingface import Table
from toile.interop.torch_weights import Dense, Fused

from . import layers

MODEL_TYPES = ("gpt2",)


@dataclasses.dataclass(frozen=True)
class Config:
    """The sizes and options of a model."""

    vocabulary: int
    features: int
    layers: int
    heads: int
    mlp_features: int
    longest: int  # number of learned positions
    epsilon: float = 1e-5
    activation: str = "gelu_new"
    scaled: bool = True  # divide logits of attention by the square root of the depth of a head
    scaled_by_layer: bool = False  # and by the number of the layer, counted from 1
    tied: bool = True
    dropout: float = 0.1  # rate for embeddings and for the outputs of each part
    attention_dropout: float = 0.1

    @classmethod
    def from_dict(cls, c: dict) -> "Config":
        """Read the contents of config.json."""
        return cls(
            vocabulary=c["vocab_size"], features=c["n_embd"], layers=c["n_layer"],
            heads=c["n_head"], mlp_features=c.get("n_inner") or 4 * c["n_embd"],
            longest=c.get("n_positions", 1024), epsilon=c.get("layer_norm_epsilon", 1e-5),
            activation=c.get("activation_function", "gelu_new"),
            scaled=c.get("scale_attn_weights", True), tied=c.get("tie_word_embeddings", True),
            scaled_by_layer=c.get("scale_attn_by_inverse_layer_idx", False),
            dropout=c.get("resid_pdrop", 0.1), attention_dropout=c.get("attn_pdrop", 0.1),
        )  # fmt: skip


class Attention(nn.Module):
    """Causal attention."""

    config: Config
    scale: float

    @nn.compact
    def __call__(self, x, slots, decode, train):
        c = self.config
        shape = (c.heads, c.features // c.heads)
        query, key, value = (
            nn.DenseGeneral(shape, name=name)(x) for name in ("query", "key", "value")
        )
        if decode:
            key, value = layers.remember(self, slots.start, key, value)
        rng = self.make_rng("dropout") if train and c.attention_dropout else None
        mixed = layers.attend(
            query, key, value, slots.visible(), scale=self.scale, rng=rng,
            dropout=c.attention_dropout if train else 0.0,
        )  # fmt: skip
        return nn.DenseGeneral(c.features, (-2, -1), name="out")(mixed)


class Layer(nn.Module):
    """Attention and an MLP, each after a layer norm and with a residual connection."""

    config: Config
    scale: float

    @nn.compact
    def __call__(self, x, slots, decode, train):
        c = self.config
        drop = lambda y: nn.Dropout(c.dropout, deterministic=not train)(y)
        y = nn.LayerNorm(c.epsilon, name="attention_norm")(x)
        x = x + drop(Attention(c, self.scale, name="attention")(y, slots, decode, train))
        y = nn.LayerNorm(c.epsilon, name="mlp_norm")(x)
        y = layers.ACTIVATIONS[c.activation](nn.Dense(c.mlp_features, name="up")(y))
        return x + drop(nn.Dense(c.features, name="down")(y))


class GPT2(nn.Module):
    """A model that predicts the next token."""

    config: Config

    @nn.compact
    def __call__(
        self, tokens, mask=None, positions=None, decode=False, last=False, train=False
    ):
        """Return logits [batch, length, vocabulary], or only those of the last token if `last`.

        `mask` [batch, length] is False for padding, or the numbers of texts that share a row (see
        `layers.slots`). If `decode` is True, the tokens continue those of earlier calls, which are
        in the cache.
        """
        c = self.config
        slots = layers.slots(self, tokens, mask, positions, decode)
        embed = nn.Embed(c.vocabulary, c.features, name="embedding")
        x = embed(tokens) + nn.Embed(c.longest, c.features, name="positions")(slots.positions)
        x = nn.Dropout(c.dropout, deterministic=not train)(x)
        for i in range(c.layers):
            scale = (c.features // c.heads) ** -0.5 if c.scaled else 1.0
            scale = scale / (i + 1) if c.scaled_by_layer else scale
            x = Layer(c, scale, name=f"layer_{i}")(x, slots, decode, train)
        x = nn.LayerNorm(c.epsilon, name="norm")(x[:, -1:] if last else x)
        if c.tied:
            return embed.attend(x)
        return nn.Dense(c.vocabulary, use_bias=False, name="logits")(x)


def model(config: dict) -> GPT2:
    """Return the module for a config.json."""
    return GPT2(Config.from_dict(config))


def table(config: dict) -> Table:
    """Return the names that the tensors have in files, where weights are (inputs, outputs)."""
    names: dict[str, Any] = {
        "transformer.wte": "embedding",
        "transformer.wpe": "positions",
        "transformer.h.{i}.ln_1": "layer_{i}/attention_norm",
        "transformer.h.{i}.attn.c_attn": Fused("layer_{i}/attention", transposed=True),
        "transformer.h.{i}.attn.c_proj": Dense("layer_{i}/attention/out", transposed=True),
        "transformer.h.{i}.ln_2": "layer_{i}/mlp_norm",
        "transformer.h.{i}.mlp.c_fc": Dense("layer_{i}/up", transposed=True),
        "transformer.h.{i}.mlp.c_proj": Dense("layer_{i}/down", transposed=True),
        "transformer.ln_f": "norm",
    }
    if Config.from_dict(config).tied:
        tied = {"lm_head.weight": "transformer.wte.weight"}
    else:
        tied, names["lm_head"] = {}, "logits"
    masks = ("*.attn.bias", "*.attn.masked_bias")  # old files contain the causal mask
    return Table(names, "transformer.", tied, ignore=masks)
