"""A program with jaxtyping; `results` are compared with those on JAX."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

assert (
    isinstance(jnp.ones((2, 3)), Float[Array, "a b"])
    and not isinstance(jnp.ones((2, 3)), Int[Array, "a b"])
    and not isinstance(jnp.ones(2), Float[Array, "a b"])
)
results = [1.0]
