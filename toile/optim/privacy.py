"""Differentially private gradients: clipped per example, summed, noised."""

from __future__ import annotations

from typing import NamedTuple

from toile import random
from toile import tree as trees
from toile.engine.trace import Array
from toile.optim import base
from toile.optim.accumulation import trace
from toile.optim.adding import canonical_key, key_or_seed
from toile.optim.base import ArrayLike
from toile.optim.clipping import per_example_global_norm_clip
from toile.optim.combining import chain
from toile.optim.scaling import scale_by_learning_rate

__all__ = ["DifferentiallyPrivateAggregateState", "differentially_private_aggregate", "dpsgd"]


class DifferentiallyPrivateAggregateState(NamedTuple):
    """The key for the next noise."""

    rng_key: Array


def differentially_private_aggregate(
    l2_norm_clip: ArrayLike, noise_multiplier: ArrayLike, key: Array | int | None = None, *,
    seed: int | None = None,
) -> base.GradientTransformation:
    """Gradients per example (axis 0), each clipped, as their noisy mean.

    Has to be first in a chain, and takes what vmap(grad(loss)) gives.
    """
    key = canonical_key(key_or_seed("differentially_private_aggregate", key, seed))
    deviation = l2_norm_clip * noise_multiplier

    init_fn = lambda params: DifferentiallyPrivateAggregateState(key)

    def update_fn(updates, state, params=None):
        leaves, structure = trees.flatten(updates)
        clipped, _ = per_example_global_norm_clip(leaves, l2_norm_clip)
        keys = random.split(state.rng_key, len(leaves) + 1)
        size = leaves[0].shape[0]
        noisy = [
            (g + deviation * random.normal(keys[i + 1], g.shape, g.dtype)) / size
            for i, g in enumerate(clipped)
        ]
        return trees.unflatten(structure, noisy), DifferentiallyPrivateAggregateState(keys[0])

    return base.GradientTransformation(init_fn, update_fn)


def dpsgd(
    learning_rate: base.ScalarOrSchedule, l2_norm_clip: ArrayLike, noise_multiplier: ArrayLike,
    seed: int, momentum: ArrayLike | None = None, nesterov: bool = False,
) -> base.GradientTransformation:
    """Differentially private gradient descent, on gradients per example."""
    return chain(
        differentially_private_aggregate(l2_norm_clip, noise_multiplier, key=seed),
        base.identity() if momentum is None else trace(momentum, nesterov),
        scale_by_learning_rate(learning_rate),
    )
