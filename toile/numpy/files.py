"""Conversion of buffers, strings, files and other libraries' arrays to toile arrays.

Results are concrete arrays. This module may import the engine and `creation`.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.lib import format as _format

from toile.engine import dtypes
from toile.engine.annotations import DTypeLike
from toile.engine.arrays import Array
from toile.engine.conversion import from_numpy, wrap
from toile.engine.errors import UnreadableFileError
from toile.engine.file_reader import check_values, element_count, guarded, unreadable
from toile.engine.npy_headers import read_header
from toile.engine.platform_registry import shared
from toile.engine.promotion import narrowed
from toile.engine.tracebacks import expect_error
from toile.numpy.creation import asarray

if TYPE_CHECKING:
    from toile.engine.devices import Device
    from toile.engine.shardings import Sharding


class _SupportsDLPack(Protocol):
    """An array that supports the DLPack protocol."""

    def __dlpack__(self, **kwargs: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...


_load: Callable[..., Any] = np.load
save = np.save
savez = np.savez


def frombuffer(buffer: bytes | bytearray | memoryview, dtype: DTypeLike = float, count: int = -1,
               offset: int = 0) -> Array:
    """Create a one-dimensional array from the bytes of a buffer.

    Args:
        buffer: object that contains the bytes.
        dtype: dtype of the elements in the buffer. In the result, 64-bit elements are converted to
            32 bits unless `jax_enable_x64` is set.
        count: number of elements to read; -1 for all.
        offset: number of bytes to skip at the start.

    Returns:
        A one-dimensional array.

    >>> jnp.frombuffer(bytes([1, 2, 3]), dtype="uint8")
    Array([1, 2, 3], dtype=uint8)
    """
    return asarray(np.frombuffer(buffer, dtype=dtype, count=count, offset=offset))


def fromstring(string: str, dtype: DTypeLike = float, count: int = -1, *, sep: str) -> Array:
    """Create a one-dimensional array from the numbers in a string.

    Args:
        string: the string to parse.
        dtype: dtype of the numbers; 64-bit numbers are converted to 32 bits unless `jax_enable_x64`
            is set.
        count: how many numbers to read; -1 for all.
        sep: separator between the numbers.

    Returns:
        A one-dimensional array.

    >>> jnp.fromstring("1, 2, 3", dtype=int, sep=",")
    Array([1, 2, 3], dtype=int32)
    """
    return asarray(np.fromstring(string, dtype=dtype, count=count, sep=sep))


def _impure(name: str) -> NotImplementedError:
    return NotImplementedError(
        f"jnp.{name}() is not implemented because reading twice may give different values "
        f"(use jnp.asarray(np.{name}(...)) outside transformed functions)"
    )


def fromfile(*args: object, **kwargs: object) -> Array:
    """Raise an error; use `np.fromfile` instead, and convert its result with `jnp.asarray`.

    Args:
        *args: ignored.
        **kwargs: ignored.

    Returns:
        Nothing.

    Raises:
        NotImplementedError: always, because a file may contain different values when it is read
            again.
    """
    raise _impure("fromfile")


def fromiter(*args: object, **kwargs: object) -> Array:
    """Raise an error; use `np.fromiter` instead, and convert its result with `jnp.asarray`.

    Args:
        *args: ignored.
        **kwargs: ignored.

    Returns:
        Nothing.

    Raises:
        NotImplementedError: always, because an iterator may produce different values when it is
            read again.
    """
    raise _impure("fromiter")


def from_dlpack(x: _SupportsDLPack, /, *, device: Device | Sharding | None = None,
                copy: bool | None = None) -> Array:
    """Create an array from another library's array that supports the DLPack protocol.

    Values in host memory are copied. On a GPU, the two arrays share memory if possible.

    Args:
        x: object with the methods `__dlpack__` and `__dlpack_device__`.
        device: device or sharding to place the result on; None for the device that holds the data.
        copy: True to copy the data even if it could be shared.

    Returns:
        The array; 64-bit elements are converted to 32 bits unless `jax_enable_x64` is set.
    """
    if isinstance(x, Array):
        return asarray(x, copy=copy, device=device)
    elsewhere = shared(x)
    if elsewhere is not None:
        return asarray(wrap(elsewhere), copy=copy, device=device)
    values = np.from_dlpack(x)
    found = from_numpy(np.asarray(values, narrowed(values.dtype)))
    return asarray(found, copy=copy, device=device)


def load(file: str | os.PathLike[str] | IO[bytes], *args: object, **kwargs: object) -> Any:
    """Read an array from a .npy file.

    Args:
        file: path, or file object that is opened in binary mode.
        *args: additional arguments for `np.load`.
        **kwargs: additional keyword arguments for `np.load`.

    Returns:
        The array. If the file is a .npz file or contains a pickled object, the result of `np.load`
        is returned unchanged.

    Raises:
        UnreadableFileError: NumPy cannot read the file, or the file is truncated.
        EOFError: `file` is an open file that has no more data.
    """
    if kwargs.get("allow_pickle") or len(args) > 1:  # pickles raise errors of their own
        return _as_array(_load(file, *args, **kwargs))
    if hasattr(file, "read"):
        _check_npy(file)
        with _reading("the file"):
            return _as_array(_load(file, *args, **kwargs))
    try:
        found = open(file, "rb")
    except OSError:
        expect_error()
        raise
    with found as opened, _reading(os.fspath(file)):
        _check_npy(opened, os.fspath(file))
        if opened.read(2) == b"PK":  # NumPy leaves a damaged archive open
            opened.seek(0)
            np.load(opened).close()
    with _reading(os.fspath(file)):
        return _as_array(_load(file, *args, **kwargs))


def _as_array(loaded: Any) -> Any:
    if not isinstance(loaded, np.ndarray) or loaded.dtype == object:
        return loaded
    # NumPy writes types it does not know, such as bfloat16, as two opaque bytes.
    if loaded.dtype == np.dtype("V2"):
        loaded = loaded.view(dtypes.bfloat16.dtype)
    return asarray(check_values("load", loaded))


@contextlib.contextmanager
def _reading(path: str) -> Iterator[None]:
    """Convert the errors that NumPy and zipfile raise for damaged files to one error."""
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
    """Check that a .npy file contains all the data that its header announces; skip other files."""
    start = file.tell()
    magic = file.read(8)
    if not magic and path == "the file":
        raise EOFError("No data left in file")
    if magic[:6] == _format.MAGIC_PREFIX:
        with _reading(path):
            file.seek(0, 2)
            size = file.tell() - start
            file.seek(start)
            try:
                shape, _, dtype = read_header(file, size)
            except MemoryError as error:  # Python's parser, on brackets within brackets
                raise _damaged(path, error) from error
            count = element_count("load", shape, dtype.itemsize)
            left = start + size - file.tell()
            if not dtype.hasobject and count * dtype.itemsize > left:
                needed = f"{count * dtype.itemsize} bytes for {dtype} of shape {shape} in {path}"
                raise unreadable("load", needed, f"{left} (truncated?)")
    file.seek(start)
