"""What has been begun to start a GPU, and waiting for it (`platforms.gpu.start` begins it)."""

from __future__ import annotations

import ctypes
import os
import sys
import threading

begun: list[threading.Thread] = []
LONGEST = 120.0  # seconds that libraries may take to load


def is_starting() -> bool:
    """Whether the context is still being made."""
    return bool(begun) and begun[0].is_alive()


def wait_for_context() -> None:
    """Wait until there is a context, or it is known that there will be none. (To join a thread
    ends in a forked process too, which has not got it.)"""
    if is_starting():
        begun[0].join(LONGEST)


def wait() -> None:
    """Wait until what `soon` began has ended. Until then libraries make calls that end a capture
    in another thread, and load parts of themselves, for which two threads may wait crosswise."""
    for thread in begun:  # the first adds one more before it ends
        if thread.is_alive() and thread is not threading.current_thread():
            thread.join(LONGEST)


def load(path: str) -> None:
    """Load a library for whoever asks for it later; what is wrong with it is said then.

    Unlike `ctypes.CDLL`, a call of `dlopen` lets other threads go on."""
    if sys.platform != "linux":
        return
    dlopen = ctypes.CDLL(None).dlopen
    dlopen.argtypes, dlopen.restype = [ctypes.c_char_p, ctypes.c_int], ctypes.c_void_p
    dlopen(os.fsencode(path), os.RTLD_NOW)
