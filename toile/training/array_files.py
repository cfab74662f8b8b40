"""Sources of examples that memory-map .npy files or read .npz files into memory.

Before memory is allocated, the size given in a file's header is compared with the size of the file.
Arrays of Python objects are rejected, because reading them could run code.
"""

from __future__ import annotations

import os
import tokenize
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import ml_dtypes
import numpy as np

from toile.engine.file_reader import check_values, element_count, guarded, unreadable
from toile.engine.npy_headers import read_header
from toile.engine.source import here
from toile.engine.suggestions import did_you_mean
from toile.training.loader import ArraySource

__all__ = ["map_file", "mapped_arrays", "npz_arrays", "read_entry"]

StrPath = str | os.PathLike[str]
# Errors that damaged files cause in addition to the usual ones: errors of Python's parser and of
# zlib, and warnings about old formats.
_DAMAGE = (MemoryError, tokenize.TokenError, zlib.error, zipfile.BadZipFile, Warning)


def mapped_arrays(files: StrPath | Mapping[str, StrPath]) -> ArraySource:
    """Open .npy files as a source of examples without reading them into memory.

    Only the rows of each batch are read, so the data can be larger than memory. The files must not
    change while they are in use.

    Args:
        files: a mapping from array names to paths, or the path of a folder. For a folder, all .npy
            files in the folder are opened, and each array is named after its file.

    Returns:
        A source for a Loader.

    Raises:
        UnreadableFileError: a file is damaged or is shorter than its header specifies.
        ValueError: the arrays differ in length.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> np.save(f"{folder}/x.npy", np.arange(6.0).reshape(3, 2))
    >>> np.save(f"{folder}/label.npy", np.array([0, 1, 0]))
    >>> mapped_arrays(folder).take(np.array([2]))["x"].tolist()
    [[4.0, 5.0]]
    """
    if not isinstance(files, Mapping):
        folder = Path(files)
        if not folder.is_dir():
            raise FileNotFoundError(f"mapped_arrays: needed a folder, got none at {folder}{here()}")
        files = {path.stem: path for path in sorted(folder.glob("*.npy"))}
        if not files:
            raise FileNotFoundError(
                f"mapped_arrays: needed .npy files, got none in {folder}{here()}"
            )
    arrays = {name: map_file(path, "mapped_arrays") for name, path in files.items()}
    check_lengths("mapped_arrays", arrays)
    return ArraySource(arrays)


def map_file(path: StrPath, reader: str) -> np.ndarray:
    """Memory-map the array in a .npy file; the result is read-only."""
    check_file(path, reader, "a .npy file")
    with guarded(reader, "a .npy file", f" ({os.fspath(path)})", also=_DAMAGE):
        with open(path, "rb") as file:  # NumPy would open an archive too, and leave it open
            read_header(file, os.fstat(file.fileno()).st_size)
        return _with_known_dtype(np.load(path, mmap_mode="r", allow_pickle=False))


def npz_arrays(path: StrPath, names: Sequence[str] | None = None) -> ArraySource:
    """Read the arrays in a .npz file into memory.

    Args:
        path: a file written by `np.savez` or `np.savez_compressed`.
        names: names of the arrays to read; if None, all arrays are read.

    Returns:
        A source for a Loader.

    Raises:
        UnreadableFileError: the file is damaged or is shorter than its header specifies.
        ValueError: the file does not contain an array for every name in `names`, or the arrays
            differ in length.

    >>> import tempfile
    >>> path = f"{tempfile.mkdtemp()}/points.npz"
    >>> np.savez(path, x=np.eye(3), label=np.arange(3), note=np.array("three points"))
    >>> npz_arrays(path, ["x", "label"]).take(np.array([1]))["x"].tolist()
    [[0.0, 1.0, 0.0]]
    """
    check_file(path, "npz_arrays", "a .npz file")
    arrays: dict[str, np.ndarray] = {}
    also = (*_DAMAGE, OSError)  # zipfile seeks to positions that a damaged directory contains
    with open(path, "rb") as file:
        with (
            guarded("npz_arrays", "a .npz file", f" ({os.fspath(path)})", also=also),
            zipfile.ZipFile(file) as archive,
        ):
            there = {n.removesuffix(".npy"): n for n in archive.namelist() if n.endswith(".npy")}
            wanted = [name for name in (there if names is None else names) if name in there]
            for name in wanted:
                entry = read_entry(archive, there[name], "npz_arrays")
                arrays[name] = _with_known_dtype(entry)
    for name in names or ():
        if name not in there:
            raise ValueError(
                f"npz_arrays: needed one of the arrays {', '.join(there)} of {path}, got "
                f"{name!r}{did_you_mean(name, there)}{here()}"
            )
    check_lengths("npz_arrays", arrays)
    return ArraySource(arrays)


def read_entry(archive: zipfile.ZipFile, name: str, reader: str) -> np.ndarray:
    """Read one array in an archive, after comparing its header with the size of the entry."""
    size = archive.getinfo(name).file_size
    with archive.open(name) as file:
        shape, fortran, dtype = read_header(file, size)
        if dtype.hasobject:
            raise ValueError(f"{name} holds Python objects (allow_pickle=False)")
        needed = element_count(reader, shape, dtype.itemsize) * dtype.itemsize
        if needed > size:
            raise unreadable(reader, f"{needed} bytes for {name}", f"{size}")
        data = np.frombuffer(file.read(needed), dtype)
    array = data.reshape(shape, order="F" if fortran else "C")
    return check_values(reader, array)


def _with_known_dtype(array: np.ndarray) -> np.ndarray:
    """Restore bfloat16, which NumPy does not support and writes as two opaque bytes."""
    return array.view(ml_dtypes.bfloat16) if array.dtype == np.dtype("V2") else array


def check_file(path: StrPath, reader: str, needed: str) -> None:
    """Raise FileNotFoundError if the file does not exist."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"{reader}: needed {needed}, got no file at {path}{here()}")


def check_lengths(reader: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Raise ValueError unless the first axes of all arrays have the same length."""
    found = ", ".join(f"{name}: {list(array.shape)}" for name, array in arrays.items())
    lengths = {array.shape[:1] for array in arrays.values()}
    if len(lengths) != 1 or () in lengths:
        raise ValueError(
            f"{reader}: needed arrays with the same length of the first axis, got "
            f"{found or 'no arrays'}{here()}"
        )
