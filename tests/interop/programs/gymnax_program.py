"""A program with gymnax; `results` are compared with those on JAX."""

import gymnax
import jax

env, p = gymnax.make("CartPole-v1")
k = jax.random.PRNGKey(0)
o, s = env.reset(k, p)
r = env.step(k, s, 0, p)
results = [o, r[0], r[2]]
