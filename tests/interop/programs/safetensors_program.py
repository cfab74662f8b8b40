"""A program with safetensors; `results` are compared with those on JAX."""

import jax
import jax.numpy as jnp
from safetensors.flax import load, save

b = save({"a": jnp.arange(3.0), "b": jnp.ones((2, 2), jnp.float16)})
d = load(b)
assert isinstance(d["a"], jax.Array)
results = [d["a"], d["b"].astype(jnp.float32)]
