"""Selection of the devices for a run, as used by the examples' option `--devices N`."""

from __future__ import annotations

from toile.api.devices import local_devices
from toile.engine.config import config
from toile.engine.devices import Device
from toile.engine.source import here

__all__ = ["first_devices"]


def first_devices(count: int) -> list[Device]:
    """Return the first `count` devices of this process, creating more CPU devices if needed.

    Args:
        count: number of devices.

    Returns:
        A list of devices.

    Raises:
        ValueError: `count` is not positive, or there are fewer GPUs than `count`.

    >>> from toile.training.devices import first_devices
    >>> [device.platform for device in first_devices(1)] in (["cpu"], ["gpu"])
    True
    """
    found = local_devices()
    if len(found) < count and found[0].platform == "cpu":
        config.update("jax_num_cpu_devices", count)
        found = local_devices()
    if not 1 <= count <= len(found):
        raise ValueError(
            f"first_devices: needed a number of devices from 1 to {len(found)}, got {count} "
            f"(TOILE_GPU_DEVICES={count} divides the GPUs into logical devices){here()}"
        )
    return found[:count]
