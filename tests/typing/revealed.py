"""What checkers infer: each line reveals a type, and the comment says which (mypy's | pyright's)."""

import functools
from typing import Any

import toile
import toile.linen as nn
import toile.numpy as jnp
from toile import Array, lax, optim, random

x = jnp.zeros((3, 4))
reveal_type(x)  # Array
reveal_type(x.shape)  # tuple[int, ...]
reveal_type(x.ndim)  # int
reveal_type(x.T)  # Array
reveal_type(x + 1)  # Array
reveal_type(1 - x)  # Array
reveal_type(x @ x.T)  # Array
reveal_type(x == 0)  # Array
reveal_type(-x)  # Array
reveal_type(x[0, 1:])  # Array
reveal_type(x.sum(axis=0))  # Array
reveal_type(x.reshape(-1))  # Array
reveal_type(x.astype(jnp.float32))  # Array
reveal_type(x.at[0].set(1.0))  # Array
reveal_type(x.mean())  # Array
reveal_type(float(x.mean()))  # float
reveal_type(jnp.exp(x))  # Array
reveal_type(jnp.sum(x, axis=0))  # Array
reveal_type(jnp.concatenate([x, x]))  # Array
reveal_type(jnp.where(x > 0, x, 0))  # Array
reveal_type(jnp.linalg.norm(x))  # Array
reveal_type(lax.dot(x, x.T))  # Array
reveal_type(random.normal(random.key(0), (3,)))  # Array
reveal_type(nn.relu(x))  # Array
reveal_type(nn.Dense(4))  # Dense


def loss(params: dict[str, Array], x: Array) -> Array:
    """A loss."""
    return jnp.sum(params["w"] * x)


def loss_with_count(params: dict[str, Array], x: Array) -> tuple[Array, int]:
    """A loss and how many elements it is about."""
    return loss(params, x), x.size


params = {"w": x}
reveal_type(toile.jit(loss)(params, x))  # Array
reveal_type(toile.vmap(loss)(params, x))  # Array
reveal_type(toile.checkpoint(loss)(params, x))  # Array
reveal_type(toile.value_and_grad(loss)(params, x))  # tuple[Array, Any]
reveal_type(toile.value_and_grad(loss_with_count, has_aux=True)(params, x))  # tuple[tuple[Array, int], Any]
reveal_type(toile.grad(loss_with_count, has_aux=True)(params, x))  # tuple[Any, int]
reveal_type(toile.jvp(loss, (params, x), (params, x)))  # tuple[Array, Array]
reveal_type(toile.vjp(loss, params, x)[0])  # Array
reveal_type(toile.jit(loss).why())  # list[str]


@toile.jit
def doubled(x: Array, times: int = 1) -> Array:
    """A decorated function."""
    return 2 * x * times


@toile.jit(static_argnames="times")
def repeated(x: Array, times: int) -> Array:
    """A function decorated with options."""
    return jnp.tile(x, times)


@functools.partial(toile.jit, static_argnums=1)
def padded(x: Array, count: int) -> Array:
    """A function decorated by a partial, as much code does."""
    return jnp.pad(x, count)


@toile.custom_vjp
def clipped(x: Array) -> Array:
    """A function with a rule of its own."""
    return jnp.clip(x, -1, 1)


class Scaler:
    """A class with a compiled method."""

    @toile.jit
    def scaled(self, x: Array) -> Array:
        """A compiled method."""
        return 3 * x


reveal_type(doubled(x))  # Array
reveal_type(repeated(x, 2))  # Array
reveal_type(padded(x, 2))  # Any | Array
reveal_type(clipped(x))  # Array
reveal_type(Scaler().scaled(x))  # Array

unknown: Any = doubled  # such as a method of a model whose class is not known
reveal_type(toile.jit(unknown)(x, 2))  # Any
reveal_type(toile.checkpoint(unknown)(x, 2))  # Any
reveal_type(toile.debug.step(unknown)(x, 2))  # Any

tx = optim.adam(1e-3)
reveal_type(tx.init({}))  # Any
