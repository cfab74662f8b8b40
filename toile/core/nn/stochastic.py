"""Dropout as a function of a Scope or of a key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toile import lax, random
from toile import numpy as jnp
from toile.core.scope import Scope
from toile.engine.annotations import Array

__all__ = ["dropout"]


def drop(key: Any, x: Any, rate: float, broadcast_dims: Sequence[int] = ()) -> Any:
    """Set each element to zero with probability `rate`, and divide the others by `1 - rate`.

    All elements along `broadcast_dims` are dropped together."""
    keep = 1.0 - rate
    shape = list(x.shape)
    for axis in broadcast_dims:
        shape[axis] = 1
    kept = random.bernoulli(key, keep, tuple(shape))
    if broadcast_dims:
        kept = jnp.broadcast_to(kept, x.shape)
    return lax.select(kept, x / keep, jnp.zeros_like(x))


def drop_weights(key: Any, weights: Any, rate: float, shared_axes: int, dtype: Any) -> Any:
    """Apply dropout to attention weights, with the same mask for all indices of the first axes."""
    keep = 1.0 - rate
    shape = (1,) * shared_axes + weights.shape[shared_axes:]
    kept = random.bernoulli(key, keep, shape).astype(dtype)
    return weights * (kept / jnp.asarray(keep, dtype=dtype))


def dropout(
    scope: Scope, inputs: Array, rate: float, deterministic: bool = False,
    rng: Array | None = None,
) -> Array:
    """Set each element to zero with probability `rate`, and divide the others by `1 - rate`.

    Args:
        scope: scope that provides the random stream `dropout`.
        inputs: array of any shape.
        rate: probability that an element is dropped.
        deterministic: whether to return the inputs unchanged.
        rng: key to use; if None, the next key of the stream `dropout` is used.

    Returns:
        An array with the shape of `inputs`.

    >>> from toile.core import apply, nn
    >>> y = apply(nn.dropout)({}, jnp.ones(1000), 0.25, rngs={"dropout": key(0)})
    >>> sorted(set(y.tolist())), abs(y.mean() - 1) < 0.1
    ([0.0, 1.3333333730697632], Array(True, dtype=bool))
    """
    if deterministic or rate == 0.0:
        return inputs
    return drop(scope.make_rng("dropout") if rng is None else rng, inputs, rate)
