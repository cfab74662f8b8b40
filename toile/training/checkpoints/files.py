"""Reading and writing checkpoint files so that a kill at any moment leaves the old ones whole.

A file is written aside, forced to disk and renamed; then the directory is forced to disk. Savers
of one directory take turns by a lock on it, which the system gives back when its owner dies.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from toile import errors, io, serialization

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

_BLOCK = 128 << 20  # bytes that one thread reads of a large file
_READERS = 32
_PATIENCE = 60.0  # seconds to wait for another saver of the same directory
_logger = logging.getLogger("toile")
_counter = itertools.count()


@contextlib.contextmanager
def turn(folder: str) -> Iterator[bool]:
    """Hold the directory's lock; gives False where the file system has none or nobody yields it.

    A saver without the lock is still safe: it writes under a name of its own.
    """
    if fcntl is None or io.backend_mode() is not io.BackendMode.DEFAULT:
        yield False
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        held = _wait_for_lock(handle, folder)
        try:
            yield held
        finally:
            if held:  # closing is not enough where a forked process holds the handle too
                fcntl.flock(handle, fcntl.LOCK_UN)
    finally:
        os.close(handle)


def _wait_for_lock(handle: int, folder: str) -> bool:
    deadline, pause = time.monotonic() + _PATIENCE, 0.001
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                _logger.warning("another process has been saving in %s for long", folder)
                return False
        except OSError:  # some network file systems
            return False
        time.sleep(pause)
        pause = min(2 * pause, 0.1)


def temporary_name(path_without_step: str, locked: bool) -> str:
    """Where a file is written before it is renamed: one name for all who hold the lock in turn."""
    folder, start = os.path.split(path_without_step)
    own = f".{start}tmp-{os.getpid()}-{next(_counter)}"
    return os.path.join(folder, f"{start}tmp" if locked else own)


def write(path: str, data: bytes, aside: str) -> None:
    """Put a file in its place in one step, replacing one that is there."""
    try:
        with io.GFile(aside, "wb") as file:
            file.write(data)
            if io.backend_mode() is io.BackendMode.DEFAULT:
                file.flush()
                os.fsync(file.fileno())
        io.rename(aside, path, overwrite=True)
    except BaseException:
        with contextlib.suppress(Exception):
            io.remove(aside)
        raise
    sync_folder(os.path.dirname(path))


def make_folder(folder: str) -> None:
    """Make a directory that stays after a power cut."""
    if not io.isdir(folder):
        io.makedirs(folder)
        sync_folder(os.path.dirname(folder))


def sync_folder(folder: str) -> None:
    """Force the names in a directory to disk, where the system has a way to."""
    if io.backend_mode() is not io.BackendMode.DEFAULT or os.name == "nt":
        return
    handle = os.open(folder or ".", os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network file systems refuse
            os.fsync(handle)
    finally:
        os.close(handle)


def remove(path: str) -> None:
    """Remove a file or a directory; one that is gone already is no error."""
    with contextlib.suppress(FileNotFoundError):
        (io.rmtree if io.isdir(path) else io.remove)(path)


def load(path: str, parallel: bool = True) -> Any:
    """The state dict in a checkpoint file."""
    data = _read(path, parallel)
    try:
        return serialization.msgpack_restore(data)
    except ValueError as error:
        reason = str(error.__cause__ or error) or type(error.__cause__).__name__
        raise errors.CorruptedCheckpointError(path, f"{reason} ({len(data)} bytes)") from error


def _read(path: str, parallel: bool) -> bytes | bytearray:
    with io.GFile(path, "rb") as file:
        size = io.getsize(path)
        if not parallel or size <= _BLOCK:
            return file.read()
    whole = bytearray(size)

    def read_block(start: int) -> None:
        with io.GFile(path, "rb") as file:
            file.seek(start)
            block = file.read(min(_BLOCK, size - start))
            whole[start : start + len(block)] = block

    with ThreadPoolExecutor(_READERS) as pool:
        list(pool.map(read_block, range(0, size, _BLOCK)))
    return whole
