"""Lookahead: fast parameters run ahead, slow ones follow them every few steps."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple, cast

from toile import numpy as jnp
from toile import tree as trees
from toile.engine.trace import Array
from toile.optim import base
from toile.optim.base import ArrayLike

__all__ = ["LookaheadParams", "LookaheadState", "lookahead"]

_log = logging.getLogger("toile.optim")


class LookaheadState(NamedTuple):
    """The fast optimizer's state, and the steps since the parameters were synchronized."""

    fast_state: base.OptState
    steps_since_sync: Array


class LookaheadParams(NamedTuple):
    """The parameters to train with, and those to evaluate with."""

    fast: base.Params
    slow: base.Params

    @classmethod
    def init_synced(cls, params: base.Params) -> LookaheadParams:
        """Both at the same point."""
        return cls(slow=params, fast=params)


def lookahead(
    fast_optimizer: base.GradientTransformation, sync_period: ArrayLike, slow_step_size: ArrayLike,
    reset_state: bool = False,
) -> base.GradientTransformation:
    """Every sync_period steps the slow parameters go slow_step_size of the way to the fast ones.

    The fast ones continue from there. Gradients are those at params.fast; init and update take
    LookaheadParams.
    """
    if sync_period < 1:
        raise ValueError(f"lookahead: needed sync_period >= 1, got {sync_period}")

    def init_fn(params):
        if not hasattr(params, "fast"):
            _log.warning("lookahead: got no LookaheadParams, taking them as the fast parameters")
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
