"""A program with treescope; `results` are compared with those on JAX."""

import jax.numpy as jnp
import treescope

s = treescope.render_to_text({"a": jnp.arange(3.0)})
print(s)
t = treescope.render_to_html(jnp.ones((2, 2)))
results = [1.0 if "3" in s and "arange" not in s else 0.0]
