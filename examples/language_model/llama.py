"""Llama, Mistral, Qwen2 and Qwen3: decoders with rotary positions and gated MLPs.

The families differ in biases, in norms of queries and keys, and in the layers whose attention has a
sliding window; `Config.from_dict` reads all of this from config.json.
"""

import dataclasses

from toile import linen as nn
from toile.interop.huggingface import Table

from . import layers

MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3")


@dataclasses.dataclass(frozen=True)
class Config:
    """The sizes and options of a model."""

    vocabulary: int
    features: int
    heads: int
    kv_heads: int  # key and value heads, each shared by heads / kv_heads query heads
    depth: int  # features of each head
    mlp_features: int
    windows: tuple[int | None, ...]  # for each layer: size of its sliding window, or None
    angles: tuple[float, ...]  # angles of rotary positions
    epsilon: float = 1e-6
    activation: str = "silu"
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    tied: bool = False

    @classmethod
    def from_dict(cls, c: dict) -> "Config":
        """Read the contents of config.json."""
        kind, heads = c["model_type"], c["num_attention_heads"]
        depth = c.get("head_dim") or c["hidden_size"] // heads
        bias = c.get("attention_bias", False) if kind in ("llama", "qwen3") else False
        return cls(
            vocabulary=c["vocab_size"], features=c["hidden_size"], heads=heads, depth=depth,
            kv_heads=c.get("num_key_value_heads") or heads, mlp_features=c["intermediate_size"],
            windows=_windows(c), angles=layers.frequencies(c, depth),
            epsilon=c.get("rms_norm_eps", 1e-6), activation=c.get("hidden_act", "silu"),
            qkv_bias=bias or kind == "qwen2", out_bias=bias, qk_norm=kind == "qwen3",
            mlp_bias=c.get("mlp_bias", False) if kind == "llama" else False,
            tied=c.get("tie_word_embeddings", False),
        )  # fmt: skip


def _windows(c: dict) -> tuple[int | None, ...]:
    """Return the sliding window of each layer."""
    kind, count = c["model_type"], c["num_hidden_layers"]
    if kind == "mistral":
        return (c.get("sliding_window", 4096),) * count
    if kind == "llama" or not c.get("use_sliding_window", False):
        return (None,) * count
    first = c.get("max_window_layers", 28)
    standard = ["sliding_attention" if i >= first else "full_attention" for i in range(count)]
    kinds = c.get("layer_types") or standard
    return tuple(c["sliding_window"] if k == "sliding_attention" else None for k in kinds)


class Attention(nn.Module):
    """Causal attention with rotary positions, where groups of heads share keys and values."""

    config: Config
    window: int | None

    @nn.compact
    def __call__(self, x, slots, decode):
        c = self.config

        def heads(count, name):
            shape = (count, c.depth)
            return nn.DenseGeneral(shape, use_bias=c.qkv_bias, name=name)(x)

        query, key = heads(c.heads, "query"), heads(c.kv_heads, "key")
        value = heads(c.kv_heads, "value")
        if c.qk_norm:
            query = nn.RMSNorm(c.epsilon, name="query_norm")(query)
            key = nn.RMSNorm(c.epsilon, name="key_norm")(key)
        query = layers.rotate(query, slots.positions, c.angles)
        key = layers.rotate(key, slots.positions, c.angles)
        if decode:
            key, value = layers.remember(self, slots.start, key, value)
        mixed = layers.attend(query, key, value, slots.visible(self.window))
        return nn.DenseGeneral(c.features, (-2, -1), use_bias=c.out_bias, name="out")(mixed)


class MLP(nn.Module):
    """An MLP with a gate: the product of two projections is projected back."""

    config: Config

    @nn.compact
    def __call__(self, x):
        c = self.config
        dense = lambda features, name: nn.Dense(features, use_bias=c.mlp_bias, name=name)
        gate = layers.ACTIVATIONS[c.activation](dense(c.mlp_features, "gate")(x))
        return dense(c.features, "down")(gate * dense(c.mlp_features, "up")(x))


class Layer(nn.Module):
    """Attention and an MLP, each after a norm and with a residual connection."""

    config: Config
    window: int | None

    @nn.compact
    def __call__(self, x, slots, decode):
        norm = lambda name: nn.RMSNorm(self.config.epsilon, name=name)
        y = norm("attention_norm")(x)
        x = x + Attention(self.config, self.window, name="attention")(y, slots, decode)
        return x + MLP(self.config, name="mlp")(norm("mlp_norm")(x))


class Llama(nn.Module):
    """A model that predicts the next token."""

    config: Config

    @nn.compact
    def __call__(self, tokens, mask=None, positions=None, decode=False, last=False):
        """Return logits [batch, length, vocabulary], or only those of the last token if `last`.

        `mask` [batch, length] is False for padding, or the numbers of texts that share a row (see
        `layers.slots`). If `decode` is True, the tokens continue those of earlier calls, which are
        in the cache.
        """
        c = self.config
        slots = layers.slots(self, tokens, mask, positions, decode)
        embed = nn.Embed(c.vocabulary, c.features, name="embedding")
        x = embed(tokens)
        for i, window in enumerate(c.windows):
            x = Layer(c, window, name=f"layer_{i}")(x, slots, decode)
        x = nn.RMSNorm(c.epsilon, name="norm")(x[:, -1:] if last else x)
        if c.tied:
            return embed.attend(x)
        return nn.Dense(c.vocabulary, use_bias=False, name="logits")(x)


def model(config: dict) -> Llama:
    """Return the module for a config.json."""
    return Llama(Config.from_dict(config))


def table(config: dict) -> Table:
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
    if c.tied:
        tied = {"lm_head.weight": "model.embed_tokens.weight"}
    else:
        tied, names["lm_head"] = {}, "logits"
    return Table(names, "model.", tied, ignore=("*.rotary_emb.inv_freq",))
