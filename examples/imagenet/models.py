"""ResNet v1.5 with 18 to 152 layers; names are as in Flax's example, so its weights can be loaded.

This file uses only `linen` and `numpy`, so it defines the same network if flax and jax are in the
import lines. (toile's repository trains both networks and compares them.)
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from toile import linen as nn
from toile import numpy as jnp

ModuleDef = Any


class ResNetBlock(nn.Module):
    """Two 3 x 3 convolutions with a shortcut."""

    filters: int
    conv: ModuleDef
    norm: ModuleDef
    act: Callable
    strides: tuple[int, int] = (1, 1)

    @nn.compact
    def __call__(self, x):
        y = self.conv(self.filters, (3, 3), self.strides)(x)
        y = self.act(self.norm()(y))
        y = self.conv(self.filters, (3, 3))(y)
        y = self.norm(scale_init=nn.initializers.zeros_init())(y)
        if x.shape != y.shape:
            x = self.conv(self.filters, (1, 1), self.strides, name="conv_proj")(x)
            x = self.norm(name="norm_proj")(x)
        return self.act(x + y)


class BottleneckResNetBlock(nn.Module):
    """Convolutions of 1 x 1, 3 x 3 (strided) and 1 x 1, with a shortcut."""

    filters: int
    conv: ModuleDef
    norm: ModuleDef
    act: Callable
    strides: tuple[int, int] = (1, 1)

    @nn.compact
    def __call__(self, x):
        y = self.act(self.norm()(self.conv(self.filters, (1, 1))(x)))
        y = self.act(self.norm()(self.conv(self.filters, (3, 3), self.strides)(y)))
        y = self.conv(self.filters * 4, (1, 1))(y)
        y = self.norm(scale_init=nn.initializers.zeros_init())(y)
        if x.shape != y.shape:
            x = self.conv(self.filters * 4, (1, 1), self.strides, name="conv_proj")(x)
            x = self.norm(name="norm_proj")(x)
        return self.act(x + y)


class ResNet(nn.Module):
    """Stages of blocks after a strided convolution and pooling.

    `axis_name` is the mapped axis, if any, over which norms compute their statistics.
    """

    stage_sizes: Sequence[int]
    block_cls: ModuleDef
    num_classes: int
    num_filters: int = 64
    axis_name: str | None = None

    @nn.compact
    def __call__(self, x, train=True):
        """Return logits [batch, classes] for images [batch, height, width, 3]."""
        conv = partial(nn.Conv, use_bias=False)
        norm = partial(
            nn.BatchNorm, use_running_average=not train, momentum=0.9, epsilon=1e-5,
            axis_name=self.axis_name if train else None,
        )  # fmt: skip
        x = conv(self.num_filters, (7, 7), (2, 2), padding=[(3, 3), (3, 3)], name="conv_init")(x)
        x = nn.relu(norm(name="bn_init")(x))
        x = nn.max_pool(x, (3, 3), strides=(2, 2), padding="SAME")
        for i, count in enumerate(self.stage_sizes):
            for j in range(count):
                strides = (2, 2) if i > 0 and j == 0 else (1, 1)
                x = self.block_cls(self.num_filters * 2**i, conv, norm, nn.relu, strides)(x)
        x = jnp.mean(x, axis=(1, 2))
        return nn.Dense(self.num_classes)(x)


ResNet18 = partial(ResNet, stage_sizes=(2, 2, 2, 2), block_cls=ResNetBlock)
ResNet34 = partial(ResNet, stage_sizes=(3, 4, 6, 3), block_cls=ResNetBlock)
ResNet50 = partial(ResNet, stage_sizes=(3, 4, 6, 3), block_cls=BottleneckResNetBlock)
ResNet101 = partial(ResNet, stage_sizes=(3, 4, 23, 3), block_cls=BottleneckResNetBlock)
ResNet152 = partial(ResNet, stage_sizes=(3, 8, 36, 3), block_cls=BottleneckResNetBlock)

MODELS = {
    "resnet18": ResNet18,
    "resnet34": ResNet34,
    "resnet50": ResNet50,
    "resnet101": ResNet101,
    "resnet152": ResNet152,
}
