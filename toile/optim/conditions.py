"""Transformations that act only in steps where a condition holds."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from toile import lax
from toile import numpy as jnp
from toile import tree as trees
from toile.optim import base, tree
from toile.optim.base import ArrayLike
from toile.optim.numerics import safe_increment

__all__ = [
    "ApplyIfFiniteState", "ConditionFn", "ConditionallyMaskState", "ConditionallyTransformState",
    "apply_if_finite", "conditionally_mask", "conditionally_transform",
]  # fmt: skip


class ConditionFn(Protocol):
    """The type of functions that determine in which steps a transformation acts.

    >>> from toile import optim
    >>> every_third: optim.ConditionFn = lambda step, **extra_args: step % 3 == 0
    >>> tx = optim.conditionally_mask(optim.sgd(1.0), every_third)
    """

    def __call__(self, step: ArrayLike, **extra_args: Any) -> ArrayLike:
        """Return a boolean scalar that is True if the transformation acts in this step.

        Args:
            step: number of earlier calls to `update`.
            extra_args: keyword arguments of `update`, if the transformation forwards them.
        """


def _update_if(condition, inner, otherwise, updates, inner_state, params, extra_args):
    """Return the inner update if the condition holds, else `otherwise(updates)`."""
    return lax.cond(
        condition,
        lambda: inner.update(updates, inner_state, params, **extra_args),
        lambda: (otherwise(updates), inner_state),
    )


class ConditionallyTransformState(NamedTuple):
    """State of `conditionally_transform`.

    Args:
        inner_state: state of the inner transformation.
        step: number of calls to `update` so far.

    >>> from toile import optim
    >>> optim.conditionally_transform(optim.sgd(1.0), lambda step: step < 2).init(jnp.zeros(1)).step
    Array(0, dtype=int32)
    """

    inner_state: base.OptState
    step: ArrayLike


class ConditionallyMaskState(NamedTuple):
    """State of `conditionally_mask`.

    Args:
        step: number of calls to `update` so far.
        inner_state: state of the inner transformation.

    >>> from toile import optim
    >>> optim.conditionally_mask(optim.sgd(1.0), lambda step: step < 2).init(jnp.zeros(1)).step
    Array(0, dtype=int32)
    """

    step: ArrayLike
    inner_state: base.OptState


def _conditional(inner, should_transform_fn, forward_extra_args, otherwise, state_class):
    """Make a transformation that applies `inner` if the condition holds, else `otherwise`."""
    inner = base.with_extra_args_support(inner)

    init_fn = lambda params: state_class(inner_state=inner.init(params), step=base.zero_count())

    def update_fn(updates, state, params=None, **extra_args):
        condition = should_transform_fn(state.step, **(extra_args if forward_extra_args else {}))
        updates, inner_state = _update_if(
            condition, inner, otherwise, updates, state.inner_state, params, extra_args
        )
        return updates, state_class(inner_state=inner_state, step=safe_increment(state.step))

    return base.GradientTransformationExtraArgs(init_fn, update_fn)


def conditionally_transform(
    inner: base.GradientTransformation, should_transform_fn: ConditionFn,
    forward_extra_args: bool = False,
) -> base.GradientTransformationExtraArgs:
    """Apply a transformation only in steps where a condition holds.

    In all other steps, the updates and the inner state stay unchanged.

    Args:
        inner: transformation to apply.
        should_transform_fn: function that maps the number of steps taken to a boolean scalar. If
            the scalar is True, `inner` is applied.
        forward_extra_args: whether `should_transform_fn` also receives the keyword arguments of
            `update`.

    Returns:
        A gradient transformation.

    >>> from toile import optim
    >>> tx = optim.conditionally_transform(optim.scale(0.5), lambda step: step >= 1)
    >>> state = tx.init(jnp.zeros(1))
    >>> for _ in range(2):
    ...     updates, state = tx.update(jnp.ones(1), state)
    ...     print(updates)
    [1.]
    [0.5]
    """
    options = inner, should_transform_fn, forward_extra_args
    return _conditional(*options, lambda u: u, ConditionallyTransformState)


def conditionally_mask(
    inner: base.GradientTransformation, should_transform_fn: ConditionFn,
    forward_extra_args: bool = False,
) -> base.GradientTransformationExtraArgs:
    """Apply a transformation in steps where a condition holds, and return zeros in all other steps.

    In those other steps, the inner state stays unchanged.

    Args:
        inner: transformation to apply.
        should_transform_fn: function that maps the number of steps taken to a boolean scalar. If
            the scalar is True, `inner` is applied.
        forward_extra_args: whether `should_transform_fn` also receives the keyword arguments of
            `update`.

    Returns:
        A gradient transformation.

    >>> from toile import optim
    >>> tx = optim.conditionally_mask(optim.scale(0.5), lambda step: step >= 1)
    >>> state = tx.init(jnp.zeros(1))
    >>> for _ in range(2):
    ...     updates, state = tx.update(jnp.ones(1), state)
    ...     print(updates)
    [0.]
    [0.5]
    """
    options = inner, should_transform_fn, forward_extra_args
    return _conditional(*options, tree.zeros_like, ConditionallyMaskState)


class ApplyIfFiniteState(NamedTuple):
    """State of `apply_if_finite`.

    Args:
        notfinite_count: length of the current run of gradients that were not finite; 0 if the last
            gradient was finite.
        last_finite: boolean scalar that is True if the last gradient was finite.
        total_notfinite: total number of gradients that were not finite.
        inner_state: state of the inner transformation.

    >>> from toile import optim
    >>> optim.apply_if_finite(optim.sgd(1.0), 3).init(jnp.zeros(1)).last_finite
    Array(True, dtype=bool)
    """

    notfinite_count: ArrayLike
    last_finite: ArrayLike
    total_notfinite: ArrayLike
    inner_state: base.OptState


def apply_if_finite(
    inner: base.GradientTransformation, max_consecutive_errors: int
) -> base.GradientTransformation:
    """Skip steps whose gradients contain an infinity or NaN.

    In a skipped step, the updates are zero, and the inner state stays unchanged. After
    `max_consecutive_errors` consecutive skipped steps, even gradients that are not finite are
    applied, so that the failure is noticed.

    Args:
        inner: optimizer to protect.
        max_consecutive_errors: maximum number of consecutive steps that are skipped.

    Returns:
        A gradient transformation.

    >>> from toile import optim
    >>> tx = optim.apply_if_finite(optim.sgd(1.0), max_consecutive_errors=3)
    >>> updates, state = tx.update(jnp.array([jnp.nan]), tx.init(jnp.zeros(1)))
    >>> updates, state.total_notfinite
    (Array([0.], dtype=float32), Array(1, dtype=int32))
    """
    inner = base.with_extra_args_support(inner)

    def init_fn(params):
        finite = jnp.array(True, jnp.bool_)
        return ApplyIfFiniteState(base.zero_count(), finite, base.zero_count(), inner.init(params))

    def update_fn(updates, state, params=None, **extra_args):
        finite = jnp.all(jnp.array([jnp.all(jnp.isfinite(g)) for g in trees.leaves(updates)]))
        in_a_row = jnp.where(finite, base.zero_count(), safe_increment(state.notfinite_count))
        in_all = jnp.where(finite, state.total_notfinite, safe_increment(state.total_notfinite))
        act = jnp.logical_or(finite, in_a_row > max_consecutive_errors)
        updates, inner_state = _update_if(
            act, inner, tree.zeros_like, updates, state.inner_state, params, extra_args
        )
        return updates, ApplyIfFiniteState(in_a_row, finite, in_all, inner_state)

    return base.GradientTransformationExtraArgs(init_fn, update_fn)
