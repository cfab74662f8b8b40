"""Threads that start a GPU, and waiting for them (`platforms.gpu.start` starts them)."""

from __future__ import annotations

import ctypes
import os
import sys
import threading

begun: list[threading.Thread] = []
LONGEST = 120.0  # seconds that libraries may take to load


def is_starting() -> bool:
    """Whether the context is still being created."""
    return bool(begun) and begun[0].is_alive()


def wait_for_context() -> None:
    """Wait until there is a context, or it is known that there will be none. A forked process,
    which does not have the thread that creates the context, does not wait."""
    if is_starting():
        begun[0].join(LONGEST)


def wait() -> None:
    """Wait until everything that `soon` started has finished. Until then, libraries make calls that
    invalidate captures in other threads, and they load parts of themselves, which could
    deadlock."""
    for thread in begun:  # the first adds another one before it ends
        if thread.is_alive() and thread is not threading.current_thread():
            thread.join(LONGEST)


def load(path: str) -> None:
    """Load a library for later use; errors are reported when it is used.

    Unlike `ctypes.CDLL`, a call to `dlopen` releases the GIL."""
    if sys.platform != "linux":
        return
    dlopen = ctypes.CDLL(None).dlopen
    dlopen.argtypes, dlopen.restype = [ctypes.c_char_p, ctypes.c_int], ctypes.c_void_p
    dlopen(os.fsencode(path), os.RTLD_NOW)
