"""Parts of the GPU platform that load when a GPU is used: the compiler, and what runs its plans."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from toile.engine.locks import loading


def has_devices() -> bool:
    """Whether the devices' module is loaded already."""
    return "toile.platforms.gpu.devices" in sys.modules


def devices() -> Any:
    """GPUs as devices."""
    return _loaded("toile.platforms.gpu.devices", "device_of")


def arrays() -> Any:
    """Arrays on GPUs."""
    return _loaded("toile.platforms.gpu.arrays", "placed_by_default")


def eager() -> Any:
    """Quick ways of operations outside of jit."""
    return _loaded("toile.platforms.gpu.eager", "learn")


def executables() -> Any:
    """What compiles Programs and runs them."""
    return _loaded("toile.platforms.gpu.executables", "run")


def exits() -> Any:
    """The quick ways out of Programs that have run."""
    return _loaded("toile.platforms.gpu.exits", "way_of")


def memory() -> Any:
    """What gives memory up where there is not enough, and reports who has it."""
    return _loaded("toile.platforms.gpu.memory", "allocated")


def warm_up() -> Any:
    """What has NVIDIA's libraries load what nearly every program needs."""
    return _loaded("toile.platforms.gpu.warm_up", "begin")


def inspection() -> Any:
    """What tells about compiled Programs."""
    return _loaded("toile.platforms.gpu.kernel_reports", "issued")


def replicas() -> Any:
    """What runs one Program on several GPUs; it belongs to the layer above, which asks for it."""
    return _loaded("toile.parallel.on_gpus", "run_on_devices")


def _loaded(name: str, last: str) -> Any:
    """A module that has `last`, which it defines late; one thread imports it."""
    found = sys.modules.get(name)
    if found is None or not hasattr(found, last):
        with loading:
            found = importlib.import_module(name)
    return found
