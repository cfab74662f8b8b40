"""A program with optimistix; `results` are compared with those on JAX."""

import jax.numpy as jnp
import optimistix as o

s = o.least_squares(
    lambda y, a: y**2 - a, o.LevenbergMarquardt(1e-6, 1e-6), jnp.ones(2), args=jnp.array([2.0, 3.0])
)
r = o.root_find(lambda y, a: jnp.cos(y) - y, o.Newton(1e-6, 1e-6), jnp.array(0.5))
m = o.minimise(lambda y, a: jnp.sum((y - 1) ** 4 + y**2), o.BFGS(1e-5, 1e-5), jnp.zeros(2))
results = [s.value, r.value, m.value]
