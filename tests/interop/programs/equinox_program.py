"""A program with equinox; `results` are compared with those on JAX."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

m = eqx.nn.MLP(3, 1, 8, 2, key=jax.random.PRNGKey(0))
x = jax.random.normal(jax.random.PRNGKey(1), (16, 3))
opt = optax.adam(1e-2)
s = opt.init(eqx.filter(m, eqx.is_array))


@eqx.filter_jit
def step(m, s):
    l, g = eqx.filter_value_and_grad(lambda m: jnp.mean((jax.vmap(m)(x)[:, 0] - x.sum(1)) ** 2))(m)
    u, s = opt.update(g, s, m)
    return eqx.apply_updates(m, u), s, l


for _ in range(20):
    m, s, l = step(m, s)
results = [l]
