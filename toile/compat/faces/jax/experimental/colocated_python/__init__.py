"""`jax.experimental.colocated_python`: Python code on the hosts of remote devices.

All devices of toile belong to a process that runs Python itself, so there is nothing to send."""

from __future__ import annotations

from typing import Any

from toile.compat.faces.jax.experimental.colocated_python import func, serialization
from toile.engine.source import here

__all__ = ["colocated_cpu_devices", "colocated_python", "func", "serialization"]


def colocated_cpu_devices(devices: Any) -> Any:
    """The CPU devices beside remote devices."""
    raise _unsupported("colocated_cpu_devices")


def colocated_python(fun: Any) -> Any:
    """A function that runs on the hosts of remote devices."""
    raise _unsupported("colocated_python")


def _unsupported(name: str) -> NotImplementedError:
    return NotImplementedError(
        f"{name}: needed devices of remote hosts, but toile runs on the devices of this process "
        f"(call the function directly, or in a callback){here()}"
    )
