"""A program with blackjax; `results` are compared with those on JAX."""

import blackjax
import jax
import jax.numpy as jnp

lp = lambda x: -0.5 * jnp.sum(x**2)
k = blackjax.hmc(lp, step_size=0.1, inverse_mass_matrix=jnp.ones(2), num_integration_steps=5)
s = k.init(jnp.ones(2))


def one(s, key):
    s, _ = k.step(key, s)
    return s, s.position


_, xs = jax.lax.scan(one, s, jax.random.split(jax.random.PRNGKey(0), 20))
results = [xs]
