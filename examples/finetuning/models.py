"""A decoder whose weights are those of Llama, Qwen2 or Qwen3 in a Hugging Face folder.

It has no cache; copy `generate` code and caches from the example language_model to write text. Rows
may contain several texts, and layers may be computed again in the backward pass (`remat`).
"""

import dataclasses

import numpy as np

import toile
import toile.numpy as jnp
from toile import finetuning, random
from toile import linen as nn
from toile.interop import huggingface

MODEL_TYPES = ("llama", "qwen2", "qwen3")


@dataclasses.dataclass(frozen=True)
class Config:
    """The sizes and options of a model."""

    vocabulary: int
    features: int
    layers: int
    heads: int
    kv_heads: int
    depth: int  # features of each head
    mlp_features: int
    theta: float  # base of the angles of rotary positions
    epsilon: float
    qkv_bias: bool
    qk_norm: bool
    tied: bool

    @classmethod
    def from_dict(cls, c: dict) -> "Config":
        """Read the contents of config.json."""
        kind, heads = c["model_type"], c["num_attention_heads"]
        rope = c.get("rope_parameters") or c.get("rope_scaling") or {}
        if kind not in MODEL_TYPES or rope.get("rope_type", "default") != "default" or (
            c.get("use_sliding_window") or c.get("attention_bias") or c.get("mlp_bias")
        ):
            raise ValueError(
                f"needed a model of the types {', '.join(MODEL_TYPES)} with the usual positions and"
                f" without windows, got {kind!r} (extend models.py, for example with code from the "
                "example language_model)"
            )
        return cls(
            vocabulary=c["vocab_size"], features=c["hidden_size"], layers=c["num_hidden_layers"],
            heads=heads, kv_heads=c.get("num_key_value_heads") or heads,
            depth=c.get("head_dim") or c["hidden_size"] // heads,
            mlp_features=c["intermediate_size"], epsilon=c.get("rms_norm_eps", 1e-6),
            theta=rope.get("rope_theta", c.get("rope_theta", 10_000.0)), qkv_bias=kind == "qwen2",
            qk_norm=kind == "qwen3", tied=c.get("tie_word_embeddings", False),
        )  # fmt: skip


def rotate(x, positions, theta):
    """Rotate the features of heads [batch, length, heads, depth] by their positions."""
    depth = x.shape[-1]
    angles = 1 / np.float32(theta) ** (np.arange(0, depth, 2, dtype=np.float32) / depth)
    turn = positions[:, :, None, None].astype(jnp.float32) * angles
    cos, sin = jnp.cos(turn).astype(x.dtype), jnp.sin(turn).astype(x.dtype)
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


class Attention(nn.Module):
    """Attention with rotary positions, where groups of heads share keys and values."""

    config: Config

    @nn.compact
    def __call__(self, x, mask, positions):
        c = self.config
        heads = lambda count, name: nn.DenseGeneral(
            (count, c.depth), use_bias=c.qkv_bias, name=name
        )(x)
        query, key = heads(c.heads, "query"), heads(c.kv_heads, "key")
        if c.qk_norm:
            query = nn.RMSNorm(c.epsilon, name="query_norm")(query)
            key = nn.RMSNorm(c.epsilon, name="key_norm")(key)
        query, key = rotate(query, positions, c.theta), rotate(key, positions, c.theta)
        mixed = toile.nn.dot_product_attention(query, key, heads(c.kv_heads, "value"), None, mask)
        return nn.DenseGeneral(c.features, (-2, -1), use_bias=False, name="out")(mixed)


class MLP(nn.Module):
    """An MLP with a gate."""

    config: Config

    @nn.compact
    def __call__(self, x):
        dense = lambda features, name: nn.Dense(features, use_bias=False, name=name)
        gate = nn.silu(dense(self.config.mlp_features, "gate")(x))
        return dense(x.shape[-1], "down")(gate * dense(self.config.mlp_features, "up")(x))


class Layer(nn.Module):
    """Attention and an MLP, each after a norm and with a residual connection."""

    config: Config

    @nn.compact
    def __call__(self, x, mask, positions):
        norm = lambda name: nn.RMSNorm(self.config.epsilon, name=name)
        x = x + Attention(self.config, name="attention")(norm("attention_norm")(x), mask, positions)
        return x + MLP(self.config, name="mlp")(norm("mlp_norm")(x))


class Decoder(nn.Module):
    """A model that predicts the next token."""

    config: Config
    remat: bool = False

    @nn.compact
    def __call__(self, tokens, segments, positions, features=False):
        """Return logits [batch, length, vocabulary], or the features before them.

        `segments` numbers the texts in a row, from 1; 0 is padding. `positions` are those in the
        texts.
        """
        c = self.config
        mask = finetuning.attention_mask(segments)
        embed = nn.Embed(c.vocabulary, c.features, name="embedding")
        x = embed(tokens)
        layer = nn.remat(Layer) if self.remat else Layer
        for i in range(c.layers):
            x = layer(c, name=f"layer_{i}")(x, mask, positions)
        x = nn.RMSNorm(c.epsilon, name="norm")(x)
        if features:
            return x
        if c.tied:
            return embed.attend(x)
        return nn.Dense(c.vocabulary, use_bias=False, name="logits")(x)


def table(config: dict) -> huggingface.Table:
    """Return the names that the tensors have in files."""
    c = Config.from_dict(config)
    attention = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "o_proj": "out"}
    if c.qk_norm:
        attention |= {"q_norm": "query_norm", "k_norm": "key_norm"}
    names = {
        "model.embed_tokens": "embedding",
        "model.layers.{i}.input_layernorm": "layer_{i}/attention_norm",
        **{f"model.layers.{{i}}.self_attn.{theirs}": f"layer_{{i}}/attention/{ours}"
           for theirs, ours in attention.items()},
        "model.layers.{i}.post_attention_layernorm": "layer_{i}/mlp_norm",
        **{f"model.layers.{{i}}.mlp.{name}_proj": f"layer_{{i}}/mlp/{name}"
           for name in ("gate", "up", "down")},
        "model.norm": "norm",
    }  # fmt: skip
    tied = {"lm_head.weight": "model.embed_tokens.weight"} if c.tied else {}
    if not c.tied:
        names["lm_head"] = "logits"
    return huggingface.Table(names, "model.", tied, ignore=("*.rotary_emb.inv_freq",))


def initial(config: dict, key):
    """Return the random parameters of a model."""
    row = jnp.zeros((1, 2), jnp.int32)
    return Decoder(Config.from_dict(config)).init(key, row, row, row)["params"]


def load(folder, dtype=None):
    """Return the configuration and the parameters of a model in a folder."""
    config = huggingface.load_config(folder)
    shapes = toile.eval_shape(lambda: {"params": initial(config, random.key(0))})
    return config, huggingface.load(folder, shapes, table(config), dtype=dtype)["params"]
