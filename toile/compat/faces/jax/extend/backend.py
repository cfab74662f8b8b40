"""`jax.extend.backend`: the platforms of this process."""

from __future__ import annotations

from typing import Any

import toile

__all__ = ["Backend", "backends", "clear_backends", "get_backend", "get_default_device"]


class Backend:
    """One platform, such as "cpu", with its devices."""

    def __init__(self, platform: str):
        self.platform = platform

    @property
    def platform_version(self) -> str:
        return f"toile {toile.__version__}"

    def devices(self) -> list[Any]:
        """The devices of the platform, in all processes."""
        return toile.devices(self.platform)

    def local_devices(self) -> list[Any]:
        """The devices of the platform in this process."""
        return toile.local_devices(backend=self.platform)

    def device_count(self) -> int:
        return len(self.devices())

    def local_device_count(self) -> int:
        return len(self.local_devices())

    def process_index(self) -> int:
        return toile.process_index()

    def __repr__(self) -> str:
        return f"Backend({self.platform!r})"


def get_backend(platform: str | None = None) -> Backend:
    """The platform of a name; by default, the one on which arrays are created."""
    return Backend(toile.devices(platform)[0].platform)


def backends() -> dict[str, Backend]:
    """All platforms that have devices here."""
    names = {toile.default_backend(), "cpu"}
    return {name: Backend(name) for name in sorted(names)}


def clear_backends() -> None:
    """Forget compiled functions; the devices stay."""
    toile.clear_caches()


def get_default_device() -> Any:
    """The device on which arrays are created."""
    return toile.devices()[0]
