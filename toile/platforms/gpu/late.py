"""Modules of the GPU platform that are loaded when a GPU is used: compiler and execution."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from toile.engine.locks import loading


def has_devices() -> bool:
    """Whether the devices module is loaded already."""
    return "toile.platforms.gpu.devices" in sys.modules


def devices() -> Any:
    """GPUs as devices."""
    return _loaded("toile.platforms.gpu.devices", "device_of")


def arrays() -> Any:
    """Arrays on GPUs."""
    return _loaded("toile.platforms.gpu.arrays", "placed_by_default")


def eager() -> Any:
    """Fast paths of operations outside jit."""
    return _loaded("toile.platforms.gpu.eager", "learn")


def executables() -> Any:
    """Compiles Programs and runs them."""
    return _loaded("toile.platforms.gpu.executables", "run")


def exits() -> Any:
    """Fast exits of Programs that have run."""
    return _loaded("toile.platforms.gpu.exits", "way_of")


def finite_tests() -> Any:
    """Looks for NaNs and infinities in arrays on GPUs."""
    return _loaded("toile.platforms.gpu.finite_tests", "non_finite")


def memory() -> Any:
    """Frees memory when it runs out, and reports what uses it."""
    return _loaded("toile.platforms.gpu.memory", "allocated")


def warm_up() -> Any:
    """Makes the first calls to NVIDIA's libraries early."""
    return _loaded("toile.platforms.gpu.warm_up", "begin")


def inspection() -> Any:
    """Information about compiled Programs."""
    return _loaded("toile.platforms.gpu.kernel_reports", "issued")


def replicas() -> Any:
    """Runs one Program on several GPUs; a module of the layer above, which calls this."""
    return _loaded("toile.parallel.on_gpus", "run_on_devices")


def _loaded(name: str, last: str) -> Any:
    """A module; once it has `last`, it counts as loaded. Only one thread imports it."""
    found = sys.modules.get(name)
    if found is None or not hasattr(found, last):
        with loading:
            found = importlib.import_module(name)
    return found
