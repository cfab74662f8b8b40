"""L-BFGS, which multiplies gradients by an inverse Hessian estimated from the last steps."""

from __future__ import annotations

from typing import NamedTuple

from toile import lax
from toile import numpy as jnp
from toile import tree as trees
from toile.engine.source import here
from toile.optim import base, tree
from toile.optim.base import ArrayLike
from toile.optim.numerics import safe_increment

__all__ = ["ScaleByLBFGSState", "scale_by_lbfgs"]


class ScaleByLBFGSState(NamedTuple):
    """State of `scale_by_lbfgs`.

    Args:
        count: number of updates made so far.
        params: parameters in the last step.
        updates: gradients in the last step.
        diff_params_memory: past changes in the parameters; each leaf has a leading axis of size
            `memory_size`.
        diff_updates_memory: past changes in the gradients, stored in the same way.
        weights_memory: vector that contains `1 / dot(dw, dg)` for each past step, where `dw` and
            `dg` are the changes in the parameters and the gradients in that step.

    >>> from toile import optim
    >>> optim.scale_by_lbfgs(memory_size=3).init(jnp.zeros(2)).diff_params_memory.shape
    (3, 2)
    """

    count: ArrayLike
    params: base.Params
    updates: base.Params
    diff_params_memory: base.ArrayTree
    diff_updates_memory: base.ArrayTree
    weights_memory: ArrayLike


def _inner(x, y):
    return tree.real(tree.vdot(x, y))


def _two_loops(updates, steps, changes, weights, start, oldest):
    """Multiply updates by the inverse Hessian, from rings of steps, gradient changes and weights.

    The first loop goes from the newest step to the oldest, and the second loop goes back. The
    estimate starts from `start` times the identity.
    """
    size = weights.shape[0]
    order = (oldest + jnp.arange(size)) % size
    at = lambda ring, i: trees.map(lambda x: x[i], ring)

    def down(vector, i):
        alpha = weights[i] * _inner(at(steps, i), vector)
        new = tree.add_scale(vector, -alpha, at(changes, i))
        return tree.cast_like(new, vector), alpha

    def up(vector, pair):
        i, alpha = pair
        beta = weights[i] * _inner(at(changes, i), vector)
        new = tree.add_scale(vector, alpha - beta, at(steps, i))
        return tree.cast_like(new, vector), None

    vector, alphas = lax.scan(down, updates, order, reverse=True)
    vector, _ = lax.scan(up, tree.scale(start, vector), (order, alphas))
    return vector


def scale_by_lbfgs(
    memory_size: int = 10, scale_init_precond: bool = True
) -> base.GradientTransformation:
    """Multiply gradients by an estimate of the inverse Hessian that is computed from past steps.

    The product is computed by the two-loop recursion of L-BFGS (Liu and Nocedal, 1989). Put this
    transformation first in a chain, because it needs the unmodified gradients. The sign of
    the product is not flipped; `lbfgs` flips it, and adds a learning rate and a line search.

    Args:
        memory_size: number of past steps used in the estimate, at least 1.
        scale_init_precond: if True, the estimate starts from the identity times a factor that
            matches the curvature along the most recent step. In the first step, the factor is
            `min(1, 1 / norm(gradient))`. If False, the estimate starts from the identity.

    Returns:
        A gradient transformation whose `update` needs the parameters.

    Raises:
        ValueError: `memory_size` is less than 1.

    >>> from toile import optim
    >>> loss = lambda w: 2.0 * jnp.sum((w - 3.0) ** 2)
    >>> tx, w = optim.scale_by_lbfgs(), jnp.array([1.0, 2.0])
    >>> state = tx.init(w)
    >>> for _ in range(3):
    ...     updates, state = tx.update(toile.grad(loss)(w), state, w)
    ...     w = w - updates
    >>> w.round(3)
    Array([3., 3.], dtype=float32)
    """
    if memory_size < 1:
        raise ValueError(f"scale_by_lbfgs: needed memory_size >= 1, got {memory_size}{here()}")

    def init_fn(params):
        ring = lambda: trees.map(lambda p: jnp.zeros((memory_size, *p.shape), p.dtype), params)
        return ScaleByLBFGSState(
            count=jnp.asarray(0, dtype=jnp.int32),
            params=tree.zeros_like(params),
            updates=tree.zeros_like(params),
            diff_params_memory=ring(),
            diff_updates_memory=ring(),
            weights_memory=jnp.zeros(memory_size),
        )

    def identity_scale(updates, state, step, change):
        """Return `<dg, dw> / <dg, dg>` of the last step; in the first step, `min(1, 1 / |g|)`."""
        if not scale_init_precond:
            return 1.0
        above, below = _inner(change, step), tree.norm(change, squared=True)
        known = jnp.where(below > 0.0, above / below, 1.0)
        first = jnp.minimum(1.0, 1.0 / tree.norm(lax.stop_gradient(updates)))
        return jnp.where(state.count > 0, known, first)

    def update_fn(updates, state, params=None):
        step = tree.sub(base.required(params), state.params)
        change = tree.sub(updates, state.updates)
        curvature = _inner(change, step)
        weight = jnp.where(curvature == 0.0, 0.0, 1.0 / curvature)
        only_later = lambda x: jnp.where(state.count > 0, x, jnp.zeros_like(x))
        step, change, weight = trees.map(only_later, (step, change, weight))
        slot = (state.count - 1) % memory_size
        steps, changes, weights = trees.map(
            lambda ring, x: ring.at[slot].set(x),
            (state.diff_params_memory, state.diff_updates_memory, state.weights_memory),
            (step, change, weight),
        )
        start = identity_scale(updates, state, step, change)
        oldest = state.count % memory_size
        direction = _two_loops(updates, steps, changes, weights, start, oldest)
        count = safe_increment(state.count)
        return direction, ScaleByLBFGSState(count, params, updates, steps, changes, weights)

    return base.GradientTransformation(init_fn, update_fn)
