"""A program as written for JAX in 2020: `stax`, `optimizers`, `custom_transforms`, `index_add`."""

import itertools

import jax.numpy as np
import numpy.random as npr
from jax import grad, jit, partial, random, tree_util, vmap
from jax.api import custom_transforms, defvjp
from jax.config import config
from jax.experimental import optimizers, stax
from jax.experimental.maps import xmap
from jax.lax import tie_in
from jax.ops import index, index_add
from jax.scipy.special import logsumexp
from jax.util import safe_map, unzip2

map = safe_map
config.update("jax_enable_x64", False)


@custom_transforms
def smooth(x):
    return np.where(x > 0, x, 0.1 * x)


defvjp(smooth, lambda g, ans, x: g * np.where(x > 0, 1.0, 0.5))

init, predict = stax.serial(
    stax.Dense(16), stax.elementwise(smooth), stax.FanOut(2),
    stax.parallel(stax.Dense(3), stax.serial(stax.Dense(3), stax.Tanh)), stax.FanInSum,
    stax.LogSoftmax)
opt_init, opt_update, get_params = optimizers.momentum(0.1, mass=0.9)


def loss(params, batch):
    inputs, targets = batch
    return -np.mean(np.sum(predict(params, inputs) * targets, axis=1))


@jit
def update(i, opt_state, batch):
    return opt_update(i, grad(loss)(get_params(opt_state), batch), opt_state)


def batches():
    for seed in itertools.count():
        draw = npr.RandomState(seed)
        label = draw.randint(3, size=32)
        yield draw.randn(32, 4) + 2 * label[:, None], np.eye(3)[label]


_, params = init(random.PRNGKey(0), (-1, 4))
state = opt_init(params)
data = batches()
first = loss(get_params(state), next(data))
for i, batch in zip(range(40), data):
    state = update(i, state, batch)

counts = index_add(np.zeros(3), index[np.array([0, 0, 2])], 1.0)
assert counts.tolist() == [2.0, 0.0, 1.0]
assert tie_in(1, 2) == 2
assert unzip2([(1, 2), (3, 4)]) == ((1, 3), (2, 4))
assert np.product(np.arange(1, 5)) == 24 and np.in1d(np.array([1, 9]), np.array([9])).any()
total = tree_util.tree_multimap(partial(np.add), {"a": 1.0}, {"a": 2.0})
assert total == {"a": 3.0}
table = xmap(np.vdot, in_axes=(["i", ...], ["j", ...]), out_axes=["i", "j", ...])
rows = np.arange(6.0).reshape(2, 3)
assert np.allclose(table(rows, rows), rows @ rows.T)
assert np.allclose(vmap(lambda x: logsumexp(x))(rows), logsumexp(rows, axis=1))
print(float(first), float(loss(get_params(state), next(data))))
