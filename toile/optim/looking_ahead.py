"""Lookahead, in which slow parameters follow fast parameters every few steps."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple, cast

from toile import numpy as jnp
from toile import tree as trees
from toile.engine.source import here
from toile.engine.trace import Array
from toile.optim import base
from toile.optim.base import ArrayLike

__all__ = ["LookaheadParams", "LookaheadState", "lookahead"]

_log = logging.getLogger("toile.optim")


class LookaheadState(NamedTuple):
    """State of `lookahead`.

    Args:
        fast_state: state of the fast optimizer.
        steps_since_sync: number of steps since the slow parameters last moved.

    >>> from toile import optim
    >>> params = optim.LookaheadParams.init_synced(jnp.zeros(1))
    >>> optim.lookahead(optim.sgd(1.0), 5, 0.5).init(params).steps_since_sync
    Array(0, dtype=int32)
    """

    fast_state: base.OptState
    steps_since_sync: Array


class LookaheadParams(NamedTuple):
    """The two sets of parameters that `lookahead` uses.

    Args:
        fast: parameters for training, at which gradients are computed.
        slow: parameters for evaluation.

    >>> from toile import optim
    >>> optim.LookaheadParams.init_synced(jnp.ones(1))
    LookaheadParams(fast=Array([1.], dtype=float32), slow=Array([1.], dtype=float32))
    """

    fast: base.Params
    slow: base.Params

    @classmethod
    def init_synced(cls, params: base.Params) -> LookaheadParams:
        """Create a `LookaheadParams` whose fast and slow parameters are the same.

        Args:
            params: parameters to start from.
        """
        return cls(slow=params, fast=params)


def lookahead(
    fast_optimizer: base.GradientTransformation, sync_period: ArrayLike, slow_step_size: ArrayLike,
    reset_state: bool = False,
) -> base.GradientTransformation:
    """Run an optimizer on fast parameters, and let slow parameters follow every few steps.

    Every `sync_period` steps, the slow parameters move the fraction `slow_step_size` of the way to
    the fast parameters, and the fast parameters are then set to the slow parameters (Zhang et al.,
    2019). The parameters that are passed to `init` and `update` must be a `LookaheadParams`, and
    the gradients that are passed to `update` must be computed at its `fast` parameters. The updates
    that `update` returns are also a `LookaheadParams`.

    Args:
        fast_optimizer: optimizer for the fast parameters.
        sync_period: number of steps between successive moves of the slow parameters, often 5.
        slow_step_size: how far the slow parameters move toward the fast parameters, as a fraction
            of the distance; often 0.5.
        reset_state: whether to reset the state of the fast optimizer after each move of the slow
            parameters.

    Returns:
        A gradient transformation whose `update` needs the parameters.

    Raises:
        ValueError: `sync_period` is less than 1.

    >>> from toile import optim
    >>> tx = optim.lookahead(optim.sgd(1.0), sync_period=2, slow_step_size=0.5)
    >>> params = optim.LookaheadParams.init_synced(jnp.array([10.0]))
    >>> state = tx.init(params)
    >>> for _ in range(2):
    ...     updates, state = tx.update(jnp.array([1.0]), state, params)
    ...     params = optim.apply_updates(params, updates)
    ...     print(params.fast, params.slow)
    [9.] [10.]
    [9.] [9.]
    """
    if sync_period < 1:
        raise ValueError(f"lookahead: needed sync_period >= 1, got {sync_period}{here()}")

    def init_fn(params):
        if not hasattr(params, "fast"):
            _log.warning("lookahead: got no LookaheadParams, uses the parameters as the fast ones")
        state = fast_optimizer.init(getattr(params, "fast", params))
        return LookaheadState(state, jnp.zeros(shape=(), dtype=jnp.int32))

    def update_fn(updates, state, params):
        updates, fast_state = fast_optimizer.update(updates, state.fast_state, params.fast)
        sync = state.steps_since_sync == sync_period - 1
        ahead = trees.map(lambda f, u, s: f + u - s, params.fast, updates, params.slow)
        slow = trees.map(lambda d: slow_step_size * sync * d, ahead)
        fast = trees.map(lambda u, d: u - sync * (1 - slow_step_size) * d, updates, ahead)
        if reset_state:
            anew = fast_optimizer.init(params.fast)
            pick = lambda now, start: (1 - sync) * now + sync * start
            fast_state = trees.map(pick, fast_state, anew)
        steps = (state.steps_since_sync + 1) % sync_period
        return LookaheadParams(fast=fast, slow=slow), LookaheadState(fast_state, steps)

    return base.GradientTransformation(init_fn, cast(Any, update_fn))
