"""Where a Program runs: on the GPU that holds its operands, on the default device, or on the CPU.

Arrays of a few elements on the host decide nothing: they go where the others are.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from toile.backends import cpu
from toile.engine.gpu import GpuDevice, default_gpu, device_of, hooks, is_gpu_data, presence
from toile.engine.gpu_arrays import FEW
from toile.engine.program import Program


def device_for(raws: Sequence[Any]) -> GpuDevice | None:
    """The GPU for these operands; None: the CPU."""
    large = False
    for x in raws:
        if is_gpu_data(x):
            return device_of(x)
        large = large or x.size > FEW
    return None if large else default_gpu()


def run(program: Program, raws: Sequence[Any]) -> Sequence[Any]:
    """Run a Program on raw buffers, compiling it at the first call."""
    device = None if presence.none else device_for(raws)
    if device is None:
        return cpu.run(program, raws)
    return gpu_backend().run(program, raws, device)


def _reserve(device: GpuDevice, nbytes: int, make: Callable[[int], Any]) -> Any:
    """`make(nbytes)`; where there is no room, again after others gave some up, or a report."""
    try:
        return make(nbytes)
    except MemoryError:
        memory = importlib.import_module("toile.backends.gpu.memory")
        return memory.allocated(device, nbytes, make, None)


def _warm(device: GpuDevice) -> None:
    """Have NVIDIA's libraries load what nearly every program needs."""
    importlib.import_module("toile.backends.gpu.starting").begin(device)


def gpu_backend() -> Any:
    """The backend for GPUs; loaded where there is one."""
    return importlib.import_module("toile.backends.gpu")


hooks.reserve, hooks.load, hooks.warm = _reserve, gpu_backend, _warm
