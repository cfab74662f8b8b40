"""Devices: what arrays live on. May import nothing of the engine but config.

A `Device` is compared by identity; `cpu_devices()` is the list for this process.
"""

from __future__ import annotations

from typing import Any


class Device:
    """One place where arrays live and programs run."""

    __slots__ = ("platform", "id", "process_index", "device_kind", "__weakref__")

    def __init__(self, platform: str, id: int, device_kind: str):
        self.platform, self.id, self.device_kind = platform, id, device_kind
        self.process_index = 0

    @property
    def local_hardware_id(self) -> int:
        return self.id

    @property
    def host_id(self) -> int:
        return self.process_index

    @property
    def client(self) -> Device:
        return self

    def memory_stats(self) -> dict[str, Any] | None:
        return None

    def __repr__(self) -> str:
        return f"{self.platform.title()}Device(id={self.id})"

    __str__ = __repr__

    def __deepcopy__(self, memo: Any) -> Device:
        return self

    def __reduce__(self) -> Any:
        return _device, (self.platform, self.id)


_CPU = [Device("cpu", 0, "cpu")]


def cpu_devices() -> list[Device]:
    """The CPU devices of this process."""
    return list(_CPU)


def _device(platform: str, id: int) -> Device:
    return _CPU[id]
