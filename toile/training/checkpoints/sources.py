"""Checkpoint files that several threads can read at any position, directly into arrays.

Only regular files are opened; reading a pipe in a folder of checkpoints could block forever.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from toile import io
from toile.training.checkpoints import files


class FileSource(Protocol):
    """A file that can be read at any position."""

    size: int
    inode: int

    def read(self, offset: int, count: int) -> bytes: ...
    def read_into(self, offset: int, memory: np.ndarray) -> None: ...


class _Plain:
    """A file of the operating system."""

    def __init__(self, handle: int, status: os.stat_result) -> None:
        self._handle, self.size, self.inode = handle, status.st_size, status.st_ino
        self._lock = threading.Lock()

    def read(self, offset: int, count: int) -> bytes:
        if hasattr(os, "pread"):
            data = os.pread(self._handle, count, offset)
            if len(data) == count:
                return data
        memory = np.empty(count, np.uint8)
        got = self._fill(offset, memory)
        return memory[:got].tobytes()

    def read_into(self, offset: int, memory: np.ndarray) -> None:
        got = self._fill(offset, memory)
        if got < memory.size:
            raise ValueError(f"the file was shortened to {offset + got} bytes")

    def _fill(self, offset: int, memory: np.ndarray) -> int:
        if hasattr(os, "preadv"):
            got = os.preadv(self._handle, [memory.data], offset)
            if got == memory.size:
                return got
        view, got = memory.data, 0
        while got < len(view):
            count = self._read_once(view[got:], offset + got)
            if not count:
                break
            got += count
        return got

    def _read_once(self, view: memoryview, offset: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self._handle, [view], offset)
        with self._lock:
            os.lseek(self._handle, offset, os.SEEK_SET)
            data = os.read(self._handle, len(view))
        view[: len(data)] = data
        return len(data)


class _GFile:
    """A file that TensorFlow reads; each thread opens it for itself."""

    inode = 0

    def __init__(self, path: str, opened: contextlib.ExitStack) -> None:
        self.size = io.getsize(path)
        self._path, self._opened, self._local = path, opened, threading.local()

    def read(self, offset: int, count: int) -> bytes:
        file: Any = getattr(self._local, "file", None)
        if file is None:
            file = self._local.file = self._opened.enter_context(io.GFile(self._path, "rb"))
        file.seek(offset)
        return file.read(count)

    def read_into(self, offset: int, memory: np.ndarray) -> None:
        data = self.read(offset, memory.size)
        if len(data) < memory.size:
            raise ValueError(f"the file was shortened to {offset + len(data)} bytes")
        memory[:] = np.frombuffer(data, np.uint8)


@contextlib.contextmanager
def open_source(path: str, follow: bool = True) -> Iterator[Any]:
    """Open a file for reading; raise ValueError if it is not a regular file."""
    with contextlib.ExitStack() as opened:
        if not files.is_plain():
            yield _GFile(path, opened)
            return
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
        flags |= getattr(os, "O_BINARY", 0) | (0 if follow else getattr(os, "O_NOFOLLOW", 0))
        handle = os.open(path, flags)
        opened.callback(os.close, handle)
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is not a regular file")
        yield _Plain(handle, status)
