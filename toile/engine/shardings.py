"""How arrays are placed on devices: the base class Sharding, and SingleDeviceSharding.

A sharding says which devices hold an array and which indices each device has; shardings over a mesh
are in `toile.parallel`. This module may import engine.devices, engine.records and engine.source.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Mapping
from typing import Any

from toile.engine.devices import MEMORY_KINDS, Device, process_index
from toile.engine.records import dataclass
from toile.engine.source import here

Shape = tuple[int, ...]
Index = tuple[slice, ...]


class MemorySpace(enum.Enum):
    """The memory in which values are stored: a device's own, the host's, or either."""

    Device = enum.auto()
    Host = enum.auto()
    Any = enum.auto()

    def __repr__(self) -> str:
        return f"MemorySpace.{self.name}"


memory = types.SimpleNamespace(Space=MemorySpace)


@dataclass(frozen=True)
class Layout:
    """The order of an array's axes in memory.

    Args:
        major_to_minor: the axes, beginning with the one whose index changes most slowly.
        tiling: sizes of the blocks in which elements are stored; None for no blocks.
        sub_byte_element_size_in_bits: number of bits in an element if it is smaller than a byte; 0
            for larger elements.
    """

    major_to_minor: tuple[int, ...]
    tiling: tuple[tuple[int, ...], ...] | None = None
    sub_byte_element_size_in_bits: int = 0

    AUTO = None


@dataclass(frozen=True)
class Format:
    """The order of an array's axes in memory, together with the array's sharding.

    Args:
        layout: the order of the axes; None for any order.
        sharding: how the array is divided among devices; None for any sharding.
    """

    layout: Layout | None = None
    sharding: Sharding | None = None


def checked_memory_kind(kind: str | None) -> str:
    """The requested kind of memory, or the default."""
    if kind is None:
        return "device"
    if kind not in MEMORY_KINDS:
        raise ValueError(
            f"memory_kind: needed one of {', '.join(MEMORY_KINDS)}, got {kind!r}{here()}"
        )
    return kind


class Sharding:
    """How an array is divided among devices; the base class of shardings."""

    __slots__ = ()

    @property
    def device_set(self) -> set[Any]:
        """The devices that store a part of the array."""
        raise NotImplementedError("Subclasses should implement this method." + here())

    @property
    def is_fully_replicated(self) -> bool:
        """Whether every device stores the whole array."""
        raise NotImplementedError("Subclasses should implement this method." + here())

    @property
    def is_fully_addressable(self) -> bool:
        """Whether this process can read every part."""
        return all(d.process_index == process_index() for d in self.device_set)

    @property
    def num_devices(self) -> int:
        """The number of devices that store a part of the array."""
        return len(self.device_set)

    @property
    def memory_kind(self) -> str | None:
        """The kind of memory: "device", "pinned_host" or "unpinned_host"."""
        raise NotImplementedError("Subclasses should implement this method." + here())

    def with_memory_kind(self, kind: str) -> Sharding:
        """Return the same sharding with a different kind of memory."""
        raise NotImplementedError("Subclasses should implement this method." + here())

    def devices_indices_map(self, global_shape: Shape) -> Mapping[Any, Index]:
        """Return, for each device, the indices of its part of an array of the given shape."""
        raise NotImplementedError("Subclasses should implement this method." + here())

    def shard_shape(self, global_shape: Shape) -> Shape:
        """Return the shape of the part on one device."""
        raise NotImplementedError("Subclasses should implement this method." + here())

    def is_equivalent_to(self, other: Any, ndim: int) -> bool:
        """Test whether two shardings place arrays with `ndim` axes in the same way."""
        raise NotImplementedError("Subclasses should implement this method." + here())

    def everywhere(self) -> Sharding:
        """Return the sharding that puts the whole array on each of the devices."""
        raise NotImplementedError("Subclasses should implement this method." + here())

    @property
    def _device_assignment(self) -> tuple[Any, ...]:
        """The devices in order."""
        raise NotImplementedError("Subclasses should implement this method." + here())

    @property
    def addressable_devices(self) -> set[Any]:
        """The devices that belong to this process."""
        return {d for d in self.device_set if d.process_index == process_index()}

    @property
    def _addressable_device_assignment(self) -> tuple[Any, ...]:
        """The devices of this process in order; Orbax reads this private name of JAX."""
        return tuple([d for d in self._device_assignment if d.process_index == process_index()])

    @property
    def has_addressable_devices(self) -> bool:
        """Whether at least one of the devices belongs to this process."""
        return bool(self.addressable_devices)

    def addressable_devices_indices_map(self, global_shape: Shape) -> Mapping[Any, Index]:
        """Return, for each device of this process, the indices of the device's part of an array."""
        own = self.addressable_devices
        return {d: i for d, i in self.devices_indices_map(global_shape).items() if d in own}


class SingleDeviceSharding(Sharding):
    """The sharding of an array that is stored on one device.

    Args:
        device: the device.
        memory_kind: "device", "pinned_host" or "unpinned_host"; if None, it is "device".

    >>> sharding = toile.sharding.SingleDeviceSharding(toile.devices("cpu")[0])
    >>> toile.device_put(jnp.arange(3), sharding).devices()
    {CpuDevice(id=0)}
    """

    __slots__ = ("_device", "_memory_kind")
    is_fully_replicated = True
    is_fully_addressable = True
    num_devices = 1

    def __init__(self, device: Device, *, memory_kind: str | None = None):
        self._device, self._memory_kind = device, checked_memory_kind(memory_kind)

    @property
    def memory_kind(self) -> str:
        """The kind of memory: "device", "pinned_host" or "unpinned_host"."""
        return self._memory_kind

    def with_memory_kind(self, kind: str) -> SingleDeviceSharding:
        """Return the sharding with the same device and a different kind of memory."""
        return SingleDeviceSharding(self._device, memory_kind=kind)

    @property
    def device_set(self) -> set[Any]:
        """The set that contains only this device."""
        return {self._device}

    @property
    def _device_assignment(self) -> tuple[Any, ...]:
        return (self._device,)

    def shard_shape(self, global_shape: Shape) -> Shape:
        """Return the shape of the whole array, because the device stores all of it."""
        return tuple(global_shape)

    def devices_indices_map(self, global_shape: Shape) -> dict[Any, Index]:
        """Return the indices of the whole array, because the device stores all of it."""
        return {self._device: (slice(None),) * len(global_shape)}

    def everywhere(self) -> SingleDeviceSharding:
        """Return this sharding, because the device stores the whole array."""
        return self

    def check_compatible_aval(self, aval_shape: Shape) -> None:
        """Do nothing, because an array of any shape can be stored on one device."""

    def is_equivalent_to(self, other: Any, ndim: int) -> bool:
        """Test whether the other sharding puts the whole array on this device."""
        if not isinstance(other, Sharding) or other.num_devices != 1:
            return False
        return other.device_set == {self._device} and other.memory_kind == self._memory_kind

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SingleDeviceSharding):
            return NotImplemented
        return self._device is other._device and self._memory_kind == other._memory_kind

    def __hash__(self) -> int:
        return hash((self._device, self._memory_kind))

    def __repr__(self) -> str:
        return f"SingleDeviceSharding(device={self._device!r}, memory_kind={self._memory_kind})"

    def __reduce__(self) -> Any:
        return _single, (self._device, self._memory_kind)


def _single(device: Any, kind: str) -> SingleDeviceSharding:
    return SingleDeviceSharding(device, memory_kind=kind)
