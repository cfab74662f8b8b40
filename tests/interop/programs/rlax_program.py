"""A program with rlax; `results` are compared with those on JAX."""

import jax
import jax.numpy as jnp
import rlax

results = [
    rlax.td_learning(jnp.array(1.0), jnp.array(0.5), jnp.array(0.9), jnp.array(2.0)),
    rlax.lambda_returns(
        jnp.arange(4.0), jnp.ones(4) * 0.9, jnp.arange(4.0) + 0.5, jnp.ones(4) * 0.8
    ),
    jax.vmap(rlax.double_q_learning)(
        jnp.ones((2, 3)),
        jnp.array([0, 1]),
        jnp.ones(2),
        jnp.ones(2) * 0.9,
        jnp.arange(6.0).reshape(2, 3),
        jnp.arange(6.0).reshape(2, 3)[:, ::-1],
    ),
    rlax.vtrace(
        jnp.arange(4.0), jnp.arange(4.0), jnp.ones(4), jnp.ones(4) * 0.9, jnp.ones(4) * 1.1
    ),
]
