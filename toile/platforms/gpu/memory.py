"""Memory on a GPU: the arena that a device's Programs share, and the report when it runs out.

Before a Program fails, memory kept for later calls is freed, and the allocation is tried again. The
report lists the largest buffers with the lines that created them, the Program's planned peak, and
the batch that would fit.
"""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from toile.engine.host_memory import largest_step
from toile.engine.program import Program
from toile.engine.source import here
from toile.platforms.code_memory import Shelf
from toile.platforms.gpu import devices as gpu
from toile.platforms.gpu.devices import GpuDevice, cupy
from toile.platforms.gpu.live_arrays import Buffer, Made, constants_of, live_arrays
from toile.platforms.largest_batch import Fit, batch_that_fits
from toile.platforms.memory_reports import SAVINGS, OutOfMemoryError, largest, size
from toile.targets.cuda import modules as kernels

SHOWN = 2  # largest buffers in the report
LARGE = 64 << 20  # bytes of an arena that the pool should not keep
T = TypeVar("T")


class Arena:
    """Memory for the running Program's temporaries. Each growth begins a new generation."""

    def __init__(self, device: GpuDevice):
        self.device = device
        self.memory: Any = None
        self.start, self.nbytes, self.generation = 0, 0, 0

    def of(self, nbytes: int) -> tuple[int, int]:
        """The address of an arena of at least `nbytes`, and its generation."""
        if nbytes > self.nbytes:
            before = self.nbytes
            self.give_up()  # ordered on the stream: issued work ends before the memory is reused
            if before >= LARGE:
                self.device.trim()  # otherwise the pool would hold both
            self.memory, self.start = self.device.allocate(nbytes)
            self.nbytes = nbytes
            self.generation = next(_generations)
        return self.start, self.generation

    def give_up(self) -> None:
        """Free the memory; the next use allocates it again."""
        self.memory, self.nbytes = None, 0


_generations = itertools.count(1)  # unique among all arenas: graphs record theirs
_arenas: dict[GpuDevice, Arena] = {}
executables: weakref.WeakSet[Any] = weakref.WeakSet()  # all that exist


def _forgotten(program: Program, made: Any) -> None:
    """Remove an executable and its plan from what a Program remembers."""
    for key, value in list(program.memo.items()):
        if value is made or value is made.plan:
            program.memo.pop(key, None)


shelf = Shelf(lambda: kernels.Loaded.code_bytes, _forgotten)


def arena_of(device: GpuDevice) -> Arena:
    """The arena of a device."""
    found = _arenas.get(device)
    if found is None:
        found = _arenas[device] = Arena(device)
    return found


@contextmanager
def other_arenas(devices: Sequence[GpuDevice]) -> Iterator[None]:
    """A block in which a running Program starts others without losing its temporaries."""
    before = {d: _arenas.pop(d) for d in devices if d in _arenas}
    try:
        yield
    finally:
        for d in devices:
            _arenas.pop(d, None)
        _arenas.update(before)


def release() -> None:
    """Return the memory of temporaries to CuPy's pool, and the pool's memory to the device."""
    for device in list(_arenas):
        device.synchronize()
    _arenas.clear()
    cupy().get_default_memory_pool().free_all_blocks()


# ---- running out


def allocated(device: GpuDevice, nbytes: int, make: Callable[[int], T], executable: Any) -> T:
    """Call `make(nbytes)`; if memory runs out, free what is kept for later calls and try again."""
    try:
        return make(nbytes)
    except MemoryError:
        reclaim(device, executable is not None)
    try:
        return make(nbytes)
    except MemoryError as error:
        raise out_of_memory(device, nbytes, error, executable) from None


def reclaim(device: GpuDevice, with_arena: bool) -> None:
    """Free what is not in use: memory kept for results, buffers of graphs, reference cycles.

    The arena is also freed if a program is about to begin. At other times it is kept, because a
    running program might be using it. Several devices may share a GPU. Memory held by the other
    devices is freed if they are not running a program."""
    _give_up(device, with_arena)
    gc.collect()  # after the local references to the keepers are gone


def _give_up(device: GpuDevice, with_arena: bool) -> None:
    kept: dict[GpuDevice, list[Any]] = {}
    for keeper in members(gpu.keepers):
        kept.setdefault(_device_of(keeper), []).append(keeper)
    with device.lock:
        device.synchronize()
        for keeper in kept.pop(device, ()):
            keeper.give_up()
        if with_arena:
            arena_of(device).give_up()
    for other, keepers in kept.items():
        if other.lock.acquire(blocking=False):  # waiting could deadlock
            try:
                with other.current():
                    for keeper in keepers:
                        keeper.give_up()
            finally:
                other.lock.release()


def _device_of(keeper: Any) -> GpuDevice:
    """The device of an executable, or of a call that holds one."""
    return getattr(keeper, "executable", keeper).device


def members(found: weakref.WeakSet[T]) -> list[T]:
    """The members of a set that other threads may change at the same time."""
    while True:
        try:
            return list(found)
        except RuntimeError:  # its size changed
            continue


def out_of_memory(
    device: GpuDevice, needed: int, error: BaseException, executable: Any = None
) -> BaseException:
    """The error for a failed allocation, of a Program or of an array."""
    if isinstance(error, OutOfMemoryError):
        return error
    executable = executable.described() if executable is not None else None
    try:
        stats = device.memory_stats()
    except Exception:  # the device does not even answer
        stats = {}
    arena = _arenas.get(device)
    held = arena.nbytes if arena is not None else 0
    buffers = [*live_arrays(), *constants_of(members(executables))]
    if held:
        buffers.append(Buffer(held, f"uint8[{held}]", Made("temporaries of all programs")))
    fit = batch_that_fits(executable, room_for(executable, stats, held)) if executable else None
    text = report(executable, needed, stats, buffers, fit)
    reason = "" if needed else f"\n  ({error})"
    place = largest_step("", executable.program)[1] if executable is not None else ""
    return OutOfMemoryError(f"RESOURCE_EXHAUSTED: {text}{reason}{place}{here()}")


def room_for(executable: Any, stats: dict[str, Any], arena: int) -> int:
    """The most memory that a Program may use: what is free, and what it has already."""
    inputs = sum(v.aval.nbytes for v in executable.program.inputs)
    return room_beside(stats, arena + inputs + executable.constant_bytes)


def room_beside(stats: dict[str, Any], held: int) -> int:
    """The memory of a device that nothing else uses; `held` is in use by the Program in question.
    """
    limit = stats.get("bytes_limit", 0)
    total = min(stats.get("bytes_free", limit) + stats.get("pool_bytes", 0), limit)
    others = max(stats.get("bytes_in_use", 0) - held, 0)
    return max(total - others, 0)


def report(
    executable: Any, needed: int, stats: dict[str, Any], buffers: Sequence[Buffer],
    fit: Fit | None = None,
) -> str:
    """The text of the error when memory runs out."""
    name = executable.program.name if executable else "an array" if needed else "a library"
    wanted = f"{size(needed)} more" if needed else "more than is available"
    if executable and needed:
        wanted += _result_of_size(executable.program, needed)
    lines = [f"out of memory on the GPU: {name} needed {wanted}"]
    if executable:
        lines.append(f"  planned peak of {name}: {size(executable.peak_bytes)} "
                     "(inputs, results, constants, temporaries)")
    lines[-1] += (f"; in use: {size(stats.get('bytes_in_use', 0))} of "
                  f"{size(stats.get('bytes_limit', 0))}")
    if buffers:
        lines.append("  largest live buffers:")
        lines += largest(buffers, SHOWN)
    if fit is not None:
        lines += [f"  {line}" for line in fit.lines(size)]
    lines.append(f"  (these save memory: {SAVINGS}; toile.plan shows the whole plan)")
    return "\n".join(lines)


def _result_of_size(program: Program, nbytes: int) -> str:
    """For which result of a Program an allocation of this size is, as a part of a sentence."""
    found = [v.aval for v in program.outputs if v.aval.nbytes == nbytes]
    return f" for {found[0].str_short()}" if found else ""
