"""Compiled functions with static and donated arguments."""
import functools

import toile
import toile.numpy as jnp
from toile import Array


@functools.partial(toile.jit, static_argnames=("steps",), donate_argnums=0)
def walk(x: Array, steps: int) -> Array:
    """Steps of a walk."""
    for _ in range(steps):
        x = x + 1
    return x

@toile.jit
def norm(x: Array) -> Array:
    """The norm."""
    return jnp.sqrt(jnp.vdot(x, x))

y = walk(jnp.zeros(3), steps=2)
print(norm(y), norm.why(), norm.lower(y).as_text())
shape = toile.eval_shape(norm, y)
norm.clear_cache()
