"""`flax.training.orbax_utils`: what Orbax needs to know to save and restore trees of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from toile import interop, tree_util
from toile.engine.trace import Array
from toile.sharding import NamedSharding
from toile.traverse_util import flatten_dict

__all__ = [
    "is_multi_device_array", "maybe_construct_transformations", "restore_args_from_target",
    "save_args_from_target",
]

_orbax = interop.load("orbax.checkpoint")


def is_multi_device_array(value: Any) -> bool:
    """Whether an array is divided among several devices."""
    return isinstance(value, Array) and not value.is_fully_replicated


def save_args_from_target(target: Any) -> Any:
    """A tree of Orbax's `SaveArgs` for the leaves of `target`."""
    return tree_util.tree_map(lambda _: _orbax.SaveArgs(), target)


def maybe_construct_transformations(target: Mapping[str, Any], transforms: Any) -> Any:
    """`transforms`, or if it is None, those that take missing leaves of `target` as they are."""
    if transforms is not None:
        return transforms
    flat = flatten_dict(target, keep_empty_nodes=True, sep="/")
    return {name: _orbax.Transform(use_fallback=True) for name, x in flat.items() if x is None}


def restore_args_from_target(target: Any, mesh: Any = None) -> Any:
    """Orbax's `RestoreArgs`, with which the leaves are restored as those of `target` are."""
    shardings = tree_util.tree_map(lambda x: getattr(x, "sharding", None), target)
    if not tree_util.tree_leaves(shardings):
        return tree_util.tree_map(lambda _: _orbax.RestoreArgs(restore_type=np.ndarray), target)
    if mesh is not None:
        shardings = tree_util.tree_map(lambda s: NamedSharding(mesh, s.spec), shardings)
    return _orbax.checkpoint_utils.construct_restore_args(target, shardings)
