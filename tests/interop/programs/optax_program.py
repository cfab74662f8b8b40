"""A program with optax; `results` are compared with those on JAX."""

import jax
import jax.numpy as jnp
import optax

p = {"w": jnp.array([1.0, -2.0, 3.0])}
tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.cosine_decay_schedule(0.1, 50)))
s = tx.init(p)


@jax.jit
def step(p, s):
    l, g = jax.value_and_grad(lambda p: jnp.sum((p["w"] - 1) ** 2))(p)
    u, s = tx.update(g, s, p)
    return optax.apply_updates(p, u), s, l


for _ in range(30):
    p, s, l = step(p, s)
results = [l, p["w"]]
