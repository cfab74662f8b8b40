"""Features of Arm processors that LLVM does not list for the host, by LLVM's names.

The operating system knows them: Linux in the auxiliary vector of the process, macOS in `sysctl`.
"""

from __future__ import annotations

import ctypes
import platform
import sys

# Number of the entry and of its bit on Linux; name on macOS.
_FEATURES = {
    "dotprod": (16, 20, "FEAT_DotProd"),
    "i8mm": (26, 13, "FEAT_I8MM"),
    "bf16": (26, 14, "FEAT_BF16"),
}


def arm_features() -> list[str]:
    """The features that this processor has."""
    if platform.machine().lower() not in ("aarch64", "arm64"):
        return []
    if sys.platform == "linux":
        entry = ctypes.CDLL(None).getauxval
        entry.argtypes, entry.restype = [ctypes.c_ulong], ctypes.c_ulong
        return [name for name, (number, bit, _) in _FEATURES.items() if entry(number) >> bit & 1]
    if sys.platform == "darwin":
        return [name for name, (_, _, key) in _FEATURES.items() if _sysctl(key)]
    return []


def _sysctl(key: str) -> bool:
    """Whether macOS reports a feature."""
    value, size = ctypes.c_int(0), ctypes.c_size_t(4)
    failed = ctypes.CDLL(None).sysctlbyname(
        b"hw.optional.arm." + key.encode(), ctypes.byref(value), ctypes.byref(size), None,
        ctypes.c_size_t(0))
    return not failed and value.value != 0
