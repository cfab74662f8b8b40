"""Memory on a GPU: the arena that a device's Programs share, and what to say when it runs out."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Any

from toile.engine.arrays import ConcreteArray
from toile.engine.gpu import GpuDevice, cupy, is_gpu_data

SHOWN = 10  # of the largest arrays


class Arena:
    """Temporaries of whichever Program runs; it grows, and each growth has a number."""

    def __init__(self, device: GpuDevice):
        self.device = device
        self.memory: Any = None
        self.start, self.nbytes, self.generation = 0, 0, 0

    def of(self, nbytes: int) -> tuple[int, int]:
        """Where an arena of at least so many bytes begins, and its generation."""
        if nbytes > self.nbytes:
            self.memory = None  # in order on the stream: what was issued is done before the reuse
            self.nbytes = 0
            self.memory, self.start = self.device.allocate(nbytes)
            self.nbytes = nbytes
            self.generation += 1
        return self.start, self.generation


_arenas: dict[GpuDevice, Arena] = {}


def arena_of(device: GpuDevice) -> Arena:
    """The arena of a device."""
    found = _arenas.get(device)
    if found is None:
        found = _arenas[device] = Arena(device)
    return found


def release() -> None:
    """Give the memory of temporaries back to CuPy's pool, and the pool's to the device."""
    for device in list(_arenas):
        device.synchronize()
    _arenas.clear()
    cupy().get_default_memory_pool().free_all_blocks()


def live_arrays(objects: Iterable[Any] | None = None) -> list[Any]:
    """Arrays on GPUs that somebody holds, the largest first."""
    found = {}
    for x in gc.get_objects() if objects is None else objects:
        if isinstance(x, ConcreteArray) and not x.is_deleted() and is_gpu_data(x._data):
            found[x._data.data.ptr] = x
    return sorted(found.values(), key=lambda x: -x.nbytes)


def report(
    name: str, needed: int, planned: int, stats: dict[str, Any], arrays: list[Any]
) -> str:
    """What to say when memory runs out."""
    lines = [
        f"out of memory on the GPU: {name} needed {_size(needed)} more",
        f"  planned peak of {name}: {_size(planned)} (inputs, results, constants, temporaries)",
        f"  in use: {_size(stats.get('bytes_in_use', 0))} of {_size(stats.get('bytes_limit', 0))}",
    ]
    if arrays:
        lines.append("  largest live arrays:")
        for x in arrays[:SHOWN]:
            lines.append(f"    {_size(x.nbytes):>10}  {x.aval.str_short()}")
    lines.append("  (smaller batches, toile.checkpoint on layers, donate_argnums for the state, or "
                 "bfloat16 take less)")
    return "\n".join(lines)


def out_of_memory(executable: Any, needed: int, error: BaseException) -> MemoryError:
    """The error for an allocation that failed."""
    device = executable.device
    try:
        stats = device.memory_stats()
    except Exception:
        stats = {}
    text = report(executable.program.name, needed, executable.peak_bytes, stats, live_arrays())
    return OutOfMemoryError(f"RESOURCE_EXHAUSTED: {text}\n  ({error})")


class OutOfMemoryError(MemoryError, RuntimeError):
    """A GPU has no room for what a program needs."""


def _size(nbytes: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024 or unit == "GiB":
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    raise AssertionError
