"""Functions of no family: stopped gradients, barriers, tokens, placement.

May import the engine, primitives, parallel, `_operands` and this package's shapes and elementwise
functions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toile.engine import dtypes
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


def stop_gradient(x: Any) -> Any:
    """The tree, each float or complex leaf a constant to differentiation."""
    return tree_map(_stopped, x)


def _stopped(x: Any) -> Any:
    a = x if isinstance(x, Array) else operand("stop_gradient", x)
    if not dtypes.is_inexact(a.dtype):
        return x
    return a if state.trace is None else _stop_gradient(a)


def polynomial(x: Any, coeffs: Sequence[Any], *, unroll: int | None = None) -> Any:
    """The sum of coeffs[k] x**k, by Horner's rule; `unroll` changes nothing here.

    >>> import toile.lax as lax
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


def optimization_barrier(operand: Any, /) -> Any:
    """The tree; what it is computed from is not mixed with what is computed from it."""
    leaves, tree = flatten(operand)
    return unflatten(tree, _barrier(*leaves) if leaves else [])


def stage(x: Any, /) -> Any:
    """A number or NumPy array as an Array."""
    return operand("stage", x)


def dce_sink(val: Any, *, prevent_mlir_dce: bool = False) -> None:
    """Do nothing with a value: it counts as used."""


def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """The tree, laid out over devices as a sharding (or a tree of them) says.

    A PartitionSpec is one on the mesh in force, and None there the whole array on each device."""
    leaves, tree = flatten(x)
    given = broadcast_prefix(shardings, x, is_leaf=lambda s: s is None)
    if not mesh_in_force().empty:
        given = [PartitionSpec() if s is None else s for s in given]
    elif any(s is None for s in given):
        raise ValueError("One of with_sharding_constraint arguments got sharding None which is not "
                         "allowed: needed a Sharding, or a mesh in force (use "
                         f"toile.set_mesh){here()}")
    elif any(isinstance(s, PartitionSpec) for s in given):
        raise RuntimeError("with_sharding_constraint requires a non-empty mesh in context if you "
                           f"are passing `PartitionSpec`s to shardings, got {shardings} (use "
                           f"toile.set_mesh, or pass a NamedSharding){here()}")
    return unflatten(tree, [constrained(v, s) for v, s in zip(leaves, given, strict=True)])


def composite(decomposition: Callable[..., Any], name: str, version: int = 0) -> Callable[..., Any]:
    """A function that others may know under a name; here it is its decomposition."""

    @functools.wraps(decomposition)
    def named(*args: Any, **kwargs: Any) -> Any:
        return decomposition(*args, **kwargs)

    return named


class Token:
    """Stands for the order of effects; it has no value."""

    def block_until_ready(self) -> Token:
        return self


# Functions that are traced take and give tokens without an operand for them.
register(Token, lambda token: ((), None), lambda _, children: Token())


def create_token(_: Any = None) -> Token:
    """A token that comes after nothing."""
    return Token()


def after_all(*operands: Any) -> Token:
    """A token that comes after others."""
    if any(not isinstance(t, Token) for t in operands):
        raise TypeError("Arguments to after_all must be tokens: needed results of create_token, "
                        f"got {[type(t).__name__ for t in operands]}{here()}")
    return Token()
