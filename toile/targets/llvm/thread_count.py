"""How many threads a compiled call may use.

The default is TOILE_NUM_THREADS, or the number of CPUs that this process may run on. Inside
`with threads(n):` calls of the current Python thread use another number.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Local(threading.local):
    threads: int | None = None  # set inside `with threads(n):`


_local = _Local()


def _available() -> int:
    """The number of CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1


def _default() -> int:
    given = os.environ.get("TOILE_NUM_THREADS", "").strip()
    if not given:
        return _available()
    try:
        return _checked(int(given))
    except ValueError:
        raise ValueError(f"TOILE_NUM_THREADS: needed a positive integer, got {given!r}") from None


def _checked(n: int) -> int:
    if n < 1:
        raise ValueError(f"threads: needed a positive number, got {n}")
    return n


_found: int | None = None


def current() -> int:
    """The number of threads for a call that this Python thread makes now."""
    global _found
    n = _local.threads
    if n is not None:
        return n
    if _found is None:
        _found = _default()
    return _found


@contextmanager
def threads(n: int) -> Iterator[None]:
    """Set how many CPU threads compiled functions use in a `with` block.

    The setting applies to calls from the current Python thread. Outside such a block, the
    environment variable `TOILE_NUM_THREADS` sets the number of threads. If the variable is not set,
    compiled functions use as many threads as there are CPUs that the process may use.

    Args:
        n: number of threads, at least 1.

    Returns:
        A context manager.

    Raises:
        ValueError: the number is less than 1.

    >>> import toile
    >>> with toile.threads(1):
    ...     print(toile.jit(lambda x: x + 1)(1.0))
    2.0
    """
    before = _local.threads
    _local.threads = _checked(n)
    try:
        yield
    finally:
        _local.threads = before
