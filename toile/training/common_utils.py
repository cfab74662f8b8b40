"""Small helpers of data-parallel loops: batches and keys per device, metrics gathered, one-hot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toile import lax, random, tree
from toile import numpy as jnp
from toile.api.devices import device_get, local_device_count
from toile.jax_utils import unreplicate

__all__ = ["get_metrics", "onehot", "shard", "shard_prng_key", "stack_forest"]


def shard(xs: Any) -> Any:
    """The leaves with their first axis split over the local devices: [n, …] to [devices, n', …].

    >>> import numpy as np
    >>> count = local_device_count()
    >>> shard({"x": np.zeros((6 * count, 2))})["x"].shape == (count, 6, 2)
    True
    """
    count = local_device_count()
    return tree.map(lambda x: x.reshape((count, -1) + x.shape[1:]), xs)


def shard_prng_key(prng_key: Any) -> Any:
    """A key per local device."""
    return random.split(prng_key, num=local_device_count())


def stack_forest(forest: Sequence[Any]) -> Any:
    """One tree whose leaves are the stacked leaves of many.

    >>> stack_forest([{"loss": jnp.float32(1)}, {"loss": jnp.float32(3)}])
    {'loss': Array([1., 3.], dtype=float32)}
    """
    return tree.map(lambda *xs: jnp.stack(xs), *forest)


def get_metrics(device_metrics: Sequence[Any]) -> Any:
    """Metrics of many steps, each replicated over devices, as one tree of series."""
    return stack_forest(device_get(unreplicate(device_metrics)))


def onehot(labels: Any, num_classes: int, on_value: float = 1.0, off_value: float = 0.0) -> Any:
    """One-hot vectors of integer labels, with values for hit and miss.

    >>> onehot(jnp.array([1]), 3, off_value=-1.0)
    Array([[-1.,  1., -1.]], dtype=float32)
    """
    hit = labels[..., None] == jnp.arange(num_classes).reshape((1,) * labels.ndim + (-1,))
    chosen = lax.select(hit, jnp.full(hit.shape, on_value), jnp.full(hit.shape, off_value))
    return chosen.astype(jnp.float32)
