"""A program with e3nn_jax; `results` are compared with those on JAX."""

import e3nn_jax as e3nn
import jax
import jax.numpy as jnp

x = e3nn.normal("2x0e+1x1o", jax.random.PRNGKey(0), (3,))
y = e3nn.tensor_product(x, x)
results = [y.array, e3nn.spherical_harmonics("1o+2e", jnp.array([[1.0, 2.0, 3.0]]), True).array]
