"""Matrix products by cuBLASLt: those with a bias, an activation or a sum, and float8.

A `LtMatmul` is described once for each device, by descriptors and by the algorithm that the
library's heuristic ranks first (nothing is timed: the choice is the same in every run). `run` only
fills in pointers; the workspace is that of the device's cuBLAS handle, which runs on the same
stream. Sizes are those of BLAS, for column-major matrices: a bias is one number per row of D.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from toile.compiler.ir.operands import Ref
from toile.targets.cuda import cublas, libraries
from toile.targets.cuda.cublas import COMPUTE_TYPES, DATA_TYPES, Matrix, T
from toile.targets.cuda.launches import Call, Pointers

_P, _I, _U, _Z, _L = (ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_size_t,
                      ctypes.c_int64)
PROTOTYPES: dict[str, list[Any]] = {
    "cublasLtCreate": [_P],
    "cublasLtMatmulDescCreate": [_P, _I, _I],
    "cublasLtMatmulDescDestroy": [_P],
    "cublasLtMatmulDescSetAttribute": [_P, _I, _P, _Z],
    "cublasLtMatrixLayoutCreate": [_P, _I, _U, _U, _L],
    "cublasLtMatrixLayoutDestroy": [_P],
    "cublasLtMatrixLayoutSetAttribute": [_P, _I, _P, _Z],
    "cublasLtMatmulPreferenceCreate": [_P],
    "cublasLtMatmulPreferenceDestroy": [_P],
    "cublasLtMatmulPreferenceSetAttribute": [_P, _I, _P, _Z],
    "cublasLtMatmulAlgoGetHeuristic": [_P, _P, _P, _P, _P, _P, _P, _I, _P, _P],
    "cublasLtMatmul": [_P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _Z, _P],
}

# cublasLtMatmulDescAttributes_t
TRANSA, TRANSB, EPILOGUE, BIAS_POINTER, AUX_POINTER, AUX_LEADING = 3, 4, 7, 8, 11, 12
A_SCALE, B_SCALE, C_SCALE, D_SCALE, BIAS_TYPE = 17, 18, 19, 20, 26
# cublasLtMatrixLayoutAttribute_t
BATCH_COUNT, BATCH_STEP = 5, 6
# cublasLtMatmulPreferenceAttributes_t
MOST_WORKSPACE = 1
_ALIGNMENTS = {"a": 5, "b": 6, "c": 7, "d": 8}

# cublasLtEpilogue_t by name; "aux" keeps the input of the activation.
EPILOGUES = {
    "": 1, "relu": 2, "bias": 4, "relu_bias": 6, "gelu": 32, "gelu_bias": 36, "gelu_aux": 160,
    "gelu_aux_bias": 164, "dgelu": 192,
}  # fmt: skip


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = [
        ("algorithm", ctypes.c_uint64 * 8), ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int), ("waves", ctypes.c_float), ("reserved", ctypes.c_int * 4),
    ]  # fmt: skip


class Lt:
    """A cuBLASLt handle, and the products described with it."""

    def __init__(
        self, functions: Any, room: Callable[[bool], tuple[int, int]] = lambda small: (0, 0)
    ):
        self.functions = functions
        self.room = room  # the workspace of a product, which may be small: address and bytes
        made = ctypes.c_void_p()
        functions.cublasLtCreate(ctypes.addressof(made))
        self.handle = made.value
        self.described: dict[Any, Described] = {}
        self.lock = threading.Lock()  # pointers are set and used in two calls

    def of(self, call: LtMatmul) -> Described:
        """Descriptors and algorithm of a call, shared by equal calls."""
        found = self.described.get(call.key)
        if found is None:
            found = self.described[call.key] = Described(self, call)
        return found

    def has(self, call: LtMatmul) -> bool:
        """Whether the library has an algorithm for a call on this device."""
        try:
            self.of(call)
        except libraries.LibraryError:
            return False
        return True


def make() -> Lt:
    """A handle on the current device."""
    loaded = libraries.load("cublasLt")
    blas = cublas.blas()
    return Lt(libraries.Functions(loaded, PROTOTYPES, cublas._status), blas.room)


_used: list[Lt] = []  # handles that tests substitute


def lt() -> Lt:
    """The handle of the current device."""
    return _used[-1] if _used else cublas.handle(make)


def engine() -> Lt | None:
    """The handle of the current device; None if there is no device, or no cuBLASLt."""
    if not _used and not cublas.present():
        return None
    try:
        return lt()
    except libraries.LibraryError:
        return None


def use(other: Lt) -> AbstractContextManager[Lt]:
    """Use another handle instead of the library's within a `with` block."""
    return libraries.replaced(_used, other)


class Described:
    """The descriptors of a product and the algorithm for it."""

    def __init__(self, lt: Lt, call: LtMatmul):
        self.lt = lt
        self.operation = self._made(
            "cublasLtMatmulDescCreate", COMPUTE_TYPES[call.compute][0],
            DATA_TYPES[COMPUTE_TYPES[call.compute][1]])
        self.set(TRANSA, ctypes.c_int32(T if call.a.transposed else 0))
        self.set(TRANSB, ctypes.c_int32(T if call.b.transposed else 0))
        self.set(EPILOGUE, ctypes.c_uint32(EPILOGUES[call.epilogue]))
        if call.bias is not None:
            self.set(BIAS_TYPE, ctypes.c_int32(DATA_TYPES[call.d.type]))
            self.set(BIAS_POINTER, ctypes.c_void_p(256))  # only its alignment matters here
        if call.aux is not None:
            self.set(AUX_LEADING, ctypes.c_int64(call.aux.leading))
            self.set(AUX_POINTER, ctypes.c_void_p(256))
        shapes = {
            "a": (call.k, call.m) if call.a.transposed else (call.m, call.k),
            "b": (call.n, call.k) if call.b.transposed else (call.k, call.n),
            "c": (call.m, call.n), "d": (call.m, call.n),
        }  # fmt: skip
        self.layouts = {
            name: self._layout(getattr(call, name) or call.d, shapes[name], call.count)
            for name in "abcd"
        }
        self.algorithm = self._chosen(call)

    def _made(self, function: str, *args: Any) -> int:
        made = ctypes.c_void_p()
        getattr(self.lt.functions, function)(ctypes.addressof(made), *args)
        return made.value or 0

    def set(self, attribute: int, value: Any) -> None:
        """Set an attribute of the operation."""
        self.lt.functions.cublasLtMatmulDescSetAttribute(
            self.operation, attribute, ctypes.addressof(value), ctypes.sizeof(value))

    def _set(self, kind: str, descriptor: int, attribute: int, value: Any) -> None:
        getattr(self.lt.functions, f"cublasLt{kind}SetAttribute")(
            descriptor, attribute, ctypes.addressof(value), ctypes.sizeof(value))

    def _layout(self, matrix: Matrix, shape: tuple[int, int], count: int) -> int:
        layout = self._made("cublasLtMatrixLayoutCreate", DATA_TYPES[matrix.type], *shape,
                            matrix.leading)
        if count > 1:
            self._set("MatrixLayout", layout, BATCH_COUNT, ctypes.c_int32(count))
            self._set("MatrixLayout", layout, BATCH_STEP, ctypes.c_int64(matrix.step))
        return layout

    def _chosen(self, call: LtMatmul) -> Heuristic:
        calls = self.lt.functions
        preference = self._made("cublasLtMatmulPreferenceCreate")
        _, most = self.lt.room(call.is_small)
        self._set("MatmulPreference", preference, MOST_WORKSPACE, ctypes.c_uint64(most))
        for name in "abcd":
            self._set("MatmulPreference", preference, _ALIGNMENTS[name],
                      ctypes.c_uint32(call.alignment))
        found, count = Heuristic(), ctypes.c_int()
        layouts = [self.layouts[name] for name in "abcd"]
        calls.cublasLtMatmulAlgoGetHeuristic(
            self.lt.handle, self.operation, *layouts, preference, 1, ctypes.addressof(found),
            ctypes.addressof(count))
        calls.cublasLtMatmulPreferenceDestroy(preference)
        if count.value < 1 or found.state:
            raise libraries.LibraryError(
                f"toile: cuBLASLt has no algorithm for {call.note} of {call.m} x {call.n} x "
                f"{call.k}, {call.a.type} and {call.b.type} to {call.d.type}")
        return found


@dataclass(frozen=True)
class LtMatmul(Call):
    """D = epilogue(alpha A B + beta C + bias); C is D's memory unless given."""

    m: int
    n: int
    k: int
    a: Matrix
    b: Matrix
    d: Matrix
    compute: str
    count: int = 1
    c: Matrix | None = None
    alpha: float = 1.0
    beta: float = 0.0
    epilogue: str = ""
    bias: Ref | None = None
    aux: Matrix | None = None  # the input of the activation, kept or read
    scales: tuple[Ref | None, Ref | None, Ref | None, Ref | None] = (None,) * 4  # of A, B, C, D
    alignment: int = 16  # bytes: alignment of all matrices
    note: str = field(default="matrix product", compare=False)
    shared = 0  # the workspace

    @property
    def key(self) -> Any:
        """What determines the descriptors: everything but addresses."""
        def plain(x: Matrix | None) -> Any:
            return x and (x.type, x.leading, x.transposed, x.step)

        return (self.m, self.n, self.k, plain(self.a), plain(self.b), plain(self.c), plain(self.d),
                self.compute, self.count, self.epilogue, self.bias is not None, plain(self.aux),
                tuple(s is not None for s in self.scales), self.alignment)  # fmt: skip

    @property
    def reads(self) -> frozenset[Any]:
        refs = [self.a.ref, self.b.ref, self.bias, *self.scales]
        if self.beta:
            refs.append((self.c or self.d).ref)
        if self.aux is not None and self.epilogue.startswith("d"):
            refs.append(self.aux.ref)
        return frozenset(r.buffer for r in refs if r is not None)

    @property
    def writes(self) -> frozenset[Any]:
        refs = [self.d.ref]
        if self.aux is not None and not self.epilogue.startswith("d"):
            refs.append(self.aux.ref)
        return frozenset(r.buffer for r in refs)

    def may_overwrite(self, read: Any, written: Any) -> bool:
        """Whether D can be stored in the memory of C."""
        c = self.c
        if c is None or c.ref.buffer is not read or self.d.ref.buffer is not written:
            return False
        others = {r.buffer for r in (self.a.ref, self.b.ref, self.bias, *self.scales) if r}
        return (replace(c, ref=self.d.ref) == self.d and c.ref.offset == self.d.ref.offset
                and read not in others)

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k * self.count

    @property
    def is_small(self) -> bool:
        return self.m * self.n * self.k * self.count <= cublas.SMALL

    def use_part(self, part: int) -> None:
        if not _used:
            cublas.blas().part = part

    def prepare(self) -> None:
        """Describe the product and choose its algorithm; must not be called during a capture."""
        lt().of(self)

    def run(self, pointer: Pointers, stream: int) -> None:
        """Issue the product."""
        self.issue(lt(), pointer, stream)

    def issue(self, on: Lt, pointer: Pointers, stream: int) -> None:
        """Issue the product with a handle."""
        matrices = (self.a, self.b, self.c or self.d, self.d)
        a, b, c, d = (pointer(x.ref) for x in matrices)
        if (a | b | c | d) % self.alignment:  # slices of a loop may begin anywhere
            least = (a | b | c | d) & -(a | b | c | d)
            return replace(self, alignment=min(least, 16)).issue(on, pointer, stream)
        kind = COMPUTE_TYPES[self.compute][1]
        alpha, beta = cublas.scalar(kind, self.alpha), cublas.scalar(kind, self.beta)
        with on.lock:
            made = on.of(self)
            for attribute, ref in self._pointers():
                made.set(attribute, ctypes.c_void_p(pointer(ref)))
            on.functions.cublasLtMatmul(
                on.handle, made.operation, ctypes.addressof(alpha), a, made.layouts["a"], b,
                made.layouts["b"], ctypes.addressof(beta), c, made.layouts["c"], d,
                made.layouts["d"], ctypes.addressof(made.algorithm), on.room(self.is_small)[0],
                made.algorithm.workspace, stream)  # fmt: skip

    def _pointers(self) -> list[tuple[int, Ref]]:
        """The attributes that are pointers."""
        found = zip((A_SCALE, B_SCALE, C_SCALE, D_SCALE, BIAS_POINTER, AUX_POINTER),
                    (*self.scales, self.bias, None if self.aux is None else self.aux.ref),
                    strict=True)
        return [(attribute, ref) for attribute, ref in found if ref is not None]


def fused(gemm: cublas.Gemm, **more: Any) -> LtMatmul:
    """One call with an epilogue (`epilogue`, `bias`, `alpha`, `c` and `beta`, `aux`, `scales`)."""
    assert len(gemm.loop) == 1 and gemm.arrays is None and gemm.scale == "float32"
    parts = ["scaled"] if any(more.get("scales", ())) else []
    parts += ["added"] if more.get("beta") else []
    parts += filter(None, more.get("epilogue", "").split("_"))
    note = " + ".join(["cuBLASLt" + gemm.note.removeprefix("cuBLAS"), *parts])
    return LtMatmul(gemm.m, gemm.n, gemm.k, gemm.a, gemm.b, gemm.c, gemm.compute, gemm.count,
                    note=note, **more)
