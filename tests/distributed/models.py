"""What is trained in these tests, on one process and on many."""

import numpy as np

import toile
from toile import linen as nn
from toile import optim
from toile.training.train_state import TrainState

BATCH = 16


class MLP(nn.Module):
    """Two layers."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(5)(nn.tanh(nn.Dense(32)(x.reshape(x.shape[0], -1))))


class CNN(nn.Module):
    """A convolution and two layers."""

    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(4, (3, 3))(x))
        x = nn.avg_pool(x, (2, 2), (2, 2))
        return nn.Dense(5)(nn.relu(nn.Dense(16)(x.reshape(x.shape[0], -1))))


class Transformer(nn.Module):
    """A block of attention over the rows of an image."""

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(16)(x[..., 0])
        x = x + nn.MultiHeadDotProductAttention(2)(nn.LayerNorm()(x))
        x = x + nn.Dense(16)(nn.gelu(nn.Dense(32)(nn.LayerNorm()(x))))
        return nn.Dense(5)(x.mean(1))


MODELS = {"mlp": MLP, "cnn": CNN, "transformer": Transformer}


def batches(model, steps):
    """Images and what they show."""
    random = np.random.default_rng(0)
    for _ in range(steps):
        x = random.normal(size=(BATCH, 8, 8, 1)).astype(np.float32)
        yield {"x": x, "label": (x[:, :4].sum((1, 2, 3)) > 0).astype(np.int32)}


def start(model):
    """A fresh state."""
    network = MODELS[model]()
    params = network.init(toile.random.key(0), np.zeros((1, 8, 8, 1), np.float32))["params"]
    return TrainState.create(apply_fn=network.apply, params=params, tx=optim.adam(1e-2))


def train_step(state, batch):
    """One step of one device."""

    def loss_of(params):
        logits = state.apply_fn({"params": params}, batch["x"])
        losses = optim.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
        return losses.mean()

    loss, grads = toile.value_and_grad(loss_of)(state.params)
    return state.apply_gradients(grads=grads), {"loss": loss}
