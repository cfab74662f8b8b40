"""Shardings, meshes, and functions that assemble sharded arrays, named as in `jax.sharding`.

Requesting more devices than exist raises an error.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.annotations import Array, ArrayLike, DTypeLike, PyTree
from toile.engine.arrays import ConcreteArray
from toile.engine.avals import Aval
from toile.engine.conversion import as_array, raw_operand
from toile.engine.devices import Device, cpu_count, process_count
from toile.engine.platform_registry import default_device
from toile.engine.sharded import Sharded, fetched, from_parts, own_places, platform_over
from toile.engine.shardings import Sharding, SingleDeviceSharding
from toile.engine.source import here
from toile.engine.trees import broadcast_prefix, flatten, unflatten
from toile.parallel.meshes import (
    AbstractDevice,
    AbstractMesh,
    AxisType,
    ManualAxisType,
    Mesh,
    get_abstract_mesh,
    get_mesh,
    make_mesh,
    set_mesh,
    use_abstract_mesh,
)
from toile.parallel.placement import concrete, put
from toile.parallel.specs import NamedSharding, P, PartitionSpec

__all__ = [
    "AbstractDevice", "AbstractMesh", "AxisType", "ManualAxisType", "Mesh", "NamedSharding", "P",
    "PartitionSpec", "Sharding", "SingleDeviceSharding", "auto_axes", "explicit_axes",
    "get_abstract_mesh", "get_mesh", "make_array_from_callback",
    "make_array_from_process_local_data", "make_array_from_single_device_arrays", "make_mesh",
    "make_single_device_sharding", "reshard", "set_mesh", "use_abstract_mesh", "use_mesh",
]

use_mesh = set_mesh


def make_single_device_sharding(
    device: Device, *, memory_kind: str | None = None
) -> SingleDeviceSharding:
    """Create a sharding that places a whole array on one device.

    Args:
        device: the device, one of `toile.devices()`.
        memory_kind: kind of memory on the device; None for the default memory.

    Returns:
        The sharding.

    >>> sharding = toile.sharding.make_single_device_sharding(toile.devices()[0])
    >>> sharding.is_fully_replicated
    True
    """
    return SingleDeviceSharding(device, memory_kind=memory_kind)


def _checked_part(part: Any, shape: tuple[int, ...], sharding: Any) -> Any:
    wanted = sharding.shard_shape(shape)
    if part.shape != wanted:
        raise ValueError(
            f"Expected shard shape {wanted} doesn't match the single device array shape "
            f"{part.shape}. Shape of Array is {shape} with sharding {sharding}{here()}"
        )
    return part


def _assembled(parts: Sequence[Any], shape: tuple[int, ...], sharding: Any) -> Any:
    """An array made from one part for each device."""
    for part in parts:
        _checked_part(part, shape, sharding)
    aval = parts[0].aval
    alone = len(parts) == 1 and cpu_count() == 1 and sharding.is_fully_addressable
    elsewhere = platform_over(sharding) is not None
    if alone and (elsewhere or not isinstance(sharding, NamedSharding)):
        return parts[0]
    if elsewhere:
        places = own_places(sharding, shape)
        raws = [p._parts[0] if p.devices() == {d} and isinstance(p, Sharded)
                else d.put(raw_operand(p)) for d, p in zip(places, parts, strict=True)]
    else:
        raws = [np.ascontiguousarray(fetched(raw_operand(p))) for p in parts]
    return from_parts(raws, Aval(shape, aval.dtype, aval.weak_type), sharding)


def make_array_from_callback(
    shape: Sequence[int], sharding: Sharding, data_callback: Callable[[Any], ArrayLike],
    dtype: DTypeLike | None = None,
) -> Array:
    """Create a sharded array from a function that returns the data for each part.

    Each process calls the function only for the parts on its own devices. If several devices store
    the same part, the function is called only once for that part.

    Args:
        shape: shape of the whole array.
        sharding: how the array is divided.
        data_callback: function `f(index)` that returns the part of the whole array at `index`, a
            tuple of slices.
        dtype: dtype that the parts must have; None for any dtype.

    Returns:
        The array.

    Raises:
        ValueError: a part does not have the required shape or dtype.

    >>> from toile.sharding import NamedSharding, P
    >>> data = jnp.arange(4)
    >>> sharding = NamedSharding(toile.make_mesh((1,), ("x",)), P("x"))
    >>> toile.make_array_from_callback((4,), sharding, lambda index: data[index])
    Array([0, 1, 2, 3], dtype=int32)
    """
    shape = tuple(shape)
    found = concrete(sharding, "make_array_from_callback")
    made: dict[Any, Any] = {}
    parts = []
    for index in own_places(found, shape).values():
        key = tuple((i.start, i.stop) for i in index)
        if key not in made:
            made[key] = as_array(data_callback(index))
        parts.append(made[key])
    for part in parts:
        _checked_part(part, shape, found)
        if dtype is not None and part.dtype != dtypes.canonicalize_dtype(dtype):
            raise ValueError(
                f"make_array_from_callback: needed parts of dtype {dtype}, got {part.dtype}{here()}"
            )
    return _assembled(parts, shape, found)


def make_array_from_process_local_data(
    sharding: PyTree, local_data: PyTree, global_shape: PyTree = None
) -> PyTree:
    """Create sharded arrays from the parts that each process contributes.

    Args:
        sharding: how the arrays are divided: one sharding or device for all arrays, or a tree of
            shardings and devices whose structure is a prefix of the structure of `local_data`.
        local_data: array or tree of arrays that this process contributes. Along each axis, an array
            must have the length of this process's part or of the whole array. If there is only one
            process, `local_data` must contain the whole arrays.
        global_shape: shape of the whole arrays: one shape for all arrays, or a tree of shapes whose
            structure is a prefix of the structure of `local_data`. If a shape is None, it is
            computed from the local shape and the sharding.

    Returns:
        A tree of sharded arrays with the structure of `local_data`.

    Raises:
        ValueError: an array in `local_data` has the wrong shape or cannot be divided evenly, or the
            structure of `sharding` or `global_shape` does not match `local_data`.

    >>> from toile.sharding import NamedSharding, P
    >>> sharding = NamedSharding(toile.make_mesh((1,), ("x",)), P("x"))
    >>> toile.make_array_from_process_local_data(sharding, jnp.arange(4)).shape
    (4,)
    """
    leaves, tree = flatten(local_data)
    shardings = [SingleDeviceSharding(s) if isinstance(s, Device) else s
                 for s in broadcast_prefix(sharding, local_data)]
    shapes = broadcast_prefix(global_shape, local_data, is_leaf=_is_shape)
    if process_count() > 1:
        return unflatten(tree, [
            _of_processes(leaf, concrete(one, "make_array_from_process_local_data"), shape)
            for leaf, one, shape in zip(leaves, shardings, shapes, strict=True)
        ])
    for leaf, shape in zip(leaves, shapes, strict=True):
        if shape is not None and tuple(shape) != np.shape(leaf):
            raise ValueError(
                "When calling `make_array_from_process_local_data` on a single process, "
                "global_shape should be None or equal to local_data.shape. Got global_shape="
                f"{shape} and local_data.shape={np.shape(leaf)}.{here()}"
            )
    outs = []
    for leaf, one in zip(leaves, shardings, strict=True):
        found = concrete(one, "make_array_from_process_local_data")
        found.shard_shape(np.shape(leaf))
        outs.append(put(leaf, found))
    return unflatten(tree, outs)


def _is_shape(x: Any) -> bool:
    return x is None or (isinstance(x, (tuple, list)) and all(isinstance(n, int) for n in x))


def _of_processes(leaf: Any, sharding: Any, shape: Any) -> Any:
    """An array to which each process contributes the block of its devices."""
    local = np.asarray(leaf)
    if shape is None:  # along each axis, the total length of the parts of all processes
        unit = sharding.num_devices  # divisible by any number of parts
        own = _block(sharding, (unit,) * local.ndim)
        shape = [n * unit // (hi - lo) for n, (lo, hi) in zip(local.shape, own, strict=True)]
    shape = tuple(shape)
    block = _block(sharding, shape)
    lengths = [(hi - lo, m) for (lo, hi), m in zip(block, shape, strict=True)]
    if local.ndim != len(shape) or any(
            n not in allowed for n, allowed in zip(local.shape, lengths, strict=True)):
        raise ValueError(
            "make_array_from_process_local_data: needed this process's block "
            f"{[hi - lo for lo, hi in block]} of {shape}, or whole axes, got {local.shape}{here()}"
        )
    start = [lo if n != m else 0 for (lo, _), n, m in zip(block, local.shape, shape, strict=True)]

    def part(index: Any) -> Any:
        return local[tuple(slice((i.start or 0) - s, (n if i.stop is None else i.stop) - s)
                           for i, s, n in zip(index, start, shape, strict=True))]

    return make_array_from_callback(shape, sharding, part)


def _block(sharding: Any, shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """For each axis, the range of indices that the devices of this process store."""
    places = list(own_places(sharding, shape).values())
    return [(min(i[k].start or 0 for i in places),
             max(n if i[k].stop is None else i[k].stop for i in places))
            for k, n in enumerate(shape)]


def make_array_from_single_device_arrays(
    shape: Sequence[int], sharding: Sharding, arrays: Sequence[Array], *,
    dtype: DTypeLike | None = None
) -> Array:
    """Create a sharded array from parts that are already on their devices.

    Args:
        shape: shape of the whole array.
        sharding: how the array is divided.
        arrays: list or tuple of arrays, one for each device of this process, in any order.
        dtype: dtype of the parts; required only if this process has no parts.

    Returns:
        The array.

    Raises:
        ValueError: the shapes, dtypes or devices of the parts do not match the other arguments.

    >>> sharding = toile.sharding.SingleDeviceSharding(toile.devices()[0])
    >>> part = toile.device_put(jnp.arange(3), toile.devices()[0])
    >>> toile.make_array_from_single_device_arrays((3,), sharding, [part])
    Array([0, 1, 2], dtype=int32)
    """
    if not isinstance(arrays, (list, tuple)):
        raise TypeError(
            "make_array_from_single_device_arrays: needed a list or tuple of arrays, got "
            f"{type(arrays).__name__}{here()}"
        )
    if not arrays and dtype is None:
        raise ValueError(
            "If the Array has no addressable shards, `dtype` must be provided via the `dtype` "
            "argument to `jax.make_array_from_single_device_arrays`: got neither" + here()
        )
    for a in arrays:
        if not isinstance(a, ConcreteArray):
            raise TypeError(
                "make_array_from_single_device_arrays: needed arrays, got "
                f"{type(a).__name__}{here()}"
            )
    found = {a.dtype for a in arrays}
    if dtype is not None and found - {dtypes.canonicalize_dtype(dtype)}:
        raise ValueError(
            "If `dtype` is provided to `jax.make_array_from_single_device_arrays`, it must match "
            f"the dtype of the addressable shards: got dtype={dtype} and {_listed(found)}{here()}"
        )
    if len(found) > 1:
        raise ValueError(
            f"Input buffers to `Array` must have matching dtypes. Got {_listed(found)}{here()}")
    wanted = len(sharding.addressable_devices)
    if len(arrays) != wanted:
        raise ValueError(
            f"Expected {wanted} per-device arrays (this is how many devices are addressable by the "
            f"sharding), but got {len(arrays)}{here()}"
        )
    return _assembled(_in_order(arrays, tuple(shape), sharding), tuple(shape), sharding)


def _listed(items: Iterable[Any]) -> str:
    return ", ".join(sorted(map(str, items)))


def _in_order(arrays: Sequence[Any], shape: tuple[int, ...], sharding: Any) -> Sequence[Any]:
    """The arrays in the order of the devices of a sharding."""
    for a in arrays:
        if len(a.devices()) != 1:
            raise ValueError(
                "When making an array from single-device arrays the input arrays must have one "
                f"shard each. An argument array had {len(a.devices())} shard(s).{here()}"
            )
    order = list(own_places(sharding, shape))
    found = [_device_of(a, order) for a in arrays]
    by_device = dict(zip(found, arrays, strict=True))
    if len(by_device) < len(arrays):
        ids = [d.id for d in found]
        raise ValueError(
            "When making an array from single-device arrays, the input arrays must be from "
            f"distinct devices, but got device IDs {ids} (use toile.device_put){here()}"
        )
    if set(by_device) != set(order):
        lacking = {d.id for d in order if d not in by_device}
        extra = {d.id for d in by_device if d not in order}
        raise ValueError(
            "Addressable devices and per-device arrays devices do not match. Sharding contains "
            f"devices {lacking} that are not present in per-device arrays. Per-device arrays "
            f"contain devices {extra} that are not present in the sharding.{here()}"
        )
    return [by_device[d] for d in order]


def _device_of(x: Any, wanted: Sequence[Any]) -> Any:
    """The device of an array that is on one device.

    For a small array that stays on the host until its first use, this is the default device if that
    device is among those wanted.
    """
    (own,) = x.devices()
    default = default_device()
    waits = default is not None and not x.committed and own.platform == "cpu"
    return default if waits and default in wanted else own


def reshard(xs: PyTree, out_shardings: PyTree) -> PyTree:
    """Copy arrays so that the copies have the given shardings.

    Args:
        xs: array or tree of arrays.
        out_shardings: a sharding or `PartitionSpec` for all arrays, or a tree of shardings and
            `PartitionSpec`s whose structure is a prefix of the structure of `xs`. A `PartitionSpec`
            refers to the current mesh.

    Returns:
        A tree of arrays with the structure of `xs` and the given shardings.

    >>> from toile.sharding import NamedSharding, P
    >>> sharding = NamedSharding(toile.make_mesh((1,), ("x",)), P("x"))
    >>> toile.reshard(jnp.arange(4), sharding).sharding == sharding
    True
    """
    leaves, tree = flatten(xs)
    shardings = broadcast_prefix(out_shardings, xs)
    outs = []
    for leaf, sharding in zip(leaves, shardings, strict=True):
        x: Any = leaf if isinstance(leaf, Array) else as_array(leaf)
        found = concrete(sharding, "reshard")
        if isinstance(found, NamedSharding):
            found.check_compatible_aval(x.shape)
        found.shard_shape(x.shape)
        abstract = isinstance(getattr(found, "mesh", None), AbstractMesh)
        outs.append(x if abstract else put(x, found))
    return unflatten(tree, outs)


def auto_axes(
    f: Callable[..., Any] | None = None, /, *, axes: Hashable | Sequence[Hashable] | None = None,
    out_sharding: PyTree = None
) -> Callable[..., Any]:
    """Return a function that only calls `f`; it exists for compatibility with JAX.

    Args:
        f: the function. If it is None, a decorator is returned.
        axes: names of the mesh axes; not used.
        out_sharding: shardings of the results; not used.

    Returns:
        A function that calls `f`. It ignores the keyword argument `out_sharding`.

    Differences:
        JAX changes the types of the mesh axes inside the function and shards the results of the
        function. toile computes the same values, but leaves the results where they are.

    >>> double = toile.sharding.auto_axes(lambda x: 2 * x)
    >>> double(jnp.arange(3), out_sharding=toile.P())
    Array([0, 2, 4], dtype=int32)
    """
    return _axes_typed(f, "out_sharding")


def explicit_axes(
    f: Callable[..., Any] | None = None, /, *, axes: Hashable | Sequence[Hashable] | None = None,
    in_sharding: PyTree = None
) -> Callable[..., Any]:
    """Return a function that only calls `f`; it exists for compatibility with JAX.

    Args:
        f: the function. If it is None, a decorator is returned.
        axes: names of the mesh axes; not used.
        in_sharding: shardings of the arguments; not used.

    Returns:
        A function that calls `f`. It ignores the keyword argument `in_sharding`.

    Differences:
        JAX changes the types of the mesh axes inside the function and shards the arguments of the
        function. toile computes the same values, but leaves the arguments where they are.

    >>> double = toile.sharding.explicit_axes(lambda x: 2 * x)
    >>> double(jnp.arange(3), in_sharding=toile.P())
    Array([0, 2, 4], dtype=int32)
    """
    return _axes_typed(f, "in_sharding")


def _axes_typed(f: Any, option: str) -> Any:
    if f is None:
        return lambda g: _axes_typed(g, option)

    @functools.wraps(f)
    def called(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop(option, None)
        return f(*args, **kwargs)

    return called
