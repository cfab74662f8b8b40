"""A program of early 2020: modules of `flax.nn`, state, and an optimizer with a model."""

import jax
import jax.numpy as np
import numpy as onp
from flax import nn, optim
from jax import random

RATE, CLASSES, SIZE = 0.1, 3, 6


class Block(nn.Module):
    def apply(self, x, filters, norm):
        y = nn.Conv(x, filters, (3, 3), bias=False, name="conv")
        return nn.relu(norm(y, name="norm"))


class Net(nn.Module):
    def apply(self, x, train=True):
        norm = nn.BatchNorm.partial(momentum=0.9, use_running_average=not train)
        shared = nn.Dense.shared(features=8, name="shared")
        x = Block(x, 4, norm)
        x = nn.max_pool(x, (2, 2), strides=(2, 2))
        x = nn.relu(shared(shared(x.reshape((x.shape[0], -1)).mean(1, keepdims=True) * np.ones(8))))
        x = nn.dropout(x, rate=0.1, deterministic=not train)
        return nn.log_softmax(nn.Dense(x, CLASSES))


def batch(seed):
    draw = onp.random.RandomState(seed)
    label = draw.randint(0, CLASSES, 16)
    image = draw.rand(16, SIZE, SIZE, 1) * 0.1 + label[:, None, None, None]
    return {"image": image.astype(onp.float32), "label": label}


@jax.jit
def step(optimizer, state, data, key):
    def loss_of(model):
        with nn.stateful(state) as new_state, nn.stochastic(key):
            scores = model(data["image"])
        return -np.mean(scores[np.arange(16), data["label"]]), new_state

    (loss, state), grad = jax.value_and_grad(loss_of, has_aux=True)(optimizer.target)
    return optimizer.apply_gradient(grad), state, loss


key = random.PRNGKey(0)
with nn.stateful() as state, nn.stochastic(key):
    _, params = Net.init_by_shape(key, [((1, SIZE, SIZE, 1), np.float32)])
optimizer = optim.Momentum(learning_rate=RATE, beta=0.9).create(nn.Model(Net, params))
losses = []
for i in range(30):
    optimizer, state, loss = step(optimizer, state, batch(i), random.fold_in(key, i))
    losses.append(float(loss))

with nn.stateful(state, mutable=False):
    test = nn.Model(Net.partial(train=False), optimizer.target.params)
    scores = test(batch(99)["image"])

assert sorted(params) == ["Block_0", "Dense_1", "shared"], sorted(params)
assert sorted(state.as_dict()) == ["/Block_0/norm"]
assert scores.shape == (16, CLASSES)
print(losses[0], sum(losses[-5:]) / 5)
