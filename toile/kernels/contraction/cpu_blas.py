"""SciPy's BLAS and LAPACK, as symbols that kernels call.

The addresses come from the public capsules of `scipy.linalg.cython_blas` and `cython_lapack`
(Fortran conventions, 32-bit integers). The library must run on one thread, because toile's pool
splits the work: SciPy's own copy is set so once; a copy that NumPy also uses is set around each run
(`guard`). If the thread count cannot be set, `symbol` returns None, and toile's own kernels do all
the work. SciPy is loaded at the first use.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from toile.engine.locks import shared_lock
from toile.kernels.contraction import cpu_tiles as gemm
from toile.primitives.arrays.scipy_extensions import linalg_extension
from toile.targets.llvm import native
from toile.targets.llvm import text as ir
from toile.targets.llvm.product_types import Element

ROUTINES = ("sgemm", "dgemm", "cgemm", "zgemm", "sgemv", "dgemv", "strsm", "dtrsm")
LAPACK = tuple(letter + name for letter in "sd" for name in (
    "potrf", "getrf", "geqrf", "orgqr", "syevd", "gesdd", "geev"))
PREFIX = "toile_"
# (get, set) of the thread count, under the names that different builds use.
_SETTERS = (
    *(
        (f"{start}openblas_get_num_threads{end}", f"{start}openblas_set_num_threads{end}")
        for start in ("scipy_", "")
        for end in ("", "64_")
    ),
    ("MKL_Get_Max_Threads", "MKL_Set_Num_Threads"),
    ("bli_thread_get_num_threads", "bli_thread_set_num_threads"),
)
_NAMES = ("openblas", "mkl_rt", "libmkl", "blis", "libblas", "libcblas", "flexiblas")

_lock = shared_lock()
_library: _Library | None = None


class _Counter:
    """The thread count of one loaded library."""

    def __init__(self, get: Any, set: Any):
        get.restype, get.argtypes = ctypes.c_int, []
        set.restype, set.argtypes = None, [ctypes.c_int]
        self.get, self.set = get, set


class _Library:
    """SciPy's BLAS: the addresses of its routines, and how to set its thread count."""

    def __init__(self) -> None:
        before = set(_loaded())
        capsules = _capsules()
        self.addresses = {n: _address(capsules[n]) for n in ROUTINES if n in capsules}
        own = [path for path in _loaded() if path not in before or _bundled(path)]
        found = _counters(own)
        self.shared = not found  # SciPy has no copy of its own: NumPy has loaded the library
        self.counters = found or _counters(before)
        self.users, self.saved = 0, [0] * len(self.counters)
        if not self.shared:
            for counter in self.counters:
                counter.set(1)


def _capsules(module: str = "cython_blas") -> dict[str, Any]:
    """The table of pointers; empty without SciPy."""
    try:
        return getattr(linalg_extension(module), "__pyx_capi__", {})
    except (ImportError, RuntimeError):  # SciPy refuses to load while the interpreter exits
        return {}


def _address(capsule: Any) -> int:
    """The pointer in a capsule."""
    api = ctypes.pythonapi
    name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", api))
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", api)
    )
    return pointer(capsule, name(capsule)) or 0


def _loaded() -> list[str]:
    """Paths of the shared libraries of this process whose names look like that of a BLAS."""
    if sys.platform == "darwin":
        dyld = ctypes.CDLL(None)
        dyld._dyld_get_image_name.restype = ctypes.c_char_p
        paths = [os.fsdecode(dyld._dyld_get_image_name(i) or b"")
                 for i in range(dyld._dyld_image_count())]
    else:
        try:
            with open("/proc/self/maps") as file:
                paths = [line.split(maxsplit=5)[-1].strip() for line in file if "/" in line]
        except OSError:
            return []
    is_blas = lambda path: any(name in os.path.basename(path).lower() for name in _NAMES)
    return [p for p in dict.fromkeys(paths) if is_blas(p) and "cython_blas" not in p]


def _bundled(path: str) -> bool:
    """Whether a library is part of SciPy's wheel."""
    return "scipy.libs" in path or os.path.join("scipy", ".dylibs") in path


def _counters(paths: Iterable[str]) -> list[_Counter]:
    """The thread counters of the libraries at `paths`."""
    found = []
    for path in paths:
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        for get, set in _SETTERS:
            if hasattr(library, get) and hasattr(library, set):
                found.append(_Counter(getattr(library, get), getattr(library, set)))
                break
    return found


def library() -> _Library:
    """The library, loaded once."""
    global _library
    if _library is None:
        with _lock:
            if _library is None:
                _library = _Library()
                if _library.counters:
                    for name, address in _library.addresses.items():
                        native.add_symbol(PREFIX + name, address)
    return _library


class _Hidden(threading.local):
    depth = 0


_hidden = _Hidden()


@contextmanager
def hidden() -> Iterator[None]:
    """Inside the block, plans made by this thread contain no calls of BLAS and LAPACK."""
    _hidden.depth += 1
    try:
        yield
    finally:
        _hidden.depth -= 1


def is_hidden() -> bool:
    """Whether this thread makes plans without calls of BLAS and LAPACK."""
    return _hidden.depth > 0


def symbol(routine: str) -> str | None:
    """The name by which kernels call `routine`; None if toile's own kernels are used."""
    if is_hidden():
        return None
    found = library()
    if routine in LAPACK and found.counters and routine not in found.addresses:
        _add_lapack(found)
    return PREFIX + routine if found.counters and found.addresses.get(routine) else None


def _add_lapack(found: _Library) -> None:
    """Add the routines of LAPACK, which few programs need, to those of BLAS."""
    capsules = _capsules("cython_lapack")
    with _lock:
        for name in LAPACK:
            found.addresses[name] = _address(capsules[name]) if name in capsules else 0
            if found.addresses[name]:
                native.add_symbol(PREFIX + name, found.addresses[name])


def add_symbols(names: Iterable[str]) -> None:
    """Add the routines that stored kernels call by these names."""
    for name in names:
        symbol(name.removeprefix(PREFIX))


def guard() -> tuple[Callable[[], None], Callable[[], None]] | None:
    """Functions to call before and after a run that calls BLAS; None if nothing is needed.

    Only a library that NumPy shares needs this: its thread count is 1 during any run."""
    found = library()
    if not found.shared or not found.counters:
        return None

    def begin() -> None:
        with _lock:
            found.users += 1
            if found.users == 1:
                found.saved = [counter.get() for counter in found.counters]
                for counter in found.counters:
                    counter.set(1)

    def end() -> None:
        with _lock:
            found.users -= 1
            if found.users == 0:
                for counter, count in zip(found.counters, found.saved, strict=True):
                    counter.set(count)

    return begin, end


# The arguments of a kernel that calls BLAS: references to a, b and c, then these.
LAYOUT = (
    "m", "n", "k", "a_row", "b_column", "c_row", "lda", "ldb", "a_flipped", "b_flipped",
    "row_step", "column_step", "row_blocks", "column_blocks",
)  # fmt: skip


@cache
def product_text(name: str, element: tuple[str, int]) -> str:
    """A kernel whose units are blocks of C = A B, each one call; `element`: LLVM type and bytes.

    C has rows of unit stride. Fortran sees its transpose, B^T A^T; an operand is `flipped` if its
    unit stride is along the columns of A or the rows of B. Outer axes follow."""
    type, bytes = element
    f = ir.kernel()
    bases = [f.buffer(i) for i in (0, 2, 4)]
    size = f.arguments(gemm.FIRST, LAYOUT)
    words = {key: _word(f, size[key]) for key in ("k", "lda", "ldb", "c_row")}
    flags = {key: _flag(f, size[key]) for key in ("a_flipped", "b_flipped")}
    one, zero = (f.alloca("[16 x i8]", 1, 16) for _ in range(2))
    real = type.removeprefix("complex ")
    width = bytes if real == type else bytes // 2
    for i in range(bytes // width):
        f.store(real, "0.0" if i else "1.0", f.at(one, i, real), width)
        f.store(real, "0.0", f.at(zero, i, real), width)
    rows, columns = f.alloca("i32"), f.alloca("i32")
    with f.loop("%lo", "%hi") as unit:
        rest, at_column = f.udiv(unit, size["column_blocks"]), f.urem(unit, size["column_blocks"])
        rest, at_row = f.udiv(rest, size["row_blocks"]), f.urem(rest, size["row_blocks"])
        kind = Element(real, bytes, "f")
        a, b, c = gemm.outer_offsets(f, rest, gemm.FIRST + len(LAYOUT), bases, (kind,) * 3)
        m, n = f.mul(at_row, size["row_step"]), f.mul(at_column, size["column_step"])
        for slot, first, step, total in (
            (rows, m, "row_step", "m"), (columns, n, "column_step", "n"),
        ):  # fmt: skip
            count = f.smin(size[step], f.sub(size[total], first))
            f.store("i32", f.value(f"trunc i64 {count} to i32"), slot)
        a = f.step(a, f.mul(m, size["a_row"]), bytes)
        b = f.step(b, f.mul(n, size["b_column"]), bytes)
        c = f.step(c, f.add(f.mul(m, size["c_row"]), n), bytes)
        _call(f, name, flags["b_flipped"], flags["a_flipped"], columns, rows, words["k"], one, b,
              words["ldb"], a, words["lda"], zero, c, words["c_row"])
    return _declaration(name, 13) + ir.module(f)


# The arguments of a kernel that multiplies a vector and a matrix, after references to a, b and c.
VECTOR_LAYOUT = ("n", "k", "a_sum", "b_column", "c_column", "ldb", "b_flipped", "step", "blocks")


@cache
def vector_text(name: str, element: tuple[str, int]) -> str:
    """A kernel whose units are blocks of the vector c = a B, each one call; outer axes follow."""
    type, bytes = element
    f = ir.kernel()
    bases = [f.buffer(i) for i in (0, 2, 4)]
    size = f.arguments(gemm.FIRST, VECTOR_LAYOUT)
    words = {key: _word(f, size[key]) for key in ("k", "a_sum", "c_column", "ldb")}
    flipped = f.compare("ne", size["b_flipped"], 0)
    flag = _flag(f, size["b_flipped"])
    one, zero, count = f.variable(type, "1.0"), f.variable(type, "0.0"), f.alloca("i32")
    first, second = (f.select(flipped, a, b, "ptr")
                     for a, b in ((words["k"], count), (count, words["k"])))
    with f.loop("%lo", "%hi") as unit:
        rest, block = f.udiv(unit, size["blocks"]), f.urem(unit, size["blocks"])
        kind = Element(type, bytes, "f")
        a, b, c = gemm.outer_offsets(f, rest, gemm.FIRST + len(VECTOR_LAYOUT), bases, (kind,) * 3)
        n = f.mul(block, size["step"])
        width = f.smin(size["step"], f.sub(size["n"], n))
        f.store("i32", f.value(f"trunc i64 {width} to i32"), count)
        b = f.step(b, f.mul(n, size["b_column"]), bytes)
        c = f.step(c, f.mul(n, size["c_column"]), bytes)
        _call(f, name, flag, first, second, one, b, words["ldb"], a, words["a_sum"], zero, c,
              words["c_column"])
    return _declaration(name, 11) + ir.module(f)


def _call(f: ir.Function, name: str, *pointers: str) -> None:
    """Call a Fortran routine, which takes all arguments by address."""
    f.do(f"call void @{name}({', '.join(f'ptr {p}' for p in pointers)})")


def _declaration(name: str, count: int) -> str:
    return f"declare void @{name}({', '.join(['ptr'] * count)})\n"


def _word(f: ir.Function, value: str) -> str:
    """The address of a 32-bit copy of an argument."""
    slot = f.alloca("i32")
    f.store("i32", f.value(f"trunc i64 {value} to i32"), slot)
    return slot


def _flag(f: ir.Function, value: str) -> str:
    """The address of 'T' or 'N'."""
    slot = f.alloca("i8")
    f.store("i8", f.select(f.compare("ne", value, 0), ord("T"), ord("N"), "i8"), slot)
    return slot
