"""File functions under Flax's names: those of `tf.io.gfile`, on the operating system's files.

The mode is `BackendMode.DEFAULT`, plain files, until `set_mode` or `override_mode` selects
`BackendMode.TF`, which passes every call to `tensorflow.io.gfile` (paths such as gs://...) and
imports TensorFlow at the first one.
"""

from __future__ import annotations

import contextlib
import enum
import glob as _glob
import importlib
import os
import shutil
from collections.abc import Iterator
from typing import Any

from toile import errors
from toile.engine.source import here

__all__ = [
    "BackendMode", "GFile", "NotFoundError", "backend_mode", "copy", "exists", "getsize", "glob",
    "isdir", "listdir", "makedirs", "override_mode", "remove", "rename", "rmtree", "set_mode",
]


class BackendMode(enum.Enum):
    """Which implementation reads and writes files."""

    DEFAULT = 0
    TF = 1


io_mode: BackendMode = BackendMode.DEFAULT
NotFoundError = FileNotFoundError


def backend_mode() -> BackendMode:
    """The current mode."""
    return io_mode


def set_mode(override: BackendMode) -> None:
    """Choose the implementation for files from now on."""
    global io_mode
    if not isinstance(override, BackendMode):
        raise ValueError(
            f"set_mode: Unknown IO Backend Mode: needed a BackendMode, got {override!r}{here()}"
        )
    io_mode = override


@contextlib.contextmanager
def override_mode(override: BackendMode) -> Iterator[None]:
    """Choose the implementation for files inside a `with` block."""
    before = io_mode
    set_mode(override)
    try:
        yield
    finally:
        set_mode(before)


def _gfile() -> Any:
    """`tensorflow.io.gfile` if that was selected, None for plain files."""
    if io_mode is BackendMode.DEFAULT:
        return None
    try:
        return importlib.import_module("tensorflow").io.gfile
    except ImportError as error:
        raise ImportError(
            "toile.io: BackendMode.TF needs tensorflow, which is not installed (pip install"
            f" tensorflow, or set_mode(BackendMode.DEFAULT) for local files){here()}"
        ) from error


def GFile(name: Any, mode: str) -> Any:
    """Open a file; text is UTF-8."""
    if gfile := _gfile():
        return gfile.GFile(name, mode)
    return open(name, mode, encoding=None if "b" in mode else "utf-8")


def listdir(path: Any) -> list[str]:
    """The names in a directory."""
    return gfile.listdir(path) if (gfile := _gfile()) else os.listdir(path)


def isdir(path: Any) -> bool:
    """Whether there is a directory at this path."""
    return gfile.isdir(path) if (gfile := _gfile()) else os.path.isdir(path)


def copy(src: Any, dst: Any, overwrite: bool = False) -> None:
    """Copy a file; onto an existing one only with overwrite=True."""
    if gfile := _gfile():
        return gfile.copy(src, dst, overwrite=overwrite)
    if os.path.exists(dst) and not overwrite:
        raise errors.AlreadyExistsError(dst)
    shutil.copy(src, dst)
    return None


def rename(src: Any, dst: Any, overwrite: bool = False) -> None:
    """Rename a file in one step; onto an existing one only with overwrite=True."""
    if gfile := _gfile():
        return gfile.rename(src, dst, overwrite=overwrite)
    if os.path.exists(dst) and not overwrite:
        raise errors.AlreadyExistsError(dst)
    return os.replace(src, dst)


def exists(path: Any) -> bool:
    """Whether there is a file or directory at this path."""
    return gfile.exists(path) if (gfile := _gfile()) else os.path.exists(path)


def makedirs(path: Any) -> None:
    """Make a directory and those above it, unless they exist."""
    if gfile := _gfile():
        return gfile.makedirs(path)
    return os.makedirs(path, exist_ok=True)


def glob(pattern: Any) -> list[str]:
    """The paths that match a pattern, without a slash at the end."""
    if gfile := _gfile():
        return gfile.glob(pattern)
    return [path.rstrip("/") for path in _glob.glob(pattern, recursive=False)]


def remove(path: Any) -> None:
    """Remove a file."""
    removing: Any = gfile.remove if (gfile := _gfile()) else os.remove
    return removing(path)


def rmtree(path: Any) -> None:
    """Remove a directory and everything in it."""
    removing: Any = gfile.rmtree if (gfile := _gfile()) else shutil.rmtree
    return removing(path)


def getsize(path: Any) -> int:
    """The size of a file in bytes."""
    return gfile.stat(path).length if (gfile := _gfile()) else os.path.getsize(path)
