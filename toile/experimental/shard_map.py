"""The former home of shard_map, with its former argument names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toile.parallel.shard_maps import shard_map as _shard_map

__all__ = ["shard_map"]


def shard_map(
    f: Callable[..., Any], mesh: Any, in_specs: Any, out_specs: Any, check_rep: bool = True,
    auto: frozenset[Any] = frozenset(),
) -> Callable[..., Any]:
    """`toile.shard_map` with its argument names from experimental."""
    manual = frozenset(mesh.axis_names) - frozenset(auto)
    return _shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, axis_names=manual,
                      check_vma=check_rep)
