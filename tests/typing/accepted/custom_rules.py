"""Derivatives of one's own."""
import toile
import toile.numpy as jnp
from toile import Array


@toile.custom_vjp
def clip_gradient(x: Array, limit: float) -> Array:
    """x, with a gradient of limited size."""
    return x

def forward(x, limit):
    """Keep the limit."""
    return x, limit

def backward(limit, ct):
    """Limit the cotangent."""
    return jnp.clip(ct, -limit, limit), None

clip_gradient.defvjp(forward, backward)

@toile.custom_jvp
def log1pexp(x: Array) -> Array:
    """log(1 + exp(x))."""
    return jnp.log(1.0 + jnp.exp(x))

@log1pexp.defjvp
def log1pexp_jvp(primals, tangents):
    """A stable derivative."""
    (x,), (dx,) = primals, tangents
    return log1pexp(x), (1 - 1 / (1 + jnp.exp(x))) * dx

slope = toile.grad(lambda x: clip_gradient(x, 0.1).sum())(jnp.ones(3))
