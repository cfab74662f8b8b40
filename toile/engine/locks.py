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


class _Loading(threading.local):
    """Counts the imports that the thread is in the middle of, and all threads together.

    A child of a fork would find a module half loaded, and wait for a thread that it has not: forks
    wait for imports, but no longer than LONGEST, since an import may wait for the forking thread.
    Imports never wait for each other here, which could be for ever."""

    mine = 0
    everyone = 0  # of all threads: of the class, under `changed`
    changed = threading.Condition(threading.Lock())

    def __enter__(self) -> None:
        with self.changed:
            self.mine += 1
            _Loading.everyone += 1

    def __exit__(self, *error: object) -> None:
        with self.changed:
            self.mine -= 1
            _Loading.everyone -= 1
            self.changed.notify_all()

    def wait(self) -> None:
        """Before a fork: the count stays as it is until `go_on` or `begin_anew`."""
        self.changed.acquire()
        self.changed.wait_for(lambda: _Loading.everyone <= self.mine, LONGEST)

    def go_on(self) -> None:
        self.changed.release()

    def begin_anew(self) -> None:
        """In the child, which has this thread only."""
        _Loading.everyone = self.mine
        _Loading.changed = threading.Condition(threading.Lock())


LONGEST = 5.0  # seconds
loading = _Loading()  # `with loading:` an import that is not made at the beginning

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free)
    os.register_at_fork(
        before=loading.wait, after_in_parent=loading.go_on, after_in_child=loading.begin_anew
    )
    os.register_at_fork(
        before=compiling.acquire,
        after_in_parent=compiling.release,
        after_in_child=compiling.release,
    )
