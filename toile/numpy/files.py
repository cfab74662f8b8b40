"""Arrays from buffers, text, files and other libraries, and back to files.

What is read becomes a concrete array at once. May import the engine and `creation`.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.lib import format as _format

from toile.engine import dtypes
from toile.engine.arrays import Array
from toile.engine.conversion import from_numpy, wrap
from toile.engine.errors import UnreadableFileError
from toile.engine.file_reader import check_values, element_count, guarded, unreadable
from toile.engine.platform_registry import shared
from toile.engine.promotion import narrowed
from toile.numpy.creation import asarray

__all__ = [
    "from_dlpack", "frombuffer", "fromfile", "fromiter", "fromstring", "load", "save", "savez",
]

_HEADERS = {(1, 0): _format.read_array_header_1_0, (2, 0): _format.read_array_header_2_0}

save = np.save
savez = np.savez


def frombuffer(buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0) -> Any:
    """A one-dimensional array of what a buffer holds."""
    return asarray(np.frombuffer(buffer, dtype=dtype, count=count, offset=offset))


def fromstring(string: str, dtype: Any = float, count: int = -1, *, sep: str) -> Any:
    """A one-dimensional array of the numbers written in `string`."""
    return asarray(np.fromstring(string, dtype=dtype, count=count, sep=sep))


def _impure(name: str) -> NotImplementedError:
    return NotImplementedError(
        f"jnp.{name}() is not implemented because reading it twice need not give the same values "
        f"(use jnp.asarray(np.{name}(...)) outside of transformed functions)"
    )


def fromfile(*args: Any, **kwargs: Any) -> Any:
    """Not available: see the error it raises."""
    raise _impure("fromfile")


def fromiter(*args: Any, **kwargs: Any) -> Any:
    """Not available: see the error it raises."""
    raise _impure("fromiter")


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    """An array over the data of any object that supports DLPack."""
    if isinstance(x, Array):
        return asarray(x, copy=copy, device=device)
    elsewhere = shared(x)
    if elsewhere is not None:
        return asarray(wrap(elsewhere), copy=copy, device=device)
    values = np.from_dlpack(x)
    return from_numpy(np.asarray(values, narrowed(values.dtype)))


def load(file: Any, *args: Any, **kwargs: Any) -> Any:
    """The array in a .npy file; a .npz file or pickled objects come as NumPy gives them.

    A file that NumPy cannot read, or that is shorter than it says, raises
    `toile.errors.UnreadableFileError`; the end of an open file is an EOFError, as NumPy has it.
    """
    if kwargs.get("allow_pickle") or len(args) > 1:  # pickles raise errors of their own
        return _as_array(np.load(file, *args, **kwargs))
    if hasattr(file, "read"):
        _check_npy(file)
        with _reading("the file"):
            return _as_array(np.load(file, *args, **kwargs))
    with open(file, "rb") as opened, _reading(os.fspath(file)):
        _check_npy(opened, os.fspath(file))
        if opened.read(2) == b"PK":  # NumPy leaves a damaged archive open
            opened.seek(0)
            np.load(opened).close()
    with _reading(os.fspath(file)):
        return _as_array(np.load(file, *args, **kwargs))


def _as_array(loaded: Any) -> Any:
    if not isinstance(loaded, np.ndarray) or loaded.dtype == object:
        return loaded
    # NumPy writes types it does not know, such as bfloat16, as two opaque bytes.
    if loaded.dtype == np.dtype("V2"):
        loaded = loaded.view(dtypes.bfloat16.dtype)
    return asarray(check_values("load", loaded))


@contextlib.contextmanager
def _reading(path: str) -> Iterator[None]:
    """Turn what NumPy and zipfile raise on damaged files into one error."""
    try:
        with guarded("load", "a .npy or .npz file", f" in {path}"):
            yield
    except UnreadableFileError:
        raise
    except OSError as error:
        if error.errno != errno.EINVAL:  # a place before the beginning of the file
            raise
        raise _damaged(path, error) from error
    except MemoryError:
        raise
    except Exception as error:  # zipfile's own, which is not loaded for its name alone; warnings
        raise _damaged(path, error) from error


def _damaged(path: str, error: Exception) -> UnreadableFileError:
    return unreadable("load", "a .npy or .npz file", f"a damaged one in {path}: {error}"[:500])


def _check_npy(file: Any, path: str = "the file") -> None:
    """Compare the size in the header of a .npy file with what follows; others are left alone."""
    start = file.tell()
    magic = file.read(8)
    if not magic and path == "the file":
        raise EOFError("No data left in file")
    if magic[:6] == _format.MAGIC_PREFIX:
        with _reading(path):
            read = _HEADERS.get((magic[6], magic[7]))
            if read is None:
                raise ValueError(f"a version of {magic[6]}.{magic[7]}")
            try:
                shape, _, dtype = read(file)
            except MemoryError as error:  # Python's parser, on brackets within brackets
                raise _damaged(path, error) from error
            count = element_count("load", shape, dtype.itemsize)
            at = file.tell()
            file.seek(0, 2)
            left = file.tell() - at
            if not dtype.hasobject and count * dtype.itemsize > left:
                needed = f"{count * dtype.itemsize} bytes for {dtype} of shape {shape} in {path}"
                raise unreadable("load", needed, f"{left} (truncated?)")
    file.seek(start)
