"""BERT and RoBERTa: encoders, with a head for masked tokens, a pooler, or both.

The layers have their norms after the residual connections. RoBERTa's
positions start after the number of its padding token, and its tensors have other names.
"""

import dataclasses
from typing import Any, NamedTuple

import toile.numpy as jnp
from toile import linen as nn
from toile.interop.huggingface import Table
from toile.interop.torch_weights import Leaf

from . import layers

MODEL_TYPES = ("bert", "roberta")


@dataclasses.dataclass(frozen=True)
class Config:
    """The sizes and options of a model."""

    vocabulary: int
    features: int
    layers: int
    heads: int
    mlp_features: int
    longest: int  # number of learned positions
    types: int  # number of segments, such as question and text
    head: bool  # predict masked tokens
    pooler: bool  # summarize the text from its first token
    relation: bool  # predict from the summary whether the second segment follows the first
    padding: int | None = None  # in RoBERTa, the padding token
    epsilon: float = 1e-12
    activation: str = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1

    @classmethod
    def from_dict(cls, c: dict) -> "Config":
        """Read the contents of config.json; `architectures` determines the parts of the model."""
        if not c.get("tie_word_embeddings", True):
            raise ValueError("needed logits tied to the embedding, got tie_word_embeddings=False")
        kinds = c.get("architectures") or ["BertModel"]
        head = any(kind.endswith(("ForMaskedLM", "ForPreTraining")) for kind in kinds)
        return cls(
            vocabulary=c["vocab_size"], features=c["hidden_size"], layers=c["num_hidden_layers"],
            heads=c["num_attention_heads"], mlp_features=c["intermediate_size"],
            longest=c["max_position_embeddings"], types=c["type_vocab_size"], head=head,
            pooler=not any(kind.endswith("ForMaskedLM") for kind in kinds),
            relation=any(kind.endswith("ForPreTraining") for kind in kinds),
            padding=c["pad_token_id"] if c["model_type"] == "roberta" else None,
            epsilon=c.get("layer_norm_eps", 1e-12), activation=c.get("hidden_act", "gelu"),
            dropout=c.get("hidden_dropout_prob", 0.1),
            attention_dropout=c.get("attention_probs_dropout_prob", 0.1),
        )  # fmt: skip


class Outputs(NamedTuple):
    """The outputs of a model; None for parts that it does not have."""

    features: jnp.ndarray  # [batch, length, features]
    pooled: jnp.ndarray | None  # [batch, features]
    logits: jnp.ndarray | None  # [batch, length, vocabulary]
    relation: jnp.ndarray | None  # [batch, 2]: the second segment follows, or is another text


class Attention(nn.Module):
    """Attention to all tokens that are not padding."""

    config: Config

    @nn.compact
    def __call__(self, x, mask, train):
        c = self.config
        shape = (c.heads, c.features // c.heads)
        query, key, value = (
            nn.DenseGeneral(shape, name=name)(x) for name in ("query", "key", "value")
        )
        rng = self.make_rng("dropout") if train and c.attention_dropout else None
        dropout = c.attention_dropout if train else 0.0
        mixed = layers.attend(query, key, value, mask, dropout=dropout, rng=rng)
        return nn.DenseGeneral(c.features, (-2, -1), name="out")(mixed)


class Layer(nn.Module):
    """Attention and an MLP, each with a residual connection and a norm after it."""

    config: Config

    @nn.compact
    def __call__(self, x, mask, train):
        c = self.config
        drop = lambda y: nn.Dropout(c.dropout, deterministic=not train)(y)
        norm = lambda name: nn.LayerNorm(c.epsilon, name=name)
        y = Attention(c, name="attention")(x, mask, train)
        x = norm("attention_norm")(x + drop(y))
        y = layers.ACTIVATIONS[c.activation](nn.Dense(c.mlp_features, name="up")(x))
        return norm("mlp_norm")(x + drop(nn.Dense(c.features, name="down")(y)))


class Bert(nn.Module):
    """An encoder of texts."""

    config: Config

    @nn.compact
    def __call__(self, tokens, mask=None, types=None, positions=None, train=False):
        """Return `Outputs`; `mask` [batch, length] is False for padding, `types` are segments."""
        c = self.config
        embed = nn.Embed(c.vocabulary, c.features, name="embedding")
        positions = self.positions(tokens) if positions is None else positions
        types = jnp.zeros_like(tokens) if types is None else types
        x = embed(tokens) + nn.Embed(c.types, c.features, name="types")(types)
        x = x + nn.Embed(c.longest, c.features, name="positions")(positions)
        x = nn.LayerNorm(c.epsilon, name="norm")(x)
        x = nn.Dropout(c.dropout, deterministic=not train)(x)
        seen = None if mask is None else jnp.asarray(mask, bool)[:, None, None, :]
        for i in range(c.layers):
            x = Layer(c, name=f"layer_{i}")(x, seen, train)
        pooled = nn.tanh(nn.Dense(c.features, name="pooler")(x[:, 0])) if c.pooler else None
        relation = nn.Dense(2, name="relation")(pooled) if c.relation else None
        return Outputs(x, pooled, self.logits(x, embed) if c.head else None, relation)

    def positions(self, tokens):
        """Count tokens from 0; RoBERTa counts those that are not padding, from `padding` + 1."""
        padding = self.config.padding
        if padding is None:
            return jnp.arange(tokens.shape[1])[None]
        real = tokens != padding
        return jnp.cumsum(real, axis=1) * real + padding

    def logits(self, x, embed):
        """Return the logits of masked tokens."""
        c = self.config
        x = nn.Dense(c.features, name="head")(x)
        x = layers.ACTIVATIONS[c.activation if c.padding is None else "gelu"](x)
        x = nn.LayerNorm(c.epsilon, name="head_norm")(x)
        bias = self.param("head_bias", nn.initializers.zeros, (c.vocabulary,))
        return embed.attend(x) + bias


def model(config: dict) -> Bert:
    """Return the module for a config.json."""
    return Bert(Config.from_dict(config))


def table(config: dict) -> Table:
    """Return the names that the tensors have in files."""
    c = Config.from_dict(config)
    kind = config["model_type"]
    body = {
        "embeddings.word_embeddings": "embedding",
        "embeddings.position_embeddings": "positions",
        "embeddings.token_type_embeddings": "types",
        "embeddings.LayerNorm": "norm",
        "encoder.layer.{i}.attention.self.query": "layer_{i}/attention/query",
        "encoder.layer.{i}.attention.self.key": "layer_{i}/attention/key",
        "encoder.layer.{i}.attention.self.value": "layer_{i}/attention/value",
        "encoder.layer.{i}.attention.output.dense": "layer_{i}/attention/out",
        "encoder.layer.{i}.attention.output.LayerNorm": "layer_{i}/attention_norm",
        "encoder.layer.{i}.intermediate.dense": "layer_{i}/up",
        "encoder.layer.{i}.output.dense": "layer_{i}/down",
        "encoder.layer.{i}.output.LayerNorm": "layer_{i}/mlp_norm",
    }
    body |= {"pooler.dense": "pooler"} if c.pooler else {}
    names: dict[str, Any] = {f"{kind}.{name}": path for name, path in body.items()}
    ignore = ["*.position_ids", *([] if c.pooler else ["*.pooler.*"])]
    ignore += [] if c.relation else ["cls.seq_relationship.*"]
    word = f"{kind}.embeddings.word_embeddings.weight"
    if kind == "bert":
        top, dense, norm = "cls.predictions", "transform.dense", "transform.LayerNorm"
    else:
        top, dense, norm = "lm_head", "dense", "layer_norm"
    if c.relation:
        names["cls.seq_relationship"] = "relation"
    if c.head:
        names |= {f"{top}.{dense}": "head", f"{top}.{norm}": "head_norm",
                  f"{top}.bias": Leaf("head_bias")}
    else:
        ignore += ["cls.*", "lm_head.*"]
    tied = {f"{top}.decoder.weight": word, f"{top}.decoder.bias": f"{top}.bias"}
    old = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
    return Table(names, f"{kind}.", tied if c.head else {}, tuple(ignore), old)
