"""The cache for decoding: the keys and values of all positions that have been decoded so far.

Each call adds one position. The cache is the variable 'entry' of the collection 'cache'. The number
of positions is not known when the variable is declared, so its first value is a function that makes
a CacheEntry from the shape of the positions.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

from toile import lax, struct
from toile import numpy as jnp
from toile.core.scope import Scope
from toile.engine.source import here

__all__ = ["CacheEntry"]


class CacheEntry(struct.PyTreeNode):
    """Keys and values of the positions decoded so far, and the number of these positions."""

    key: Any
    value: Any
    i: Any


def advance_cache(
    scope: Scope, inputs: Any, key: Any, value: Any, axes: tuple[int, ...]
) -> CacheEntry | None:
    """The cache with the key and value of one more position; None if there is no cache yet."""
    if not scope.has_variable("cache", "entry"):
        scope.put_variable("cache", "entry", CacheMaker(key.ndim, key.shape[-2:]))
        return None
    entry = scope.get_variable("cache", "entry")
    if not isinstance(entry, CacheEntry):
        raise ValueError(
            "multi_head_dot_product_attention: Cache is not initialized. Needed a CacheEntry, got "
            f"{type(entry).__name__} (call the function that init stored in 'cache' with the "
            f"shape of the batch and the positions){here()}"
        )
    sizes = entry.key.shape
    expected = (*(1 if a in axes else sizes[a] for a in range(len(sizes) - 2)), inputs.shape[-1])
    if expected != inputs.shape:
        raise ValueError(
            "multi_head_dot_product_attention: Invalid shape provided, expected shape "
            f"{expected} instead got {inputs.shape} (with a cache, a call takes one position)"
            f"{here()}"
        )
    # Convert the count of positions to indices into the attended axes, in row-major order.
    start, left = [0] * len(sizes), entry.i
    step = math.prod(sizes[a] for a in axes)
    for a in axes:
        step //= sizes[a]
        start[a], left = left // step, left % step
    entry = entry.replace(
        key=lax.dynamic_update_slice(entry.key, key, start),
        value=lax.dynamic_update_slice(entry.value, value, start),
        i=entry.i + jnp.array(1, jnp.uint32),
    )
    scope.put_variable("cache", "entry", entry)
    return entry


class CacheMaker(NamedTuple):
    """A function that makes an empty cache when the number of positions is known."""

    ndim: int  # number of axes of the keys and values
    tail: tuple[int, ...]  # sizes of the axes after the positions

    def __call__(self, shape: tuple[int, ...], dtype: Any = jnp.float32) -> CacheEntry:
        full = (*shape, *self.tail)
        if len(full) != self.ndim:
            raise ValueError(
                "Shape should be a tuple with the shape of the batch and attention dims, of length "
                f"{self.ndim - len(self.tail)}, got {shape}{here()}"
            )
        zeros = functools.partial(jnp.zeros, full, dtype)
        return CacheEntry(key=zeros(), value=zeros(), i=jnp.zeros((), jnp.uint32))


def decoded_mask(entry: CacheEntry, axes: tuple[int, ...]) -> Any:
    """A mask of attention weights that is True for the keys in the cache."""
    sizes = tuple(entry.key.shape[a] for a in axes)
    held = jnp.arange(math.prod(sizes), dtype=jnp.uint32) < entry.i
    return held.reshape((1,) * (entry.key.ndim - 1) + sizes)


def decoded_padding(entry: CacheEntry) -> Any:
    """A padding mask of the keys that is 1 for the positions in the cache."""
    batch, length = entry.key.shape[:2]
    held = jnp.broadcast_to(jnp.arange(length) < entry.i, (batch, length))
    return held.astype(jnp.float32)[..., None]
