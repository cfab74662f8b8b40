"""Platforms: kinds of devices besides the host's CPU, and which of them a buffer belongs to.

The engine computes with NumPy in the host's memory, the `home` platform. Another platform has its
own devices, owns buffers that are not NumPy's, and runs operations and Programs on them; its
interface is `toile.platforms.base.Platform`. The registry is one of the two places where a higher
layer registers something with the engine (the other is `sharded.placing`). This module may import
engine.devices, engine.config and engine.source.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from toile.engine.config import flags
from toile.engine.devices import Device, all_cpu_devices, first_device
from toile.engine.source import here

# Arrays of at most this many elements that are not yet on another device stay on the host until a
# compiled call, or an operation on an array of that device, uses them: host operations take a tenth
# of the time.
FEW = 1024

# The platforms of arrays, by array class; classes of the host are absent.
array_platforms: dict[type, Any] = {}


class Registry:
    """The platforms of this process: `home`, and others by name.

    `active` contains the other platforms that have devices or may have devices. A platform that
    finds out that it has none is retired (`retire`), and costs nothing from then on."""

    __slots__ = ("home", "active", "names", "_owners")

    def __init__(self) -> None:
        self.home: Any = None
        self.active: tuple[Any, ...] = ()
        self.names: dict[str, Any] = {}
        self._owners: dict[type, Any] = {}

    def add(self, platform: Any, is_home: bool = False) -> None:
        """Register a platform."""
        for name in (platform.name, *platform.aliases):
            self.names[name] = platform
        if is_home:
            self.home = platform
            return
        self.active += (platform,)
        if platform.array is not None:
            array_platforms[platform.array] = platform

    def remove(self, platform: Any) -> None:
        """Unregister a platform and its names."""
        self.retire(platform)
        self.names = {name: p for name, p in self.names.items() if p is not platform}
        array_platforms.pop(platform.array, None)

    def retire(self, platform: Any) -> None:
        """Stop querying a platform: it has no devices."""
        self.active = tuple(p for p in self.active if p is not platform)
        self._owners.clear()

    def resume(self, platform: Any) -> None:
        """Query a platform again."""
        if platform not in self.active:
            self.active += (platform,)

    def owner(self, kind: type) -> Any:
        """The platform whose buffers are of a class; None for the host and for other classes."""
        found = self._owners.get(kind)
        if found is None:
            for p in self.active:
                if p.owns(kind):
                    self._owners[kind] = found = p
                    break
        return found

    def platforms(self) -> tuple[Any, ...]:
        """All registered platforms, the CPU's first."""
        return tuple(dict.fromkeys(self.names.values()))

    def named(self, name: str) -> Any:
        """The platform with a given name; an error if there is none, or if it has no devices."""
        found = self.names.get(name)
        if found is None:
            present = ", ".join(p.name for p in self.platforms() if p.devices())
            raise RuntimeError(
                f"Unknown backend: '{name}' requested, but no platforms that are instances of "
                f"{name} are present. Platforms present are: {present}{here()}"
            )
        found.require()
        return found

    def default(self) -> Any:
        """The platform that new arrays are on by default."""
        for p in self.active:
            if p.is_default and p.devices():
                return p
        return self.home

    # ---- operations on arrays of other platforms
    def run(self, op: Any, args: Sequence[Any]) -> Any:
        """The results of an operation on another platform's device, or NotImplemented."""
        for p in self.active:
            found = p.run_eagerly(op, args)
            if found is not NotImplemented:
                return found
        return NotImplemented

    def quickly(self, op: Any, args: Sequence[Any]) -> Any:
        """The same, for an operation with a known fast path."""
        for p in self.active:
            found = p.quickly(op, args)
            if found is not NotImplemented:
                return found
        return NotImplemented


registry = Registry()


class _Host(threading.local):
    """Whether this thread runs a step of a Program on the host, including everything inside it."""

    only = False


host = _Host()


def wanted_platform() -> str | None:
    """The platform that the environment asks for, such as cpu or gpu; None if unset or auto."""
    text = os.environ.get("TOILE_PLATFORM") or os.environ.get("JAX_PLATFORMS") or ""
    first = text.split(",")[0].strip().lower()
    return {"cuda": "gpu", "": None, "auto": None}.get(first, first)


def platform_of(data: Any) -> Any:
    """The platform that owns a raw buffer; None: the host, or not a buffer."""
    kind = data.__class__
    return None if kind is np.ndarray or not registry.active else registry.owner(kind)


def device_of(data: Any) -> Device | None:
    """The device of a raw buffer; None: the host."""
    owner = platform_of(data)
    return None if owner is None else owner.device_of(data)


def platform_at(device: Any) -> Any:
    """The platform of a device; None for the host."""
    return None if device.platform == "cpu" else registry.names.get(device.platform)


def platform_of_device(device: Any) -> Any:
    """The platform of a device; None is the host."""
    return registry.home if device is None else registry.names[device.platform]


def default_device() -> Device | None:
    """The device that arrays are on by default; None if that is the host."""
    if not registry.active or host.only:
        return None
    chosen = flags.default_device
    if chosen is None:
        for p in registry.active:
            found = p.devices() if p.is_default else ()
            if found:
                return found[0]
        return None
    if isinstance(chosen, str):
        return None if chosen == "cpu" else registry.named(chosen).devices()[0]
    return None if chosen.platform == "cpu" else chosen.primary


def default_devices() -> list[Device]:
    """The devices of the default platform, of all processes."""
    return list(registry.default().all_devices()) if registry.active else all_cpu_devices()


def first_or_default() -> Device:
    """The device that arrays are on by default."""
    return default_device() or first_device()


def device_among(raws: Sequence[Any]) -> Device | None:
    """The device of the first buffer that is not on the host; None if all are."""
    for x in raws:
        if x.__class__ is not np.ndarray:
            device = device_of(x)
            if device is not None:
                return device
    return None


def run_program(program: Any, raws: Sequence[Any]) -> Sequence[Any]:
    """Run a Program on raw buffers on their device, compiling it in the first call."""
    return run_program_on(device_among(raws) if registry.active else None, program, raws)


def run_program_on(device: Device | None, program: Any, raws: Sequence[Any]) -> Sequence[Any]:
    """Run a Program on raw buffers on a device, compiling it in the first call. None: the host."""
    if device is None:
        return registry.home.run(program, raws, None)
    return registry.names[device.platform].run(program, raws, device)


def shared(x: Any) -> Any:
    """A buffer that shares the memory of a DLPack object on another platform's device; None for
    objects in host memory."""
    for p in registry.active:
        found = p.from_dlpack(x)
        if found is not None:
            return found
    return None

