"""Transformations that act on a condition, decided inside the update, on the device."""

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
    """Whether to act, given the step and what update got as keywords."""

    def __call__(self, step: ArrayLike, **extra_args: Any) -> ArrayLike:
        """A boolean scalar."""


def _update_if(condition, inner, otherwise, updates, inner_state, params, extra_args):
    """The inner update if the condition holds, else otherwise(updates) and the state as it was."""
    return lax.cond(
        condition,
        lambda: inner.update(updates, inner_state, params, **extra_args),
        lambda: (otherwise(updates), inner_state),
    )


class ConditionallyTransformState(NamedTuple):
    """The inner state and the steps seen."""

    inner_state: Any
    step: ArrayLike


class ConditionallyMaskState(NamedTuple):
    """The steps seen and the inner state."""

    step: ArrayLike
    inner_state: base.OptState


def _conditional(inner, should_transform_fn, forward_extra_args, otherwise, state_class):
    """The inner transformation where the condition holds; else otherwise(updates)."""
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
    """The inner transformation in steps where the condition holds; else updates pass unchanged."""
    options = inner, should_transform_fn, forward_extra_args
    return _conditional(*options, lambda u: u, ConditionallyTransformState)


def conditionally_mask(
    inner: base.GradientTransformation, should_transform_fn: ConditionFn,
    forward_extra_args: bool = False,
) -> base.GradientTransformationExtraArgs:
    """The inner transformation in steps where the condition holds; else updates are zero."""
    options = inner, should_transform_fn, forward_extra_args
    return _conditional(*options, tree.zeros_like, ConditionallyMaskState)


class ApplyIfFiniteState(NamedTuple):
    """Rejections in a row, whether the last was finite, rejections in all, the inner state."""

    notfinite_count: Any
    last_finite: Any
    total_notfinite: Any
    inner_state: Any


def apply_if_finite(
    inner: base.GradientTransformation, max_consecutive_errors: int
) -> base.GradientTransformation:
    """Zero updates where gradients are not finite, but at most so many times in a row.

    >>> from toile import optim
    >>> import toile.numpy as jnp
    >>> tx = optim.apply_if_finite(optim.sgd(1.0), max_consecutive_errors=3)
    >>> updates, state = tx.update(jnp.array([jnp.nan]), tx.init(jnp.zeros(1)))
    >>> print(updates, state.total_notfinite)
    [0.] 1
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
