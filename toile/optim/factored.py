"""Adafactor's averages of squared gradients, stored by row and column for large matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from toile import numpy as jnp
from toile import tree as trees
from toile.optim import base
from toile.optim.base import ArrayLike
from toile.optim.numerics import abs_sq, safe_increment

__all__ = ["FactoredState", "scale_by_factored_rms"]


class FactoredState(NamedTuple):
    """State of `scale_by_factored_rms`; arrays that are not used have shape (1,).

    Args:
        count: number of updates made so far.
        v_row: for leaves that are factored, averages of squared gradients, taken over the largest
            axis.
        v_col: for leaves that are factored, averages of squared gradients, taken over the
            second-largest axis.
        v: for leaves that are not factored, averages of squared gradients.

    >>> from toile import optim
    >>> state = optim.scale_by_factored_rms(min_dim_size_to_factor=2).init(jnp.zeros((2, 3)))
    >>> state.v_row.shape, state.v_col.shape, state.v.shape
    ((2,), (3,), (1,))
    """

    count: ArrayLike
    v_row: base.ArrayTree
    v_col: base.ArrayTree
    v: base.ArrayTree


def _power_decay(i: ArrayLike, exponent: ArrayLike = 0.8) -> ArrayLike:
    """Return `1 - (i + 1)**-exponent`, which is 0 in the first step and approaches 1."""
    return 1.0 - jnp.array(i + 1, jnp.float32) ** (-exponent)


def two_largest(shape: Sequence[int], smallest: int) -> tuple[int, int] | None:
    """Return the second-largest and the largest axis if both are large enough, otherwise None."""
    if len(shape) < 2:
        return None
    order = np.argsort(shape)
    if shape[order[-2]] < smallest:
        return None
    return int(order[-2]), int(order[-1])


def without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """Return the shape without an axis."""
    return shape[:axis] + shape[axis + 1 :]


def scale_by_factored_rms(
    factored: bool = True, decay_rate: ArrayLike = 0.8, step_offset: ArrayLike = 0,
    min_dim_size_to_factor: int = 128, epsilon: ArrayLike = 1e-30,
    decay_rate_fn: Callable[[ArrayLike, ArrayLike], ArrayLike] = _power_decay,
) -> base.GradientTransformation:
    """Divide updates by the root of their average square, which is factored for large matrices.

    If the two largest axes of an array are long enough, the squared updates are averaged over each
    of these two axes, and only these averages are stored. The average squares of the
    elements are estimated as the outer product of the two stored averages, divided by their common
    mean (Adafactor; Shazeer and Stern, 2018). At step `t`, counted from 1, the decay rate of the
    averages is `1 - t**-decay_rate`.

    Args:
        factored: whether to factor the average squares. If False, the average squares are stored in
            full.
        decay_rate: exponent in the rule above; larger values average over more steps.
        step_offset: number subtracted from the step count; set it if training continues from a
            saved state.
        min_dim_size_to_factor: an array is factored if its second-largest axis has at least this
            size.
        epsilon: small number added to squared gradients.
        decay_rate_fn: function `decay_rate_fn(step, decay_rate)` that returns the decay rate;
            `step` is the number of steps taken. The default is the rule above.

    Returns:
        A gradient transformation whose `update` needs the parameters.

    >>> from toile import optim
    >>> tx, params = optim.scale_by_factored_rms(min_dim_size_to_factor=2), jnp.ones((2, 3))
    >>> updates, state = tx.update(jnp.full((2, 3), 5.0), tx.init(params), params)
    >>> updates.round(3)
    Array([[1., 1., 1.],
           [1., 1., 1.]], dtype=float32)
    """

    def axes_of(shape):
        return two_largest(shape, min_dim_size_to_factor) if factored else None

    def init_fn(params):
        def zeros(p):
            axes, unused = axes_of(p.shape), lambda: jnp.zeros((1,), p.dtype)
            if axes is None:
                return unused(), unused(), jnp.zeros_like(p)
            row, col = axes
            averages = (jnp.zeros(without(p.shape, axis), p.dtype) for axis in (col, row))
            return *averages, unused()

        return FactoredState(base.zero_count(), *_unzipped(trees.map(zeros, params), params, 3))

    def update_fn(grads, state, params=None):
        base.required(params)
        decay = decay_rate_fn(state.count - step_offset, decay_rate)

        def average(old, new, dtype):
            return (decay * old + (1.0 - decay) * new).astype(dtype)

        def step(g, v_row, v_col, v, p):
            axes, unused = axes_of(p.shape), lambda: jnp.zeros((1,), p.dtype)
            square = abs_sq(g) + epsilon
            if axes is None:
                v = average(v, square, p.dtype)
                return g * v ** (-0.5), unused(), unused(), v
            row, col = axes
            v_row = average(v_row, jnp.mean(square, axis=col), p.dtype)
            v_col = average(v_col, jnp.mean(square, axis=row), p.dtype)
            # v ≈ v_row v_col / mean(v_row): the best rank-one fit of the same margins
            mean = jnp.mean(v_row, axis=row - 1 if row > col else row, keepdims=True)
            by_row = jnp.expand_dims((v_row / mean) ** (-0.5), axis=col)
            by_col = jnp.expand_dims(v_col ** (-0.5), axis=row)
            return g * by_row * by_col, v_row, v_col, unused()

        results = trees.map(step, grads, state.v_row, state.v_col, state.v, params)
        updates, *moments = _unzipped(results, grads, 4)
        return updates, FactoredState(safe_increment(state.count), *moments)

    return base.GradientTransformation(init_fn, update_fn)


def _unzipped(tuples, like, n):
    """Turn a tree of n-tuples into n trees."""
    structure = trees.structure(like)
    parts = structure.flatten_up_to(tuples)
    return [trees.unflatten(structure, [part[i] for part in parts]) for i in range(n)]
