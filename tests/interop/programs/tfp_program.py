"""A program with tensorflow_probability; `results` are compared with those on JAX."""

import jax
import jax.numpy as jnp
from tensorflow_probability.substrates import jax as tfp

d = tfp.distributions
n = d.MultivariateNormalTriL(jnp.zeros(2), jnp.eye(2))
results = [
    n.log_prob(jnp.ones(2)),
    d.Gamma(2.0, 1.0).sample(3, seed=jax.random.PRNGKey(0)),
    d.Normal(0.0, 1.0).kl_divergence(d.Normal(1.0, 2.0)),
    jax.grad(lambda a: d.Beta(a, 2.0).log_prob(0.3))(2.0),
]
