"""ConvNeXt: depthwise convolutions with large kernels, and an MLP for each pixel."""

import dataclasses
from typing import Any

import numpy as np

import toile.numpy as jnp
from toile import linen as nn
from toile.interop.huggingface import Table
from toile.interop.torch_weights import Leaf

from . import layers

MODEL_TYPES = ("convnext",)


@dataclasses.dataclass(frozen=True)
class Config:
    """The sizes and options of a model."""

    labels: int
    features: tuple[int, ...]  # of each stage
    depths: tuple[int, ...]  # number of layers of each stage
    patch: tuple[int, int] = (4, 4)
    channels: int = 3
    epsilon: float = 1e-12  # of the last norm
    activation: str = "gelu"
    scale: float = 1e-6  # first value of the scales of layers; without scales if it is 0
    drop_path: float = 0.0  # share of images for which training leaves out the last layer

    @classmethod
    def from_dict(cls, c: dict) -> "Config":
        """Read the contents of config.json."""
        return cls(
            labels=layers.number_of_labels(c), features=tuple(c["hidden_sizes"]),
            depths=tuple(c["depths"]), patch=layers.pair(c.get("patch_size", 4)),
            channels=c.get("num_channels", 3), epsilon=c.get("layer_norm_eps", 1e-12),
            activation=c.get("hidden_act", "gelu"), scale=c.get("layer_scale_init_value", 1e-6),
            drop_path=c.get("drop_path_rate", 0.0),
        )  # fmt: skip


class Layer(nn.Module):
    """A depthwise convolution and an MLP, with a residual connection around both."""

    config: Config
    dropout: float  # share of images for which training leaves out the layer

    @nn.compact
    def __call__(self, x, train):
        c, features = self.config, x.shape[-1]
        y = nn.Conv(features, (7, 7), padding=3, feature_group_count=features, name="conv")(x)
        y = nn.LayerNorm(1e-6, name="norm")(y)
        y = layers.ACTIVATIONS[c.activation](nn.Dense(4 * features, name="up")(y))
        y = nn.Dense(features, name="down")(y)
        if c.scale > 0:
            y = y * self.param("scale", nn.initializers.constant(c.scale), (features,))
        return x + nn.Dropout(self.dropout, (1, 2, 3), deterministic=not train)(y)


class ConvNeXt(nn.Module):
    """A classifier of images."""

    config: Config

    @nn.compact
    def __call__(self, images, train=False):
        """Return logits [batch, labels] of images [batch, height, width, channels]."""
        c = self.config
        norm = lambda name: nn.LayerNorm(1e-6, name=name)
        conv = lambda features, patch, name: nn.Conv(
            features, patch, strides=patch, padding="VALID", name=name
        )
        x = norm("patches_norm")(conv(c.features[0], c.patch, "patches")(images))
        dropouts = iter(np.linspace(0, c.drop_path, sum(c.depths)).tolist())
        for s, (features, depth) in enumerate(zip(c.features, c.depths, strict=True)):
            if s > 0:
                x = conv(features, (2, 2), f"merge_{s}")(norm(f"merge_norm_{s}")(x))
            for i in range(depth):
                x = Layer(c, next(dropouts), name=f"stage_{s}_layer_{i}")(x, train)
        x = nn.LayerNorm(c.epsilon, name="norm")(jnp.mean(x, axis=(1, 2)))
        return nn.Dense(c.labels, name="logits")(x)


def model(config: dict) -> ConvNeXt:
    """Return the module for a config.json."""
    return ConvNeXt(Config.from_dict(config))


def inputs(config: dict) -> tuple:
    """Return inputs with the shapes that the module needs, for its initialization."""
    return (jnp.zeros((1, 64, 64, config.get("num_channels", 3))),)


def table(config: dict) -> Table:
    """Return the names that the tensors have in files."""
    c = Config.from_dict(config)
    stage = "convnext.encoder.stages.{s}"
    layer, ours = f"{stage}.layers.{{i}}", "stage_{s}_layer_{i}"
    names: dict[str, Any] = {
        "convnext.embeddings.patch_embeddings": "patches",
        "convnext.embeddings.layernorm": "patches_norm",
        f"{layer}.dwconv": f"{ours}/conv",
        f"{layer}.layernorm": f"{ours}/norm",
        f"{layer}.pwconv1": f"{ours}/up",
        f"{layer}.pwconv2": f"{ours}/down",
        "convnext.layernorm": "norm",
        "classifier": "logits",
    }
    if c.scale > 0:
        names[f"{layer}.layer_scale_parameter"] = Leaf(f"{ours}/scale")
    if len(c.features) > 1:
        names |= {
            f"{stage}.downsampling_layer.0": "merge_norm_{s}",
            f"{stage}.downsampling_layer.1": "merge_{s}",
        }
    return Table(names, "convnext.")
