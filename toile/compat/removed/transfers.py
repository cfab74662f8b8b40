"""Functions that copied arrays to several devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import toile
from toile import numpy as jnp
from toile.sharding import Mesh, NamedSharding, PartitionSpec
from toile.tree_util import tree_map

__all__ = ["device_put_replicated", "device_put_sharded"]


def _stacked(devices: Sequence[Any]) -> NamedSharding:
    return NamedSharding(Mesh(np.array(devices), ("devices",)), PartitionSpec("devices"))


def device_put_sharded(shards: Sequence[Any], devices: Sequence[Any]) -> Any:
    """Stack trees along a new first axis, one on each device."""
    return tree_map(lambda *xs: toile.device_put(jnp.stack(xs), _stacked(devices)), *shards)


def device_put_replicated(x: Any, devices: Sequence[Any]) -> Any:
    """A copy of a tree on each device, along a new first axis."""
    return device_put_sharded([x] * len(devices), devices)
