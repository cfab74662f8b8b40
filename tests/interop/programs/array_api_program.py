"""A program with array_api_compat; `results` are compared with those on JAX."""

import array_api_compat as aac
import jax.numpy as jnp

x = jnp.arange(6.0).reshape(2, 3)
assert aac.is_jax_array(x) and aac.is_array_api_obj(x)
xp = aac.array_namespace(x)
results = [
    xp.sum(x, axis=0),
    aac.size(x) * 1.0,
    xp.linalg.vector_norm(x) if hasattr(xp.linalg, "vector_norm") else xp.sqrt(xp.sum(x * x)),
]
