"""Projections of trees onto sets such as boxes, simplices, balls, spheres and planes.

A tree is treated as one vector that contains all its leaves. Each function returns the point of the
set that is nearest to the tree in the Euclidean norm.
"""

from __future__ import annotations

from typing import Any

import toile.numpy as jnp
from toile import lax, nn, tree
from toile.api import custom_jvp
from toile.engine.annotations import PyTree
from toile.flatten_util import ravel_pytree
from toile.optim import tree as whole
from toile.optim.base import ArrayLike

__all__ = [
    "projection_box", "projection_halfspace", "projection_hypercube", "projection_hyperplane",
    "projection_l1_ball", "projection_l1_sphere", "projection_l2_ball", "projection_l2_sphere",
    "projection_linf_ball", "projection_non_negative", "projection_simplex", "projection_vector",
]

_tree = tree  # an argument of the public functions has this name too


def projection_non_negative(tree: PyTree) -> PyTree:
    """Project a tree onto the nonnegative numbers by setting negative elements to 0.

    Args:
        tree: tree of arrays.

    Returns:
        A tree like `tree`.

    >>> from toile.optim import projections
    >>> projections.projection_non_negative(jnp.array([-1.0, 2.0]))
    Array([0., 2.], dtype=float32)
    """
    return _tree.map(nn.relu, tree)


def projection_box(tree: PyTree, lower: PyTree, upper: PyTree) -> PyTree:
    """Project a tree onto a box by clipping each element to its bounds.

    Args:
        tree: tree of arrays.
        lower, upper: bounds, trees like `tree`; they may be scalars if `tree` is one array.

    Returns:
        A tree like `tree`.

    >>> from toile.optim import projections
    >>> projections.projection_box(jnp.array([-1.0, 2.0]), 0.0, 1.0)
    Array([0., 1.], dtype=float32)
    """
    return _tree.map(jnp.clip, tree, lower, upper)


def projection_hypercube(tree: PyTree, scale: ArrayLike = 1) -> PyTree:
    """Project an array onto a hypercube by clipping each element to [0, `scale`].

    Args:
        tree: array.
        scale: side length of the hypercube.

    Returns:
        An array like `tree`.

    >>> from toile.optim import projections
    >>> projections.projection_hypercube(jnp.array([-1.0, 2.0]))
    Array([0., 1.], dtype=float32)
    """
    return projection_box(tree, lower=0, upper=scale)


@custom_jvp
def _unit_simplex(x: Any) -> Any:
    """Return the nearest nonnegative vector that sums to 1, `relu(x - t)` for a threshold `t`.

    Let `x` be sorted in descending order. The `k` largest elements stay positive, where `k` is the
    largest number with `x[k] > (x[1] + ... + x[k] - 1) / k`. This quotient is `t`.
    """
    ordered = jnp.sort(x)[::-1]
    sums = jnp.cumsum(ordered)
    k = jnp.arange(x.shape[0]) + 1
    support = jnp.count_nonzero(1 / k + (ordered - sums / k) > 0)
    return nn.relu(1 / support + (x - sums[support - 1] / support))


@_unit_simplex.defjvp
def _unit_simplex_jvp(primals: Any, tangents: Any) -> Any:
    """Where the result is positive, subtract the tangent's mean over these elements; else use 0."""
    (x,), (dx,) = primals, tangents
    out = _unit_simplex(x)
    support = out > 0
    mean = jnp.dot(support, dx) / jnp.count_nonzero(support)
    return out, (support * dx - mean * support).astype(out.dtype)


def projection_simplex(tree: PyTree, scale: ArrayLike = 1) -> PyTree:
    """Project a tree onto the simplex of nonnegative vectors that sum to `scale`.

    Args:
        tree: tree of arrays, treated as one vector.
        scale: sum of the elements of the result; must be positive.

    Returns:
        A tree like `tree`.

    >>> from toile.optim import projections
    >>> projections.projection_simplex({"a": jnp.array([2.0, 1.5]), "b": jnp.array(-1.0)})
    {'a': Array([0.75, 0.25], dtype=float32), 'b': Array(0., dtype=float32)}
    """
    values, unravel = ravel_pytree(tree)
    return unravel(scale * _unit_simplex(values / scale))


def projection_l1_sphere(tree: PyTree, scale: ArrayLike = 1) -> PyTree:
    """Project a tree onto the L1 sphere: the set of vectors whose L1 norm is `scale`.

    Args:
        tree: tree of arrays, treated as one vector.
        scale: sum of the absolute values; must be positive.

    Returns:
        A tree like `tree`.

    >>> from toile.optim import projections
    >>> projections.projection_l1_sphere(jnp.array([2.0, -1.5]))
    Array([ 0.75, -0.25], dtype=float32)
    """
    sizes = projection_simplex(_tree.map(jnp.abs, tree), scale)
    return whole.mul(_tree.map(jnp.sign, tree), sizes)


def projection_l1_ball(tree: PyTree, scale: ArrayLike = 1) -> PyTree:
    """Project a tree onto the L1 ball: the set of vectors whose L1 norm is at most `scale`.

    Args:
        tree: tree of arrays, treated as one vector.
        scale: maximum sum of the absolute values; must be positive.

    Returns:
        A tree like `tree`.

    >>> from toile.optim import projections
    >>> projections.projection_l1_ball(jnp.array([0.25, -0.5]))
    Array([ 0.25, -0.5 ], dtype=float32)
    >>> projections.projection_l1_ball(jnp.array([2.0, -1.5]))
    Array([ 0.75, -0.25], dtype=float32)
    """
    inside = whole.norm(tree, ord=1) <= scale
    return lax.cond(inside, lambda x: x, lambda x: projection_l1_sphere(x, scale), tree)


def projection_l2_sphere(tree: PyTree, scale: ArrayLike = 1) -> PyTree:
    """Project a tree onto the set of vectors whose Euclidean norm is `scale`.

    For a tree of zeros, the result is NaN.

    Args:
        tree: tree of arrays, treated as one vector.
        scale: norm of the result.

    Returns:
        A tree like `tree`.

    >>> from toile.optim import projections
    >>> projections.projection_l2_sphere(jnp.array([3.0, 4.0]), 10.0)
    Array([6., 8.], dtype=float32)
    """
    return whole.scale(scale / whole.norm(tree), tree)


def projection_l2_ball(tree: PyTree, scale: ArrayLike = 1) -> PyTree:
    """Project a tree onto the set of vectors whose Euclidean norm is at most `scale`.

    Args:
        tree: tree of arrays, treated as one vector.
        scale: maximum norm.

    Returns:
        A tree like `tree`.

    >>> from toile.optim import projections
    >>> projections.projection_l2_ball(jnp.array([3.0, 4.0]), 10.0)
    Array([3., 4.], dtype=float32)
    >>> projections.projection_l2_ball(jnp.array([3.0, 4.0]), 2.5)
    Array([1.5, 2. ], dtype=float32)
    """
    squares = whole.norm(tree, squared=True)
    return whole.scale(scale / jnp.sqrt(jnp.maximum(squares, scale**2)), tree)


def projection_linf_ball(tree: PyTree, scale: ArrayLike = 1) -> PyTree:
    """Project a tree onto the maximum-norm ball by clipping each element to [-`scale`, `scale`].

    Args:
        tree: tree of arrays.
        scale: maximum absolute value.

    Returns:
        A tree like `tree`.

    >>> from toile.optim import projections
    >>> projections.projection_linf_ball(jnp.array([3.0, -4.0]), 3.5)
    Array([ 3. , -3.5], dtype=float32)
    """
    return projection_box(tree, whole.full_like(tree, -scale), whole.full_like(tree, scale))


def projection_vector(x: PyTree, a: PyTree) -> PyTree:
    """Project a tree onto a line through zero: return the multiple of `a` that is nearest to `x`.

    Args:
        x: tree of arrays, treated as one vector.
        a: tree like `x`, the direction of the line.

    Returns:
        A tree like `x`.

    >>> from toile.optim import projections
    >>> projections.projection_vector(jnp.array([3.0, 4.0]), jnp.array([2.0, 0.0]))
    Array([3., 0.], dtype=float32)
    """
    return whole.scale(whole.vdot(x, a) / whole.vdot(a, a), a)


def projection_hyperplane(x: PyTree, a: PyTree, b: ArrayLike) -> PyTree:
    """Project a tree onto the hyperplane of all `y` for which `dot(a, y) == b`.

    Args:
        x: tree of arrays, treated as one vector.
        a: tree like `x`, the normal vector of the hyperplane.
        b: right-hand side, a number.

    Returns:
        A tree like `x`.

    >>> from toile.optim import projections
    >>> projections.projection_hyperplane(jnp.array([3.0, 4.0]), jnp.array([2.0, 0.0]), 2.0)
    Array([1., 4.], dtype=float32)
    """
    return whole.add_scale(x, _distance(x, a, b), a)


def projection_halfspace(x: PyTree, a: PyTree, b: ArrayLike) -> PyTree:
    """Project a tree onto the half-space of all `y` for which `dot(a, y) <= b`.

    Args:
        x: tree of arrays, treated as one vector.
        a: tree like `x`, the normal vector, which points out of the half-space.
        b: right-hand side, a number.

    Returns:
        A tree like `x`.

    >>> from toile.optim import projections
    >>> projections.projection_halfspace(jnp.array([3.0, 4.0]), jnp.array([2.0, 0.0]), 2.0)
    Array([1., 4.], dtype=float32)
    >>> projections.projection_halfspace(jnp.array([3.0, 4.0]), jnp.array([2.0, 0.0]), 8.0)
    Array([3., 4.], dtype=float32)
    """
    return whole.add_scale(x, jnp.clip(_distance(x, a, b), max=0), a)


def _distance(x: Any, a: Any, b: Any) -> Any:
    """Return the number `t` for which `x + t * a` lies on the hyperplane."""
    return (b - whole.vdot(x, a)) / whole.vdot(a, a)
