"""Devices and placement: devices, device_put, device_get, block_until_ready and others.

The default platform is the GPU if there is one. Asking for a platform that is not available raises
an error; no other platform is used instead.
"""

from __future__ import annotations

import gc
from typing import Any

import numpy as np

from toile.engine import devices as engine_devices
from toile.engine import dtypes
from toile.engine.annotations import ArrayLike, PyTree
from toile.engine.arrays import ConcreteArray, SingleDeviceSharding
from toile.engine.avals import Aval, aval_of
from toile.engine.conversion import as_array, leaving, placed
from toile.engine.devices import Device
from toile.engine.platform_registry import default_device, default_devices, registry
from toile.engine.sharded import Sharded
from toile.engine.shardings import Format, MemorySpace, Sharding
from toile.engine.source import here, message
from toile.engine.trace import Array, Tracer
from toile.engine.trees import broadcast_prefix, flatten, structure, tree_map, unflatten
from toile.parallel.meshes import mesh_set
from toile.parallel.placement import put
from toile.parallel.specs import NamedSharding, PartitionSpec
from toile.staging.flat_functions import prefix_error


def devices(backend: str | None = None) -> list[Device]:
    """List the devices of a platform, including the devices of all other processes.

    Args:
        backend: name of the platform, such as "cpu" or "gpu"; None for the default platform, which
            is the GPU if there is one.

    Returns:
        A list of devices.

    Raises:
        RuntimeError: the platform does not exist or has no devices.

    >>> toile.devices("cpu")[0].platform
    'cpu'
    """
    if backend is None:
        return default_devices()
    return list(registry.named(backend).all_devices())


def local_devices(process_index: int | None = None, backend: str | None = None,
                  host_id: int | None = None) -> list[Device]:
    """List the devices that belong to one process.

    Args:
        process_index: index of the process; None for this process.
        backend: name of the platform, such as "cpu" or "gpu"; None for the default platform, which
            is the GPU if there is one.
        host_id: older name for `process_index`; it is used if `process_index` is None.

    Returns:
        A list of devices.

    Raises:
        ValueError: there is no process with this index.

    >>> toile.local_devices(process_index=0) == toile.devices()
    True
    """
    count = engine_devices.process_count()
    wanted = host_id if process_index is None else process_index
    if wanted is None:
        wanted = engine_devices.process_index()
    if wanted not in range(count):
        raise ValueError(
            f"Unknown process_index {wanted}: there is one process, 0{here()}" if count == 1 else
            f"Unknown process_index {wanted}: there are {count} processes, 0 to {count - 1}{here()}"
        )
    return [d for d in devices(backend) if d.process_index == wanted]


def device_count(backend: str | None = None) -> int:
    """Count the devices of a platform, including the devices of all other processes.

    Args:
        backend: name of the platform, such as "cpu" or "gpu"; None for the default platform, which
            is the GPU if there is one.

    Returns:
        The number of devices.

    >>> toile.device_count() == len(toile.devices())
    True
    """
    return len(devices(backend))


def local_device_count(backend: str | None = None) -> int:
    """Count the devices of a platform that belong to this process.

    Args:
        backend: name of the platform, such as "cpu" or "gpu"; None for the default platform, which
            is the GPU if there is one.

    Returns:
        The number of devices.

    >>> toile.local_device_count() == len(toile.local_devices())
    True
    """
    return len(local_devices(backend=backend))


def default_backend() -> str:
    """Return the name of the default platform, on which arrays are created by default.

    Returns:
        "gpu" if there is a GPU, otherwise "cpu".

    >>> toile.default_backend() == toile.devices()[0].platform
    True
    """
    return registry.default().name


def process_index(backend: str | None = None) -> int:
    """Return the index of this process.

    `process_index` is also available under its older name, `host_id`.

    Args:
        backend: accepted for compatibility with JAX; the processes are the same for all platforms.

    Returns:
        The index, counted from 0; always 0 if there is only one process.

    >>> toile.process_index()
    0
    """
    return engine_devices.process_index()


def process_count(backend: str | None = None) -> int:
    """Count the processes of a distributed program.

    `process_count` is also available under its older name, `host_count`.

    Args:
        backend: accepted for compatibility with JAX; the processes are the same for all platforms.

    Returns:
        The number of processes; 1 unless `toile.distributed` has connected several processes.

    >>> toile.process_count()
    1
    """
    return engine_devices.process_count()


def process_indices(backend: str | None = None) -> list[int]:
    """List the indices of all processes.

    `process_indices` is also available under its older name, `host_ids`.

    Args:
        backend: accepted for compatibility with JAX; the processes are the same for all platforms.

    Returns:
        The integers from 0 to `process_count() - 1`.

    >>> toile.process_indices()
    [0]
    """
    return list(range(engine_devices.process_count()))


host_id, host_count, host_ids = process_index, process_count, process_indices


def device_put(
    x: PyTree, device: Device | Sharding | Format | PyTree = None, *,
    src: Device | Sharding | PyTree = None, donate: bool | PyTree = False,
    may_alias: bool | PyTree | None = None,
) -> PyTree:
    """Copy the arrays of a tree to a device, or divide them among several devices.

    Arrays that are already on the device are returned unchanged, unless `may_alias` is False.

    Args:
        x: tree of arrays and numbers; numbers and NumPy arrays are converted to arrays.
        device: a device, a sharding, a `Format`, or a `PartitionSpec` for the mesh that was set
            with `toile.set_mesh`; or a tree of such values whose structure is a prefix of the
            structure of `x`. If `device` is None, arrays that were already put on a device or
            divided among several devices stay where they are, and everything else is put on the
            default device.
        src: accepted for compatibility with JAX.
        donate: whether to delete the arrays of `x` after they have been copied: a boolean, or a
            tree of booleans. This option has no effect if `device` is None.
        may_alias: whether the result may share memory with `x`. By default, it may; if `may_alias`
            is False, the values are always copied.

    Returns:
        A tree of arrays with the structure of `x`.

    Raises:
        ValueError: `device` contains an object that is neither a device nor a sharding, a device
            that does not exist, or a sharding that does not fit the shape of its array; or both
            `donate` and `may_alias` are True.

    >>> toile.device_put({"a": [1, 2.5]}, toile.devices()[0])
    {'a': [Array(1, dtype=int32, weak_type=True), Array(2.5, dtype=float32, weak_type=True)]}
    """
    del src
    if donate and may_alias:
        _check_donation(donate, may_alias, x)
    if may_alias is not None and not may_alias:
        return tree_map(_unshared, device_put(x, device, donate=donate), x)
    places = [] if device is None else [_resolved(d) for d in _places(device, x)]
    for d, leaf in zip(places, flatten(x)[0], strict=False):
        _check_device(d, leaf)
    if device is None:
        target = default_device()
        if target is None:
            return tree_map(lambda v: put(v, None), x)
        return tree_map(lambda v: leaving(_on_default(as_array(v), target)), x)
    leaves, tree = flatten(x)
    outs = [put(v, d) for v, d in zip(leaves, places, strict=True)]
    if donate:
        _delete_moved(leaves, outs, broadcast_prefix(donate, x))
    return unflatten(tree, outs)


def _on_default(x: Any, target: Device) -> Any:
    """An array on the default device, unless it was put on a device before."""
    moves = isinstance(x, ConcreteArray) and not isinstance(x, Sharded)
    return placed(x, target) if moves else x


def _delete_moved(leaves: list[Any], outs: list[Any], donated: list[Any]) -> None:
    """Delete donated arrays that were copied to another device or sharding."""
    for old, new, give in zip(leaves, outs, donated, strict=True):
        if give and isinstance(old, ConcreteArray) and old is not new:
            old.delete()


def _places(device: Any, x: Any) -> list[Any]:
    """A device or sharding for each leaf of `x`, from a prefix of its tree."""
    try:
        return broadcast_prefix(device, x, is_leaf=_is_none)
    except ValueError as e:
        raise prefix_error("device_put device", device, x, _is_none) from e


def _check_donation(donate: Any, may_alias: Any, x: Any) -> None:
    """Raise an error for leaves that are both donated and aliased."""
    pairs = zip(broadcast_prefix(donate, x), broadcast_prefix(may_alias, x, _is_none), strict=True)
    if any(give and keep for give, keep in pairs):
        raise ValueError(
            "may_alias and donate cannot be True at the same time. Got both for a leaf of "
            f"{structure(x)} (donated memory cannot stay in use){here()}"
        )


def _unshared(new: Any, old: Any) -> Any:
    """An array that does not share memory with `old`."""
    return new.copy() if new is old and isinstance(new, ConcreteArray) else new


def _resolved(device: Any) -> Any:
    """The sharding of a PartitionSpec (on the mesh that was set) or Format; None for a MemorySpace,
    since there is only one kind of memory; other values unchanged."""
    if isinstance(device, PartitionSpec):
        mesh = mesh_set()
        if mesh.empty:
            raise ValueError(
                "Please set a mesh via `toile.set_mesh` if a PartitionSpec is passed to device_put "
                f"(got {device}, and no mesh){here()}"
            )
        return NamedSharding(mesh, device)
    if isinstance(device, Format):
        return device.sharding
    return None if isinstance(device, MemorySpace) else device


def _is_none(x: Any) -> bool:
    return x is None


def _check_device(d: Any, leaf: Any) -> None:
    """Raise an error for a device that does not exist, or a sharding that does not fit the leaf."""
    check = getattr(d, "check_compatible_aval", None)
    if check is not None:
        try:
            check(np.shape(leaf))
        except ValueError as e:
            raise ValueError(
                f"One of device_put args is incompatible with its sharding annotation {d}: "
                f"{message(e)}{here()}"
            ) from e
        d.shard_shape(np.shape(leaf))  # raises IndivisibleError
    found = getattr(d, "device_set", None)
    if found is None and d is not None and not isinstance(d, Device) and _is_plain(d):
        raise ValueError(
            "device_put only accepts None, a Sharding, a Device, a Format or a pytree of these "
            f"values. Received invalid value: {d!r} (pass toile.devices()[0], or a sharding)"
            f"{here()}"
        )
    there = _there(found is not None)
    for t in [d] if found is None else found:
        if isinstance(t, Device) and t not in there:
            raise ValueError(f"device_put: needed one of {there}, got {t}{here()}")


def _there(everywhere: bool) -> list[Device]:
    """The devices of all platforms, in this process or in all processes."""
    return [d for p in registry.platforms()
            for d in (p.all_devices() if everywhere else p.devices())]


def _is_plain(x: Any) -> bool:
    """Whether `x` is a Python or NumPy value, which cannot be a device or sharding."""
    return isinstance(x, (str, bytes, bool, int, float, complex, np.ndarray, Array))


def device_get(x: PyTree) -> PyTree:
    """Copy the arrays of a tree to the host and convert them to NumPy arrays.

    Args:
        x: tree of arrays. Python numbers, traced values, arrays of keys and objects of other types
            are left unchanged.

    Returns:
        A tree with the structure of `x`.

    >>> toile.device_get({"a": jnp.arange(3), "b": 2})
    {'a': array([0, 1, 2], dtype=int32), 'b': 2}
    """

    def one(v: Any) -> Any:
        if isinstance(v, Tracer):
            return v
        if isinstance(v, ConcreteArray):
            return v if dtypes.is_extended(v.dtype) else np.asarray(v)
        return np.asarray(v) if isinstance(v, np.generic) else v

    return tree_map(one, x)


def block_until_ready(x: PyTree) -> PyTree:
    """Wait until the arrays of a tree have been computed.

    A GPU computes while Python continues, so wait for the result when you measure time.

    Args:
        x: tree of arrays; objects of other types are ignored.

    Returns:
        `x` itself.

    >>> toile.block_until_ready({"a": jnp.arange(3)})
    {'a': Array([0, 1, 2], dtype=int32)}
    """
    for v in flatten(x)[0]:
        wait = getattr(v, "block_until_ready", None)
        if wait is not None:
            wait()
    return x


def copy_to_host_async(x: PyTree) -> PyTree:
    """Start copying the arrays of a tree to the host, without waiting for the copies to finish.

    Args:
        x: tree of arrays; objects of other types are ignored.

    Returns:
        `x` itself. A later call to `toile.device_get(x)` takes less time.

    >>> toile.device_get(toile.copy_to_host_async([jnp.arange(3)]))
    [array([0, 1, 2], dtype=int32)]
    """
    for v in flatten(x)[0]:
        try:
            start = v.copy_to_host_async
        except AttributeError:
            continue
        start()
    return x


def live_arrays(platform: str | None = None) -> list[Array]:
    """List the arrays that exist and have not been deleted, to find out what uses memory.

    Args:
        platform: name of the platform whose arrays are listed, such as "cpu" or "gpu"; None for
            all platforms.

    Returns:
        A list of arrays.

    Raises:
        RuntimeError: the platform does not exist or has no devices.

    Differences:
        If `platform` is None, JAX lists only the arrays of the default platform.

    >>> x = jnp.arange(3)
    >>> any(y is x for y in toile.live_arrays())
    True
    """
    wanted = None if platform is None else set(devices(platform))
    # not isinstance: other packages' objects may warn when asked for their __class__
    return [o for o in gc.get_objects()
            if issubclass(type(o), ConcreteArray) and not o.is_deleted()
            and (wanted is None or not wanted.isdisjoint(o.devices()))]


def typeof(x: ArrayLike) -> Aval:
    """Return the shape and dtype of an array or number, and whether its dtype is weak.

    This function also accepts traced values, whose elements are not known.

    Args:
        x: array, traced value or number.

    Returns:
        A `ShapedArray`, an object with the attributes `shape`, `dtype` and `weak_type`.

    Raises:
        TypeError: `x` is not an array or number.

    >>> toile.typeof(jnp.ones((2, 3)))
    ShapedArray(float32[2,3])
    """
    return aval_of(x)


def sharding_of(x: Any) -> Any:
    """The sharding of an array."""
    return getattr(x, "sharding", SingleDeviceSharding(devices()[0]))
