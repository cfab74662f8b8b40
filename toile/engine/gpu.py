"""GPUs as devices: which there are, their memory and their stream. CuPy is loaded when one is used.

Every GPU has one stream of its own, ordered with CuPy's default stream, so that arrays may go back
and forth without waiting. Memory comes from CuPy's pool, which grows on demand. `TOILE_PLATFORM`
(or `JAX_PLATFORMS`) chooses between cpu and gpu; without it the GPU is the default where the driver
and CuPy both see one. May import engine.devices, engine.config.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import threading
import warnings
from typing import Any

from toile.engine.config import flags
from toile.engine.devices import Device
from toile.engine.source import here


class GpuDevice(Device):
    """An NVIDIA GPU."""

    __slots__ = ("lock", "__dict__")

    def __init__(self, id: int):
        super().__init__("gpu", id, "")
        self.lock = threading.RLock()  # one program at a time puts its work on the stream

    def __repr__(self) -> str:
        return f"CudaDevice(id={self.id})"

    __str__ = __repr__

    def __getattribute__(self, name: str) -> Any:
        if name == "device_kind":
            return self.properties["name"].decode()
        return super().__getattribute__(name)

    @functools.cached_property
    def properties(self) -> dict[str, Any]:
        return cupy().cuda.runtime.getDeviceProperties(self.id)

    @functools.cached_property
    def architecture(self) -> str:
        """What kernels are compiled for, such as sm_90."""
        return f"sm_{self.properties['major']}{self.properties['minor']}"

    @functools.cached_property
    def processors(self) -> int:
        return self.properties["multiProcessorCount"]

    @functools.cached_property
    def _stream(self) -> Any:
        with cupy().cuda.Device(self.id):
            return cupy().cuda.Stream(non_blocking=False)

    @functools.cached_property
    def stream(self) -> int:
        """The stream's handle."""
        return self._stream.ptr

    @property
    def compute_capability(self) -> str:
        return f"{self.properties['major']}.{self.properties['minor']}"

    def current(self) -> Any:
        """A context in which CuPy and the driver speak of this device."""
        return cupy().cuda.Device(self.id)

    def begin(self) -> None:
        """Make the context that the driver's calls need: making the stream does."""
        self.stream  # noqa: B018

    def synchronize(self) -> None:
        """Wait for all work."""
        self._stream.synchronize()

    def allocate(self, nbytes: int) -> tuple[DeviceMemory, int]:
        """Memory for results, not initialised, and where it begins."""
        pointer = cupy().cuda.alloc(nbytes or 1)
        return DeviceMemory(pointer, nbytes, self), pointer.ptr

    def memory_stats(self) -> dict[str, Any]:
        """Bytes in use, as JAX names them."""
        with self.current():
            free, total = cupy().cuda.runtime.memGetInfo()
            pool = cupy().get_default_memory_pool()
            return {"bytes_in_use": pool.used_bytes(), "pool_bytes": pool.total_bytes(),
                    "bytes_limit": total, "bytes_free": free}


class DeviceMemory:
    """Bytes of a GPU that one or more arrays lie in; CuPy's arrays on them keep it alive."""

    __slots__ = ("pointer", "nbytes", "device")

    def __init__(self, pointer: Any, nbytes: int, device: GpuDevice):
        self.pointer, self.nbytes, self.device = pointer, nbytes, device

    def array(self, shape: tuple[int, ...], dtype: Any, offset: int) -> Any:
        """A CuPy array on these bytes."""
        cuda = cupy().cuda
        seen = cuda.UnownedMemory(self.pointer.ptr, max(self.nbytes, 1), self, self.device.id)
        return cupy().ndarray(shape, dtype, cuda.MemoryPointer(seen, offset))


@functools.cache
def cupy() -> Any:
    """CuPy, or an error that says how to get it."""
    try:
        import cupy as found
    except ImportError as error:
        raise RuntimeError(
            "toile: needed CuPy for arrays on a GPU, found none (python -m pip install "
            "'toile[cuda13]', or 'toile[cuda12]' for a driver of CUDA 12; `python -m toile.doctor` "
            f"says what is there){here()}"
        ) from error
    return found


@functools.cache
def driver_library() -> ctypes.CDLL | None:
    """libcuda, or None where there is no NVIDIA driver."""
    for name in ("libcuda.so.1", "libcuda.so", "nvcuda.dll"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


@functools.cache
def driver_count() -> int:
    """GPUs that the NVIDIA driver sees; 0 without a driver."""
    library = driver_library()
    if library is None or library.cuInit(0) != 0:
        return 0
    count = ctypes.c_int(0)
    return count.value if library.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0


def wanted_platform() -> str | None:
    """The platform that the environment asks for: cpu, gpu or None (also: auto)."""
    text = os.environ.get("TOILE_PLATFORM") or os.environ.get("JAX_PLATFORMS") or ""
    first = text.split(",")[0].strip().lower()
    return {"cuda": "gpu", "": None, "auto": None}.get(first, first)


class _Presence:
    """Whether GPUs have to be thought of; `none` is False until it is known that there is none."""

    __slots__ = ("none",)

    def __init__(self) -> None:
        self.none = False


presence = _Presence()


def is_gpu_data(data: Any) -> bool:
    """Whether a raw buffer is CuPy's."""
    return not presence.none and data.__class__.__module__.startswith("cupy")


@functools.cache
def gpu_devices() -> tuple[GpuDevice, ...]:
    """The GPUs of this process; none where the platform asked for is cpu."""
    if wanted_platform() == "cpu" or not driver_count():
        presence.none = True
        return ()
    if importlib.util.find_spec("cupy") is None:
        warnings.warn(
            "toile: an NVIDIA GPU may be present, but CuPy is not installed: using the CPU "
            "(python -m pip install 'toile[cuda13]'; TOILE_PLATFORM=cpu silences this)",
            RuntimeWarning, stacklevel=3,
        )
        presence.none = True
        return ()
    return tuple(GpuDevice(i) for i in range(driver_count()))


def require() -> tuple[GpuDevice, ...]:
    """The GPUs; an error where there is none."""
    found = gpu_devices()
    if not found:
        raise RuntimeError(
            "Unknown backend: 'gpu' requested, but no platforms that are instances of gpu are "
            "present: needed an NVIDIA driver and CuPy that see a GPU (`python -m toile.doctor` "
            f"says what is there){here()}"
        )
    return found


class _Host(threading.local):
    """Whether this thread runs a step of a program on the host, and everything inside it."""

    only = False


host = _Host()


def default_gpu() -> GpuDevice | None:
    """The GPU that is the default device; None where that is the CPU."""
    found = gpu_devices()
    if not found or host.only:
        return None
    chosen = flags.default_device
    if chosen is None:
        return found[0]
    if isinstance(chosen, str):
        return None if chosen == "cpu" else require()[0]
    return chosen if isinstance(chosen, GpuDevice) else None


def device_of(x: Any) -> GpuDevice:
    """The device of a CuPy array."""
    return gpu_devices()[x.device.id]
