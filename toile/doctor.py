"""Report what toile finds on this machine, and what to install if something is missing.

`python -m toile.doctor` prints a line for each component that toile uses, runs a small program on
the CPU and on each GPU, and explains how to repair components that do not work. The exit status is
0 if the CPU works, because a GPU is not required. This module can be imported without the packages
that it checks.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable
from typing import NamedTuple

import toile
from toile.disk import object_cache
from toile.engine.devices import Device
from toile.engine.platform_registry import wanted_platform
from toile.targets.cuda import cudnn, driver, libraries


class Finding(NamedTuple):
    """One line of the report.

    Args:
        name: name of the component.
        found: description of what was found.
        works: whether the component works; None if it is missing but not needed.
        repair: instructions for repairing the component.
    """

    name: str
    found: str
    works: bool | None = True  # None: missing, but not needed
    repair: str = ""


def main() -> int:
    """Print the report of `python -m toile.doctor`.

    Returns:
        The exit status: 0 if programs run on the CPU, otherwise 1.
    """
    print(f"toile {toile.__version__}")
    processor = host()
    show("This machine", processor)
    tested = cpu_test()
    show("CPU", [*packages(), *compiler(), tested])
    gpus = gpu()
    show("GPU", gpus)
    print(f"\n{summary(bool(tested.works), gpus)}")
    return 0 if tested.works else 1


def summary(cpu_works: bool, gpus: list[Finding]) -> str:
    """Name the devices on which programs run, in one sentence.

    Args:
        cpu_works: whether the test on the CPU succeeded.
        gpus: findings about GPUs.

    Returns:
        The sentence.
    """
    on_cpu = "Programs run on the CPU."
    if not cpu_works:
        on_cpu = "Programs do not run on the CPU: see above."
    tests = [f.works for f in gpus if f.name.startswith("test on GPU")]
    if not tests:  # there is no GPU, or none is to be used
        unused = any(f.name == "GPUs" and f.works is None for f in gpus)
        return f"{on_cpu} The GPU is not used: {asked_for_cpu()} is set." if unused else on_cpu
    if not all(tests):
        return (f"{on_cpu} The GPU is the default device, but its test failed: see above (or set "
                "TOILE_PLATFORM=cpu).")
    if cpu_works:
        return "Programs run on the GPU by default, and on the CPU if told to."
    return f"Programs run on the GPU. {on_cpu}"


def asked_for_cpu() -> str:
    """Return the environment setting that selects the CPU.

    Returns:
        `TOILE_PLATFORM=cpu` or `JAX_PLATFORMS=cpu`, whichever is set, or an empty string if neither
        is set.
    """
    if wanted_platform() != "cpu":
        return ""
    name = "TOILE_PLATFORM" if os.environ.get("TOILE_PLATFORM") else "JAX_PLATFORMS"
    return f"{name}={os.environ[name]}"


def show(title: str, findings: list[Finding]) -> None:
    """Print findings under a title.

    Args:
        title: the title.
        findings: the findings, printed one per line.
    """
    print(f"\n{title}")
    for f in findings:
        mark = {True: "ok", False: "!!", None: "--"}[f.works]
        print(f"  {mark}  {f.name:<22} {f.found}")
        if f.repair and f.works is not True:
            print(f"        {'':<18} -> {f.repair}")


# ---- the machine
def host() -> list[Finding]:
    """Check the platform, Python and the environment variables.

    Returns:
        The findings.
    """
    settings = {k: v for k, v in sorted(os.environ.items())
                if k.startswith(("TOILE_", "JAX_", "CUDA_VISIBLE"))}
    newer = sys.version_info >= (3, 11)
    return [
        Finding("platform", f"{platform.system()} {platform.release()}, {platform.machine()}, "
                            f"{os.cpu_count()} cores"),
        Finding("Python", platform.python_version(), newer, "install Python 3.11 or newer"),
        Finding("settings", " ".join(f"{k}={v}" for k, v in settings.items()) or "none"),
    ]  # fmt: skip


PACKAGES = {  # the package, and the minimum version
    "numpy": "2.0", "scipy": "1.14", "ml_dtypes": "0.5", "msgpack": "1.0", "llvmlite": "0.44",
}  # fmt: skip


def packages() -> list[Finding]:
    """Check the packages that toile always needs.

    Returns:
        The findings.
    """
    return [package(name, least) for name, least in PACKAGES.items()]


def package(name: str, least: str, needed: bool = True, install: str = "") -> Finding:
    """Check whether a package is installed, and whether its version is recent enough.

    Args:
        name: name of the package.
        least: oldest version that works.
        needed: whether toile needs the package.
        install: name under which the package is installed; "" means `name`.

    Returns:
        The finding, which includes the version.
    """
    command = f'pip install "{install or name}>={least}"'
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, "not installed", False if needed else None, command)
    if _numbers(version) < _numbers(least):
        return Finding(name, f"{version}, which is too old", False, command)
    return Finding(name, version)


def _numbers(version: str) -> tuple[int, ...]:
    found = []
    for part in version.split(".")[:3]:
        digits = "".join(c for c in part if c.isdigit())
        found.append(int(digits or 0))
    return tuple(found)


def compiler() -> list[Finding]:
    """Check LLVM's support for the processor, and the folder for compiled kernels.

    Returns:
        The findings.
    """
    found = []
    try:
        from llvmlite import binding

        features = [k for k, on in dict(binding.get_host_cpu_features()).items() if on]
        known = [f for f in ("avx2", "fma", "avx512f", "amx-bf16", "neon", "sve", "bf16", "f16c",
                             "fullfp16") if f in features]  # fmt: skip
        found.append(Finding("processor", f"{binding.get_host_cpu_name()} ({' '.join(known)})"))
    except Exception as error:
        found.append(Finding("processor", f"unknown to LLVM ({error})", None,
                             "pip install llvmlite"))
    cache = object_cache.from_environment()
    if cache is None:
        found.append(Finding("kernels on disk", "off", None, "unset TOILE_CACHE"))
        return found
    problem = cache.problem()
    if problem:
        found.append(Finding("kernels on disk", f"{cache.folder} is not used: {problem}", False,
                             "run chmod 700 on it, or set TOILE_CACHE_DIR to a folder of yours"))
        return found
    size = sum(f.stat().st_size for f in cache.folder.glob("*") if f.is_file())
    nearest = next((p for p in (cache.folder, *cache.folder.parents) if p.exists()), None)
    writable = nearest is not None and os.access(nearest, os.W_OK)
    found.append(Finding("kernels on disk", f"{cache.folder}, {size / 1e6:.1f} MB", writable,
                         "set TOILE_CACHE_DIR to a writable folder"))
    return found


def attempt(name: str, run: Callable[[], str], repair: str) -> Finding:
    """Run a test and report its outcome.

    Args:
        name: name of the finding.
        run: function that returns a description of what it found, or raises an exception.
        repair: how to repair the component if the test fails.

    Returns:
        The finding.
    """
    try:
        return Finding(name, run())
    except Exception as error:
        text = str(error).strip().splitlines() or [type(error).__name__]
        return Finding(name, f"{type(error).__name__}: {text[0]}", False, repair)


def _product_on(device: Device) -> str:
    """Compute a small compiled matrix product on a device, and raise an error if it is wrong."""
    numpy = importlib.import_module("numpy")
    x = numpy.arange(64 * 48, dtype=numpy.float32).reshape(64, 48) % 7
    with toile.default_device(device):
        found = toile.jit(lambda a, b: (a @ b + 1).sum(axis=0))(x, x.T)
    expected = (x @ x.T + 1).sum(axis=0)
    if not numpy.allclose(numpy.asarray(found), expected, rtol=1e-3):
        raise ArithmeticError("a matrix product gave a wrong result")
    return "a compiled matrix product is correct"


def cpu_test() -> Finding:
    """Run a compiled program on the CPU.

    Returns:
        The finding.
    """
    return attempt("test", lambda: _product_on(toile.devices("cpu")[0]),
                   "pip install --force-reinstall toile")


# ---- the GPU
def gpu() -> list[Finding]:
    """Check the driver, CuPy and NVIDIA's libraries, and run a test on each GPU.

    Returns:
        The findings.
    """
    version = libraries.driver_version()
    if version is None:
        return [Finding("driver", "none: there is no NVIDIA GPU, or no driver for it", None,
                        "if there is a GPU, install NVIDIA's driver; the CPU does not need it")]
    found = [Finding("driver", f"for CUDA {version[0]}.{version[1]}", version[0] >= 12,
                     "install a driver for CUDA 12 or newer (525 or newer)")]
    count = driver.device_count()
    asked = asked_for_cpu()
    if asked and count:
        found.append(Finding("GPUs", f"{count}, not used because {asked} is set", None,
                             "set TOILE_PLATFORM=gpu, which takes precedence over JAX_PLATFORMS"))
    else:
        found.append(Finding("GPUs", str(count), count > 0, "check nvidia-smi and "
                             "CUDA_VISIBLE_DEVICES"))
    found.append(_cupy())
    for name in ("cublas", "cublasLt", "cufft", "cusolver", "nvrtc", "cudnn", "nccl"):
        found.append(_library(name))
    found.append(_frontend())
    return found if asked else found + [f for i in range(count) for f in _device(i)]


def _cupy() -> Finding:
    major = libraries.cuda_major()
    try:
        import cupy
    except ImportError as error:
        return Finding("CuPy", f"not installed ({error})", False, libraries.extra())
    works = _numbers(cupy.__version__) >= (14,)
    return Finding("CuPy", cupy.__version__, works, f'pip install "cupy-cuda{major}x[ctk]>=14"')


def _library(name: str) -> Finding:
    library = libraries.CATALOGUE[name]
    needed = name not in ("nccl", "cudnn", "cufft", "cusolver")
    try:
        version = libraries.version_of(name, libraries.load(name))
    except libraries.LibraryError as error:
        text = str(error).removeprefix("toile: ")
        return Finding(library.title, text.split(": pip")[0], False if needed else None,
                       libraries.extra())
    return Finding(library.title, ".".join(map(str, version or ("unknown version",))))


def _frontend() -> Finding:
    found, problem = cudnn.frontend()
    if found is None:
        return Finding("cuDNN frontend", "cannot be used", None,
                       problem.removeprefix("toile: ") or libraries.extra())
    return Finding("cuDNN frontend", str(found.__version__))


def _device(index: int) -> list[Finding]:
    """The properties of a GPU, and whether a Program runs on it."""
    def describe() -> str:
        import cupy

        properties = cupy.cuda.runtime.getDeviceProperties(index)
        free, total = cupy.cuda.Device(index).mem_info
        capability = f"{properties['major']}.{properties['minor']}"
        return (f"{properties['name'].decode()}, capability {capability}, "
                f"{free / 2**30:.0f} of {total / 2**30:.0f} GiB free")

    return [
        attempt(f"GPU {index}", describe, libraries.extra()),
        attempt(f"test on GPU {index}", lambda: _product_on(toile.devices("gpu")[index]),
                "run again with TOILE_DEBUG=sync, and report its output"),
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
