"""Helpers for data-parallel loops: sharded batches and keys, gathered metrics, one-hot labels."""

from __future__ import annotations

from collections.abc import Sequence

from toile import lax, random, tree
from toile import numpy as jnp
from toile.api.devices import device_get, local_device_count
from toile.engine.annotations import Array, PyTree
from toile.jax_utils import unreplicate

__all__ = ["get_metrics", "onehot", "shard", "shard_prng_key", "stack_forest"]


def shard(xs: PyTree) -> PyTree:
    """Split the first axis of arrays across the devices of this process.

    Args:
        xs: tree of arrays. The length of each array's first axis must be a multiple of the number
            of devices.

    Returns:
        A tree of arrays of shape (devices, n / devices, ...), where n is the length of the first
        axis.

    >>> import numpy as np
    >>> from toile.training import common_utils
    >>> count = toile.local_device_count()
    >>> common_utils.shard({"x": np.zeros((6 * count, 2))})["x"].shape == (count, 6, 2)
    True
    """
    count = local_device_count()
    return tree.map(lambda x: x.reshape((count, -1) + x.shape[1:]), xs)


def shard_prng_key(prng_key: Array) -> Array:
    """Split a random key into one key for each device of this process.

    Args:
        prng_key: a key.

    Returns:
        An array with one key for each device.

    >>> from toile.training import common_utils
    >>> common_utils.shard_prng_key(key(0)).shape == (toile.local_device_count(),)
    True
    """
    return random.split(prng_key, num=local_device_count())


def stack_forest(forest: Sequence[PyTree]) -> PyTree:
    """Stack the arrays of several trees.

    Args:
        forest: trees of the same structure, with arrays of the same shapes.

    Returns:
        A tree of the same structure. Its arrays have a new first axis with one entry for each tree.

    >>> from toile.training import common_utils
    >>> common_utils.stack_forest([{"loss": jnp.float32(1)}, {"loss": jnp.float32(3)}])
    {'loss': Array([1., 3.], dtype=float32)}
    """
    return tree.map(lambda *xs: jnp.stack(xs), *forest)


def get_metrics(device_metrics: Sequence[PyTree]) -> PyTree:
    """Stack the metrics of many steps, using the copies on the first device.

    Args:
        device_metrics: trees of arrays, one tree for each step. The first axis of each array has
            one entry for each device.

    Returns:
        A tree of arrays whose first axis has one entry for each step.

    >>> from toile.training import common_utils
    >>> steps = [{"loss": jnp.full(toile.local_device_count(), x)} for x in (3.0, 2.0)]
    >>> common_utils.get_metrics(steps)
    {'loss': Array([3., 2.], dtype=float32)}
    """
    return stack_forest(device_get(unreplicate(device_metrics)))


def onehot(
    labels: Array, num_classes: int, on_value: float = 1.0, off_value: float = 0.0
) -> Array:
    """Turn integer labels into vectors with one entry for each class.

    Args:
        labels: array of integers.
        num_classes: number of classes.
        on_value: value for the label's class.
        off_value: value for all other classes.

    Returns:
        A float32 array of shape (*labels.shape, num_classes).

    >>> from toile.training import common_utils
    >>> common_utils.onehot(jnp.array([1]), 3, off_value=-1.0)
    Array([[-1.,  1., -1.]], dtype=float32)
    """
    hit = labels[..., None] == jnp.arange(num_classes).reshape((1,) * labels.ndim + (-1,))
    chosen = lax.select(hit, jnp.full(hit.shape, on_value), jnp.full(hit.shape, off_value))
    return chosen.astype(jnp.float32)
