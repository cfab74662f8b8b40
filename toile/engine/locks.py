"""Locks that a child of a fork finds free, whatever threads of its parent held them.

Only the thread that forks lives on in a child. What the others were doing is not finished there,
so the locks they held would never be released; what those locks guard here are caches, which hold
whole entries at any time. May import nothing of toile.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def shared_lock() -> threading.RLock:
    """A lock that its holder can take again."""
    made = threading.RLock()
    _locks.add(made)
    return made


def _free() -> None:
    for lock in list(_locks):
        lock._at_fork_reinit()


# Held while the compiler loads, and while LLVM works: a fork waits until that has ended, since a
# child must find neither in the middle of something. It is made here, before either begins: a fork
# that waits already does not see what is registered meanwhile.
compiling = threading.RLock()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free)
    os.register_at_fork(
        before=compiling.acquire,
        after_in_parent=compiling.release,
        after_in_child=compiling.release,
    )
