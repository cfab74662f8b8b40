"""A program with flashbax; `results` are compared with those on JAX."""

import flashbax as fbx
import jax
import jax.numpy as jnp

b = fbx.make_flat_buffer(max_length=32, min_length=2, sample_batch_size=4)
s = b.init({"o": jnp.zeros(2), "r": jnp.zeros(())})
for i in range(6):
    s = b.add(s, {"o": jnp.ones(2) * i, "r": jnp.array(i * 1.0)})
results = [b.sample(s, jax.random.PRNGKey(0)).experience.first["o"]]
