"""A program with jaxopt; `results` are compared with those on JAX."""

import jax.numpy as jnp
import jaxopt

s = jaxopt.LBFGS(lambda w: jnp.sum((w - jnp.arange(3.0)) ** 2)).run(jnp.zeros(3)).params
r = jaxopt.Bisection(lambda x: x**3 - 2, 0.0, 2.0).run().params
results = [s, r, jaxopt.projection.projection_simplex(jnp.array([0.5, 1.0, 2.0]))]
