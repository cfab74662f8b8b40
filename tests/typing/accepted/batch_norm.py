"""Mutable collections: batch statistics."""
import toile.linen as nn
import toile.numpy as jnp
from toile import Array, random


class Net(nn.Module):
    """Convolution, normalization, pooling."""

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        """Logits of images."""
        x = nn.Conv(16, kernel_size=(3, 3), strides=2, padding="SAME")(x)
        x = nn.BatchNorm(use_running_average=not train, momentum=0.9)(x)
        x = nn.max_pool(nn.relu(x), (2, 2), strides=(2, 2))
        return nn.Dense(10)(x.reshape((x.shape[0], -1)))

net = Net()
variables = net.init(random.key(0), jnp.zeros((1, 8, 8, 3)), train=False)
logits, updates = net.apply(variables, jnp.zeros((4, 8, 8, 3)), train=True, mutable=["batch_stats"])
variables = {**variables, **updates}
