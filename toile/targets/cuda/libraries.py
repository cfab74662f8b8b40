"""NVIDIA's libraries: where they are, which versions, and what to install when one is missing.

They are loaded through their C interface: first from the wheels that pip installs (`nvidia/*/lib`
beside other packages), which CuPy, JAX and PyTorch load too, then by the system's loader.
Libraries are loaded on first use.
"""

from __future__ import annotations

import ctypes
import functools
import os
import site
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from toile.engine.errors import ToileError
from toile.targets.cuda import driver

Version = tuple[int, ...]


class LibraryError(ToileError, RuntimeError):
    """A required NVIDIA library is not installed, is too old, or failed in a call.

    `status` is what the call returned."""

    status = 0


class Library(NamedTuple):
    """The names of a library, and the oldest version that works."""

    title: str
    stem: str  # of its file: lib<stem>.so.<major>
    majors: tuple[int, ...]  # of its file name, newest first
    folders: tuple[str, ...]  # of the wheels below nvidia/
    least: Version
    packages: tuple[str, str]  # pip packages, for CUDA 12 and 13


def _named(name: str, suffix: str = "") -> tuple[str, str]:
    return f"nvidia-{name}-cu12", f"nvidia-{name}{suffix}"


_CUDA = (13, 12)
_OLDER = (12, 11)  # libraries whose numbers are one behind CUDA's
CATALOGUE = {
    "cublas": Library("cuBLAS", "cublas", _CUDA, ("cu13", "cublas"), (12, 0), _named("cublas")),
    "cublasLt": Library("cuBLASLt", "cublasLt", _CUDA, ("cu13", "cublas"), (12, 0),
                        _named("cublas")),
    "cufft": Library("cuFFT", "cufft", _OLDER, ("cu13", "cufft"), (11, 0), _named("cufft")),
    "cusolver": Library("cuSOLVER", "cusolver", _OLDER, ("cu13", "cusolver"), (11, 0),
                        _named("cusolver")),
    "cudnn": Library("cuDNN", "cudnn", (9,), ("cudnn",), (9, 1), _named("cudnn", "-cu13")),
    "nccl": Library("NCCL", "nccl", (2,), ("nccl",), (2, 18), _named("nccl", "-cu13")),
    "cudart": Library("the CUDA runtime", "cudart", _CUDA, ("cu13", "cuda_runtime"), (12, 0),
                      _named("cuda-runtime")),
    "nvrtc": Library("NVRTC", "nvrtc", _CUDA, ("cu13", "cuda_nvrtc"), (12, 0),
                     _named("cuda-nvrtc")),
}  # fmt: skip


def roots() -> list[Path]:
    """Folders that contain packages."""
    found = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *sys.path]
    try:
        found += [*site.getsitepackages(), site.getusersitepackages()]
    except (AttributeError, OSError):
        pass  # the environment has neither
    paths = dict.fromkeys(Path(p) for p in found if p)
    return [p for p in paths if (p / "nvidia").is_dir()]


def file_name(library: Library, major: int) -> str:
    """The name of the library's file."""
    windows = sys.platform == "win32"
    return f"{library.stem}64_{major}.dll" if windows else f"lib{library.stem}.so.{major}"


def candidates(library: Library, places: Iterable[Path] | None = None) -> list[str]:
    """Paths and names to try, best first: files of wheels, then names for the loader."""
    inside = "bin" if sys.platform == "win32" else "lib"
    names = [file_name(library, major) for major in library.majors]
    paths = [root / "nvidia" / folder / inside / name
             for root in (roots() if places is None else places)
             for name in names for folder in library.folders]
    return list(dict.fromkeys([*(os.fspath(p) for p in paths if p.is_file()), *names]))


@functools.cache
def identity(name: str) -> str:
    """Identifies the installation of a library, which is loaded only if it is not in a wheel."""
    path = next(iter(candidates(CATALOGUE[name])), "")
    if os.path.isabs(path):
        found = os.stat(path)
        return f"{path} {found.st_size} {found.st_mtime_ns}"
    return str(version(name))


def cuda_major() -> int:
    """The newest major version of CUDA that the driver supports; 13 if there is no driver."""
    version = driver_version()
    return 12 if version is not None and version[0] == 12 else 13


def extra() -> str:
    """What to install with pip for the GPU: toile with all its requirements for GPUs."""
    return f'pip install "toile[cuda{cuda_major()}]"'


def missing(library: Library, found: str) -> LibraryError:
    """The error that says what was needed, what was found and what to install."""
    least = ".".join(map(str, library.least))
    package = library.packages[cuda_major() - 12]
    return LibraryError(
        f"toile: needed {library.title} >= {least}, found {found}: {extra()} "
        f"(or pip install {package})"
    )


@functools.cache
def load(name: str) -> Any:
    """Load a library of the catalogue; raises LibraryError if it is missing or too old."""
    library = CATALOGUE[name]
    reasons = []
    for candidate in candidates(library):
        try:
            found = ctypes.CDLL(candidate)
        except OSError as error:
            if "/" in candidate:
                reasons.append(f"{candidate}, which does not load ({error})")
            continue
        version = version_of(name, found)
        if version is not None and version < library.least:
            reasons.append(f"{'.'.join(map(str, version))} at {candidate}")
            continue
        return found
    raise missing(library, "; ".join(reasons) or "none")


def version_of(name: str, loaded: Any) -> Version | None:
    """The version that a library reports; None if it reports none."""
    try:
        return _VERSIONS[name](loaded)
    except (AttributeError, OSError, KeyError):
        return None


def version(name: str) -> Version | None:
    """The version of a library of the catalogue; None if it is not installed."""
    try:
        return version_of(name, load(name))
    except LibraryError:
        return None


# ---- versions, which each library reports in its own way
def _by_property(function: str) -> Callable[[Any], Version]:
    """Reads a version with `function(kind, int*)`: kinds 0 to 2 are major, minor and patch."""

    def ask(loaded: Any) -> Version:
        ask_one = getattr(loaded, function)
        out, value = [], ctypes.c_int()
        for kind in range(3):
            if ask_one(kind, ctypes.byref(value)):
                raise AttributeError(function)
            out.append(value.value)
        return tuple(out)

    return ask


def _by_number(function: str) -> Callable[[Any], Version]:
    """Reads a version with `function()`: 10000 for each major, 100 for each minor version."""

    def ask(loaded: Any) -> Version:
        getattr(loaded, function).restype = ctypes.c_size_t
        n = getattr(loaded, function)()
        return n // 10000, n // 100 % 100, n % 100

    return ask


def _nccl_version(loaded: Any) -> Version:
    value = ctypes.c_int()
    loaded.ncclGetVersion(ctypes.byref(value))
    n = value.value
    return (n // 10000, n // 100 % 100, n % 100) if n >= 10000 else (n // 1000, n // 100 % 10,
                                                                     n % 100)


def _runtime_version(loaded: Any) -> Version:
    value = ctypes.c_int()
    loaded.cudaRuntimeGetVersion(ctypes.byref(value))
    return value.value // 1000, value.value % 1000 // 10


def _nvrtc_version(loaded: Any) -> Version:
    major, minor = ctypes.c_int(), ctypes.c_int()
    loaded.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


_VERSIONS: dict[str, Callable[[Any], Version]] = {
    "cublas": _by_property("cublasGetProperty"),
    "cublasLt": _by_number("cublasLtGetVersion"),
    "cufft": _by_property("cufftGetProperty"),
    "cusolver": _by_property("cusolverGetProperty"),
    "cudnn": _by_number("cudnnGetVersion"),
    "nccl": _nccl_version,
    "cudart": _runtime_version,
    "nvrtc": _nvrtc_version,
}


def driver_version() -> Version | None:
    """The version of CUDA that the driver supports; None without a driver."""
    loaded = driver.library()
    if loaded is None:
        return None
    value = ctypes.c_int()
    if loaded.cuDriverGetVersion(ctypes.byref(value)):
        return None
    return value.value // 1000, value.value % 1000 // 10


# ---- calls
@contextmanager
def replaced(used: list[Any], other: Any) -> Iterator[Any]:
    """A block in which `other` is used instead of a library."""
    used.append(other)
    try:
        yield other
    finally:
        used.pop()


class Functions:
    """Functions of a library with their types; a status other than 0 is an error."""

    def __init__(self, loaded: Any, table: Mapping[str, Sequence[Any]], describe: Any = None):
        self.describe = describe
        self.plain: dict[str, Any] = {}
        for name, types in table.items():
            function = getattr(loaded, name)
            function.argtypes = list(types)
            function.restype = ctypes.c_int
            self.plain[name] = function
            setattr(self, name, self._checked(name, function))

    def _checked(self, name: str, function: Any) -> Callable[..., None]:
        def call(*args: Any) -> None:
            status = function(*args)
            if status:
                raise self._failed(name, status)

        return call

    def _failed(self, name: str, status: int) -> LibraryError:
        what = self.describe(status) if self.describe else f"status {status}"
        error = LibraryError(f"toile: {name} failed: {what}")
        error.status = status
        return error

    def ready(self, name: str, args: Sequence[Any]) -> tuple[Callable[[], None], list[Any]]:
        """A call with these arguments, and their C values, which are read in each call: changing
        the `value` of one costs a tenth of converting all of them."""
        function = self.plain[name]
        values = [kind(x) for kind, x in zip(function.argtypes, args, strict=True)]

        def call() -> None:
            status = function(*values)
            if status:
                raise self._failed(name, status)

        return call, values
