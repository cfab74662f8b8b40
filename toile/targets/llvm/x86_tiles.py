"""Permission to use the tile registers of x86 processors (AMX).

A process may use them only after Linux has agreed, because they make the saved state of each thread
8 KB larger. Threads that exist already are included, and those that start later.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache

_ARCH_PRCTL = 158  # the number of the system call
_REQUEST_PERMISSION = 0x1023
_TILE_DATA = 18  # the component of a thread's state that tile registers are


@cache
def permitted() -> bool:
    """Ask Linux for the permission; whether this process has it now."""
    if sys.platform != "linux" or platform.machine() != "x86_64" or sys.maxsize < 2**32:
        return False
    try:
        call = ctypes.CDLL(None).syscall
    except (OSError, AttributeError):
        return False
    call.restype, call.argtypes = ctypes.c_long, [ctypes.c_long] * 3
    return call(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0
