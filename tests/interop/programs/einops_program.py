"""A program with einops; `results` are compared with those on JAX."""

import einops
import jax
import jax.numpy as jnp

x = jnp.arange(24.0).reshape(2, 3, 4)
results = [
    einops.rearrange(x, "a b c -> (a c) b"),
    einops.reduce(x, "a b c -> a", "mean"),
    jax.jit(lambda x: einops.repeat(x, "a b c -> a b c d", d=2))(x),
    einops.einsum(x, x, "a b c, a d c -> b d"),
]
