"""A program with grain; `results` are compared with those on JAX."""

import grain.python as g
import jax.numpy as jnp
import numpy as np

d = g.MapDataset.range(10).shuffle(seed=1).map(lambda x: x * 2).batch(5)
results = [jnp.asarray(np.asarray(d[0])), jnp.asarray(np.asarray(d[1]))]
