"""A program with evosax; `results` are compared with those on JAX."""

import jax
import jax.numpy as jnp
from evosax.algorithms import CMA_ES

es = CMA_ES(population_size=8, solution=jnp.zeros(3))
p = es.default_params
k = jax.random.PRNGKey(0)
s = es.init(k, jnp.zeros(3), p)
for _ in range(5):
    x, s = es.ask(k, s, p)
    s, m = es.tell(k, x, jnp.sum((x - 1) ** 2, -1), s, p)
results = [s.mean]
