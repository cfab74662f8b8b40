"""Gemma 1, 2 and 3 (text): decoders with rotary positions and GELU gates.

The scales of norms are stored minus 1, and embeddings are multiplied by the square root of their
size. In Gemma 2 and 3, there are norms before and after each part, and some layers have a sliding
window. Gemma 2 has soft caps for logits; Gemma 3 normalizes queries and keys instead.
"""

import dataclasses

import numpy as np

import toile.numpy as jnp
from toile import lax
from toile import linen as nn
from toile.interop.huggingface import Table

from . import layers

MODEL_TYPES = ("gemma", "gemma2", "gemma3_text")


@dataclasses.dataclass(frozen=True)
class Config:
    """The sizes and options of a model."""

    version: int
    vocabulary: int
    features: int
    heads: int
    kv_heads: int  # key and value heads, each shared by heads / kv_heads query heads
    depth: int  # features of each head
    mlp_features: int
    windows: tuple[int | None, ...]  # for each layer: size of its sliding window, or None
    angles: tuple[float, ...]  # angles of rotary positions
    local_angles: tuple[float, ...]  # angles in layers with a sliding window
    scale: float  # factor for the logits of attention
    attention_cap: float | None = None
    logits_cap: float | None = None
    epsilon: float = 1e-6
    activation: str = "gelu_pytorch_tanh"
    bias: bool = False
    tied: bool = True

    @classmethod
    def from_dict(cls, c: dict) -> "Config":
        """Read the contents of config.json."""
        version = {"gemma": 1, "gemma2": 2, "gemma3_text": 3}[c["model_type"]]
        if c.get("use_bidirectional_attention"):
            raise ValueError("needed a causal Gemma, got use_bidirectional_attention in the config")
        depth = c.get("head_dim", 256)
        angles, local = _angles(c, version, depth)
        caps = (version == 2) * np.array([50.0, 30.0])  # the defaults; 0 for none
        return cls(
            version=version, vocabulary=c["vocab_size"], features=c["hidden_size"],
            heads=c["num_attention_heads"], kv_heads=c["num_key_value_heads"], depth=depth,
            mlp_features=c["intermediate_size"], windows=_windows(c, version),
            angles=angles, local_angles=local, activation=_activation(c),
            scale=(depth if version == 1 else c.get("query_pre_attn_scalar", 256)) ** -0.5,
            attention_cap=c.get("attn_logit_softcapping", float(caps[0]) or None),
            logits_cap=c.get("final_logit_softcapping", float(caps[1]) or None),
            epsilon=c.get("rms_norm_eps", 1e-6), bias=c.get("attention_bias", False),
            tied=c.get("tie_word_embeddings", True),
        )  # fmt: skip


def _angles(c: dict, version: int, depth: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the rotary angles of layers without and with a window."""
    scaling = c.get("rope_parameters") or {}
    if version < 3:
        angles = layers.frequencies(c, depth)
        return angles, angles
    if "full_attention" in scaling:
        full, sliding = (
            layers.frequencies({"rope_parameters": scaling[kind]}, depth)
            for kind in ("full_attention", "sliding_attention")
        )
        return full, sliding
    local = {"rope_theta": c.get("rope_local_base_freq", 10_000.0)}
    return layers.frequencies(c, depth, 1_000_000.0), layers.frequencies(local, depth)


def _windows(c: dict, version: int) -> tuple[int | None, ...]:
    """Return the sliding window of each layer."""
    count = c["num_hidden_layers"]
    if version == 1:
        return (None,) * count
    period = 2 if version == 2 else c.get("sliding_window_pattern", 6)
    standard = ["sliding_attention" if (i + 1) % period else "full_attention" for i in range(count)]
    kinds = c.get("layer_types") or standard
    window = c.get("sliding_window", 4096)
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


def _activation(c: dict) -> str:
    """Return the activation; `gelu` in a file means the tanh approximation."""
    name = c.get("hidden_activation") or c.get("hidden_act") or "gelu"
    return "gelu_pytorch_tanh" if name == "gelu" else name


class Norm(nn.Module):
    """A root mean square norm whose scale is 1 plus a parameter."""

    epsilon: float

    @nn.compact
    def __call__(self, x):
        scale = self.param("scale", nn.initializers.zeros, x.shape[-1:])
        wide = x.astype(jnp.float32)
        wide = wide * lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + self.epsilon)
        return (wide * (1 + scale.astype(jnp.float32))).astype(x.dtype)


class Attention(nn.Module):
    """Causal attention with rotary positions, where groups of heads share keys and values."""

    config: Config
    window: int | None

    @nn.compact
    def __call__(self, x, slots, decode):
        c = self.config

        def heads(count, name):
            return nn.DenseGeneral((count, c.depth), use_bias=c.bias, name=name)(x)

        query, key = heads(c.heads, "query"), heads(c.kv_heads, "key")
        value = heads(c.kv_heads, "value")
        if c.version == 3:
            query = Norm(c.epsilon, name="query_norm")(query)
            key = Norm(c.epsilon, name="key_norm")(key)
        angles = c.angles if self.window is None else c.local_angles
        query = layers.rotate(query, slots.positions, angles)
        key = layers.rotate(key, slots.positions, angles)
        if decode:
            key, value = layers.remember(self, slots.start, key, value)
        mask = slots.visible(self.window)
        mixed = layers.attend(query, key, value, mask, scale=c.scale, cap=c.attention_cap)
        return nn.DenseGeneral(c.features, (-2, -1), use_bias=c.bias, name="out")(mixed)


class MLP(nn.Module):
    """An MLP with a gate: the product of two projections is projected back."""

    config: Config

    @nn.compact
    def __call__(self, x):
        c = self.config
        dense = lambda features, name: nn.Dense(features, use_bias=False, name=name)
        gate = layers.ACTIVATIONS[c.activation](dense(c.mlp_features, "gate")(x))
        return dense(c.features, "down")(gate * dense(c.mlp_features, "up")(x))


class Layer(nn.Module):
    """Attention and an MLP with residual connections; in Gemma 2 and 3, norms also follow them."""

    config: Config
    window: int | None

    @nn.compact
    def __call__(self, x, slots, decode):
        c = self.config
        norm = lambda name: Norm(c.epsilon, name=name)
        after = norm if c.version > 1 else lambda name: lambda y: y
        y = Attention(c, self.window, name="attention")(norm("attention_norm")(x), slots, decode)
        x = x + after("after_attention_norm")(y)
        y = MLP(c, name="mlp")(norm("mlp_norm")(x))
        return x + after("after_mlp_norm")(y)


class Gemma(nn.Module):
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
        x = x * jnp.asarray(c.features**0.5, x.dtype)
        for i, window in enumerate(c.windows):
            x = Layer(c, window, name=f"layer_{i}")(x, slots, decode)
        x = Norm(c.epsilon, name="norm")(x[:, -1:] if last else x)
        if c.tied:
            logits = embed.attend(x)
        else:
            logits = nn.Dense(c.vocabulary, use_bias=False, name="logits")(x)
        return logits if c.logits_cap is None else layers.soft_cap(logits, c.logits_cap)


def model(config: dict) -> Gemma:
    """Return the module for a config.json."""
    return Gemma(Config.from_dict(config))


def table(config: dict) -> Table:
    """Return the names that the tensors have in files."""
    c = Config.from_dict(config)
    attention = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "o_proj": "out"}
    norms = {"input": "attention_norm", "post_attention": "mlp_norm"}
    if c.version > 1:
        norms = {"input": "attention_norm", "post_attention": "after_attention_norm",
                 "pre_feedforward": "mlp_norm", "post_feedforward": "after_mlp_norm"}
    if c.version == 3:
        attention |= {"q_norm": "query_norm", "k_norm": "key_norm"}
    names = {
        "model.embed_tokens": "embedding",
        **{f"model.layers.{{i}}.{theirs}_layernorm": f"layer_{{i}}/{ours}"
           for theirs, ours in norms.items()},
        **{f"model.layers.{{i}}.self_attn.{theirs}": f"layer_{{i}}/attention/{ours}"
           for theirs, ours in attention.items()},
        **{f"model.layers.{{i}}.mlp.{name}_proj": f"layer_{{i}}/mlp/{name}"
           for name in ("gate", "up", "down")},
        "model.norm": "norm",
    }  # fmt: skip
    if c.tied:
        tied = {"lm_head.weight": "model.embed_tokens.weight"}
    else:
        tied, names["lm_head"] = {}, "logits"
    return Table(names, "model.", tied, ignore=("*.rotary_emb.inv_freq",))
