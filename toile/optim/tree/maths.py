"""Arithmetic on trees, leaf by leaf; and the moving averages that optimizers keep.

A leaf that is None in the updates stays None: that parameter has no gradient in this step.
"""

from __future__ import annotations

import builtins
import functools
import operator
from collections.abc import Callable
from typing import Any

from toile import lax
from toile import numpy as jnp
from toile import tree as trees
from toile.engine.trace import Array
from toile.optim.base import ArrayLike
from toile.optim.numerics import abs_sq
from toile.typing import DTypeLike

__all__ = [
    "add", "add_scale", "allclose", "batch_shape", "bias_correction", "clip", "conj", "div",
    "full_like", "max", "min", "mul", "norm", "ones_like", "real", "scale", "size", "sub", "sum",
    "update_infinity_moment", "update_moment", "update_moment_per_elem_norm", "vdot", "where",
    "zeros_like",
]


def map_present(f: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """f of each leaf of the first tree that is not None; None where it is."""
    on_leaf = lambda x, *others: None if x is None else f(x, *others)
    return trees.map(on_leaf, tree, *rest, is_leaf=lambda x: x is None)


def add(tree_x: Any, tree_y: Any, *other_trees: Any) -> Any:
    """The sum of two or more trees."""
    return trees.map(lambda *leaves: builtins.sum(leaves), tree_x, tree_y, *other_trees)


def sub(tree_x: Any, tree_y: Any) -> Any:
    """tree_x - tree_y."""
    return trees.map(operator.sub, tree_x, tree_y)


def mul(tree_x: Any, tree_y: Any) -> Any:
    """tree_x * tree_y, element by element."""
    return trees.map(operator.mul, tree_x, tree_y)


def div(tree_x: Any, tree_y: Any) -> Any:
    """tree_x / tree_y, element by element."""
    return trees.map(operator.truediv, tree_x, tree_y)


def scale(scalar: ArrayLike, tree: Any) -> Any:
    """scalar * tree."""
    return trees.map(lambda x: scalar * x, tree)


def add_scale(tree_x: Any, scalar: ArrayLike, tree_y: Any) -> Any:
    """tree_x + scalar * tree_y."""
    scalar = jnp.asarray(scalar)
    return map_present(lambda x, y: x + scalar * y, tree_x, tree_y)


def _vdot(x: ArrayLike, y: ArrayLike) -> Array:
    x, y = jnp.asarray(x), jnp.asarray(y)
    assert x.shape == y.shape, f"vdot: needed equal shapes, got {x.shape} and {y.shape}"
    return jnp.vdot(x, y, precision=lax.Precision.HIGHEST)


def vdot(tree_x: Any, tree_y: Any) -> ArrayLike:
    """The inner product, conjugate in the first tree.

    >>> import toile.numpy as jnp
    >>> print(vdot({"a": jnp.ones(2), "b": 3.0}, {"a": jnp.ones(2), "b": 2.0}))
    8.0
    """
    return trees.reduce(operator.add, trees.map(_vdot, tree_x, tree_y), initializer=0)


def sum(tree: Any, associative_reduction: bool = False) -> ArrayLike:
    """The sum of all elements."""
    sums = trees.map(jnp.sum, tree)
    if associative_reduction:
        return trees.reduce_associative(operator.add, sums, identity=0)
    return trees.reduce(operator.add, sums, initializer=0)


def _extreme(reduce_leaf: Callable, combine: Callable, start: float, tree: Any) -> ArrayLike:
    of_leaf = lambda x: None if jnp.size(x) == 0 else reduce_leaf(x)
    return trees.reduce(combine, trees.map(of_leaf, tree), initializer=start)


def max(tree: Any) -> ArrayLike:
    """The largest element; -inf where there is none."""
    return _extreme(jnp.max, jnp.maximum, -float("inf"), tree)


def min(tree: Any) -> ArrayLike:
    """The smallest element; inf where there is none."""
    return _extreme(jnp.min, jnp.minimum, float("inf"), tree)


def size(tree: Any) -> int:
    """How many elements all leaves have together."""
    return builtins.sum(jnp.size(leaf) for leaf in trees.leaves(tree))


def conj(tree: Any) -> Any:
    """The complex conjugate."""
    return trees.map(jnp.conj, tree)


def real(tree: Any) -> Any:
    """The real part."""
    return trees.map(jnp.real, tree)


def _square(x: Array) -> Array:
    return jnp.square(x.real) + jnp.square(x.imag)


def norm(tree: Any, ord: int | str | float | None = None, squared: bool = False) -> Array:
    """The vector norm of all elements together: ord 2 (or None), 1 or inf.

    >>> import toile.numpy as jnp
    >>> print(norm({"a": jnp.array([3.0]), "b": jnp.array([4.0])}))
    5.0
    """
    if ord is None or ord == 2:
        total = sum(trees.map(_square, tree))
        return jnp.array(total if squared else jnp.sqrt(total))
    if ord == 1:
        total = sum(trees.map(jnp.abs, tree))
    elif ord == jnp.inf or ord in ("inf", "infinity"):
        total = max(trees.map(jnp.abs, tree))
    else:
        raise ValueError(f"norm: needed ord 1, 2, inf or None, got {ord!r}")
    return jnp.array(_square(total) if squared else total)


def batch_shape(tree: Any, shape: tuple[int, ...] = ()) -> Any:
    """Each leaf repeated along new leading axes of this shape."""
    return trees.map(lambda x: jnp.broadcast_to(x, (*shape, *jnp.shape(x))), tree)


def zeros_like(tree: Any, dtype: DTypeLike | None = None) -> Any:
    """Zeros in the shapes of the leaves."""
    return trees.map(lambda x: jnp.zeros_like(x, dtype=dtype), tree)


def ones_like(tree: Any, dtype: DTypeLike | None = None) -> Any:
    """Ones in the shapes of the leaves."""
    return trees.map(lambda x: jnp.ones_like(x, dtype=dtype), tree)


def full_like(tree: Any, fill_value: ArrayLike, dtype: DTypeLike | None = None) -> Any:
    """One value in the shapes of the leaves."""
    return trees.map(lambda x: jnp.full_like(x, fill_value, dtype=dtype), tree)


def clip(tree: Any, min_value: ArrayLike | None = None, max_value: ArrayLike | None = None) -> Any:
    """Elements held between two bounds."""
    return trees.map(lambda x: jnp.clip(x, min_value, max_value), tree)


def where(condition: ArrayLike, tree_x: Any, tree_y: Any) -> Any:
    """The leaves of tree_x where the condition holds, of tree_y where not."""
    return trees.map(lambda x, y: jnp.where(condition, x, y), tree_x, tree_y)


def allclose(
    a: Any, b: Any, rtol: ArrayLike = 1e-05, atol: ArrayLike = 1e-08, equal_nan: bool = False
) -> Any:
    """Whether all leaves agree within the tolerances."""
    close = lambda x, y: jnp.allclose(x, y, rtol=rtol, atol=atol, equal_nan=equal_nan)
    return functools.reduce(operator.and_, trees.leaves(trees.map(close, a, b)), True)


def _norm_power(g: Array, order: int) -> Array:
    if jnp.isrealobj(g):
        return g**order
    return abs_sq(g) ** (order // 2 if order % 2 == 0 else order / 2)  # |g|ⁿ = (|g|²)^(n/2)


def update_moment(updates: Any, moments: Any, decay: ArrayLike, order: int) -> Any:
    """The moving average of the order-th powers: (1 - decay) gⁿ + decay m."""
    return map_present(lambda g, m: (1 - decay) * (g**order) + decay * m, updates, moments)


def update_moment_per_elem_norm(updates: Any, moments: Any, decay: ArrayLike, order: int) -> Any:
    """The moving average of |g|ⁿ, which is real for complex g too."""
    step = lambda g, m: (1 - decay) * _norm_power(g, order) + decay * m
    return map_present(step, updates, moments)


def update_infinity_moment(updates: Any, moments: Any, decay: ArrayLike, eps: ArrayLike) -> Any:
    """max(|g| + eps, decay m): the moving average of order infinity."""
    return map_present(lambda g, m: jnp.maximum(jnp.abs(g) + eps, decay * m), updates, moments)


def bias_correction(moment: Any, decay: ArrayLike, count: ArrayLike) -> Any:
    """moment / (1 - decayᵗ): an average that started at zero, as if it had started at its mean."""
    factor = 1 - jnp.asarray(decay) ** jnp.asarray(count)
    return trees.map(lambda m: m / factor.astype(m.dtype), moment)
