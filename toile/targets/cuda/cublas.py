"""Matrix products by cuBLAS: the handle of a device, and `Gemm`, a call.

Sizes and leading dimensions are those of BLAS, for column-major matrices; callers with row-major
matrices exchange the operands (kernels/contraction/gpu.py). CuPy refuses cuBLAS during stream
capture, so toile has its own handle and workspace: `run` neither allocates nor waits.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toile.compiler.ir.operands import Ref
from toile.targets.cuda import libraries
from toile.targets.cuda.launches import Call, Pointers
from toile.targets.cuda.presence import lane

WORKSPACE = 32 << 20  # bytes that NVIDIA recommends for Hopper; other chips need less
PARTS = 4  # of the workspace, each for one of the small products that run at the same time
SMALL = 1 << 28  # multiplications of a small product
ALIGNED = 16  # bytes: alignment of matrices that are given by addresses
N, T = 0, 1  # cublasOperation_t
_DEFAULT_ALGORITHM = -1
_HOST_POINTERS = 0
NOT_SUPPORTED = 15
_NO_ATOMICS = 0  # results must not depend on timing
_DEFAULT_MATH, _NO_REDUCED_SUMS = 0, 16

# cudaDataType_t by the name of a dtype.
DATA_TYPES = {
    "float32": 0, "float64": 1, "float16": 2, "int8": 3, "complex64": 4, "complex128": 5,
    "uint8": 8, "int32": 10, "bfloat16": 14, "float8_e4m3fn": 28, "float8_e5m2": 29,
}  # fmt: skip


def item_size(kind: str) -> int:
    """The bytes of an element, which the name of a dtype states in bits."""
    return int("".join(c for c in kind.partition("_")[0] if c.isdigit())) // 8


# cublasComputeType_t, with the type of alpha and beta.
COMPUTE_TYPES = {
    "float32": (68, "float32"), "tf32": (77, "float32"), "bf16": (75, "float32"),
    "float64": (70, "float64"), "int32": (72, "int32"),
}  # fmt: skip

_P, _I, _L, _Z = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_size_t


def _gemm_types(size: Any) -> dict[str, list[Any]]:
    """Types of the arguments, with sizes of 32 or 64 bits."""
    head, tail = [_P, _I, _I, size, size, size, _P], [_I, _I]
    return {
        "cublasGemmEx": [*head, *[_P, _I, size] * 2, _P, _P, _I, size, *tail],
        "cublasGemmStridedBatchedEx": [
            *head, *[_P, _I, size, _L] * 2, _P, _P, _I, size, _L, size, *tail],
        "cublasGemmBatchedEx": [*head, *[_P, _I, size] * 2, _P, _P, _I, size, size, *tail],
    }


PROTOTYPES: dict[str, list[Any]] = {
    "cublasCreate_v2": [_P],
    "cublasDestroy_v2": [_P],
    "cublasSetStream_v2": [_P, _P],
    "cublasSetWorkspace_v2": [_P, _P, _Z],
    "cublasSetMathMode": [_P, _I],
    "cublasSetAtomicsMode": [_P, _I],
    "cublasSetPointerMode_v2": [_P, _I],
    **_gemm_types(_I),
    **{f"{name}_64": types for name, types in _gemm_types(_L).items()},
}


class Blas:
    """A cuBLAS handle with its own workspace; one device, one stream at a time."""

    def __init__(self, functions: Any, workspace: Any, address: int, nbytes: int = WORKSPACE):
        self.functions, self.workspace = functions, workspace  # the workspace is kept alive
        made = ctypes.c_void_p()
        functions.cublasCreate_v2(ctypes.addressof(made))
        self.handle = made.value
        self.address, self.nbytes = address, nbytes
        functions.cublasSetPointerMode_v2(self.handle, _HOST_POINTERS)
        functions.cublasSetAtomicsMode(self.handle, _NO_ATOMICS)
        functions.cublasSetMathMode(self.handle, _DEFAULT_MATH | _NO_REDUCED_SUMS)
        self.part = 0  # of the workspace, for small products
        self.used: tuple[int, int] | None = None  # stream and part

    def room(self, small: bool) -> tuple[int, int]:
        """The workspace of a product: its address and bytes."""
        size = self.nbytes // PARTS
        return (self.address + self.part * size, size) if small else (self.address, self.nbytes)

    def on(self, stream: int, small: bool = False) -> Any:
        """The functions of the library, set to issue on this stream."""
        used = stream, self.part if small else -1
        if used != self.used:
            # Setting the stream resets the handle to its default workspace: set ours again.
            self.functions.cublasSetStream_v2(self.handle, stream)
            self.functions.cublasSetWorkspace_v2(self.handle, *self.room(small))
            self.used = used
        return self.functions


def _status(code: int) -> str:
    names = {1: "not initialized", 3: "out of resources", 7: "an invalid value",
             8: "not supported on this GPU", 11: "a mapping error", 13: "execution failed",
             14: "an internal error", NOT_SUPPORTED: "not supported"}  # fmt: skip
    return f"{names.get(code, 'unknown')} ({code})"


def functions() -> Any:
    """The functions of cuBLAS; raises LibraryError if it is missing or too old."""
    return libraries.Functions(libraries.load("cublas"), PROTOTYPES, _status)


def allocate(nbytes: int) -> tuple[Any, int]:
    """Memory of the current device: the object that keeps it alive, and its address."""
    import cupy

    memory = cupy.cuda.alloc(nbytes)
    return memory, memory.ptr


def current_device() -> int:
    """The current device of this thread."""
    import cupy

    return cupy.cuda.runtime.getDevice()


@functools.cache
def present() -> bool:
    """Whether there is a device on which to call the library."""
    try:
        return current_device() >= 0
    except Exception:  # no CuPy, no driver, no device
        return False


_handles: dict[Any, Any] = {}
_locks: dict[Any, Any] = {}  # by key: making a handle may require one of another kind


def handle(kind: Callable[[], Any], device: int | None = None) -> Any:
    """The result of `kind()`, cached for each device; the first call must not be in a capture."""
    key = kind, current_device() if device is None else device, lane.number
    found = _handles.get(key)
    if found is None:
        with _locks.setdefault(key, threading.RLock()):
            found = _handles.get(key)
            if found is None:
                found = _handles[key] = kind()
    return found


def in_use() -> bool:
    """Whether a handle of any library exists."""
    return bool(_handles)


def make() -> Blas:
    """A handle on the current device."""
    memory, address = allocate(WORKSPACE)
    return Blas(functions(), memory, address)


def blas() -> Blas:
    """The handle of the current device."""
    return handle(make)


_SCALARS: dict[str, Any] = {
    "float32": ctypes.c_float, "float64": ctypes.c_double, "int32": ctypes.c_int32,
    "complex64": ctypes.c_float * 2, "complex128": ctypes.c_double * 2,
}  # fmt: skip


def scalar(kind: str, value: float) -> Any:
    """A constant in host memory, for alpha and beta."""
    if kind.startswith("complex"):
        return _SCALARS[kind](value, 0)
    return _SCALARS[kind](int(value) if kind == "int32" else value)


@dataclass(frozen=True)
class Matrix:
    """A column-major or transposed matrix in memory; the next of a batch is `step` further on."""

    ref: Ref
    type: str
    leading: int
    transposed: bool = False
    step: int = 0  # elements


@dataclass(frozen=True)
class Gemm(Call):
    """C = A B + beta C: `count` products at regular steps, for each of the offsets in `loop`.

    `loop` holds offsets in bytes for A, B and C. With `arrays`, all addresses of A, B and C are
    also stored there, and everything is one call if they are aligned."""

    m: int
    n: int
    k: int
    a: Matrix
    b: Matrix
    c: Matrix
    compute: str
    count: int = 1
    loop: tuple[tuple[int, int, int], ...] = ((0, 0, 0),)
    arrays: Ref | None = None
    beta: float = 0.0
    note: str = field(default="matrix product", compare=False)
    shared = 0  # the workspace

    @property
    def reads(self) -> frozenset[Any]:
        refs = [self.a.ref, self.b.ref, *([self.c.ref] if self.beta else ())]
        return frozenset(r.buffer for r in (*refs, *([self.arrays] if self.arrays else ())))

    @property
    def writes(self) -> frozenset[Any]:
        return frozenset((self.c.ref.buffer,))

    @property
    def scale(self) -> str:
        """The type of alpha and beta."""
        if self.c.type.startswith("complex"):
            return self.c.type
        return COMPUTE_TYPES[self.compute][1]

    @property
    def flops(self) -> int:
        each = 8 if self.c.type.startswith("complex") else 2
        return each * self.m * self.n * self.k * self.count * len(self.loop)

    @property
    def is_small(self) -> bool:
        return self.m * self.n * self.k * self.count * len(self.loop) <= SMALL

    def use_part(self, part: int) -> None:
        blas().part = part

    def prepare(self) -> None:
        """Create what `run` needs; must not be called during a capture."""
        blas()

    def run(self, pointer: Pointers, stream: int) -> None:
        """Issue the product."""
        self.issue(blas(), pointer, stream)

    def bound(
        self, on: Blas, places: Mapping[Any, int], stream: int
    ) -> Callable[[Sequence[int]], None] | None:
        """A function that issues the product for given pointers, numbered as in `places`; None if
        it takes more than one call."""
        refs = self.a.ref, self.b.ref, self.c.ref
        if self.arrays is not None or len(self.loop) > 1 or self.count > 1 or self.is_wide or any(
                r.buffer not in places for r in refs):
            return None
        (i, oa), (j, ob), (l, oc) = (
            (places[r.buffer], r.offset + o) for r, o in zip(refs, self.loop[0], strict=True))
        a, b, c = self.a, self.b, self.c
        ta, tb, tc = (DATA_TYPES[x.type] for x in (a, b, c))
        one, beta = scalar(self.scale, 1.0), scalar(self.scale, self.beta)
        head, tail = self._settings(on, one)
        call, values = on.functions.ready("cublasGemmEx", (
            *head, 0, ta, a.leading, 0, tb, b.leading, ctypes.addressof(beta), 0, tc, c.leading,
            *tail))
        at_a, at_b, at_c = values[7], values[10], values[14]
        small = self.is_small

        def run(pointers: Sequence[int], kept: Any = (one, beta)) -> None:
            on.on(stream, small)
            at_a.value, at_b.value = pointers[i] + oa, pointers[j] + ob
            at_c.value = pointers[l] + oc
            call()

        return run

    def _settings(self, on: Blas, one: Any) -> tuple[tuple[Any, ...], tuple[int, int]]:
        """The first and the last arguments of a call."""
        transposed = (T if x.transposed else N for x in (self.a, self.b))
        head = (on.handle, *transposed, self.m, self.n, self.k, ctypes.addressof(one))
        return head, (COMPUTE_TYPES[self.compute][0], _DEFAULT_ALGORITHM)

    @property
    def is_wide(self) -> bool:
        """Whether extents need 64 bits."""
        leading = self.a.leading, self.b.leading, self.c.leading
        return max(self.m, self.n, self.k, *leading, self.count) >= 1 << 31

    def issue(self, on: Blas, pointer: Pointers, stream: int) -> None:
        """Issue the product with a handle."""
        calls = on.on(stream, self.is_small)
        one, beta = scalar(self.scale, 1.0), scalar(self.scale, self.beta)
        beta_at = ctypes.addressof(beta)
        a, b, c = self.a, self.b, self.c
        suffix = "_64" if self.is_wide else ""
        head, tail = self._settings(on, one)
        ta, tb, tc = (DATA_TYPES[x.type] for x in (a, b, c))
        at_a, at_b, at_c = pointer(a.ref), pointer(b.ref), pointer(c.ref)
        if self.arrays is not None and not (at_a | at_b | at_c) % ALIGNED:
            at, count = pointer(self.arrays), self.count * len(self.loop)
            at_a, at_b, at_c = (at + 8 * count * i for i in range(3))
            getattr(calls, f"cublasGemmBatchedEx{suffix}")(
                *head, at_a, ta, a.leading, at_b, tb, b.leading, beta_at, at_c, tc, c.leading,
                count, *tail)
            return


        def one_by_one(i: int, j: int, l: int) -> None:
            bytes_a, bytes_b, bytes_c = (x.step * item_size(x.type) for x in (a, b, c))
            for n in range(self.count):
                getattr(calls, f"cublasGemmEx{suffix}")(
                    *head, at_a + i + n * bytes_a, ta, a.leading, at_b + j + n * bytes_b, tb,
                    b.leading, beta_at, at_c + l + n * bytes_c, tc, c.leading, *tail)

        for i, j, l in self.loop:
            if self.count == 1:
                one_by_one(i, j, l)
                continue
            try:
                getattr(calls, f"cublasGemmStridedBatchedEx{suffix}")(
                    *head, at_a + i, ta, a.leading, a.step, at_b + j, tb, b.leading, b.step,
                    beta_at, at_c + l, tc, c.leading, c.step, self.count, *tail)
            except libraries.LibraryError as error:  # batches of int8 matrices in some layouts
                if error.status != NOT_SUPPORTED:
                    raise
                one_by_one(i, j, l)
