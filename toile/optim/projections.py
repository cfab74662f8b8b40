"""The nearest point of a set, for trees: boxes, simplices, balls, spheres, planes.

A tree counts as one vector of all its leaves. Each function gives the point of the set that is
nearest to the tree in the Euclidean norm.
"""

from __future__ import annotations

from typing import Any

import toile.numpy as jnp
from toile import lax, nn, tree
from toile.api import custom_jvp
from toile.flatten_util import ravel_pytree
from toile.optim import tree as whole

__all__ = [
    "projection_box", "projection_halfspace", "projection_hypercube", "projection_hyperplane",
    "projection_l1_ball", "projection_l1_sphere", "projection_l2_ball", "projection_l2_sphere",
    "projection_linf_ball", "projection_non_negative", "projection_simplex", "projection_vector",
]

_tree = tree  # an argument of the public functions has this name too


def projection_non_negative(tree: Any) -> Any:
    """Negative numbers become 0.

    >>> projection_non_negative(jnp.array([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """
    return _tree.map(nn.relu, tree)


def projection_box(tree: Any, lower: Any, upper: Any) -> Any:
    """Numbers are clipped to bounds, which are scalars or trees like the first one.

    >>> projection_box(jnp.array([-1.0, 2.0]), 0.0, 1.0).tolist()
    [0.0, 1.0]
    """
    return _tree.map(jnp.clip, tree, lower, upper)


def projection_hypercube(tree: Any, scale: Any = 1) -> Any:
    """Numbers are clipped to [0, scale].

    >>> projection_hypercube(jnp.array([-1.0, 2.0])).tolist()
    [0.0, 1.0]
    """
    return projection_box(tree, lower=0, upper=scale)


@custom_jvp
def _unit_simplex(x: Any) -> Any:
    """The nearest vector of non-negative numbers that sum to 1: relu(x - t) for a threshold t.

    With x sorted downwards, the k largest stay positive for the largest k where
    x[k] > (x[1] + ... + x[k] - 1) / k, and that quotient is t.
    """
    ordered = jnp.sort(x)[::-1]
    sums = jnp.cumsum(ordered)
    k = jnp.arange(x.shape[0]) + 1
    support = jnp.count_nonzero(1 / k + (ordered - sums / k) > 0)
    return nn.relu(1 / support + (x - sums[support - 1] / support))


@_unit_simplex.defjvp
def _unit_simplex_jvp(primals: Any, tangents: Any) -> Any:
    """Where the result is positive, the tangent less its mean there."""
    (x,), (dx,) = primals, tangents
    out = _unit_simplex(x)
    support = out > 0
    mean = jnp.dot(support, dx) / jnp.count_nonzero(support)
    return out, (support * dx - mean * support).astype(out.dtype)


def projection_simplex(tree: Any, scale: Any = 1) -> Any:
    """Non-negative numbers that sum to `scale`.

    >>> projection_simplex({"a": jnp.array([2.0, 1.5]), "b": -1.0})["a"].tolist()
    [0.75, 0.25]
    """
    values, unravel = ravel_pytree(tree)
    return unravel(scale * _unit_simplex(values / scale))


def projection_l1_sphere(tree: Any, scale: Any = 1) -> Any:
    """Numbers whose absolute values sum to `scale`.

    >>> projection_l1_sphere(jnp.array([2.0, -1.5])).tolist()
    [0.75, -0.25]
    """
    sizes = projection_simplex(_tree.map(jnp.abs, tree), scale)
    return whole.mul(_tree.map(jnp.sign, tree), sizes)


def projection_l1_ball(tree: Any, scale: Any = 1) -> Any:
    """Numbers whose absolute values sum to `scale` at most.

    >>> projection_l1_ball(jnp.array([0.25, -0.5])).tolist()
    [0.25, -0.5]
    """
    inside = whole.norm(tree, ord=1) <= scale
    return lax.cond(inside, lambda x: x, lambda x: projection_l1_sphere(x, scale), tree)


def projection_l2_sphere(tree: Any, scale: Any = 1) -> Any:
    """A vector of Euclidean length `scale`.

    >>> projection_l2_sphere(jnp.array([3.0, 4.0]), 10.0).tolist()
    [6.0, 8.0]
    """
    return whole.scale(scale / whole.norm(tree), tree)


def projection_l2_ball(tree: Any, scale: Any = 1) -> Any:
    """A vector of Euclidean length `scale` at most.

    >>> projection_l2_ball(jnp.array([3.0, 4.0]), 10.0).tolist()
    [3.0, 4.0]
    """
    squares = whole.norm(tree, squared=True)
    return whole.scale(scale / jnp.sqrt(jnp.maximum(squares, scale**2)), tree)


def projection_linf_ball(tree: Any, scale: Any = 1) -> Any:
    """Numbers clipped to [-scale, scale].

    >>> projection_linf_ball(jnp.array([3.0, -4.0]), 3.5).tolist()
    [3.0, -3.5]
    """
    return projection_box(tree, whole.full_like(tree, -scale), whole.full_like(tree, scale))


def projection_vector(x: Any, a: Any) -> Any:
    """The multiple of `a` that is nearest to `x`.

    >>> projection_vector(jnp.array([3.0, 4.0]), jnp.array([2.0, 0.0])).tolist()
    [3.0, 0.0]
    """
    return whole.scale(whole.vdot(x, a) / whole.vdot(a, a), a)


def projection_hyperplane(x: Any, a: Any, b: Any) -> Any:
    """A vector y with <a, y> = b.

    >>> projection_hyperplane(jnp.array([3.0, 4.0]), jnp.array([2.0, 0.0]), 2.0).tolist()
    [1.0, 4.0]
    """
    return whole.add_scale(x, _distance(x, a, b), a)


def projection_halfspace(x: Any, a: Any, b: Any) -> Any:
    """A vector y with <a, y> <= b.

    >>> projection_halfspace(jnp.array([3.0, 4.0]), jnp.array([2.0, 0.0]), 8.0).tolist()
    [3.0, 4.0]
    """
    return whole.add_scale(x, jnp.clip(_distance(x, a, b), max=0), a)


def _distance(x: Any, a: Any, b: Any) -> Any:
    """How many times `a` leads from x to the hyperplane."""
    return (b - whole.vdot(x, a)) / whole.vdot(a, a)
