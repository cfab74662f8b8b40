"""Loops and branches."""
import toile.numpy as jnp
from toile import Array, lax


def step(carry: Array, x: Array) -> tuple[Array, Array]:
    """A running sum."""
    carry = carry + x
    return carry, carry

total, sums = lax.scan(step, jnp.zeros(()), jnp.arange(5.0))
count = lax.while_loop(lambda n: n < 10, lambda n: n + 3, 0)
power = lax.fori_loop(0, 5, lambda i, y: y * 2, 1)
chosen = lax.cond(total > 3, lambda x: x, lambda x: -x, total)
picked = lax.switch(1, [jnp.sin, jnp.cos], total)
mapped = lax.map(lambda x: x**2, jnp.arange(3.0))
