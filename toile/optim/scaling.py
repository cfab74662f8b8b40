"""Updates times one number: fixed, scheduled, or made from the norms of updates and parameters."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from toile import nn
from toile import numpy as jnp
from toile import tree as trees
from toile.optim import base, tree
from toile.optim.base import ArrayLike
from toile.optim.numerics import safe_increment, safe_norm, safe_root_mean_squares

__all__ = [
    "ScaleByDistanceOverGradientsState", "ScaleByOptimisticGradientState", "ScaleByScheduleState",
    "ScaleByTrustRatioState", "ScaleState", "centralize", "normalize_by_update_norm", "scale",
    "scale_by_distance_over_gradients", "scale_by_learning_rate", "scale_by_optimistic_gradient",
    "scale_by_param_block_norm", "scale_by_param_block_rms", "scale_by_polyak",
    "scale_by_schedule", "scale_by_sign", "scale_by_trust_ratio",
]  # fmt: skip

ScaleState = base.EmptyState
ScaleByTrustRatioState = base.EmptyState


def scale(step_size: ArrayLike) -> base.GradientTransformation:
    """Updates times a constant."""
    return base.leafwise(lambda g: step_size * g)


class ScaleByScheduleState(NamedTuple):
    """Steps taken."""

    count: ArrayLike


def scale_by_schedule(step_size_fn: base.Schedule) -> base.GradientTransformation:
    """Updates times what a schedule says for this step.

    >>> import toile.numpy as jnp
    >>> tx = scale_by_schedule(lambda count: 1.0 / (count + 1))
    >>> state = tx.init(jnp.zeros(1))
    >>> for _ in range(2):
    ...     updates, state = tx.update(jnp.ones(1), state)
    >>> print(updates)
    [0.5]
    """
    init_fn = lambda params: ScaleByScheduleState(base.zero_count())

    def update_fn(updates, state, params=None):
        size = step_size_fn(state.count)
        updates = trees.map(lambda g: jnp.array(size, dtype=g.dtype) * g, updates)
        return updates, ScaleByScheduleState(safe_increment(state.count))

    return base.GradientTransformation(init_fn, update_fn)


def scale_by_learning_rate(
    learning_rate: base.ScalarOrSchedule | None = None, *, flip_sign: bool = True
) -> base.GradientTransformation:
    """Updates times a constant or scheduled rate, negative so that they descend."""
    sign = -1 if flip_sign else 1
    if learning_rate is None:
        return base.identity()
    if callable(learning_rate):
        return scale_by_schedule(lambda count: sign * learning_rate(count))
    return scale(sign * learning_rate)


def scale_by_sign() -> base.GradientTransformation:
    """The signs of the updates."""
    return base.leafwise(jnp.sign)


def scale_by_param_block_norm(min_scale: ArrayLike = 1e-3) -> base.GradientTransformation:
    """Each leaf times the norm of its parameter, or min_scale if that is less."""
    return base.leafwise(lambda u, p: u * safe_norm(p, min_scale), needs_params=True)


def scale_by_param_block_rms(min_scale: ArrayLike = 1e-3) -> base.GradientTransformation:
    """Each leaf times the root mean square of its parameter, or min_scale if that is less."""
    return base.leafwise(lambda u, p: u * safe_root_mean_squares(p, min_scale), needs_params=True)


def scale_by_trust_ratio(
    min_norm: ArrayLike = 0.0, trust_coefficient: ArrayLike = 1.0, eps: ArrayLike = 0.0
) -> base.GradientTransformation:
    """Each leaf times norm(parameter) / norm(update), or 1 where one of them is zero."""

    def on_leaf(update, param):
        of_param, of_update = safe_norm(param, min_norm), safe_norm(update, min_norm)
        ratio = trust_coefficient * of_param / (of_update + eps)
        zero = jnp.logical_or(of_param == 0.0, of_update == 0.0)
        return update * jnp.where(zero, jnp.array(1.0, dtype=param.dtype), ratio)

    return base.leafwise(on_leaf, needs_params=True)


def normalize_by_update_norm(
    scale_factor: ArrayLike = 1.0, eps: ArrayLike = 1e-6
) -> base.GradientTransformation:
    """All updates over the norm of all updates together."""

    def update_fn(updates, state, params=None):
        total = (tree.norm(updates) + eps) / scale_factor
        return trees.map(lambda g: g / total, updates), state

    return base.GradientTransformation(base.init_empty_state, update_fn)


def centralize() -> base.GradientTransformation:
    """Leaves with two axes or more, less their mean over all but the first."""

    def on_leaf(g):
        return g - g.mean(tuple(range(1, g.ndim)), keepdims=True) if g.ndim > 1 else g

    return base.leafwise(on_leaf)


class ScaleByOptimisticGradientState(NamedTuple):
    """Whether there is no gradient before this one, and the last gradient."""

    is_initial_step: ArrayLike
    previous_gradient: base.Updates


def scale_by_optimistic_gradient(
    alpha: ArrayLike = 1.0, beta: ArrayLike = 1.0
) -> base.GradientTransformation:
    """(alpha + beta) g - beta g': a guess that the gradient will change as it just did."""

    def init_fn(params):
        return ScaleByOptimisticGradientState(jnp.array(True), tree.zeros_like(params))

    def update_fn(updates, state, params=None):
        def step(g, last):
            last = jnp.where(state.is_initial_step, g, last)
            return (alpha + beta) * g - beta * last

        kept = ScaleByOptimisticGradientState(jnp.array(False), updates)
        return trees.map(step, updates, state.previous_gradient), kept

    return base.GradientTransformation(init_fn, update_fn)


class ScaleByDistanceOverGradientsState(NamedTuple):
    """Per leaf: the farthest distance from the start, the sum of squares, the start itself."""

    max_dist: base.OptState
    grad_sum_of_squares: base.OptState
    init_params: base.OptState


def scale_by_distance_over_gradients(
    reps_rel=1e-6, eps=1e-8, param_dtype=jnp.float32, global_scale=1.0
) -> base.GradientTransformation:
    """DoG: the farthest distance from the start over the root of all squared gradients."""

    def distance(x, y=0.0):
        return jnp.sqrt(jnp.square(x - y).sum())

    def init_fn(params):
        return ScaleByDistanceOverGradientsState(
            trees.map(lambda x: reps_rel * (1 + distance(x)), params),
            trees.map(lambda x: jnp.zeros(1), params),
            tree.cast(params, param_dtype),
        )

    def update_fn(updates, state, params=None):
        farthest = lambda d, x, start: jnp.maximum(d, distance(x, start))
        dist = trees.map(farthest, state.max_dist, base.required(params), state.init_params)
        squares = trees.map(
            lambda s, g: s + jnp.square(g).sum(), state.grad_sum_of_squares, updates
        )
        step = lambda g, d, s: global_scale * (d / jnp.sqrt(s + eps)) * g
        kept = ScaleByDistanceOverGradientsState(dist, squares, state.init_params)
        return trees.map(step, updates, dist, squares), kept

    return base.GradientTransformation(init_fn, update_fn)


def scale_by_polyak(
    f_min: ArrayLike = 0.0, max_learning_rate: ArrayLike = 1.0, eps: ArrayLike = 0.0,
    variant: str = "sps",
) -> base.GradientTransformationExtraArgs:
    """Polyak's step, (value - f_min) / |g|², at most max_learning_rate; update takes `value`."""
    if variant not in ("sps", "sps+"):
        raise ValueError(f"scale_by_polyak: needed variant 'sps' or 'sps+', got {variant!r}")

    def update_fn(updates, state, params=None, *, value, **extra_args):
        square = tree.norm(updates, squared=True)
        gap = jnp.array(value - f_min).astype(square.dtype)
        if variant == "sps+":
            gap = nn.relu(gap)
        step = jnp.where(
            square + eps <= jnp.finfo(float).eps,
            jnp.array(0.0),
            jnp.minimum(gap / (square + eps), max_learning_rate),
        )
        return tree.scale(step, updates), state

    return base.GradientTransformationExtraArgs(base.init_empty_state, cast(Any, update_fn))
