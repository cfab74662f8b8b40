"""Starting a GPU: independent parts are started at the same time.

It takes a while to start the driver and create a context, to import CuPy, and to create a cuBLAS
handle. None of this happens before a large array is placed on a GPU: processes that only hold small
arrays, such as data loaders, take no GPU memory. This module may import platforms.gpu, targets and
the engine.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import threading

from toile.engine.config import flags
from toile.engine.platform_registry import host, wanted_platform
from toile.platforms.gpu import devices as gpu
from toile.platforms.gpu import late
from toile.targets.cuda import starting
from toile.targets.cuda.starting import is_starting, load, wait, wait_for_context

__all__ = ["is_starting", "load", "load_cublas", "soon", "wait", "wait_for_context"]

# Seconds by which the driver starts first. It calls the dynamic loader at once, and would wait
# there while a large library is loaded: in most processes, starting it then took 0.17 s instead of
# 0.10 s.
HEAD_START = 0.012


def soon() -> None:
    """Called when a large array is about to be placed: if that will be on a GPU, start the driver,
    its context and libraries in other threads, while this one imports CuPy and the backend."""
    if starting.begun or gpu.known_absent() or not _is_wanted():
        return
    starting.begun.append(threading.Thread(target=_begin, name="toile: starting the GPU"))
    starting.begun.append(threading.Timer(HEAD_START, load_cublas))
    try:
        for thread in tuple(starting.begun):
            thread.start()
    except RuntimeError:  # the interpreter is exiting: everything is created on first use
        return
    backend = late.executables()
    gpu.cupy()  # this also loads cuBLAS
    backend.ahead()


def _is_wanted() -> bool:
    """Whether the default device will be a GPU here, as far as known without the driver."""
    if wanted_platform() == "cpu" or host.only or flags.default_device is not None:
        return False
    return gpu.fleet.ordinals != () and gpu.driver_library() is not None and gpu.has_cupy()


def _begin() -> None:
    """Create the context; then let another thread prepare what else the backend needs."""
    library = gpu.driver_library()
    if library is None or not gpu.driver_count():
        return
    number = (gpu.fleet.ordinals or (0,))[0]
    context = ctypes.c_void_p()
    if library.cuDevicePrimaryCtxRetain(ctypes.byref(context), number) != 0:
        return  # the first use of the GPU reports the error
    after = threading.Thread(target=_warm, name="toile: starting libraries")
    try:
        after.start()
    except RuntimeError:  # the interpreter is exiting
        return
    starting.begun.append(after)


def _warm() -> None:
    try:
        device = gpu.fleet.local(flags.num_gpu_devices)[0]
        with device.current():
            late.warm_up().begin(device)
    except Exception:  # it is created on first use, which reports the error
        return


def load_cublas() -> None:
    """Load cuBLAS if its wheel is installed: it is large, and importing CuPy will need it."""
    try:
        found = importlib.util.find_spec("nvidia")
        places = (found and found.submodule_search_locations) or ()
    except (ImportError, ValueError):  # an import hook refuses to look for it
        return
    for name in ("cublasLt", "cublas"):
        paths = (os.path.join(place, folder, "lib", f"lib{name}.so.{major}")
                 for folder, major in (("cu13", 13), ("cublas", 12)) for place in places)
        path = next(filter(os.path.isfile, paths), None)
        if path is not None:
            load(path)


