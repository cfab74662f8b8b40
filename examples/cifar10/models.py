"""Residual networks for images of 32 x 32: the CIFAR variant of ResNet-18, and WideResNet."""

from collections.abc import Sequence
from functools import partial

import toile.numpy as jnp
from toile import linen as nn

conv = partial(nn.Conv, use_bias=False, kernel_init=nn.initializers.he_normal())


class Residual(nn.Module):
    """Two convolutions, each followed by its norm, with a shortcut."""

    features: int
    stride: int

    @nn.compact
    def __call__(self, x, train):
        norm = partial(nn.BatchNorm, use_running_average=not train, momentum=0.9)
        y = conv(self.features, (3, 3), self.stride)(x)
        y = nn.relu(norm()(y))
        y = norm(scale_init=nn.initializers.zeros)(conv(self.features, (3, 3))(y))
        if x.shape != y.shape:
            x = norm()(conv(self.features, (1, 1), self.stride)(x))
        return nn.relu(x + y)


class ResNet(nn.Module):
    """Stages of residual blocks; each halves the height and width and doubles the features."""

    blocks: Sequence[int] = (2, 2, 2, 2)
    features: int = 64
    classes: int = 10

    @nn.compact
    def __call__(self, x, train=False):
        """Return logits [batch, classes] for images [batch, height, width, 3]."""
        norm = nn.BatchNorm(use_running_average=not train, momentum=0.9)
        x = nn.relu(norm(conv(self.features, (3, 3))(x)))
        for stage, count in enumerate(self.blocks):
            for i in range(count):
                x = Residual(self.features * 2**stage, 2 if stage and not i else 1)(x, train)
        return nn.Dense(self.classes)(x.mean(axis=(1, 2)))


class WideResidual(nn.Module):
    """Two convolutions, each after its norm, with dropout between them and a shortcut."""

    features: int
    stride: int
    dropout: float

    @nn.compact
    def __call__(self, x, train):
        norm = partial(nn.BatchNorm, use_running_average=not train, momentum=0.9)
        y = nn.relu(norm()(x))
        if x.shape[-1] != self.features or self.stride > 1:
            x = conv(self.features, (1, 1), self.stride)(y)
        y = conv(self.features, (3, 3), self.stride)(y)
        y = nn.Dropout(self.dropout, deterministic=not train)(nn.relu(norm()(y)))
        return x + conv(self.features, (3, 3))(y)


class WideResNet(nn.Module):
    """WRN-depth-width: three stages of (depth - 4) / 6 blocks of 16, 32, 64 x width features."""

    depth: int = 28
    width: int = 10
    dropout: float = 0.0
    classes: int = 10

    @nn.compact
    def __call__(self, x, train=False):
        """Return logits [batch, classes] for images [batch, height, width, 3]."""
        if (self.depth - 4) % 6:
            raise ValueError(f"WideResNet: needed a depth of the form 6 n + 4, got {self.depth}")
        x = conv(16, (3, 3))(x)
        for stage in range(3):
            for i in range((self.depth - 4) // 6):
                features, stride = 16 * self.width * 2**stage, 2 if stage and not i else 1
                x = WideResidual(features, stride, self.dropout)(x, train)
        x = nn.relu(nn.BatchNorm(use_running_average=not train, momentum=0.9)(x))
        return nn.Dense(self.classes)(jnp.mean(x, axis=(1, 2)))
