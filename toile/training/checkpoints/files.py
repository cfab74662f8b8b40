"""Write checkpoint files so that old checkpoints stay intact even if the process is killed.

A file is written under a new, unpredictable name, flushed to disk and renamed; then the directory
is flushed to disk. Links are never followed. Processes that save to the same directory take turns
by locking it, and each process also locks the file that it writes. The operating system releases
both locks when a process dies, so a later save can recognize files that were left behind.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
import time
from collections.abc import Iterator
from typing import Any

from toile import io
from toile.engine.source import here
from toile.training.checkpoints import names as naming

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

_BUFFER = 1 << 20  # bytes gathered before they are written
_PATIENCE = 60.0  # seconds to wait for another saver of the same directory
_STALE = 3600.0  # seconds after which a file of an unknown saver counts as left behind
_SAFELY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFELY | getattr(os, "O_BINARY", 0)
# Errors of file systems that cannot force a directory to disk.
_UNSUPPORTED = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF, errno.EACCES, errno.EPERM)
_logger = logging.getLogger("toile")


def is_plain() -> bool:
    """Whether files are accessed through the operating system, not through TensorFlow."""
    return io.backend_mode() is io.BackendMode.DEFAULT


def is_there(path: str) -> bool:
    """Whether anything has this name, including a broken link."""
    return io.exists(path) or (is_plain() and os.path.islink(path))


@contextlib.contextmanager
def directory_lock(folder: str) -> Iterator[bool]:
    """Hold a lock on the directory; yield False if the lock cannot be acquired.

    Saving without the lock is still safe: each save writes to a file with its own name.
    """
    if fcntl is None or not is_plain():
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
                _logger.warning("another process has been saving in %s for a long time", folder)
                return False
        except OSError:  # some network file systems
            return False
        time.sleep(pause)
        pause = min(2 * pause, 0.1)


class PendingFile:
    """A file that is being written under a temporary name; removed unless it is put in place."""

    def __init__(self, folder: str, start: str) -> None:
        self.inode = 0
        self._plain = is_plain()
        if not self._plain:
            self.path = naming.temporary_path(folder, start)
            self._file: Any = io.GFile(self.path, "wb")
            return
        while True:
            self.path = naming.temporary_path(folder, start)
            handle = os.open(self.path, _NEW, 0o666)
            self._file = open(handle, "wb", _BUFFER)
            try:
                if fcntl is not None:
                    with contextlib.suppress(OSError):  # some network file systems
                        fcntl.flock(handle, fcntl.LOCK_EX)
                status = os.fstat(handle)
            except BaseException:
                self.discard()
                raise
            self.inode = status.st_ino
            if status.st_nlink:  # otherwise, another saver took it for a file left behind
                return
            self._file.close()

    def write(self, data: Any) -> None:
        """Append bytes, or the contents of an array of bytes."""
        self._file.write(data if self._plain else bytes(data))

    def sync(self) -> None:
        """Flush the written data to disk."""
        if self._plain:
            self._file.flush()
            os.fsync(self._file.fileno())

    def put(self, path: str) -> None:
        """Rename the file in one step, replacing any existing file."""
        if self._plain and os.name != "nt":
            self._file.flush()
            io.rename(self.path, path, overwrite=True)  # keep the lock until the file has its name
            self._file.close()
        else:
            self._file.close()
            io.rename(self.path, path, overwrite=True)

    def discard(self) -> None:
        """Remove the file."""
        with contextlib.suppress(Exception):
            self._file.close()
        with contextlib.suppress(Exception):
            io.remove(self.path)

    def __enter__(self) -> PendingFile:
        return self

    def __exit__(self, kind: Any, *exc_info: Any) -> None:
        if kind is not None:
            self.discard()


def write_file(folder: str, start: str, path: str, make: Any) -> None:
    """Write a small file, whose content `make` computes from its inode, and put it in place."""
    with PendingFile(folder, start) as pending:
        pending.write(make(pending.inode))
        pending.put(path)


@contextlib.contextmanager
def moved_away(path: str, folder: str, start: str) -> Iterator[None]:
    """Move a directory out of the way of a file with the same name; remove it afterward."""
    if not io.isdir(path) or os.path.islink(path):
        yield
        return
    old = naming.temporary_path(folder, start)
    io.rename(path, old)
    try:
        yield
    except BaseException:
        io.rename(old, path)
        raise
    io.rmtree(old)


def make_folder(folder: str) -> None:
    """Create a directory and its parents, and flush their names to disk."""
    made = []
    above = folder
    while above and not io.isdir(above):
        made.append(above)
        if is_there(above):
            raise FileExistsError(
                f"File exists: needed a folder for checkpoints, got the file {above!r} (choose "
                f"another folder, or remove the file){here()}"
            )
        above = os.path.dirname(above)
    if made:
        io.makedirs(folder)
    for each in reversed(made):
        sync_folder(os.path.dirname(each))


def sync_folder(folder: str) -> None:
    """Flush the names in a directory to disk, if the system supports it."""
    if not is_plain() or os.name == "nt":
        return
    handle = os.open(folder or ".", os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
    finally:
        os.close(handle)


def remove(path: str) -> None:
    """Remove a file or a directory; do nothing if it does not exist."""
    with contextlib.suppress(FileNotFoundError):
        directory = io.isdir(path) and not os.path.islink(path)
        (io.rmtree if directory else io.remove)(path)


def clean_up(folder: str, start: str) -> None:
    """Remove files that interrupted saves left behind, and checksums of removed checkpoints."""
    for name in io.listdir(folder):
        path = os.path.join(folder, name)
        summed = naming.summed_name(name, start)
        if summed is not None and not io.exists(os.path.join(folder, summed)):
            with contextlib.suppress(OSError):
                io.remove(path)
        elif is_plain() and naming.is_temporary(name, start):
            with contextlib.suppress(OSError):
                _remove_left_behind(path, naming.is_own_temporary(name, start))


def _remove_left_behind(path: str, is_own: bool) -> None:
    """Remove a temporary file that no process is writing: it is not locked, or it is old."""
    status = os.lstat(path)
    is_old = time.time() - status.st_mtime > _STALE
    if stat.S_ISDIR(status.st_mode):
        if is_own and is_old:
            io.rmtree(path)
    elif stat.S_ISREG(status.st_mode):  # a link is neither followed nor removed
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _SAFELY)
        try:
            if is_old or (is_own and _lock_is_free(handle)):
                _logger.info("removing %s, which an interrupted save left behind", path)
                os.remove(path)
        finally:
            os.close(handle)


def _lock_is_free(handle: int) -> bool:
    """Try to lock a file; False if its saving process holds the lock, or there are no locks."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
