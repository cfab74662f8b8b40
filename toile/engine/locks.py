"""Locks, and other state that a forked child must not inherit half-changed.

Only the forking thread lives on in a child. The other threads' work is unfinished there, so locks
they held would never be released; the locks here guard caches, whose entries are complete at any
time. A fork waits for the compiler and for imports; the child restarts imports that did not end in
time. This module may import only the standard library.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def shared_lock() -> threading.RLock:
    """A re-entrant lock."""
    made = threading.RLock()
    _locks.add(made)
    return made


def _free() -> None:
    for lock in list(_locks):
        lock._at_fork_reinit()


class InterruptibleCondition(threading.Condition):
    """A condition whose `wait` may end, on Ctrl-C, before the thread holds the lock again.

    Leaving the `with` statement would then release a lock that this thread does not hold, and the
    error about that would hide the interruption."""

    def __init__(self) -> None:
        super().__init__(threading.RLock())  # which only the thread that holds it can release

    def __exit__(self, *args: Any) -> None:
        try:
            super().__exit__(*args)
        except RuntimeError:
            if args[0] is None:
                raise


class _Compiling:
    """The lock held while the compiler loads and while LLVM works; forks wait for its release.

    Threads that compile without a pause would delay a fork for very long, because a lock goes to
    the first thread that asks for it after its release. So threads that do not hold it yet and are
    not importing let forks go first."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.forks = 0  # forks that wait for the lock or hold it
        self.forked = InterruptibleCondition()

    def acquire(self) -> None:
        if self.lock._is_owned():  # type: ignore[attr-defined]
            self.lock.acquire()
            return
        while True:
            self.lock.acquire()
            if not self.forks or _is_importing():  # forks wait for imports
                return
            self.lock.release()
            with self.forked:
                self.forked.wait_for(lambda: not self.forks, LONGEST)

    def try_acquire(self) -> bool:
        """Take the lock if it is free or already this thread's; return whether it was taken."""
        return self.lock.acquire(blocking=False)

    def release(self) -> None:
        self.lock.release()

    __enter__ = acquire

    def __exit__(self, *error: object) -> None:
        self.lock.release()

    def before_fork(self) -> None:
        """Take the lock while no other thread is importing, since imports may need the lock."""
        with self.forked:
            self.forks += 1
        end = time.monotonic() + LONGEST
        self.lock.acquire()
        while _others_import() and time.monotonic() < end:
            self.lock.release()
            time.sleep(0.002)
            self.lock.acquire()

    def after_in_parent(self) -> None:
        self.lock.release()
        with self.forked:
            self.forks -= 1
            self.forked.notify_all()

    def after_in_child(self) -> None:
        self.forks, self.forked = 0, InterruptibleCondition()
        self.lock.release()


class _Loading(threading.local):
    """Counts the imports in progress, in this thread and in all threads.

    A forked child would find a module half loaded, so forks wait for imports, but no longer than
    LONGEST, since an import may wait for the forking thread. Imports never wait for each other
    here, because that could cause a deadlock."""

    mine = 0
    everyone = 0  # in all threads: a class attribute, guarded by `changing`
    changing = threading.Lock()

    def __enter__(self) -> None:
        with self.changing:
            self.mine += 1
            _Loading.everyone += 1

    def __exit__(self, *error: object) -> None:
        with self.changing:
            self.mine -= 1
            _Loading.everyone -= 1

    def begin_anew(self) -> None:
        """Reset the counts in the child, which has only this thread."""
        _Loading.everyone = self.mine
        _Loading.changing = threading.Lock()


def _others_import() -> bool:
    return _Loading.everyone > loading.mine or bool(imports(of_others=True))


def _is_importing() -> bool:
    return loading.mine > 0 or bool(imports(of_others=False))


# ---- imports in progress in other threads
# Python holds a lock for each module being imported, and a child inherits those of threads that it
# does not have. Users' modules may take any time to import and must not be imported twice: only
# libraries that toile loads at first use are handled.
_LIBRARIES = frozenset({"cupy", "cupyx", "llvmlite", "ml_dtypes", "numpy", "scipy", "toile"})
_bootstrap: Any = getattr(importlib, "_bootstrap", None)


def imports(of_others: bool) -> list[str]:
    """The library modules that other threads, or this one, are importing."""
    me, found = threading.get_ident(), []
    for name, reference in list(getattr(_bootstrap, "_module_locks", {}).items()):
        owner = getattr(reference(), "owner", None)
        if owner is not None and (owner != me) is of_others and _is_library(name):
            found.append(name)
    return found


def _is_library(name: str) -> bool:
    top = name.partition(".")[0]
    return top in _LIBRARIES or top in sys.stdlib_module_names


def _import_anew() -> None:
    """In the child: drop modules half imported by other threads; they are imported when needed."""
    for name in imports(of_others=True):
        _bootstrap._module_locks.pop(name, None)
        spec = getattr(sys.modules.get(name), "__spec__", None)
        if getattr(spec, "_initializing", False):
            del sys.modules[name]


# ---- NumPy's and SciPy's linear algebra


class _LinearAlgebra:
    """`with linear_algebra:` around a library call that divides its work among its own threads.

    Forks wait for such calls. Otherwise, a forked child would inherit the locks of the library
    (OpenBLAS) while they are held, and in the parent, the calling thread would wait for threads
    that the fork has ended."""

    def __init__(self) -> None:
        self.inside, self.forks = 0, 0
        self.changed = InterruptibleCondition()

    def __enter__(self) -> None:
        with self.changed:
            if self.forks:
                self.changed.wait_for(lambda: not self.forks, LONGEST)
            self.inside += 1

    def __exit__(self, *error: object) -> None:
        with self.changed:
            self.inside -= 1
            if self.forks:
                self.changed.notify_all()

    def before_fork(self) -> None:
        """Wait for calls to end, at most LONGEST; none begins or ends until the fork is over."""
        self.changed.acquire()
        self.forks += 1
        self.changed.wait_for(lambda: not self.inside, LONGEST)

    def after_in_parent(self) -> None:
        self.forks -= 1
        self.changed.notify_all()
        self.changed.release()

    after_in_child = __init__


# ---- llvmlite's own lock, also taken when an LLVM object is freed


class _Llvmlite:
    """The lock of llvmlite, if it is loaded; held during a fork."""

    held: Any = None

    def take(self) -> None:
        ffi = sys.modules.get("llvmlite.binding.ffi")
        self.held = getattr(getattr(ffi, "lib", None), "_lock", None)
        if self.held is not None:
            self.held.__enter__()

    def give_back(self) -> None:
        held, self.held = self.held, None
        if held is not None:
            held.__exit__(None, None, None)


LONGEST = 5.0  # seconds
compiling = _Compiling()
linear_algebra = _LinearAlgebra()
loading = _Loading()  # `with loading:` around an import inside a function
_llvmlite = _Llvmlite()


def _at_fork(
    before: Callable[[], Any], parent: Callable[[], Any], child: Callable[[], Any]
) -> None:
    os.register_at_fork(before=before, after_in_parent=parent, after_in_child=child)


if hasattr(os, "register_at_fork"):
    # The last registered hook runs first before a fork, and last after it. All are registered here,
    # before any is used: a fork that already waits does not see hooks registered later.
    os.register_at_fork(after_in_child=_free)
    os.register_at_fork(after_in_child=_import_anew)
    _at_fork(linear_algebra.before_fork, linear_algebra.after_in_parent,
             linear_algebra.after_in_child)
    _at_fork(_llvmlite.take, _llvmlite.give_back, _llvmlite.give_back)
    os.register_at_fork(after_in_child=loading.begin_anew)
    _at_fork(compiling.before_fork, compiling.after_in_parent, compiling.after_in_child)
