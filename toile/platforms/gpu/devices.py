"""GPUs as devices: which exist, their memory and streams. CuPy is loaded when a GPU is first used.

Each device has its own stream, ordered with CuPy's default stream, so that arrays can pass between
them without waiting. Memory comes from CuPy's pool, which grows on demand. A device is a GPU, or
one of several logical devices on it (`TOILE_GPU_DEVICES`), which copy each other's arrays.
`TOILE_PLATFORM` (or `JAX_PLATFORMS`) chooses between cpu and gpu; by default the GPU is used if
both the driver and CuPy find one. This module may import targets.cuda, platforms.gpu and the
engine.
"""

from __future__ import annotations

import functools
import math
import platform
import threading
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toile.engine.config import flags
from toile.engine.devices import Device
from toile.engine.platform_registry import default_devices, registry, wanted_platform
from toile.engine.source import Source, here, user_source
from toile.platforms.gpu import late
from toile.platforms.gpu.byte_arrays import BYTES, has_dtype, new_array, viewed
from toile.platforms.gpu.index_words import report
from toile.targets.cuda.presence import (
    SYNC_HINT,
    cupy,
    driver_count,
    driver_library,
    has_cupy,
    lane,
    wait_until,
)

__all__ = ["GpuDevice", "cupy", "driver_count", "driver_library", "has_cupy", "lane", "wait_until"]

ALIGNMENT = 64  # bytes: alignment of arrays that kernels read

_making = threading.RLock()  # held only while a stream is created


class _once(functools.cached_property):
    """A cached property that only one thread computes.

    From Python 3.12 on, functools.cached_property takes no lock: if two threads created a stream at
    the same time, one would be destroyed while its handle is in use. The device's lock cannot be
    used: a program holds it while it waits for other devices, which ask for its streams."""

    def __get__(self, device: Any, owner: Any = None) -> Any:
        if device is None:
            return self
        with _making:
            return super().__get__(device, owner)


class GpuDevice(Device):
    """An NVIDIA GPU, or one of several logical devices on it.

    `ordinal` is the number of the GPU in this process. The first device of a GPU is its `primary`
    device: memory that CuPy allocates on the GPU belongs to it."""

    __slots__ = ("lock", "ordinal", "__dict__")

    def __init__(self, id: int, ordinal: int | None = None, owner: int | None = None):
        super().__init__("gpu", id, "", owner)
        self.ordinal = self._number = id if ordinal is None else ordinal
        self.lock = threading.RLock()  # only one program at a time issues work on the stream
        self.program = ""  # the name of the program issued last
        self.tested: set[Any] = set()  # `IndexWords` of programs since the last wait

    def __reduce__(self) -> Any:
        return _device_number, (self.id,)

    @functools.cached_property
    def primary(self) -> GpuDevice:
        return fleet.primary(self.ordinal)

    @functools.cached_property
    def hardware(self) -> str:
        """A name of the GPU that is unique across machines."""
        return f"{platform.node()} {cupy().cuda.Device(self.ordinal).pci_bus_id}"

    def __repr__(self) -> str:
        return f"CudaDevice(id={self.id})"

    @property
    def device_kind(self) -> str:
        """The name of the GPU; it is not known before the GPU is used."""
        return self.properties["name"].decode()

    @device_kind.setter
    def device_kind(self, text: str) -> None:
        pass

    @functools.cached_property
    def properties(self) -> dict[str, Any]:
        return cupy().cuda.runtime.getDeviceProperties(self.ordinal)

    @functools.cached_property
    def architecture(self) -> str:
        """The architecture that kernels are compiled for, such as sm_90."""
        return f"sm_{self.properties['major']}{self.properties['minor']}"

    @functools.cached_property
    def processors(self) -> int:
        return self.properties["multiProcessorCount"]

    @_once
    def _stream(self) -> Any:
        with cupy().cuda.Device(self.ordinal):
            return cupy().cuda.Stream(non_blocking=False)

    @_once
    def stream(self) -> int:
        """The stream's handle."""
        return self._stream.ptr

    @_once
    def _captured(self) -> Any:
        with cupy().cuda.Device(self.ordinal):
            return cupy().cuda.Stream(non_blocking=True)

    @_once
    def capture_stream(self) -> int:
        """A stream for capturing graphs. It is not ordered with CuPy's default stream, which other
        threads may use meanwhile."""
        return self._captured.ptr

    @_once
    def _beside(self) -> Any:
        with cupy().cuda.Device(self.ordinal):
            return cupy().cuda.Stream(non_blocking=True)

    @_once
    def side_stream(self) -> int:
        """A stream for collectives that run while the device computes."""
        return self._beside.ptr

    @property
    def compute_capability(self) -> str:
        return f"{self.properties['major']}.{self.properties['minor']}"

    def current(self) -> Any:
        """A context in which CuPy and the driver use this device."""
        cuda = cupy().cuda
        if self.ordinal not in entered.contexts:
            with cuda.Device(self.ordinal):
                cuda.runtime.setDevice(self.ordinal)
            entered.contexts.add(self.ordinal)
        return cuda.Device(self.ordinal) if self is self.primary else _OnLane(self)

    @functools.cached_property
    def sole(self) -> bool:
        """Whether a thread that has entered this device uses no other device with CuPy and the
        driver. If so, `current` is not needed in each call."""
        return self is self.primary and driver_count() == 1

    def enter(self) -> None:
        """Make this device, which is `sole`, current for this thread from now on."""
        cupy().cuda.runtime.setDevice(self.ordinal)
        entered.here = True

    def synchronize(self) -> None:
        """Wait for all work; an error names the program issued last."""
        try:
            stream = self._stream
            wait_until(functools.partial(cupy().cuda.runtime.streamQuery, stream.ptr))
            stream.synchronize()
        except Exception as error:
            if self.program:
                error.add_note(f"the last program on {self} was {self.program} ({SYNC_HINT})")
            raise
        if self.tested:
            report(self.tested)

    def host_words(self, count: int) -> tuple[np.ndarray, int, Any]:
        """Numbers of 32 bits in memory of the host that kernels can write: an array, its address on
        the device, and the object that keeps the memory."""
        with cupy().cuda.Device(self.ordinal):
            memory = cupy().cuda.alloc_pinned_memory(4 * count)
        return np.frombuffer(memory, np.int32, count), memory.ptr, memory

    def allocate(self, nbytes: int) -> tuple[DeviceMemory, int]:
        """Uninitialized memory for results, and its address."""
        if self is self.primary:
            pointer = cupy().cuda.alloc(nbytes or 1)
        else:
            with self.current():  # the pool reuses memory only on the same stream
                pointer = cupy().cuda.alloc(nbytes or 1)
        return DeviceMemory(pointer, nbytes, self), pointer.ptr

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """An uninitialized CuPy array in memory of this device."""
        with cupy().cuda.Device(self.ordinal):
            memory, _ = self.allocate(math.prod(shape) * dtype.itemsize)
            return memory.array(shape, dtype, 0)

    def put(self, data: Any) -> Any:
        """A NumPy buffer, or one of a primary device, on this device; copied if it is elsewhere."""
        return self.moved(data, device_of(data)) if is_gpu_data(data) else upload(data, self)

    def moved(self, data: Any, home: GpuDevice) -> Any:
        """A CuPy array of `home` on this device, in row-major order; copied if necessary.

        On one GPU the copy runs on CuPy's stream, which is ordered with the streams of all devices
        there. Between GPUs this waits for that stream: waiting for a whole GPU would invalidate a
        capture that another thread makes there."""
        cuda = cupy().cuda
        with cuda.Device(home.ordinal), cuda.Stream.null:
            if not data.flags.c_contiguous:
                data = viewed(cupy().ascontiguousarray(as_bits(data)), data.dtype)
                home = home.primary
            if home is self:
                return data
            if home.ordinal == self.ordinal:
                made = self.empty(data.shape, data.dtype)
                made.data.copy_from_device_async(data.data, data.nbytes, cuda.Stream.null)
                return made
            cuda.Stream.null.synchronize()
        with cuda.Device(self.ordinal), cuda.Stream.null:
            made = self.empty(data.shape, data.dtype)
            made.data.copy_from_device(data.data, data.nbytes)
            cuda.Stream.null.synchronize()
        return made

    def trim(self) -> None:
        """Return unused memory of the pool to the driver."""
        self.synchronize()
        cupy().get_default_memory_pool().free_all_blocks()

    def memory_stats(self) -> dict[str, Any]:
        """Bytes in use, with the names that JAX uses."""
        with self.current():
            free, total = cupy().cuda.runtime.memGetInfo()
            pool = cupy().get_default_memory_pool()
            most = pool.get_limit() or total  # CUPY_GPU_MEMORY_LIMIT, or pool.set_limit
            return {"bytes_in_use": pool.used_bytes(), "pool_bytes": pool.total_bytes(),
                    "bytes_limit": min(total, most), "bytes_free": free}


def as_bits(data: Any) -> Any:
    """The elements of a CuPy array as integers, which CuPy copies whatever they mean."""
    size = data.dtype.itemsize
    return viewed(data, np.dtype(f"u{size}")) if size in (1, 2, 4, 8) else data


class _Entered(threading.local):
    """Which GPU contexts a thread has, and whether it has entered the only GPU (see `enter`).

    The driver's calls need a context. CuPy's `Device` creates none if its number is already that of
    the thread's device, which is 0 in a new thread."""

    here = False

    def __init__(self) -> None:
        self.contexts: set[int] = set()


entered = _Entered()


class _OnLane:
    """A block in which CuPy uses the stream, and thus the memory, of a logical device."""

    __slots__ = ("device", "before", "inner")

    def __init__(self, device: GpuDevice):
        self.device = device

    def __enter__(self) -> None:
        self.before = lane.number
        self.inner = cupy().cuda.Device(self.device.ordinal), self.device._stream
        for context in self.inner:
            context.__enter__()
        lane.number = self.device.id

    def __exit__(self, *error: object) -> None:
        lane.number = self.before
        for context in reversed(self.inner):
            context.__exit__(*error)


class DeviceMemory:
    """Bytes of a GPU that hold one or more arrays; CuPy arrays on them keep it alive.

    `made` says what they were allocated for, if that is known (see `live_arrays`). `turns` is a
    weak reference to the list of the exit that keeps them for later calls (see `kept_results`)."""

    __slots__ = ("pointer", "nbytes", "device", "made", "turns")

    def __init__(self, pointer: Any, nbytes: int, device: GpuDevice, made: Any = None):
        self.pointer, self.nbytes, self.device, self.made = pointer, nbytes, device, made
        self.turns: Callable[[], list[Any] | None] | None = None

    @property
    def start(self) -> int:
        return self.pointer.ptr

    def array(self, shape: tuple[int, ...], dtype: Any, offset: int) -> Any:
        """A CuPy array on these bytes, from `offset` on."""
        cuda = cupy().cuda
        seen = cuda.UnownedMemory(self.pointer.ptr, max(self.nbytes, 1), self, self.device.ordinal)
        return new_array(shape, dtype, cuda.MemoryPointer(seen, offset), cupy())


# Objects that keep memory for later calls, and free it (`give_up()`) when memory runs out.
keepers: weakref.WeakSet[Any] = weakref.WeakSet()

# Where large arrays were uploaded from: their size and the user's line, by address.
LARGE = 1 << 20
MOST_UPLOADS = 1024
uploads: OrderedDict[int, tuple[int, Source | None]] = OrderedDict()


def note_upload(address: int, nbytes: int) -> None:
    """Remember the user's line that uploaded an array."""
    if nbytes >= LARGE:
        uploads.pop(address, None)
        uploads[address] = nbytes, user_source(2)
        if len(uploads) > MOST_UPLOADS:
            uploads.popitem(last=False)


def reserved(device: GpuDevice, nbytes: int, make: Callable[[int], Any]) -> Any:
    """`make(nbytes)`; if memory runs out, it is tried again after other memory has been freed, and
    if that fails, the error is reported."""
    try:
        return make(nbytes)
    except MemoryError:
        return late.memory().allocated(device, nbytes, make, None)


def uploaded(data: Any) -> Any:
    """A NumPy array as a new CuPy array on the current device.

    An array without axes is copied with one. Otherwise, CuPy would fill the new array with its
    number, and with zeros if it equals 0, so that -0.0 would lose its sign."""
    if not has_dtype(data.dtype):
        return viewed(uploaded(data.view(BYTES)), data.dtype)
    return cupy().asarray(np.ascontiguousarray(data).reshape(-1)).reshape(np.shape(data))


def upload(data: Any, device: GpuDevice) -> Any:
    """Copy a NumPy array to a new CuPy array."""
    with device.current():
        given = np.asarray(data)
        made = reserved(device, given.nbytes, lambda _: uploaded(given))
        note_upload(made.data.ptr, given.nbytes)
        return made


def is_gpu_class(kind: type) -> bool:
    """Whether a class is one of CuPy's arrays."""
    return kind.__module__.startswith("cupy")


def is_gpu_data(data: Any) -> bool:
    """Whether a raw buffer is CuPy's."""
    return is_gpu_class(data.__class__)


@functools.cache
def usable() -> int:
    """How many GPUs can be used; 0 if the platform asked for is cpu."""
    if wanted_platform() == "cpu" or not driver_count():
        return 0
    if not has_cupy():
        warnings.warn(
            "toile: an NVIDIA GPU may be present, but CuPy is not installed: using the CPU "
            "(python -m pip install 'toile[cuda13]'; TOILE_PLATFORM=cpu silences this)",
            RuntimeWarning, stacklevel=5,
        )
        return 0
    return driver_count()


class Fleet:
    """The GPU devices of this process and, if it has joined others, of all processes.

    Devices are assigned to the GPUs in turn, so that the first ones are the primary ones."""

    def __init__(self, ordinals: Sequence[int] | None = None,
                 make: Callable[[int, int], GpuDevice] = GpuDevice):
        self.ordinals = None if ordinals is None else tuple(ordinals)  # numbers of GPUs; None: all
        self.make = make
        self.devices: list[GpuDevice] = []
        self.known: dict[int | None, tuple[GpuDevice, ...]] = {}  # by how many were asked for
        self.everyone: tuple[GpuDevice, ...] | None = None
        self.lock = threading.Lock()

    def local(self, count: int | None = None) -> tuple[GpuDevice, ...]:
        """The devices of this process, `count` of them; by default one per GPU."""
        found = self.known.get(count)
        if found is None:
            found = self.known[count] = self._local(count)
        return found

    def _local(self, count: int | None) -> tuple[GpuDevice, ...]:
        if self.ordinals is None:
            self.ordinals = tuple(range(usable()))
            platform = registry.names.get("gpu")
            if not self.ordinals and platform is not None and self is fleet:
                registry.retire(platform)
        if not self.ordinals:
            return ()
        least = len(self.ordinals)
        count = least if count is None or count < 1 else count
        with self.lock:
            while len(self.devices) < max(count, least):
                k = len(self.devices)
                self.devices.append(self.make(k, self.ordinals[k % least]))
        return tuple(self.devices[:count])

    def primary(self, ordinal: int) -> GpuDevice:
        """The first device of a GPU."""
        self.local()
        if ordinal not in (self.ordinals or ()):
            raise RuntimeError(
                f"toile: needed an array on one of the GPUs {list(self.ordinals or ())} of this "
                f"process, got one on GPU {ordinal} (local_device_ids of "
                f"toile.distributed.initialize says which they are){here()}"
            )
        return self.devices[(self.ordinals or ()).index(ordinal)]

    def use(self, ordinals: Sequence[int]) -> None:
        """Use only these GPUs; call this before any is used."""
        if self.devices and tuple(ordinals) != self.ordinals:
            raise RuntimeError(
                f"toile: needed GPUs {list(ordinals)} for this process, got others in use already "
                f"(call toile.distributed.initialize before anything else){here()}"
            )
        self.ordinals = tuple(ordinals)
        self.known.clear()

    def join(self, index: int, names: Sequence[Sequence[str]]) -> None:
        """Make this process number `index` of several; `names` are those of each one's GPUs."""
        found: list[GpuDevice] = []
        for process, given in enumerate(names):
            for number, name in enumerate(given):
                device = self.devices[number] if process == index else GpuDevice(
                    len(found), number, process)
                device.id, device.hardware = len(found), name
                found.append(device)
        self.everyone = tuple(found) if len(names) > 1 else None

    def leave(self) -> None:
        """Make this process the only one again."""
        self.everyone = None
        for number, device in enumerate(self.devices):
            device.id = number


fleet = Fleet()


def gpu_devices() -> tuple[GpuDevice, ...]:
    """The GPU devices of this process; none if the platform asked for is cpu."""
    return fleet.local(flags.num_gpu_devices)


def all_gpu_devices() -> tuple[GpuDevice, ...]:
    """The GPU devices of all processes."""
    found = gpu_devices()
    return found if fleet.everyone is None or not found else fleet.everyone


def _device_number(id: int) -> Device:
    """The GPU device with this number; the first device if there is none."""
    found = all_gpu_devices()
    return found[id] if id < len(found) else default_devices()[0]


def known_absent() -> bool:
    """Whether it is known that there is no GPU to use."""
    return fleet.ordinals == ()


_CUDA = 2  # DLPack's number for CUDA devices


def shared(x: Any) -> Any:
    """A CuPy array that shares the memory of a DLPack object on a GPU; None for others."""
    there = gpu_devices() and x.__dlpack_device__()[0] == _CUDA
    return cupy().from_dlpack(x) if there else None


def device_of(x: Any) -> GpuDevice:
    """The device of a CuPy array: the primary one of its GPU."""
    return fleet.primary(x.device.id)
