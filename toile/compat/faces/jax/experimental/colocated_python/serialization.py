"""`jax.experimental.colocated_python.serialization`: the type of a list of devices."""

__all__ = ["DeviceList"]


class DeviceList(tuple):
    """Devices in order."""
