"""One Program on several GPU devices: compiled once, issued by one thread per device.

Threads enqueue the work on the devices' streams and return; results are buffers that the work will
fill. Only one run is issued at a time, because its devices wait for each other. This module may
import platforms and the layers below it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from toile.engine.platform_registry import host
from toile.engine.program import Program
from toile.parallel.exchange import Place
from toile.parallel.gpu_exchange import GpuExchange, GpuProcessExchange
from toile.parallel.launch import launch
from toile.parallel.overlap import overlapped
from toile.parallel.runs import Run
from toile.platforms.gpu.devices import GpuDevice
from toile.platforms.gpu.executables import executable_of
from toile.platforms.gpu.memory import other_arenas

__all__ = ["compiled_for", "overlapped", "run_on_devices"]

_one = threading.RLock()


def compiled_for(program: Program, devices: Sequence[GpuDevice]) -> list[Any]:
    """The compiled form of a Program on each device; all forms share the plan and the kernels."""
    return [executable_of(program, d) for d in devices]


def run_on_devices(
    executables: Sequence[Any], places: Sequence[Place], devices: Sequence[GpuDevice],
    parts: Sequence[Sequence[Any]], owners: tuple[int, ...] | None,
    everyone: tuple[GpuDevice, ...], run: Run | None = None,
) -> list[Sequence[Any]]:
    """The results of each device, from the operands' buffers for each device.

    If other processes take part, `owners` and `everyone` contain the process and the device of each
    index, and `run` is the run that these processes have in common."""
    make: Any = partial(GpuExchange, devices=tuple(devices))
    if owners is not None:
        assert run is not None
        make = partial(GpuProcessExchange, owners=owners, devices=everyone, run=run)
    apart = other_arenas(devices) if host.only else nullcontext()  # as a step of another Program
    with _one, apart:
        return launch(lambda k: executables[k]([p[k] for p in parts]), places, make)
