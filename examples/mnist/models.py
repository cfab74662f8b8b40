"""The convolutional network of Flax's MNIST example."""

from collections.abc import Sequence

from toile import linen as nn


class CNN(nn.Module):
    """Two convolutions, each with average pooling, and two dense layers."""

    features: Sequence[int] = (32, 64)
    hidden: int = 256
    classes: int = 10

    @nn.compact
    def __call__(self, x):
        """Return logits [batch, classes] for images [batch, height, width, channels]."""
        for channels in self.features:
            x = nn.relu(nn.Conv(channels, kernel_size=(3, 3))(x))
            x = nn.avg_pool(x, window_shape=(2, 2), strides=(2, 2))
        x = x.reshape((x.shape[0], -1))
        x = nn.relu(nn.Dense(self.hidden)(x))
        return nn.Dense(self.classes)(x)
