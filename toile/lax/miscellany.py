"""Other functions: `stop_gradient`, polynomials, barriers, sharding constraints and tokens.

This module may import the engine, primitives, parallel and other modules of `lax`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.annotations import ArrayLike, PyTree
from toile.engine.arrays import Array, DeviceArray
from toile.engine.source import here
from toile.engine.trace import state
from toile.engine.trees import broadcast_prefix, flatten, register, tree_map, unflatten
from toile.lax import elementwise, shapes
from toile.lax._operands import operand
from toile.lax.conversion import convert_element_type
from toile.parallel.meshes import mesh_in_force
from toile.parallel.placement import constrained
from toile.parallel.specs import PartitionSpec
from toile.primitives.barriers import stop_gradient as _stop_gradient
from toile.primitives.shapes import optimization_barrier as _barrier

__all__ = [
    "Token", "after_all", "composite", "create_token", "dce_sink", "optimization_barrier",
    "polynomial", "stage", "stop_gradient", "with_sharding_constraint",
]  # fmt: skip


def stop_gradient(x: PyTree) -> PyTree:
    """Return the given values unchanged, but treat them as constants in differentiation.

    Args:
        x: array or number, or a tree of arrays and numbers.

    Returns:
        The same tree. No gradient flows through its float and complex leaves.

    >>> toile.grad(lambda x: x * lax.stop_gradient(x))(3.0)
    Array(3., dtype=float32, weak_type=True)
    """
    return tree_map(_stopped, x)


def _stopped(x: Any) -> Any:
    a = x if isinstance(x, Array) else operand("stop_gradient", x)
    if not dtypes.is_inexact(a.dtype):
        return x
    return a if state.trace is None else _stop_gradient(a)


def polynomial(x: ArrayLike, coeffs: Sequence[ArrayLike], *, unroll: int | None = None) -> Array:
    """Evaluate a polynomial by Horner's rule.

    Args:
        x: points at which to evaluate the polynomial: an array or number.
        coeffs: the coefficients, lowest power first. They are converted to the dtype of `x`.
        unroll: ignored.

    Returns:
        An array with the dtype of `x`: the sum of `coeffs[k] * x**k`, or 0 if there are no
        coefficients.

    >>> lax.polynomial(3.0, [1.0, 5.0, 2.0])
    Array(34., dtype=float32, weak_type=True)
    """
    x = operand("polynomial", x)
    if not len(coeffs):
        return shapes.full_like(x, 0)
    terms = [_coefficient(c, x) for c in coeffs]
    total = terms.pop()
    if not terms:
        shape = np.broadcast_shapes(x.shape, total.shape)
        return shapes.broadcast_in_dim(
            total, shape, range(len(shape) - total.ndim, len(shape)))
    for c in reversed(terms):
        total = elementwise.add(elementwise.mul(total, x), c)
    return total


def _coefficient(c: Any, x: Any) -> Any:
    if not isinstance(c, Array) and np.ndim(c) == 0:
        return DeviceArray(np.asarray(c, x.dtype), x.weak_type)
    return convert_element_type(c, x.dtype)


def optimization_barrier(operand: PyTree, /) -> PyTree:
    """Return the given values unchanged, but keep the compiler from optimizing across this point.

    Computations before the barrier are not fused with computations after it, and no computation is
    moved across it.

    Args:
        operand: array or number, or a tree of arrays and numbers.

    Returns:
        The same tree.

    >>> toile.jit(lambda x: lax.optimization_barrier(x + 1) * 2)(3)
    Array(8, dtype=int32, weak_type=True)
    """
    leaves, tree = flatten(operand)
    return unflatten(tree, _barrier(*leaves) if leaves else [])


def stage(x: ArrayLike, /) -> Array:
    """Convert a number or NumPy array to a toile array.

    Args:
        x: array or number.

    Returns:
        An array with the same values.

    >>> lax.stage(2.5)
    Array(2.5, dtype=float32, weak_type=True)
    """
    return operand("stage", x)


def dce_sink(val: PyTree, *, prevent_mlir_dce: bool = False) -> None:
    """Accept a value and do nothing.

    In JAX, this function keeps the compiler from removing a computation whose result is unused. In
    toile, it has no effect.

    Args:
        val: array or number, or a tree of arrays and numbers.
        prevent_mlir_dce: ignored.

    >>> lax.dce_sink(jnp.array([1, 2]))
    """


def with_sharding_constraint(x: PyTree, shardings: PyTree) -> PyTree:
    """Set how values are divided among devices, even in the middle of a compiled function.

    Under `toile.jit`, this function sets the sharding of an intermediate result. Outside
    `toile.jit`, it moves the values immediately.

    Args:
        x: array or number, or a tree of arrays and numbers.
        shardings: a `Sharding`, or a tree of shardings whose structure is the structure of `x` or a
            prefix of it. If a mesh is set (`toile.set_mesh`), a sharding can also be a
            `PartitionSpec` for this mesh, or None to put the whole array on every device.

    Returns:
        A tree of the same values, divided among devices as requested.

    Raises:
        RuntimeError: a `PartitionSpec` is given and no mesh is set.
        ValueError: None is given and no mesh is set.

    >>> from toile.sharding import NamedSharding, PartitionSpec
    >>> mesh = toile.make_mesh((1,), ("data",), devices=toile.devices()[:1])
    >>> x = lax.with_sharding_constraint(jnp.arange(4), NamedSharding(mesh, PartitionSpec("data")))
    >>> x.sharding.spec
    P('data',)
    """
    leaves, tree = flatten(x)
    given = broadcast_prefix(shardings, x, is_leaf=lambda s: s is None)
    if not mesh_in_force().empty:
        given = [PartitionSpec() if s is None else s for s in given]
    elif any(s is None for s in given):
        raise ValueError("One of with_sharding_constraint arguments got sharding None which is not "
                         "allowed: needed a Sharding, or a current mesh (use "
                         f"toile.set_mesh){here()}")
    elif any(isinstance(s, PartitionSpec) for s in given):
        raise RuntimeError("with_sharding_constraint requires a non-empty mesh in context if you "
                           f"are passing `PartitionSpec`s to shardings, got {shardings} (use "
                           f"toile.set_mesh, or pass a NamedSharding){here()}")
    return unflatten(tree, [constrained(v, s) for v, s in zip(leaves, given, strict=True)])


def composite(decomposition: Callable[..., Any], name: str, version: int = 0) -> Callable[..., Any]:
    """Give a function a name by which a compiler can recognize and replace the function.

    toile never replaces the function: the returned function always calls `decomposition`.

    Args:
        decomposition: the function.
        name: the name of the function; ignored.
        version: the version of the function; ignored.

    Returns:
        A function that returns the same results as `decomposition`.

    >>> lax.composite(lambda x: x * jnp.sin(x), name="my.x_sin_x")(2.0)
    Array(1.8185948, dtype=float32, weak_type=True)
    """

    @functools.wraps(decomposition)
    def named(*args: Any, **kwargs: Any) -> Any:
        return decomposition(*args, **kwargs)

    return named


class Token:
    """An object that marks a point in the order of side effects.

    JAX orders side effects by passing tokens to functions, which return new tokens. In toile,
    tokens have no effect and exist only for compatibility with JAX. A token is a tree without
    leaves, so traced functions can accept and return it.

    >>> isinstance(lax.create_token(), lax.Token)
    True
    """

    def block_until_ready(self) -> Token:
        """Return the token immediately, because there is nothing to wait for."""
        return self


# Traced functions accept and return tokens, for which their programs have no operands.
register(Token, lambda token: ((), None), lambda _, children: Token())


def create_token(_: Any = None) -> Token:
    """Create a token (see `Token`) that does not follow any other token.

    Returns:
        A new token.

    >>> isinstance(lax.create_token(), lax.Token)
    True
    """
    return Token()


def after_all(*operands: Token) -> Token:
    """Create a token that follows other tokens.

    Args:
        operands: the tokens that the new token follows.

    Returns:
        A new token.

    >>> isinstance(lax.after_all(lax.create_token(), lax.create_token()), lax.Token)
    True
    """
    if any(not isinstance(t, Token) for t in operands):
        raise TypeError("Arguments to after_all must be tokens: needed results of create_token, "
                        f"got {[type(t).__name__ for t in operands]}{here()}")
    return Token()
