"""Decompositions of matrices by cuSOLVER and cuBLAS: `Routine` is a call for a batch of matrices.

Sizes, leading dimensions and triangles are those of LAPACK, for column-major matrices. `ROUTINES`
says which arguments a routine takes; workspaces are part of the Program's temporaries.
"""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from toile.compiler.ir.operands import Ref
from toile.targets.cuda import cublas, libraries
from toile.targets.cuda.engines import Engines, warn_once
from toile.targets.cuda.launches import Call, Pointers

LOWER, UPPER = 0, 1
LEFT, RIGHT = 0, 1
NO_VECTORS, VECTORS = 0, 1
LETTERS = {"float32": "S", "float64": "D", "complex64": "C", "complex128": "Z"}
_ITEMS = {"S": 4, "D": 8, "C": 8, "Z": 16}
_HERMITIAN = {"orgqr": "ungqr", "syevd": "heevd", "syevjBatched": "heevjBatched"}

# For each routine: its arguments, then the arguments of the function that returns the length of its
# workspace, or "" if it needs none. The letters mean:
#   h handle; i0, i1, ... numbers; a0, ... numbers that are letters; p0, p1, ... arrays
#   w, l workspace and its length; c number of matrices; s the number 1; z a null pointer
#   e, v settings of Jacobi's method for eigenvalues and for singular values; o, O returned lengths
# Routines whose names begin with X, which older versions lack, also take:
#   I0, C numbers of 64 bits; d dtype; r dtype of real numbers; b bytes of the workspace
#   x, y workspace on the host and its bytes; k further settings
# Routines whose names end in Batched take all matrices at once; those of cuBLAS and potrfBatched
# take arrays of the matrices' addresses.
ROUTINES: dict[str, tuple[str, str]] = {
    # triangle, n; matrix, status
    "potrf": ("h i0 i1 p0 i1 w l p1", "h i0 i1 p0 i1 o"),
    "potrfBatched": ("h i0 i1 p0 i1 p1 c", ""),
    # m, n; matrix, row swaps, status
    "getrf": ("h i0 i1 p0 i0 w p1 p2", "h i0 i1 p0 i0 o"),
    # n; matrices, row swaps, status
    "getrfBatched": ("h i0 p0 i0 p1 p2 c", ""),
    # m, n; matrix, factors of reflectors, status
    "geqrf": ("h i0 i1 p0 i0 p1 w l p2", "h i0 i1 p0 i0 o"),
    # m, n, reflectors; matrix, factors, status
    "orgqr": ("h i0 i1 i2 p0 i0 p1 w l p2", "h i0 i1 i2 p0 i0 p1 o"),
    # vectors or not, triangle, n; matrix, values, status
    "syevd": ("h i0 i1 i2 p0 i2 p1 w l p2", "h i0 i1 i2 p0 i2 p1 o"),
    "syevjBatched": ("h i0 i1 i2 p0 i2 p1 w l p2 e c", "h i0 i1 i2 p0 i2 p1 o e c"),
    "XsyevBatched": ("h k i0 i1 I2 d p0 I2 r p1 d w b x y p2 C",
                     "h k i0 i1 I2 d p0 I2 r p1 d o O C"),
    # vectors or not, whether fewer vectors, m, n; matrix, values, U, V, status
    "gesvdj": ("h i0 i1 i2 i3 p0 i2 p1 p2 i2 p3 i3 w l p4 v",
               "h i0 i1 i2 i3 p0 i2 p1 p2 i2 p3 i3 o v"),
    # vectors or not, m, n; matrices, values, U, V, status
    "gesvdjBatched": ("h i0 i1 i2 p0 i1 p1 p2 i1 p3 i2 w l p4 v c",
                      "h i0 i1 i2 p0 i1 p1 p2 i1 p3 i2 o v c"),
    # which vectors, m, n, rows of V; matrix, values, U, the adjoint of V, status
    "gesvd": ("h a0 a0 i1 i2 p0 i1 p1 p2 i1 p3 i3 w l z p4", "h i1 i2 o"),
    # side, triangle, transposed, unit diagonal, m, n, leading dimensions; matrix, right-hand sides
    "trsm": ("h i0 i1 i2 i3 i4 i5 s p0 i6 p1 i7", ""),
    "trsmBatched": ("h i0 i1 i2 i3 i4 i5 s p0 i6 p1 i7 c", ""),
    # triangle, transposed, unit diagonal, n; matrix, right-hand side
    "trsv": ("h i0 i1 i2 i3 p0 i3 p1 i4", ""),
}
WAITING = ("syevd", "XsyevBatched", "gesvd")  # for the device, so they cannot be in a graph
OF_CUBLAS = ("trsm", "trsmBatched", "trsv", "getrfBatched")
_P, _I = ctypes.c_void_p, ctypes.c_int
_L, _Z = ctypes.c_int64, ctypes.c_size_t
_KINDS: dict[str, Any] = {"a": ctypes.c_byte, "i": _I, "l": _I, "c": _I, "I": _L, "C": _L, "d": _I,
                          "r": _I, "b": _Z, "y": _Z}  # fmt: skip


def _types(arguments: str) -> list[Any]:
    return [_KINDS.get(token[0], _P) for token in arguments.split()]


def _function(name: str, letter: str) -> str:
    """The name of the function for a dtype."""
    if name.startswith("X"):
        return f"cusolverDn{name}"
    if name in OF_CUBLAS:
        return f"cublas{letter}{name}" + ("_v2" if name in ("trsm", "trsv") else "")
    return f"cusolverDn{letter}{_HERMITIAN.get(name, name) if letter in 'CZ' else name}"


def _prototypes(of_cublas: bool) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for name, (arguments, size) in ROUTINES.items():
        if (name in OF_CUBLAS) != of_cublas:
            continue
        for letter in _ITEMS:
            function = _function(name, letter)
            found[function] = _types(arguments)
            if size:
                found[f"{function}_bufferSize"] = _types(size)
    return found


PROTOTYPES: dict[str, list[Any]] = {
    "cusolverDnCreate": [_P],
    "cusolverDnSetStream": [_P, _P],
    "cusolverDnCreateSyevjInfo": [_P],
    "cusolverDnCreateGesvdjInfo": [_P],
    "cusolverDnCreateParams": [_P],
    **_prototypes(False),
}


def _status(code: int) -> str:
    names = {1: "not initialized", 2: "out of memory", 3: "an invalid value",
             4: "not supported on this GPU", 6: "execution failed", 7: "an internal error",
             9: "not supported"}  # fmt: skip
    return f"{names.get(code, 'unknown')} ({code})"


class Engine:
    """The libraries on one device."""

    def __init__(self, solver: Any, blas: Any, of_blas: Any):
        self.solver, self.blas, self.of_blas = solver, blas, of_blas
        self.lock = threading.Lock()
        self.stream: int | None = None
        self.handle = self._made("cusolverDnCreate")
        self.settings = {"e": self._made("cusolverDnCreateSyevjInfo"),
                         "v": self._made("cusolverDnCreateGesvdjInfo"),
                         "k": self._made("cusolverDnCreateParams")}
        self.lengths: dict[Any, tuple[int, int]] = {}
        self.host: Any = None  # workspace on the host

    def _made(self, create: str) -> int:
        made = ctypes.c_void_p()
        getattr(self.solver, create)(ctypes.addressof(made))
        return made.value or 0

    def has(self, name: str) -> bool:
        """Whether this version has a routine."""
        return _function(name, "S") in self.solver.plain

    def workspace(self, name: str, letter: str, numbers: Sequence[int], count: int) -> int:
        """The elements of workspace that a routine needs on the device."""
        return self._lengths(name, letter, numbers, count)[0]

    def _lengths(
        self, name: str, letter: str, numbers: Sequence[int], count: int
    ) -> tuple[int, int]:
        """The elements of workspace on the device, and the bytes on the host."""
        size = ROUTINES[name][1]
        if not size:
            return 0, 0
        key = name, letter, *numbers, count
        if key not in self.lengths:
            out, more = ctypes.c_size_t(), ctypes.c_size_t()
            given = self._given(letter, count) | {"o": ctypes.addressof(out),
                                                  "O": ctypes.addressof(more)}
            args = [self._argument(token, numbers, (), given) for token in size.split()]
            getattr(self.solver, f"{_function(name, letter)}_bufferSize")(*args)
            found = -(-out.value // _ITEMS[letter]) if name.startswith("X") else out.value
            self.lengths[key] = max(found, 1), more.value
        return self.lengths[key]

    def _given(self, letter: str, count: int) -> dict[str, int]:
        """The arguments that all calls with this dtype and number of matrices have in common."""
        kind = {v: k for k, v in LETTERS.items()}[letter]
        real = {"complex64": "float32", "complex128": "float64"}.get(kind, kind)
        return {"h": self.handle, "c": count, "C": count, "z": 0, "d": cublas.DATA_TYPES[kind],
                "r": cublas.DATA_TYPES[real], **self.settings}

    def issue(
        self, name: str, letter: str, numbers: Sequence[int], count: int, pointers: Sequence[int],
        work: int, length: int, stream: int,
    ) -> None:
        """Call a routine."""
        one = cublas.scalar({v: k for k, v in LETTERS.items()}[letter], 1.0)
        given = self._given(letter, count) | {"w": work, "l": length, "b": length * _ITEMS[letter],
                                              "s": ctypes.addressof(one)}
        with self.lock:
            functions = self.solver
            if name in OF_CUBLAS:
                self.blas.on(stream)
                functions, given["h"] = self.of_blas, self.blas.handle
            elif stream != self.stream:
                self.solver.cusolverDnSetStream(self.handle, stream)
                self.stream = stream
            if name.startswith("X"):
                given["y"] = self._lengths(name, letter, numbers, count)[1]
                if self.host is None or len(self.host) < given["y"]:
                    self.host = ctypes.create_string_buffer(max(given["y"], 1))
                given["x"] = ctypes.addressof(self.host)
            args = [self._argument(token, numbers, pointers, given)
                    for token in ROUTINES[name][0].split()]
            getattr(functions, _function(name, letter))(*args)

    @staticmethod
    def _argument(
        token: str, numbers: Sequence[int], pointers: Sequence[int], given: dict[str, int]
    ) -> int:
        found = re.fullmatch(r"([aiIp])(\d)", token)
        if found is None:
            return given[token]
        values = pointers if found[1] == "p" else numbers
        return values[int(found[2])] if values else 0


_INSTEAD = "decompositions of matrices are computed on the host, which is much slower"


def make() -> Engine | None:
    """The engine of the current device; None if cuSOLVER is not installed."""
    try:
        solver, blas = libraries.load("cusolver"), libraries.load("cublas")
    except libraries.LibraryError as error:
        warn_once(str(error), _INSTEAD)
        return None
    known = {name: types for name, types in PROTOTYPES.items()
             if not name.startswith("cusolverDnX") or hasattr(solver, name)}
    return Engine(libraries.Functions(solver, known, _status), cublas.blas(),
                  libraries.Functions(blas, _prototypes(True), cublas._status))


ENGINES = Engines(make)
engine, use = ENGINES.current, ENGINES.use


@dataclass(frozen=True)
class Routine(Call):
    """A routine on arrays (`places`), of which the first `given` are only read.

    `steps` are the bytes from one matrix of the batch to the next in each array; a routine that
    takes all matrices at once is called once. `behind` is memory that arrays of addresses refer to,
    of which the first `behind_given` parts are only read."""

    name: str
    letter: str
    numbers: tuple[int, ...]
    places: tuple[Ref, ...]
    steps: tuple[int, ...]
    count: int
    given: int
    workspace: Ref | None
    length: int
    behind: tuple[Ref, ...] = ()
    behind_given: int = 0
    note: str = field(default="cuSOLVER", compare=False)
    shared = 0  # the workspace of cuBLAS, which some routines belong to

    @property
    def capturable(self) -> bool:
        return self.name not in WAITING

    @property
    def nodes(self) -> int:
        return 1 if self.name.endswith("Batched") else 8 * self.count

    @property
    def reads(self) -> frozenset[Any]:
        room = () if self.workspace is None else (self.workspace,)
        return frozenset(r.buffer for r in (*self.places, *self.behind, *room))

    @property
    def writes(self) -> frozenset[Any]:
        room = () if self.workspace is None else (self.workspace,)
        refs = *self.places[self.given :], *self.behind[self.behind_given :], *room
        return frozenset(r.buffer for r in refs)

    @property
    def room(self) -> int:
        """The bytes of workspace that it needs."""
        return engine().workspace(self.name, self.letter, self.numbers, self.count) \
            * _ITEMS[self.letter]

    def prepare(self) -> None:
        """Create the handles; must not be called during a capture."""
        engine()

    def run(self, pointer: Pointers, stream: int) -> None:
        """Issue the calls."""
        self.issue(engine(), pointer, stream)

    def issue(self, on: Any, pointer: Pointers, stream: int) -> None:
        """Issue the calls with an engine."""
        places = [pointer(r) for r in self.places]
        work = 0 if self.workspace is None else pointer(self.workspace)
        at_once = self.name.endswith("Batched")
        for i in range(1 if at_once else self.count):
            at = [p + i * step for p, step in zip(places, self.steps, strict=True)]
            on.issue(self.name, self.letter, self.numbers, self.count, at, work, self.length,
                     stream)


def call(
    plan: Any, on: Any, name: str, dtype: Any, numbers: Sequence[int],
    places: Sequence[tuple[Ref, int]], count: int, given: int = 0, behind: Sequence[Ref] = (),
    behind_given: int = 0,
) -> None:
    """Add a routine to a plan, with its workspace; `places` are arrays and their steps in bytes."""
    letter = LETTERS[dtype.name]
    length = on.workspace(name, letter, numbers, count)
    room = plan.scratch(length * _ITEMS[letter]) if length else None
    refs, steps = zip(*places, strict=True)
    plan.call(Routine(name, letter, tuple(numbers), refs, steps, count, given, room, length,
                      tuple(behind), behind_given, f"{name} (cuSOLVER)"))
