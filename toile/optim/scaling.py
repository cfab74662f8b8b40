"""Transformations that multiply updates by a constant, a schedule or a ratio of norms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, cast

from toile import nn
from toile import numpy as jnp
from toile import tree as trees
from toile.engine.errors import called
from toile.engine.source import describe, here
from toile.optim import base, tree
from toile.optim.base import ArrayLike
from toile.optim.numerics import safe_increment, safe_norm, safe_root_mean_squares
from toile.typing import DTypeLike

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
    """Multiply updates by a constant.

    Args:
        step_size: factor. Use a negative number to go downhill, because updates are added to the
            parameters.

    Returns:
        A gradient transformation.

    >>> from toile import optim
    >>> tx = optim.scale(-0.5)
    >>> updates, state = tx.update(jnp.array([2.0, 4.0]), tx.init(jnp.zeros(2)))
    >>> updates
    Array([-1., -2.], dtype=float32)
    """
    return base.leafwise(lambda g: step_size * g)


class ScaleByScheduleState(NamedTuple):
    """State of `scale_by_schedule`.

    Args:
        count: number of updates made so far.

    >>> from toile import optim
    >>> optim.scale_by_schedule(lambda step: 0.1).init(jnp.zeros(2))
    ScaleByScheduleState(count=Array(0, dtype=int32))
    """

    count: ArrayLike


def scale_by_schedule(step_size_fn: base.Schedule) -> base.GradientTransformation:
    """Multiply updates by the value of a schedule.

    Args:
        step_size_fn: function that maps the number of updates made so far, which is 0 in the first
            update, to the factor. The factor is converted to the dtype of each leaf. Its sign
            is not flipped; to flip it, use `scale_by_learning_rate`.

    Returns:
        A gradient transformation.

    >>> from toile import optim
    >>> tx = optim.scale_by_schedule(lambda count: 1.0 / (count + 1))
    >>> state = tx.init(jnp.zeros(1))
    >>> for _ in range(3):
    ...     updates, state = tx.update(jnp.ones(1), state)
    ...     print(updates.round(3))
    [1.]
    [0.5]
    [0.333]
    """
    init_fn = lambda params: ScaleByScheduleState(base.zero_count())

    def update_fn(updates, state, params=None):
        size = _value_at(step_size_fn, state.count)
        updates = trees.map(lambda g: jnp.array(size, dtype=g.dtype) * g, updates)
        return updates, ScaleByScheduleState(safe_increment(state.count))

    return base.GradientTransformation(init_fn, update_fn)


def _value_at(schedule: base.Schedule, count: Any) -> Any:
    """The value of a schedule, which the user may have written."""
    return called(schedule, (count,), "a schedule takes the step; call functions that make one: "
                  "optim.sgd(make(...))")


def scale_by_learning_rate(
    learning_rate: base.ScalarOrSchedule | None = None, *, flip_sign: bool = True
) -> base.GradientTransformation:
    """Multiply updates by minus the learning rate, so that steps go downhill.

    Args:
        learning_rate: a number or a schedule. If None, updates are returned unchanged; their sign
            is not flipped.
        flip_sign: if True, the factor is `-learning_rate`; if False, it is `learning_rate`.

    Returns:
        A gradient transformation.

    >>> from toile import optim
    >>> tx = optim.scale_by_learning_rate(0.5)
    >>> updates, state = tx.update(jnp.array([2.0, 4.0]), tx.init(jnp.zeros(2)))
    >>> updates
    Array([-1., -2.], dtype=float32)
    """
    sign = -1 if flip_sign else 1
    if learning_rate is None:
        return base.identity()
    if callable(learning_rate):
        return scale_by_schedule(lambda count: sign * _value_at(learning_rate, count))
    if isinstance(learning_rate, (Mapping, str, list, tuple)):
        raise TypeError(
            "learning_rate: needed a number, an array or a schedule, got "
            f"{describe(learning_rate)} (the parameters are passed to init: tx = optim.sgd(0.1); "
            f"state = tx.init(params)){here()}"
        )
    return scale(sign * learning_rate)


def scale_by_sign() -> base.GradientTransformation:
    """Replace updates with their signs.

    Returns:
        A gradient transformation.

    >>> from toile import optim
    >>> tx = optim.scale_by_sign()
    >>> updates, state = tx.update(jnp.array([0.3, -5.0, 0.0]), tx.init(jnp.zeros(3)))
    >>> updates
    Array([ 1., -1.,  0.], dtype=float32)
    """
    return base.leafwise(jnp.sign)


def scale_by_param_block_norm(min_scale: ArrayLike = 1e-3) -> base.GradientTransformation:
    """Multiply each leaf of the updates by the Euclidean norm of the corresponding parameter.

    Args:
        min_scale: lower bound for the factor, so that parameters that are zero can change.

    Returns:
        A gradient transformation whose `update` needs the parameters.

    >>> from toile import optim
    >>> tx, params = optim.scale_by_param_block_norm(), jnp.array([3.0, 4.0])
    >>> updates, state = tx.update(jnp.array([1.0, -1.0]), tx.init(params), params)
    >>> updates
    Array([ 5., -5.], dtype=float32)
    """
    return base.leafwise(lambda u, p: u * safe_norm(p, min_scale), needs_params=True)


def scale_by_param_block_rms(min_scale: ArrayLike = 1e-3) -> base.GradientTransformation:
    """Multiply each leaf of the updates by the root mean square of the corresponding parameter.

    Args:
        min_scale: lower bound for the factor, so that parameters that are zero can change.

    Returns:
        A gradient transformation whose `update` needs the parameters.

    >>> from toile import optim
    >>> tx, params = optim.scale_by_param_block_rms(), jnp.array([2.0, -2.0])
    >>> updates, state = tx.update(jnp.array([1.0, -1.0]), tx.init(params), params)
    >>> updates
    Array([ 2., -2.], dtype=float32)
    """
    return base.leafwise(lambda u, p: u * safe_root_mean_squares(p, min_scale), needs_params=True)


def scale_by_trust_ratio(
    min_norm: ArrayLike = 0.0, trust_coefficient: ArrayLike = 1.0, eps: ArrayLike = 0.0
) -> base.GradientTransformation:
    """Multiply each leaf of the updates by the ratio of the parameter norm to the update norm.

    The factor is `trust_coefficient * norm(param) / (norm(update) + eps)`, or 1 if either norm is
    zero. The length of a step is therefore proportional to the norm of the parameter. `lars` and
    `lamb` use this transformation.

    Args:
        min_norm: lower bound for both norms.
        trust_coefficient: factor by which the ratio is multiplied.
        eps: small number added to the norm of the update.

    Returns:
        A gradient transformation whose `update` needs the parameters.

    >>> from toile import optim
    >>> tx, params = optim.scale_by_trust_ratio(), jnp.array([3.0, 4.0])
    >>> updates, state = tx.update(jnp.array([0.0, 2.0]), tx.init(params), params)
    >>> updates
    Array([0., 5.], dtype=float32)
    """

    def on_leaf(update, param):
        of_param, of_update = safe_norm(param, min_norm), safe_norm(update, min_norm)
        ratio = trust_coefficient * of_param / (of_update + eps)
        zero = jnp.logical_or(of_param == 0.0, of_update == 0.0)
        return update * jnp.where(zero, jnp.array(1.0, dtype=param.dtype), ratio)

    return base.leafwise(on_leaf, needs_params=True)


def normalize_by_update_norm(
    scale_factor: ArrayLike = 1.0, eps: ArrayLike = 1e-6
) -> base.GradientTransformation:
    """Multiply all updates by the same factor, so that their global norm becomes a given number.

    Updates are multiplied by `scale_factor / (norm + eps)`, where the norm is computed over all
    leaves.

    Args:
        scale_factor: norm of the result.
        eps: small number added to the norm to avoid division by zero.

    Returns:
        A gradient transformation.

    >>> from toile import optim
    >>> tx = optim.normalize_by_update_norm()
    >>> grads = {"a": jnp.array([3.0]), "b": jnp.array([4.0])}
    >>> updates, state = tx.update(grads, tx.init(grads))
    >>> updates["a"].round(3), updates["b"].round(3)
    (Array([0.6], dtype=float32), Array([0.8], dtype=float32))
    """

    def update_fn(updates, state, params=None):
        total = (tree.norm(updates) + eps) / scale_factor
        return trees.map(lambda g: g / total, updates), state

    return base.GradientTransformation(base.init_empty_state, update_fn)


def centralize() -> base.GradientTransformation:
    """Subtract from each leaf its mean over all axes except the first.

    Leaves with fewer than two axes stay unchanged. This method is called gradient centralization
    (Yong et al., 2020).

    Returns:
        A gradient transformation.

    >>> from toile import optim
    >>> tx = optim.centralize()
    >>> grads = jnp.array([[1.0, 3.0], [5.0, 5.0]])
    >>> updates, state = tx.update(grads, tx.init(grads))
    >>> updates
    Array([[-1.,  1.],
           [ 0.,  0.]], dtype=float32)
    """

    def on_leaf(g):
        return g - g.mean(tuple(range(1, g.ndim)), keepdims=True) if g.ndim > 1 else g

    return base.leafwise(on_leaf)


class ScaleByOptimisticGradientState(NamedTuple):
    """State of `scale_by_optimistic_gradient`.

    Args:
        is_initial_step: boolean scalar that is True before the first update.
        previous_gradient: updates in the last step.

    >>> from toile import optim
    >>> optim.scale_by_optimistic_gradient().init(jnp.zeros(1))
    ScaleByOptimisticGradientState(is_initial_step=Array(True, dtype=bool),
    previous_gradient=Array([0.], dtype=float32))
    """

    is_initial_step: ArrayLike
    previous_gradient: base.Updates


def scale_by_optimistic_gradient(
    alpha: ArrayLike = 1.0, beta: ArrayLike = 1.0
) -> base.GradientTransformation:
    """Add to each update the amount by which it has changed since the previous step.

    The result is `(alpha + beta) * g - beta * g'`, where `g` is the update and `g'` is the update
    in the previous step. In the first step, `g'` is `g`.

    Args:
        alpha: weight of the update.
        beta: weight of the change.

    Returns:
        A gradient transformation.

    >>> from toile import optim
    >>> tx = optim.scale_by_optimistic_gradient()
    >>> state = tx.init(jnp.zeros(1))
    >>> for grad in (2.0, 3.0):
    ...     updates, state = tx.update(jnp.array([grad]), state)
    ...     print(updates)
    [2.]
    [4.]
    """

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
    """State of `scale_by_distance_over_gradients`; each field has the structure of the parameters.

    Args:
        max_dist: for each leaf, the largest distance so far from its initial value, as a scalar.
        grad_sum_of_squares: for each leaf, the sum of all squared gradients, as an array of shape
            (1,).
        init_params: initial parameters.

    >>> from toile import optim
    >>> optim.scale_by_distance_over_gradients().init(jnp.zeros(1)).init_params
    Array([0.], dtype=float32)
    """

    max_dist: base.OptState
    grad_sum_of_squares: base.OptState
    init_params: base.OptState


def scale_by_distance_over_gradients(
    reps_rel: ArrayLike = 1e-6, eps: ArrayLike = 1e-8, param_dtype: DTypeLike = jnp.float32,
    global_scale: ArrayLike = 1.0,
) -> base.GradientTransformation:
    """Multiply each leaf of the updates by a step size estimated from the distance moved so far.

    The factor is `global_scale * d / sqrt(s + eps)`. Here `d` is the largest distance so far
    between the parameter and its initial value, but at least
    `reps_rel * (1 + norm(initial value))`, and `s` is the sum of all squared gradients of the
    parameter. This rule needs no learning rate (DoG; Ivgi et al., 2023). In a chain, put
    `scale(-1.0)` after this transformation.

    Args:
        reps_rel: size of the first step relative to `1 + norm(initial value)`. A small number
            suffices, because the distance grows during training.
        eps: small number added to the sum of squares to avoid division by zero.
        param_dtype: dtype in which the initial parameters are stored.
        global_scale: factor by which all steps are multiplied.

    Returns:
        A gradient transformation whose `update` needs the parameters.

    >>> from toile import optim
    >>> tx = optim.scale_by_distance_over_gradients(reps_rel=0.1)
    >>> params = jnp.array([3.0, 4.0])
    >>> updates, state = tx.update(jnp.array([0.0, 2.0]), tx.init(params), params)
    >>> updates.round(3)
    Array([0. , 0.6], dtype=float32)
    """

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
    variant: Literal["sps", "sps+"] = "sps",
) -> base.GradientTransformationExtraArgs:
    """Multiply updates by Polyak's step size, which is computed from the loss.

    The factor is `min((value - f_min) / (norm(updates)**2 + eps), max_learning_rate)`, or 0 if the
    denominator is at most the machine epsilon. Pass the loss to `update` as the keyword argument
    `value`. The sign of the updates is not flipped; `polyak_sgd` flips it.

    Args:
        f_min: smallest value that the loss can have.
        max_learning_rate: maximum factor.
        eps: small number added to the squared norm.
        variant: "sps" or "sps+". With "sps+", the factor is never negative.

    Returns:
        A gradient transformation whose `update` needs the keyword argument `value`.

    Raises:
        ValueError: `variant` is not supported.

    >>> from toile import optim
    >>> tx = optim.scale_by_polyak()
    >>> updates, state = tx.update(jnp.array([2.0, 4.0]), tx.init(jnp.zeros(2)), value=5.0)
    >>> updates
    Array([0.5, 1. ], dtype=float32)
    """
    if variant not in ("sps", "sps+"):
        raise ValueError(
            f"scale_by_polyak: needed variant 'sps' or 'sps+', got {variant!r}{here()}"
        )

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
