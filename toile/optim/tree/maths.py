"""Arithmetic on trees, and the moving averages that optimizers compute.

In the functions for moving averages, a leaf of the updates that is None stays None, because the
corresponding parameter has no gradient in this step.
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
from toile.engine.annotations import Array, PyTree
from toile.engine.source import here
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
    """Apply `f` leaf by leaf; leaves of the first tree that are None stay None."""
    on_leaf = lambda x, *others: None if x is None else f(x, *others)
    return trees.map(on_leaf, tree, *rest, is_leaf=lambda x: x is None)


def add(tree_x: PyTree, tree_y: PyTree, *other_trees: PyTree) -> PyTree:
    """Add trees leaf by leaf.

    Args:
        tree_x, tree_y, other_trees: trees of the same structure.

    Returns:
        The sum, a tree of the same structure.

    >>> from toile import optim
    >>> optim.tree.add({"a": jnp.array([1.0])}, {"a": jnp.array([2.0])})
    {'a': Array([3.], dtype=float32)}
    """
    return trees.map(lambda *leaves: builtins.sum(leaves), tree_x, tree_y, *other_trees)


def sub(tree_x: PyTree, tree_y: PyTree) -> PyTree:
    """Subtract one tree from another, leaf by leaf.

    Args:
        tree_x, tree_y: trees of the same structure.

    Returns:
        `tree_x - tree_y`.

    >>> from toile import optim
    >>> optim.tree.sub({"a": jnp.array([1.0])}, {"a": jnp.array([2.0])})
    {'a': Array([-1.], dtype=float32)}
    """
    return trees.map(operator.sub, tree_x, tree_y)


def mul(tree_x: PyTree, tree_y: PyTree) -> PyTree:
    """Multiply two trees, element by element.

    Args:
        tree_x, tree_y: trees of the same structure.

    Returns:
        `tree_x * tree_y`.

    >>> from toile import optim
    >>> optim.tree.mul({"a": jnp.array([3.0])}, {"a": jnp.array([2.0])})
    {'a': Array([6.], dtype=float32)}
    """
    return trees.map(operator.mul, tree_x, tree_y)


def div(tree_x: PyTree, tree_y: PyTree) -> PyTree:
    """Divide one tree by another, element by element.

    Args:
        tree_x, tree_y: trees of the same structure.

    Returns:
        `tree_x / tree_y`.

    >>> from toile import optim
    >>> optim.tree.div({"a": jnp.array([3.0])}, {"a": jnp.array([2.0])})
    {'a': Array([1.5], dtype=float32)}
    """
    return trees.map(operator.truediv, tree_x, tree_y)


def scale(scalar: ArrayLike, tree: PyTree) -> PyTree:
    """Multiply a tree by a number.

    Args:
        scalar: number, or array that is broadcast against every leaf.
        tree: tree of arrays.

    Returns:
        `scalar * tree`.

    >>> from toile import optim
    >>> optim.tree.scale(2.0, {"a": jnp.array([3.0])})
    {'a': Array([6.], dtype=float32)}
    """
    return trees.map(lambda x: scalar * x, tree)


def add_scale(tree_x: PyTree, scalar: ArrayLike, tree_y: PyTree) -> PyTree:
    """Add a multiple of one tree to another.

    Args:
        tree_x: tree of arrays; leaves that are None stay None.
        scalar: factor by which `tree_y` is multiplied.
        tree_y: tree of the same structure.

    Returns:
        `tree_x + scalar * tree_y`.

    >>> from toile import optim
    >>> optim.tree.add_scale({"a": jnp.array([3.0])}, 2.0, {"a": jnp.array([1.0])})
    {'a': Array([5.], dtype=float32)}
    """
    scalar = jnp.asarray(scalar)
    return map_present(lambda x, y: x + scalar * y, tree_x, tree_y)


def _vdot(x: ArrayLike, y: ArrayLike) -> Array:
    x, y = jnp.asarray(x), jnp.asarray(y)
    assert x.shape == y.shape, f"vdot: needed equal shapes, got {x.shape} and {y.shape}"
    return jnp.vdot(x, y, precision=lax.Precision.HIGHEST)


def vdot(tree_x: PyTree, tree_y: PyTree) -> ArrayLike:
    """Compute the inner product of two trees, after conjugating the first tree.

    Args:
        tree_x, tree_y: trees with the same structure and the same leaf shapes.

    Returns:
        A scalar; 0 if the trees have no leaves.

    >>> from toile import optim
    >>> optim.tree.vdot({"a": jnp.ones(2), "b": 3.0}, {"a": jnp.ones(2), "b": 2.0})
    Array(8., dtype=float32)
    """
    return trees.reduce(operator.add, trees.map(_vdot, tree_x, tree_y), initializer=0)


def sum(tree: PyTree, associative_reduction: bool = False) -> ArrayLike:
    """Add up all elements of all leaves.

    Args:
        tree: tree of arrays.
        associative_reduction: whether to add the sums of the leaves in pairs, then these results in
            pairs, and so on. The rounding errors are then smaller than if the sums are added one
            after another.

    Returns:
        A scalar; 0 if the tree has no leaves.

    >>> from toile import optim
    >>> optim.tree.sum({"a": jnp.array([1.0, 2.0]), "b": jnp.array(3.0)})
    Array(6., dtype=float32)
    """
    sums = trees.map(jnp.sum, tree)
    if associative_reduction:
        return trees.reduce_associative(operator.add, sums, identity=0)
    return trees.reduce(operator.add, sums, initializer=0)


def _extreme(reduce_leaf: Callable, combine: Callable, start: float, tree: Any) -> ArrayLike:
    of_leaf = lambda x: None if jnp.size(x) == 0 else reduce_leaf(x)
    return trees.reduce(combine, trees.map(of_leaf, tree), initializer=start)


def max(tree: PyTree) -> ArrayLike:
    """Return the largest element across all leaves.

    Args:
        tree: tree of arrays.

    Returns:
        A scalar; -inf if there are no elements.

    >>> from toile import optim
    >>> optim.tree.max({"a": jnp.array([1.0, 2.0]), "b": jnp.array(3.0)})
    Array(3., dtype=float32)
    """
    return _extreme(jnp.max, jnp.maximum, -float("inf"), tree)


def min(tree: PyTree) -> ArrayLike:
    """Return the smallest element across all leaves.

    Args:
        tree: tree of arrays.

    Returns:
        A scalar; inf if there are no elements.

    >>> from toile import optim
    >>> optim.tree.min({"a": jnp.array([1.0, 2.0]), "b": jnp.array(3.0)})
    Array(1., dtype=float32)
    """
    return _extreme(jnp.min, jnp.minimum, float("inf"), tree)


def size(tree: PyTree) -> int:
    """Count the elements in all leaves.

    Args:
        tree: tree of arrays.

    Returns:
        An int.

    >>> from toile import optim
    >>> optim.tree.size({"a": jnp.ones((2, 3)), "b": 1.0})
    7
    """
    return builtins.sum(jnp.size(leaf) for leaf in trees.leaves(tree))


def conj(tree: PyTree) -> PyTree:
    """Take the complex conjugate of all elements.

    Args:
        tree: tree of arrays.

    Returns:
        A tree like `tree`.

    >>> from toile import optim
    >>> optim.tree.conj({"a": jnp.array([1.0 + 2.0j])})
    {'a': Array([1.-2.j], dtype=complex64)}
    """
    return trees.map(jnp.conj, tree)


def real(tree: PyTree) -> PyTree:
    """Take the real part of all elements.

    Args:
        tree: tree of arrays.

    Returns:
        A tree of real arrays.

    >>> from toile import optim
    >>> optim.tree.real({"a": jnp.array([1.0 + 2.0j])})
    {'a': Array([1.], dtype=float32)}
    """
    return trees.map(jnp.real, tree)


def _square(x: Array) -> Array:
    return jnp.square(x.real) + jnp.square(x.imag)


def norm(tree: PyTree, ord: int | str | float | None = None, squared: bool = False) -> Array:
    """Compute the vector norm of all elements of all leaves together.

    Args:
        tree: tree of arrays.
        ord: 2 or None for the Euclidean norm, 1 for the sum of absolute values, and `jnp.inf` or
            "inf" for the largest absolute value.
        squared: whether to return the square of the norm.

    Returns:
        A real scalar.

    Raises:
        ValueError: `ord` is not supported.

    >>> from toile import optim
    >>> optim.tree.norm({"a": jnp.array([3.0]), "b": jnp.array([4.0])})
    Array(5., dtype=float32)
    """
    if ord is None or ord == 2:
        total = sum(trees.map(_square, tree))
        return jnp.array(total if squared else jnp.sqrt(total))
    if ord == 1:
        total = sum(trees.map(jnp.abs, tree))
    elif ord == jnp.inf or ord in ("inf", "infinity"):
        total = max(trees.map(jnp.abs, tree))
    else:
        raise ValueError(f"norm: needed ord 1, 2, inf or None, got {ord!r}{here()}")
    return jnp.array(_square(total) if squared else total)


def batch_shape(tree: PyTree, shape: tuple[int, ...] = ()) -> PyTree:
    """Repeat each leaf along new leading axes.

    Args:
        tree: tree of arrays.
        shape: sizes of the new axes.

    Returns:
        A tree of arrays with shapes `(*shape, *leaf.shape)`.

    >>> from toile import optim
    >>> optim.tree.batch_shape({"a": jnp.ones(2)}, (3,))["a"].shape
    (3, 2)
    """
    return trees.map(lambda x: jnp.broadcast_to(x, (*shape, *jnp.shape(x))), tree)


def zeros_like(tree: PyTree, dtype: DTypeLike | None = None) -> PyTree:
    """Create a tree of zeros with the structure and shapes of another tree.

    Args:
        tree: tree of arrays.
        dtype: dtype of the result; if None, the dtype of each leaf is used.

    Returns:
        A tree like `tree`.

    >>> from toile import optim
    >>> optim.tree.zeros_like({"a": jnp.ones(2)})
    {'a': Array([0., 0.], dtype=float32)}
    """
    return trees.map(lambda x: jnp.zeros_like(x, dtype=dtype), tree)


def ones_like(tree: PyTree, dtype: DTypeLike | None = None) -> PyTree:
    """Create a tree of ones with the structure and shapes of another tree.

    Args:
        tree: tree of arrays.
        dtype: dtype of the result; if None, the dtype of each leaf is used.

    Returns:
        A tree like `tree`.

    >>> from toile import optim
    >>> optim.tree.ones_like({"a": jnp.zeros(2)})
    {'a': Array([1., 1.], dtype=float32)}
    """
    return trees.map(lambda x: jnp.ones_like(x, dtype=dtype), tree)


def full_like(tree: PyTree, fill_value: ArrayLike, dtype: DTypeLike | None = None) -> PyTree:
    """Create a tree with the structure and shapes of another tree, filled with one value.

    Args:
        tree: tree of arrays.
        fill_value: the value.
        dtype: dtype of the result; if None, the dtype of each leaf is used.

    Returns:
        A tree like `tree`.

    >>> from toile import optim
    >>> optim.tree.full_like({"a": jnp.zeros(2)}, 7.0)
    {'a': Array([7., 7.], dtype=float32)}
    """
    return trees.map(lambda x: jnp.full_like(x, fill_value, dtype=dtype), tree)


def clip(
    tree: PyTree, min_value: ArrayLike | None = None, max_value: ArrayLike | None = None
) -> PyTree:
    """Limit all elements to an interval.

    Args:
        tree: tree of arrays.
        min_value: lower bound; if None, there is no lower bound.
        max_value: upper bound; if None, there is no upper bound.

    Returns:
        A tree like `tree`.

    >>> from toile import optim
    >>> optim.tree.clip({"a": jnp.array([-2.0, 5.0])}, 0.0, 1.0)
    {'a': Array([0., 1.], dtype=float32)}
    """
    return trees.map(lambda x: jnp.clip(x, min_value, max_value), tree)


def where(condition: ArrayLike, tree_x: PyTree, tree_y: PyTree) -> PyTree:
    """Choose each element from one of two trees, depending on a condition.

    Args:
        condition: boolean, or boolean array that is broadcast against every leaf.
        tree_x: tree whose elements are chosen where the condition is True.
        tree_y: tree of the same structure; its elements are chosen where the condition is False.

    Returns:
        A tree of the same structure.

    >>> from toile import optim
    >>> optim.tree.where(True, {"a": jnp.array([1.0])}, {"a": jnp.array([2.0])})
    {'a': Array([1.], dtype=float32)}
    """
    return trees.map(lambda x, y: jnp.where(condition, x, y), tree_x, tree_y)


def allclose(
    a: PyTree, b: PyTree, rtol: ArrayLike = 1e-05, atol: ArrayLike = 1e-08, equal_nan: bool = False
) -> ArrayLike:
    """Return whether all elements of two trees agree within tolerances.

    Args:
        a, b: trees of the same structure.
        rtol: tolerance relative to the elements of `b`.
        atol: absolute tolerance.
        equal_nan: whether NaN is considered equal to NaN.

    Returns:
        A boolean scalar.

    >>> from toile import optim
    >>> optim.tree.allclose({"a": jnp.array([1.0])}, {"a": jnp.array([1.0 + 1e-7])})
    Array(True, dtype=bool)
    """
    close = lambda x, y: jnp.allclose(x, y, rtol=rtol, atol=atol, equal_nan=equal_nan)
    return functools.reduce(operator.and_, trees.leaves(trees.map(close, a, b)), True)


def _norm_power(g: Array, order: int) -> Array:
    if jnp.isrealobj(g):
        return g**order
    return abs_sq(g) ** (order // 2 if order % 2 == 0 else order / 2)  # |g|ⁿ = (|g|²)^(n/2)


def update_moment(updates: PyTree, moments: PyTree, decay: ArrayLike, order: int) -> PyTree:
    """Update a moving average `m` of `g**order`: compute `(1 - decay) * g**order + decay * m`.

    Args:
        updates: tree of gradients `g`; leaves that are None stay None.
        moments: tree of averages `m`.
        decay: decay rate of the average; values closer to 1 average over more steps.
        order: power to which the gradients are raised.

    Returns:
        The tree of new averages.

    >>> from toile import optim
    >>> optim.tree.update_moment(jnp.array([2.0]), jnp.array([0.0]), decay=0.5, order=2)
    Array([2.], dtype=float32)
    """
    return map_present(lambda g, m: (1 - decay) * (g**order) + decay * m, updates, moments)


def update_moment_per_elem_norm(
    updates: PyTree, moments: PyTree, decay: ArrayLike, order: int
) -> PyTree:
    """Update a moving average of `|g|**order`, which is real even for complex gradients.

    Args:
        updates: tree of gradients `g`; leaves that are None stay None.
        moments: tree of averages.
        decay: decay rate of the average; values closer to 1 average over more steps.
        order: power to which the absolute values are raised. It should be even, because for real
            gradients, `g**order` is computed instead of `|g|**order`.

    Returns:
        The tree of new averages.

    >>> from toile import optim
    >>> grads, averages = jnp.array([3.0 + 4.0j]), jnp.array([0.0])
    >>> optim.tree.update_moment_per_elem_norm(grads, averages, decay=0.5, order=2)
    Array([12.5], dtype=float32)
    """
    step = lambda g, m: (1 - decay) * _norm_power(g, order) + decay * m
    return map_present(step, updates, moments)


def update_infinity_moment(
    updates: PyTree, moments: PyTree, decay: ArrayLike, eps: ArrayLike
) -> PyTree:
    """Update a decaying maximum `m` by computing `max(|g| + eps, decay * m)`.

    Args:
        updates: tree of gradients `g`; leaves that are None stay None.
        moments: tree of maxima `m`.
        decay: decay rate of the maximum.
        eps: small number added to the absolute gradients.

    Returns:
        The tree of new maxima.

    >>> from toile import optim
    >>> optim.tree.update_infinity_moment(jnp.array([-2.0]), jnp.array([1.0]), decay=0.5, eps=0.0)
    Array([2.], dtype=float32)
    """
    return map_present(lambda g, m: jnp.maximum(jnp.abs(g) + eps, decay * m), updates, moments)


def bias_correction(moment: PyTree, decay: ArrayLike, count: ArrayLike) -> PyTree:
    """Correct the bias of a moving average by dividing the average by `1 - decay**count`.

    Without this correction, an average that starts at zero is too close to zero in the first steps.

    Args:
        moment: tree of averages.
        decay: decay rate of the average.
        count: number of steps in the average, at least 1.

    Returns:
        The tree of corrected averages.

    >>> from toile import optim
    >>> average = optim.tree.update_moment(jnp.array([2.0]), jnp.array([0.0]), decay=0.5, order=1)
    >>> average, optim.tree.bias_correction(average, decay=0.5, count=1)
    (Array([1.], dtype=float32), Array([2.], dtype=float32))
    """
    factor = 1 - jnp.asarray(decay) ** jnp.asarray(count)
    return trees.map(lambda m: m / factor.astype(m.dtype), moment)
