"""Devices, on which arrays are stored and Programs run.

This module may import only engine.config, engine.locks and engine.source.

A `Device` is compared by identity; `cpu_devices()` is the list for this process. The number of CPU
devices is configurable (`TOILE_CPU_DEVICES`, `jax_num_cpu_devices`): each is a host thread while a
Program runs on it, and all share the host's memory. Processes that have joined know each other's
devices, which are numbered in the order of the processes.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from typing import Any

from toile.engine.config import flags
from toile.engine.locks import shared_lock
from toile.engine.source import here

MEMORY_KINDS = ("device", "pinned_host", "unpinned_host")  # the first one is the default


class Memory:
    """A memory in which a device can store arrays."""

    def __init__(self, device: Device, kind: str):
        self.device, self.kind = device, kind

    @property
    def platform(self) -> str:
        """The platform of the device, such as "cpu"."""
        return self.device.platform

    @property
    def process_index(self) -> int:
        """The index of the device's process."""
        return self.device.process_index

    def addressable_by_devices(self) -> list[Device]:
        """Return the devices that can use this memory."""
        return [self.device]

    def __repr__(self) -> str:
        return f"{self.kind.upper()}({self.device!r})"

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, Memory) and self.device is other.device
                and self.kind == other.kind)

    def __hash__(self) -> int:
        return hash((id(self.device), self.kind))


class Device:
    """A CPU or GPU that stores arrays and runs programs.

    `toile.devices()` lists the devices. A device is described by the attributes `platform` ("cpu"
    or "gpu"), `id` and `device_kind` (the name of the hardware model). Ids are unique among the
    devices of a platform, across all processes.

    Args:
        platform_name: name of the platform, "cpu" or "gpu".
        id: number of the device among the devices of its platform.
        device_kind: name of the hardware model.
        owner: index of the process to which the device belongs; None for this process.
    """

    __slots__ = ("platform", "id", "device_kind", "_owner", "_number", "__weakref__")

    def __init__(self, platform_name: str, id: int, device_kind: str, owner: int | None = None):
        self.platform, self.id, self.device_kind = platform_name, id, device_kind
        self._owner = owner  # process index; None: this process
        self._number = id  # among the devices of its process

    @property
    def process_index(self) -> int:
        """The index of the process to which the device belongs."""
        return _processes.index if self._owner is None else self._owner

    @property
    def local_hardware_id(self) -> int:
        """The number of the device among the devices of its process."""
        return self._number

    @property
    def host_id(self) -> int:
        """The index of the device's process; an older name for `process_index`."""
        return self.process_index

    @property
    def client(self) -> Device:
        """The device itself. JAX returns a client object instead."""
        return self

    @property
    def runtime_type(self) -> str:
        """The name of the runtime, for packages that read it from JAX's client object."""
        return "toile"

    def addressable_memories(self) -> list[Memory]:
        """Return the memories in which this device can store arrays."""
        return [Memory(self, kind) for kind in MEMORY_KINDS]

    def default_memory(self) -> Memory:
        """Return the memory in which arrays are stored unless another one is requested."""
        return Memory(self, MEMORY_KINDS[0])

    def memory(self, kind: str) -> Memory:
        """Return the memory of a kind, such as "device" or "pinned_host"."""
        if kind not in MEMORY_KINDS:
            raise ValueError(f"memory: needed one of {', '.join(MEMORY_KINDS)}, got {kind!r}"
                             f"{here()}")
        return Memory(self, kind)

    def memory_stats(self) -> dict[str, Any] | None:
        """Return statistics about a GPU's memory, in bytes, or None for a CPU."""
        return None

    # ---- overridden by platforms
    @property
    def primary(self) -> Device:
        """The device, on the same hardware as this one, that stores arrays without a sharding."""
        return self

    @property
    def hardware(self) -> str:
        """A name for the hardware that is unique across machines."""
        return f"{platform.node()} {self.platform} {self._number}"

    def put(self, data: Any) -> Any:
        """Copy a NumPy buffer, or a buffer of the same platform, to this device."""
        return data

    def synchronize(self) -> None:
        """Wait for all work enqueued on this device."""

    def __repr__(self) -> str:
        return f"{self.platform.title()}Device(id={self.id})"

    def __str__(self) -> str:
        return f"{'cuda' if self.platform == 'gpu' else self.platform}:{self.id}"

    def __deepcopy__(self, memo: Any) -> Device:
        return self

    def __reduce__(self) -> Any:
        return _device, (self.platform, self.id)


# All CPU devices ever made: when their number changes, the first ones stay the same objects.
_CPU = [Device("cpu", 0, "cpu")]
_lock = shared_lock()
_XLA_FLAG = re.compile(r"--xla_force_host_platform_device_count=(\d+)")


class _Processes:
    """The processes of the program: the index of this one, and the CPU devices of all."""

    index = 0
    count = 1
    devices: list[Device] | None = None


_processes = _Processes()


def process_index() -> int:
    """The index of this process among the processes of the program."""
    return _processes.index


def process_count() -> int:
    """How many processes the program has."""
    return _processes.count


def join(index: int, counts: Sequence[int]) -> None:
    """Join a group as process `index`; `counts` has the number of CPU devices of each process."""
    _grow(counts[index])
    with _lock:
        found: list[Device] = []
        for process, count in enumerate(counts):
            for number in range(count):
                if process != index:
                    found.append(Device("cpu", len(found), "cpu", process))
                    found[-1]._number = number
                else:  # arrays may be on them already: keep the same objects
                    _CPU[number].id = len(found)
                    found.append(_CPU[number])
        _processes.index, _processes.count, _processes.devices = index, len(counts), found


def leave() -> None:
    """Make this process the only one again."""
    with _lock:
        _processes.index, _processes.count, _processes.devices = 0, 1, None
        for number, device in enumerate(_CPU):
            device.id = number


def all_cpu_devices() -> list[Device]:
    """The CPU devices of all processes."""
    found = _processes.devices
    return cpu_devices() if found is None else list(found)


def cpu_count() -> int:
    """The number of CPU devices of this process; fixed once the process has joined others."""
    if _processes.devices is not None:
        return sum(d._owner is None for d in _processes.devices)
    count = flags.num_cpu_devices
    if count is None or count < 0:
        found = _XLA_FLAG.findall(os.environ.get("XLA_FLAGS", ""))
        count = int(found[-1]) if found else 1
    if count < 1:
        raise ValueError(
            f"jax_num_cpu_devices: needed a positive number of devices, got {count}{here()}"
        )
    return count


def cpu_devices() -> list[Device]:
    """The CPU devices of this process."""
    count = cpu_count()
    _grow(count)
    return _CPU[:count]


def first_device() -> Device:
    """The device that arrays are on by default."""
    return _CPU[0]


def _grow(count: int) -> None:
    if len(_CPU) < count:
        with _lock:
            while len(_CPU) < count:
                _CPU.append(Device("cpu", len(_CPU), "cpu"))


def _device(platform: str, id: int) -> Device:
    if _processes.devices is not None:
        return _processes.devices[id]
    _grow(id + 1)
    return _CPU[id]
