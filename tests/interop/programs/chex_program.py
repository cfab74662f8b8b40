"""A program with chex; `results` are compared with those on JAX."""

import chex
import jax
import jax.numpy as jnp


@chex.dataclass
class S:
    a: jax.Array
    b: jax.Array


s = S(a=jnp.arange(3.0), b=jnp.ones((2, 2)))
chex.assert_shape(s.b, (2, 2))
chex.assert_tree_all_finite(s)
s2 = jax.tree.map(lambda x: x * 2 + 1, s)


@jax.jit
@chex.assert_max_traces(n=1)
def f(x):
    return jnp.sin(x)


results = [s2.a, s2.b, f(s2.a)]
