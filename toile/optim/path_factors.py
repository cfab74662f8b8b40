"""Factors of updates that depend on the paths of parameters, such as different learning rates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toile import tree as trees
from toile.engine.source import describe, here
from toile.optim import base, paths
from toile.optim.base import ArrayLike

__all__ = ["scale_by_path"]


def scale_by_path(factors: Mapping[str, ArrayLike]) -> base.GradientTransformation:
    """Multiply updates by factors that depend on the paths of the parameters.

    Put this transformation after an optimizer to give parts of a model different learning rates,
    while the optimizer keeps a single state. To use different optimizers or schedules, use
    `partition`.

    Args:
        factors: dict from globs that match parameter paths to factors. The first glob that matches
            a leaf determines the leaf's factor. With the factor 0, parameters stay unchanged; to
            also save the time for computing their gradients, use `stop_gradients`.

    Returns:
        A gradient transformation.

    Raises:
        ValueError: a glob matches no leaf, or a leaf matches no glob.

    Differences:
        Optax does not have this function.

    >>> from toile import optim
    >>> tx = optim.chain(optim.sgd(0.5), optim.scale_by_path({"head/**": 1.0, "**": 0.1}))
    >>> params = {"body": {"w": jnp.ones(1)}, "head": {"w": jnp.ones(1)}}
    >>> updates, state = tx.update(params, tx.init(params), params)
    >>> updates
    {'body': {'w': Array([-0.05], dtype=float32)}, 'head': {'w': Array([-0.5], dtype=float32)}}
    """
    if not isinstance(factors, Mapping) or not all(isinstance(glob, str) for glob in factors):
        raise TypeError(f"scale_by_path: needed a dict from globs to factors, got "
                        f"{describe(factors)} (write {{'head/**': 1.0, '**': 0.1}}){here()}")

    def update_fn(updates, state, params=None):
        numbers = paths.label_tree(factors, updates, "scale_by_path")
        return trees.map(_scaled, numbers, updates), state

    return base.GradientTransformation(base.init_empty_state, update_fn)


def _scaled(factor: ArrayLike, g: Any) -> Any:
    """The product of a factor and an update; leaves that are masked or None stay the same."""
    return g if paths.is_hole(g) else factor * g
