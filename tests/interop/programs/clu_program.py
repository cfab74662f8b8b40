"""A program with clu; `results` are compared with those on JAX."""

import flax
import jax.numpy as jnp
from clu import metrics


@flax.struct.dataclass
class M(metrics.Collection):
    acc: metrics.Accuracy
    loss: metrics.Average.from_output("loss")


m = M.single_from_model_output(
    logits=jnp.array([[1.0, 2.0], [3.0, 1.0]]), labels=jnp.array([1, 1]), loss=jnp.array([0.5, 0.7])
)
results = list(m.compute().values())
