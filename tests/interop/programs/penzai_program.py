"""A program with penzai; `results` are compared with those on JAX."""

import jax
import jax.numpy as jnp
from penzai import pz
from penzai.models import simple_mlp

m = simple_mlp.MLP.from_config(
    name="m", init_base_rng=jax.random.PRNGKey(0), feature_sizes=[3, 4, 2]
)
x = pz.nx.wrap(jnp.ones((2, 3)), "b", "features")
results = [m(x).unwrap("b", "features")]
