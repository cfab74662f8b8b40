"""ViT: a transformer that reads an image as a sequence of patches."""

import dataclasses
from typing import Any

import toile.numpy as jnp
from toile import linen as nn
from toile.interop.huggingface import Table
from toile.interop.torch_weights import Leaf

from . import layers

MODEL_TYPES = ("vit",)


@dataclasses.dataclass(frozen=True)
class Config:
    """The sizes and options of a model."""

    labels: int
    features: int
    layers: int
    heads: int
    mlp_features: int
    size: tuple[int, int]  # height and width of images
    patch: tuple[int, int]
    channels: int = 3
    epsilon: float = 1e-12
    activation: str = "gelu"
    bias: bool = True  # of queries, keys and values
    dropout: float = 0.0
    attention_dropout: float = 0.0

    @classmethod
    def from_dict(cls, c: dict) -> "Config":
        """Read the contents of config.json."""
        return cls(
            labels=layers.number_of_labels(c), features=c["hidden_size"],
            layers=c["num_hidden_layers"], heads=c["num_attention_heads"],
            mlp_features=c["intermediate_size"], size=layers.pair(c.get("image_size", 224)),
            patch=layers.pair(c.get("patch_size", 16)), channels=c.get("num_channels", 3),
            epsilon=c.get("layer_norm_eps", 1e-12), activation=c.get("hidden_act", "gelu"),
            bias=c.get("qkv_bias", True), dropout=c.get("hidden_dropout_prob", 0.0),
            attention_dropout=c.get("attention_probs_dropout_prob", 0.0),
        )  # fmt: skip


class ViT(nn.Module):
    """A classifier of images."""

    config: Config

    @nn.compact
    def __call__(self, images, train=False):
        """Return logits [batch, labels] of images [batch, height, width, channels]."""
        c = self.config
        layers.check_images(images, c.size, c.channels)
        x = nn.Conv(c.features, c.patch, strides=c.patch, padding="VALID", name="patches")(images)
        x = x.reshape(len(x), -1, c.features)
        first = self.param("class_token", nn.initializers.zeros, (1, 1, c.features))
        x = jnp.concatenate([jnp.broadcast_to(first, (len(x), 1, c.features)), x], axis=1)
        places = (1, x.shape[1], c.features)
        x = x + self.param("positions", nn.initializers.normal(0.02), places)
        x = nn.Dropout(c.dropout, deterministic=not train)(x)
        for i in range(c.layers):
            layer = layers.TransformerLayer(
                c.heads, c.mlp_features, c.epsilon, c.activation, c.bias, c.dropout,
                c.attention_dropout, name=f"layer_{i}",
            )  # fmt: skip
            x = layer(x, train=train)
        x = nn.LayerNorm(c.epsilon, name="norm")(x)
        return nn.Dense(c.labels, name="logits")(x[:, 0])


def model(config: dict) -> ViT:
    """Return the module for a config.json."""
    return ViT(Config.from_dict(config))


def inputs(config: dict) -> tuple:
    """Return inputs with the shapes that the module needs, for its initialization."""
    c = Config.from_dict(config)
    return (jnp.zeros((1, *c.size, c.channels)),)


def table(config: dict) -> Table:
    """Return the names that the tensors have in files."""
    block = "vit.encoder.layer.{i}"
    names: dict[str, Any] = {
        "vit.embeddings.cls_token": Leaf("class_token"),
        "vit.embeddings.position_embeddings": Leaf("positions"),
        "vit.embeddings.patch_embeddings.projection": "patches",
        f"{block}.layernorm_before": "layer_{i}/attention_norm",
        f"{block}.attention.attention.query": "layer_{i}/attention/query",
        f"{block}.attention.attention.key": "layer_{i}/attention/key",
        f"{block}.attention.attention.value": "layer_{i}/attention/value",
        f"{block}.attention.output.dense": "layer_{i}/attention/out",
        f"{block}.layernorm_after": "layer_{i}/mlp_norm",
        f"{block}.intermediate.dense": "layer_{i}/up",
        f"{block}.output.dense": "layer_{i}/down",
        "vit.layernorm": "norm",
        "classifier": "logits",
    }
    return Table(names, "vit.", ignore=("vit.pooler.*",))
