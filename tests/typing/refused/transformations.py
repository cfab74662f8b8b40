"""Mistakes in the use of transformations."""
import toile
import toile.numpy as jnp
from toile import Array


def loss(x: Array, scale: float) -> Array:
    """A loss."""
    return jnp.sum(x) * scale

x = jnp.ones(3)
toile.jit(loss)(x)  # error: scale is missing
toile.jit(loss)(x, 1.0, 2.0)  # error: too many
toile.jit(loss)(x, "large")  # error: no number
toile.grad(loss)(x, sclae=1.0)  # error: misspelled
toile.vmap(3)  # error: no function
toile.jit(loss, static_args=1)  # error: no such option
value: int = toile.jit(loss)(x, 1.0)  # error: it is an array
toile.value_and_grad(loss)(x, 1.0)[0].foo  # error: no such attribute
