"""`jax.lib.xla_bridge`: the platforms of this process."""

from toile import default_backend, device_count, devices, local_device_count, process_index
from toile.compat.faces.jax.extend.backend import backends, get_backend

host_id = process_index

__all__ = [
    "backends", "default_backend", "device_count", "devices", "get_backend", "host_id",
    "local_device_count", "process_index",
]
