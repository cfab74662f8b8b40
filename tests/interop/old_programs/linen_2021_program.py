"""A program of 2021: `flax.linen` with `flax.optim`, FrozenDicts, `jax.tree_multimap`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import jax_utils, optim
from flax import linen as nn
from flax.core import FrozenDict
from flax.training import common_utils, lr_schedule
from jax import lax
from jax.config import config
from jax.experimental import host_callback as hcb

config.enable_omnistaging()
seen = []


class Model(nn.Module):
    train: bool = True

    @nn.compact
    def __call__(self, x):
        cell = nn.LSTMCell()
        carry = nn.LSTMCell.initialize_carry(jax.random.PRNGKey(0), x.shape[:1], 4)
        for i in range(x.shape[1]):
            carry, y = cell(carry, x[:, i])
        y = nn.BatchNorm(use_running_average=not self.train, axis_name="batch")(y)
        return nn.Dense(1)(y)


def pieces(seed):
    x = np.random.RandomState(seed).randn(8, 3, 2).astype(np.float32)
    return common_utils.shard({"x": x, "y": x.sum((1, 2))[:, None]})


@functools.partial(jax.pmap, axis_name="batch")
def train_step(optimizer, state, batch):
    def loss_of(params):
        y, new_state = Model().apply({"params": params, **state}, batch["x"], mutable=list(state))
        return jnp.mean((y - batch["y"]) ** 2), new_state

    (loss, state), grad = jax.value_and_grad(loss_of, has_aux=True)(optimizer.target)
    grad = lax.pmean(grad, "batch")
    hcb.id_tap(lambda value, transforms: seen.append(float(value)), optimizer.state.step)
    rate = schedule(optimizer.state.step)
    return optimizer.apply_gradient(grad, learning_rate=rate), state, lax.pmean(loss, "batch")


schedule = lr_schedule.create_constant_learning_rate_schedule(0.05, 1, warmup_length=2)
variables = Model(train=False).init(jax.random.PRNGKey(0), jnp.ones((1, 3, 2), jnp.float32))
assert isinstance(variables, FrozenDict)
state, params = variables.pop("params")
optimizer = jax_utils.replicate(optim.Adam(weight_decay=1e-4).create(params))
state = jax_utils.replicate(state)
losses = []
for i in range(40):
    optimizer, state, loss = train_step(optimizer, state, pieces(i))
    losses.append(float(jax_utils.unreplicate(loss)))
hcb.barrier_wait()
moved = jax.tree_multimap(lambda a, b: a - b, jax_utils.unreplicate(optimizer).target, params)
assert len(seen) >= 40
assert max(jnp.abs(x).max() for x in jax.tree_leaves(moved)) > 0
print(losses[0], sum(losses[-5:]) / 5)
