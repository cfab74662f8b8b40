"""Gradients of functions of several arguments, with auxiliary results."""
import toile
import toile.numpy as jnp
from toile import Array


def f(w: Array, b: Array, x: Array) -> tuple[Array, dict[str, Array]]:
    """A loss with metrics."""
    y = x @ w + b
    return jnp.mean(y**2), {"largest": y.max()}

w, b, x = jnp.ones((3, 2)), jnp.zeros(2), jnp.ones((5, 3))
(loss, metrics), (dw, db) = toile.value_and_grad(f, argnums=(0, 1), has_aux=True)(w, b, x)
largest: Array = metrics["largest"]
gradient, aux = toile.grad(f, has_aux=True)(w, b, x)
jacobian = toile.jacrev(lambda w: x @ w)(w)
hessian = toile.hessian(lambda b: jnp.sum(b**2))(b)
value, tangent = toile.jvp(jnp.sin, (1.0,), (1.0,))
out, pullback = toile.vjp(lambda w: x @ w, w)
(back,) = pullback(out)
