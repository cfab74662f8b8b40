"""Which parts of CUDA are present: the driver's library and CuPy; and waiting for streams.

Nothing is loaded before it is needed. This module may import the engine.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import threading
import time
from collections.abc import Callable
from typing import Any

from toile.engine.source import here

SYNC_HINT = "CUDA reports errors late: TOILE_DEBUG=sync names the kernel"

_NOT_READY = 600  # CUDA's status of a stream with work left
_SPINS_S = 0.005  # a longer wait yields to other threads


def wait_until(ask: Callable[[], int]) -> None:
    """Wait while `ask()` says that a stream has work left, such that Ctrl-C ends the wait.

    Python runs signal handlers on its main thread, between two calls of `ask`: other threads need
    not poll, and proceed to a wait in the driver."""
    if threading.get_ident() != threading.main_thread().ident:
        return
    began = time.perf_counter()
    while ask() == _NOT_READY:
        passed = time.perf_counter() - began
        if passed > _SPINS_S:
            time.sleep(min(passed / 200, 0.01))


class _Lane(threading.local):
    """The logical device of the thread; 0 if it is the primary one of its GPU."""

    number = 0


lane = _Lane()


@functools.cache
def cupy() -> Any:
    """CuPy; if it is missing, an error that says how to install it."""
    try:
        import cupy as found
    except ImportError as error:
        raise RuntimeError(
            "toile: needed CuPy for arrays on a GPU, found none (python -m pip install "
            "'toile[cuda13]', or 'toile[cuda12]' for a driver of CUDA 12; `python -m toile.doctor` "
            f"checks this machine){here()}"
        ) from error
    return found


@functools.cache
def driver_library() -> ctypes.CDLL | None:
    """libcuda, or None if there is no NVIDIA driver."""
    for name in ("libcuda.so.1", "libcuda.so", "nvcuda.dll"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


@functools.cache
def driver_count() -> int:
    """How many GPUs the NVIDIA driver finds; 0 without a driver."""
    library = driver_library()
    if library is None or library.cuInit(0) != 0:
        return 0
    count = ctypes.c_int(0)
    return count.value if library.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0


def has_cupy() -> bool:
    """Whether CuPy is installed."""
    try:
        return importlib.util.find_spec("cupy") is not None
    except ImportError:  # an import hook refuses to look for it
        return False
