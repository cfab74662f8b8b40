"""Fenchel-Young losses: a max function minus the score of the target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import toile.numpy as jnp

__all__ = ["make_fenchel_young_loss"]


def make_fenchel_young_loss(max_fun: Callable[..., Any]) -> Callable[..., Any]:
    """The loss `max_fun(scores) - <targets, scores>` over the last axis.

    See https://arxiv.org/abs/1901.02324. With logsumexp it is the softmax cross entropy.

    >>> loss = make_fenchel_young_loss(toile.nn.logsumexp)
    >>> round(float(loss(jnp.array([0.0, 0.0]), jnp.array([1.0, 0.0]))), 4)
    0.6931
    """
    maximum = jnp.vectorize(max_fun, signature="(n)->()")
    product = jnp.vectorize(jnp.vdot, signature="(n),(n)->()")

    def fenchel_young_loss(scores: Any, targets: Any, *args: Any, **kwargs: Any) -> Any:
        return maximum(scores, *args, **kwargs) - product(targets, scores)

    return fenchel_young_loss
