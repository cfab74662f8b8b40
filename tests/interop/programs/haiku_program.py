"""A program with haiku; `results` are compared with those on JAX."""

import haiku as hk
import jax
import jax.numpy as jnp


def net(x, is_training):
    x = hk.Sequential([hk.Linear(8), jax.nn.relu])(x)
    x = hk.BatchNorm(True, True, 0.9)(x, is_training)
    x = hk.dropout(hk.next_rng_key(), 0.2, x)
    return hk.LSTM(4)(x, hk.LSTM(4).initial_state(3))[0]


f = hk.transform_with_state(net)
k = jax.random.PRNGKey(0)
x = jax.random.normal(k, (3, 5))
p, s = f.init(k, x, True)
y, s = f.apply(p, s, k, x, True)
g = jax.grad(lambda p: f.apply(p, s, k, x, True)[0].sum())(p)
results = [y, sum(jnp.sum(jnp.abs(v)) for v in jax.tree.leaves(g))]
