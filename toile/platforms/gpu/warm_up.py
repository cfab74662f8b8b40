"""First calls of a GPU's libraries, made early and in parallel with other work.

A library loads its kernels in its first calls, which take longer than hundreds of later ones. Here
these calls are made by the thread that starts a GPU (platforms.gpu.start) and by another one, while
Python imports and traces: the C code does not hold the GIL. An error here is raised again, and
reported, on the first real use.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import threading
from typing import Any

from toile.compiler.ir.operands import Ref
from toile.platforms.gpu.devices import GpuDevice
from toile.targets.cuda import cublas, libraries
from toile.targets.cuda.starting import load

# Rows, columns, dtype and arithmetic of the first products: each loads other kernels.
_PRODUCTS = ((256, 256, "float32", "tf32"), (10, 128, "float32", "tf32"),
             (256, 256, "bfloat16", "float32"))
_DEPTH = 256
# Parts of cuDNN that run plans, which it would load at the first plan that needs them.
_PARTS = ("engines_precompiled", "engines_runtime_compiled")


def begin(device: GpuDevice) -> None:
    """Make the first calls of cuBLAS in this thread, and those of cuDNN in another.

    This is skipped if a library is already in use: its calls and these could deadlock."""
    if cublas.in_use():
        return
    beside = threading.Thread(target=_cudnn, args=(device,), name="toile: starting cuDNN")
    if importlib.util.find_spec("cudnn") is None:
        _cublas()
        return
    beside.start()
    try:
        _cublas()
    finally:
        beside.join()


def _cublas() -> None:
    cublas.blas()
    first_products(cublas.make())


def first_products(blas: cublas.Blas) -> None:
    """Small products with a handle that nothing else uses, and that is then destroyed."""
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    places = {name: blas.address + (i << 20) for i, name in enumerate("abc")}
    try:
        for m, n, kind, compute in _PRODUCTS:
            a, b, c = (cublas.Matrix(Ref(x), kind, rows) for x, rows in zip(
                "abc", (m, _DEPTH, m), strict=True))
            gemm = cublas.Gemm(m, n, _DEPTH, a, b, c, compute)
            gemm.issue(blas, lambda ref: places[ref.buffer], stream.ptr)
    except libraries.LibraryError:  # the GPU does not support such products
        pass
    stream.synchronize()
    blas.functions.cublasDestroy_v2(blas.handle)


def _cudnn(device: GpuDevice) -> None:
    try:
        with device.current():
            first_handle()
            load_parts()
    except Exception:  # the first real use reports the error
        return


def first_handle() -> None:
    """Make cuDNN start, by creating and destroying a handle."""
    loaded: Any = libraries.load("cudnn")
    handle = ctypes.c_void_p()
    if loaded.cudnnCreate(ctypes.byref(handle)) == 0:
        loaded.cudnnDestroy(handle)


def load_parts() -> None:
    """Load the parts of cuDNN that run plans, if they are next to it."""
    path = libraries.candidates(libraries.CATALOGUE["cudnn"])[0]
    for part in _PARTS:
        beside = path.replace("libcudnn.", f"libcudnn_{part}.")
        if os.path.isabs(path) and os.path.isfile(beside):
            load(beside)
