"""`shard_map` under its older name and with its older argument names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toile.engine.annotations import PyTree
from toile.parallel.meshes import Mesh
from toile.parallel.shard_maps import shard_map as _shard_map

__all__ = ["shard_map"]


def shard_map(
    f: Callable[..., Any], mesh: Mesh, in_specs: PyTree, out_specs: PyTree, check_rep: bool = True,
    auto: frozenset[Any] = frozenset(),
) -> Callable[..., Any]:
    """Run a function on each device of a mesh, with that device's parts of the arguments.

    This function is `toile.shard_map` with the argument names of older versions of JAX.

    Args:
        f: the function, which is called on each device with that device's parts of the arguments.
        mesh: mesh of devices.
        in_specs: partition specs of the arguments.
        out_specs: partition specs of the results.
        check_rep: whether to check that results are the same on all devices wherever `out_specs`
            requires this.
        auto: names of mesh axes along which the arguments are not divided; `f` receives whole
            arrays along these axes.

    Returns:
        A function whose arguments and results are whole arrays.
    """
    manual = frozenset(mesh.axis_names) - frozenset(auto)
    return _shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, axis_names=manual,
                      check_vma=check_rep)
