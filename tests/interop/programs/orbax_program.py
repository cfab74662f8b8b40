"""A program with orbax.checkpoint; `results` are compared with those on JAX."""

import tempfile

import jax.numpy as jnp
import orbax.checkpoint as ocp

d = tempfile.mkdtemp() + "/c"
c = ocp.PyTreeCheckpointer()
t = {"a": jnp.arange(3.0), "b": {"c": jnp.ones((2, 2))}}
c.save(d, t)
r = c.restore(d)
results = [r["a"], r["b"]["c"]]
