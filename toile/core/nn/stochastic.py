"""Dropout as a function of a Scope."""

from __future__ import annotations

from typing import Any

from toile import lax, random
from toile import numpy as jnp
from toile.core.scope import Scope

__all__ = ["dropout"]


def dropout(
    scope: Scope, inputs: Any, rate: float, deterministic: bool = False, rng: Any = None
) -> Any:
    """Set a share `rate` of the numbers to zero, at random, and scale the others by 1/(1 - rate).

    The key is `rng`, or the next one of the stream 'dropout'.

    >>> import toile, toile.numpy as jnp
    >>> from toile.core import apply, nn
    >>> y = apply(nn.dropout)({}, jnp.ones(1000), 0.25, rngs={"dropout": toile.random.key(0)})
    >>> sorted(set(y.tolist())), abs(y.mean() - 1) < 0.1
    ([0.0, 1.3333333730697632], Array(True, dtype=bool))
    """
    if deterministic or rate == 0.0:
        return inputs
    keep = 1.0 - rate
    key = scope.make_rng("dropout") if rng is None else rng
    kept = random.bernoulli(key, p=keep, shape=inputs.shape)
    return lax.select(kept, inputs / keep, jnp.zeros_like(inputs))
