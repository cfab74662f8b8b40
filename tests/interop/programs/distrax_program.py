"""A program with distrax; `results` are compared with those on JAX."""

import distrax
import jax
import jax.numpy as jnp

d = distrax.MultivariateNormalDiag(jnp.zeros(3), jnp.ones(3) * 2)
x, lp = d.sample_and_log_prob(seed=jax.random.PRNGKey(0), sample_shape=(4,))
b = distrax.Chain(
    [distrax.ScalarAffine(1.0, 2.0), distrax.Block(distrax.Tanh(), 0)]
    if False
    else [distrax.Tanh(), distrax.ScalarAffine(1.0, 2.0)]
)
t = distrax.Transformed(distrax.Normal(0.0, 1.0), b)
results = [
    x,
    lp,
    t.log_prob(jnp.array([0.1, 0.2])),
    distrax.Categorical(logits=jnp.arange(3.0)).entropy(),
    jax.grad(lambda m: distrax.Normal(m, 1.0).kl_divergence(distrax.Normal(0.0, 1.0)))(2.0),
]
