"""A program with mctx; `results` are compared with those on JAX."""

import jax
import jax.numpy as jnp
import mctx


def rec(params, key, action, emb):
    return mctx.RecurrentFnOutput(
        reward=emb.astype(jnp.float32) * 0.1,
        discount=jnp.ones_like(emb, jnp.float32),
        prior_logits=jnp.zeros((2, 3)),
        value=emb.astype(jnp.float32),
    ), emb + action


root = mctx.RootFnOutput(
    prior_logits=jnp.zeros((2, 3)), value=jnp.zeros(2), embedding=jnp.zeros(2, jnp.int32)
)
o = jax.jit(lambda k: mctx.muzero_policy((), k, root, rec, num_simulations=16))(
    jax.random.PRNGKey(0)
)
results = [o.action, o.action_weights]
