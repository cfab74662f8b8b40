"""Functions that arrange devices for meshes, with the names of `jax.experimental.mesh_utils`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from toile.api.devices import devices as all_devices
from toile.engine.devices import Device
from toile.engine.source import here

__all__ = ["create_device_mesh", "create_hybrid_device_mesh"]


def create_device_mesh(
    mesh_shape: Sequence[int], devices: Sequence[Device] | None = None, *,
    contiguous_submeshes: bool = False, allow_split_physical_axes: bool = False,
) -> np.ndarray:
    """Arrange devices in an array from which a mesh can be created.

    Args:
        mesh_shape: shape of the array.
        devices: the devices; None for all devices.
        contiguous_submeshes: not used; in JAX, it matters only for TPUs.
        allow_split_physical_axes: not used; in JAX, it matters only for TPUs.

    Returns:
        A NumPy array of the devices, in the order of `devices`.

    Raises:
        ValueError: the number of devices is not the product of `mesh_shape`.

    >>> from toile.experimental.mesh_utils import create_device_mesh
    >>> create_device_mesh((1, 1), toile.devices("cpu")[:1])
    array([[CpuDevice(id=0)]], dtype=object)
    """
    found = list(all_devices() if devices is None else devices)
    shape = tuple(int(n) for n in mesh_shape)
    if math.prod(shape) != len(found):
        raise ValueError(
            f"Number of devices {len(found)} must equal the product of mesh_shape {shape}{here()}"
        )
    return np.array(found, dtype=object).reshape(shape)


def create_hybrid_device_mesh(
    mesh_shape: Sequence[int], dcn_mesh_shape: Sequence[int],
    devices: Sequence[Device] | None = None, *, process_is_granule: bool = False,
    should_sort_granules_by_key: bool = True, allow_split_physical_axes: bool = False,
) -> np.ndarray:
    """Arrange the devices of several processes in an array from which a mesh can be created.

    Along each axis, the devices of one process are next to each other. The size of each axis of the
    array is the product of the corresponding sizes in `mesh_shape` and `dcn_mesh_shape`.

    Args:
        mesh_shape: shape of the array of each process's devices.
        dcn_mesh_shape: shape of the array of processes, with the same number of axes as
            `mesh_shape`.
        devices: the devices; None for all devices.
        process_is_granule: must be True, which groups devices by process. The default, False, would
            group them by the attribute `slice_index`, which devices in toile do not have.
        should_sort_granules_by_key: whether processes are sorted by index. If False, they are in
            the order in which they first appear in `devices`.
        allow_split_physical_axes: not used; in JAX, it matters only for TPUs.

    Returns:
        A NumPy array of devices.

    Raises:
        ValueError: `process_is_granule` is False, or a shape does not match the number of processes
            or the number of devices per process.
    """
    found = list(all_devices() if devices is None else devices)
    name = "process_index" if process_is_granule else "slice_index"
    if not hasattr(found[0], name):
        raise ValueError(
            f"Device {found[0]} does not have attribute {name}. See `process_is_granule` "
            f"option.{here()}"
        )
    if len(mesh_shape) != len(dcn_mesh_shape):
        raise ValueError(
            f"create_hybrid_device_mesh: needed shapes of one length, got {tuple(mesh_shape)} and "
            f"{tuple(dcn_mesh_shape)}{here()}"
        )
    granules: dict[int, list[Any]] = {}
    for d in found:
        granules.setdefault(getattr(d, name), []).append(d)
    keys = sorted(granules) if should_sort_granules_by_key else list(granules)
    if math.prod(dcn_mesh_shape) != len(keys):
        raise ValueError(
            f"Number of slices {len(keys)} must equal the product of dcn_mesh_shape "
            f"{tuple(dcn_mesh_shape)}{here()}"
        )
    blocks = np.empty(tuple(dcn_mesh_shape), dtype=object)
    for place, key in zip(np.ndindex(*dcn_mesh_shape), keys, strict=True):
        blocks[place] = create_device_mesh(mesh_shape, granules[key])
    return np.block(blocks.tolist())
