"""File functions with the names and arguments of `flax.io`.

By default, the mode is `BackendMode.DEFAULT`, which uses plain files. `set_mode` and
`override_mode` can select `BackendMode.TF`, which passes every call to `tensorflow.io.gfile`; use
it for paths such as `gs://...`. TensorFlow is imported by the first such call.
"""

from __future__ import annotations

import contextlib
import enum
import glob as _glob
import importlib
import os
import shutil
from collections.abc import Iterator
from typing import IO, Any, TypeAlias

from toile import errors
from toile.engine.source import here

__all__ = [
    "BackendMode", "GFile", "NotFoundError", "backend_mode", "copy", "exists", "getsize", "glob",
    "isdir", "listdir", "makedirs", "override_mode", "remove", "rename", "rmtree", "set_mode",
]


StrPath: TypeAlias = str | os.PathLike[str]


class BackendMode(enum.Enum):
    """The implementation that reads and writes files: the operating system or TensorFlow."""

    DEFAULT = 0
    TF = 1


io_mode: BackendMode = BackendMode.DEFAULT
NotFoundError = FileNotFoundError


def backend_mode() -> BackendMode:
    """Return the current implementation of the file functions.

    Returns:
        `BackendMode.DEFAULT` or `BackendMode.TF`; see `set_mode`.
    """
    return io_mode


def set_mode(override: BackendMode) -> None:
    """Choose the implementation of the file functions.

    Args:
        override: `BackendMode.DEFAULT` for the operating system's files, or `BackendMode.TF` for
            `tensorflow.io.gfile`.

    Raises:
        ValueError: `override` is not a `BackendMode`.
    """
    global io_mode
    if not isinstance(override, BackendMode):
        raise ValueError(
            f"set_mode: Unknown IO Backend Mode: needed a BackendMode, got {override!r}{here()}"
        )
    io_mode = override


@contextlib.contextmanager
def override_mode(override: BackendMode) -> Iterator[None]:
    """Choose the implementation of the file functions for the duration of a `with` block.

    Args:
        override: `BackendMode.DEFAULT` for the operating system's files, or `BackendMode.TF` for
            `tensorflow.io.gfile`.

    Yields:
        None.
    """
    before = io_mode
    set_mode(override)
    try:
        yield
    finally:
        set_mode(before)


def _gfile() -> Any:
    """`tensorflow.io.gfile` if it was selected; None for plain files."""
    if io_mode is BackendMode.DEFAULT:
        return None
    try:
        return importlib.import_module("tensorflow").io.gfile
    except ImportError as error:
        raise ImportError(
            "toile.io: BackendMode.TF needs tensorflow, which is not installed (pip install"
            f" tensorflow, or set_mode(BackendMode.DEFAULT) for local files){here()}"
        ) from error


def GFile(name: StrPath, mode: str) -> IO[Any]:
    """Open a file; text files are encoded in UTF-8.

    Args:
        name: path of the file.
        mode: how to open the file, such as `"r"` or `"wb"`, as for `open`.

    Returns:
        A file object, which can be used in a `with` statement.
    """
    if gfile := _gfile():
        return gfile.GFile(name, mode)
    return open(name, mode, encoding=None if "b" in mode else "utf-8")


def listdir(path: StrPath) -> list[str]:
    """List the names of the files and directories in a directory.

    Args:
        path: path of the directory.

    Returns:
        The names, in no particular order.
    """
    return gfile.listdir(path) if (gfile := _gfile()) else os.listdir(path)


def isdir(path: StrPath) -> bool:
    """Test whether there is a directory at a path.

    Args:
        path: the path.

    Returns:
        True if there is a directory at `path`.
    """
    return gfile.isdir(path) if (gfile := _gfile()) else os.path.isdir(path)


def copy(src: StrPath, dst: StrPath, overwrite: bool = False) -> None:
    """Copy a file.

    Args:
        src: path of the file.
        dst: path of the copy.
        overwrite: whether to replace a file at `dst`.

    Raises:
        toile.errors.AlreadyExistsError: there is a file at `dst`, and `overwrite` is False.
    """
    if gfile := _gfile():
        return gfile.copy(src, dst, overwrite=overwrite)
    if os.path.exists(dst) and not overwrite:
        raise errors.AlreadyExistsError(dst)
    shutil.copy(src, dst)
    return None


def rename(src: StrPath, dst: StrPath, overwrite: bool = False) -> None:
    """Rename a file or directory atomically.

    Args:
        src: the old path.
        dst: the new path.
        overwrite: whether to replace a file at `dst`.

    Raises:
        toile.errors.AlreadyExistsError: there is a file at `dst`, and `overwrite` is False.
    """
    if gfile := _gfile():
        return gfile.rename(src, dst, overwrite=overwrite)
    if os.path.exists(dst) and not overwrite:
        raise errors.AlreadyExistsError(dst)
    return os.replace(src, dst)


def exists(path: StrPath) -> bool:
    """Test whether there is a file or directory at a path.

    Args:
        path: the path.

    Returns:
        True if there is a file or directory at `path`.
    """
    return gfile.exists(path) if (gfile := _gfile()) else os.path.exists(path)


def makedirs(path: StrPath) -> None:
    """Create a directory and its parents if they do not exist.

    Args:
        path: path of the directory.
    """
    if gfile := _gfile():
        return gfile.makedirs(path)
    return os.makedirs(path, exist_ok=True)


def glob(pattern: str) -> list[str]:
    """Find the paths that match a pattern.

    Args:
        pattern: a path with the wildcards `*`, `?` and `[...]`; `**` means the same as `*`.

    Returns:
        The paths, without a slash at the end, in no particular order.
    """
    if gfile := _gfile():
        return gfile.glob(pattern)
    return [path.rstrip("/") for path in _glob.glob(pattern, recursive=False)]


def remove(path: StrPath) -> None:
    """Remove a file.

    Args:
        path: path of the file.
    """
    removing: Any = gfile.remove if (gfile := _gfile()) else os.remove
    return removing(path)


def rmtree(path: StrPath) -> None:
    """Remove a directory and everything in it.

    Args:
        path: path of the directory.
    """
    removing: Any = gfile.rmtree if (gfile := _gfile()) else shutil.rmtree
    return removing(path)


def getsize(path: StrPath) -> int:
    """Return the size of a file in bytes.

    Args:
        path: path of the file.

    Returns:
        The size in bytes.
    """
    return gfile.stat(path).length if (gfile := _gfile()) else os.path.getsize(path)
