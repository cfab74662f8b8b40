"""ResNet: convolutions with residual connections and batch norms, in four stages.

The layers are those of ResNet-18 and ResNet-34 ("basic") or of ResNet-50, 101 and 152
("bottleneck").
"""

import dataclasses
import functools

import toile.numpy as jnp
from toile import linen as nn
from toile.interop.huggingface import Table

from . import layers

MODEL_TYPES = ("resnet",)


@dataclasses.dataclass(frozen=True)
class Config:
    """The sizes and options of a model."""

    labels: int
    first_features: int  # of the convolution before the stages
    features: tuple[int, ...]  # of each stage
    depths: tuple[int, ...]  # number of layers of each stage
    bottleneck: bool
    channels: int = 3
    activation: str = "relu"
    stride_first_stage: bool = False  # the first stage halves the image, too
    stride_first_conv: bool = False  # in bottlenecks, the first convolution has the stride

    @classmethod
    def from_dict(cls, c: dict) -> "Config":
        """Read the contents of config.json."""
        return cls(
            labels=layers.number_of_labels(c), first_features=c["embedding_size"],
            features=tuple(c["hidden_sizes"]), depths=tuple(c["depths"]),
            bottleneck=c.get("layer_type", "bottleneck") == "bottleneck",
            channels=c.get("num_channels", 3), activation=c.get("hidden_act", "relu"),
            stride_first_stage=c.get("downsample_in_first_stage", False),
            stride_first_conv=c.get("downsample_in_bottleneck", False),
        )  # fmt: skip


class ConvNorm(nn.Module):
    """A convolution without bias, and a batch norm."""

    features: int
    kernel: int
    stride: int = 1

    @nn.compact
    def __call__(self, x, train):
        x = nn.Conv(
            self.features, (self.kernel, self.kernel), strides=self.stride,
            padding=self.kernel // 2, use_bias=False, name="conv",
        )(x)  # fmt: skip
        return nn.BatchNorm(not train, momentum=0.9, epsilon=1e-5, name="norm")(x)


class Layer(nn.Module):
    """Two or three convolutions and a residual connection."""

    config: Config
    features: int
    stride: int

    @nn.compact
    def __call__(self, x, train):
        c, stride = self.config, self.stride
        if c.bottleneck:
            inner = self.features // 4
            strides = (stride, 1) if c.stride_first_conv else (1, stride)
            convs = [(inner, 1, strides[0]), (inner, 3, strides[1]), (self.features, 1, 1)]
        else:
            convs = [(self.features, 3, stride), (self.features, 3, 1)]
        act = layers.ACTIVATIONS[c.activation]
        y = x
        for i, (features, kernel, step) in enumerate(convs):
            inner_act = layers.ACTIVATIONS["relu"] if i + 1 < len(convs) else lambda z: z
            y = inner_act(ConvNorm(features, kernel, step, name=f"conv_{i}")(y, train))
        if x.shape[-1] != self.features or stride != 1:
            x = ConvNorm(self.features, 1, stride, name="shortcut")(x, train)
        return act(x + y)


class ResNet(nn.Module):
    """A classifier of images."""

    config: Config

    @nn.compact
    def __call__(self, images, train=False):
        """Return logits [batch, labels] of images [batch, height, width, channels].

        If `train` is True, norms compute the statistics of the batch and update the collection
        `batch_stats`.
        """
        c = self.config
        x = ConvNorm(c.first_features, 7, 2, name="first")(images, train)
        x = layers.ACTIVATIONS[c.activation](x)
        x = nn.max_pool(x, (3, 3), strides=(2, 2), padding=((1, 1), (1, 1)))
        for s, (features, depth) in enumerate(zip(c.features, c.depths, strict=True)):
            stage = functools.partial(Layer, c, features)
            for i in range(depth):
                halves = i == 0 and (s > 0 or c.stride_first_stage)
                x = stage(2 if halves else 1, name=f"stage_{s}_layer_{i}")(x, train)
        return nn.Dense(c.labels, name="logits")(jnp.mean(x, axis=(1, 2)))


def model(config: dict) -> ResNet:
    """Return the module for a config.json."""
    return ResNet(Config.from_dict(config))


def inputs(config: dict) -> tuple:
    """Return inputs with the shapes that the module needs, for its initialization."""
    return (jnp.zeros((1, 64, 64, config.get("num_channels", 3))),)


def table(config: dict) -> Table:
    """Return the names that the tensors have in files."""
    c = Config.from_dict(config)
    shortcut = c.features[0] != c.first_features or c.stride_first_stage or len(c.features) > 1
    theirs = "resnet.encoder.stages.{s}.layers.{i}"
    convs = {
        "resnet.embedder.embedder": "first",
        f"{theirs}.layer.{{j}}": "stage_{s}_layer_{i}/conv_{j}",
        **({f"{theirs}.shortcut": "stage_{s}_layer_{i}/shortcut"} if shortcut else {}),
    }
    names = {f"{name}.convolution": f"{path}/conv" for name, path in convs.items()}
    names |= {f"{name}.normalization": f"{path}/norm" for name, path in convs.items()}
    # torch counts batches, which matters only if a norm has no momentum
    return Table(names | {"classifier.1": "logits"}, "resnet.", ignore=("*.num_batches_tracked",))
