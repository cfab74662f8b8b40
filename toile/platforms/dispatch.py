"""Where a Program runs: on the GPU that holds its operands, on the default device, or on the CPU.

Arrays of a few elements on the host decide nothing: they go where the others are.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

from toile.engine import buffers
from toile.engine.garbage import paused
from toile.engine.gpu import GpuDevice, default_gpu, device_of, hooks, is_gpu_data, presence
from toile.engine.gpu_arrays import FEW
from toile.engine.locks import compiling, loading
from toile.engine.program import Program
from toile.platforms import cpu


def device_for(raws: Sequence[Any]) -> GpuDevice | None:
    """The GPU for these operands; None: the CPU."""
    large = False
    for x in raws:
        if is_gpu_data(x):
            return device_of(x)
        large = large or x.size > FEW
    return None if large else default_gpu()


def _compiles(program: Program, raws: Sequence[Any]) -> Sequence[Any]:
    """The first run on the CPU loads the compiler; later ones go straight to it."""
    global _on_cpu
    with compiling, paused():
        _on_cpu = cpu.run
    return _on_cpu(program, raws)


_on_cpu: Callable[[Program, Sequence[Any]], Sequence[Any]] = _compiles


def run(program: Program, raws: Sequence[Any]) -> Sequence[Any]:
    """Run a Program on raw buffers, compiling it at the first call."""
    device = None if presence.none else device_for(raws)
    if device is None:
        return _on_cpu(program, raws)
    return gpu_backend().run(program, raws, device)


def release_code() -> None:
    """Give up all compiled Programs: they are compiled again, or read from disk, when called."""
    for name in ("cpu.execution", "gpu.memory"):
        module = sys.modules.get(f"toile.devices.{name}")
        if module is not None:
            module.shelf.clear()
    native = sys.modules.get("toile.targets.llvm.native")
    if native is not None:
        native.forget_recent()
    kernels = sys.modules.get("toile.targets.cuda.modules")
    if kernels is not None:
        kernels.unload()


def release_memory() -> None:
    """Give the memory of temporaries on the host back, and what is kept for results."""
    with compiling:
        execution = sys.modules.get("toile.platforms.cpu.execution")
    if execution is None:  # nothing was compiled for the CPU
        buffers.release()
    else:
        execution.release_arenas()


def _reserve(device: GpuDevice, nbytes: int, make: Callable[[int], Any]) -> Any:
    """`make(nbytes)`; where there is no room, again after others gave some up, or a report."""
    try:
        return make(nbytes)
    except MemoryError:
        memory = importlib.import_module("toile.platforms.gpu.memory")
        return memory.allocated(device, nbytes, make, None)


def _warm(device: GpuDevice) -> None:
    """Have NVIDIA's libraries load what nearly every program needs."""
    importlib.import_module("toile.platforms.gpu.warm_up").begin(device)


def gpu_backend() -> Any:
    """The backend for GPUs; loaded where there is one."""
    found = sys.modules.get("toile.platforms.gpu")
    if found is None or not hasattr(found, "run"):
        with loading:
            found = importlib.import_module("toile.platforms.gpu")
    return found


def _ahead() -> None:
    """Find out what can be before the device has started."""
    gpu_backend().ahead()


hooks.reserve, hooks.load, hooks.ahead, hooks.warm = _reserve, gpu_backend, _ahead, _warm
