"""Reading and writing files of named arrays in the safetensors format.

The package `safetensors` is not needed; the files are byte-for-byte identical to those that it
writes. Arrays of bfloat16 and float8 have the dtypes that ml_dtypes defines.
"""
# A file is the length of a header (8 bytes, little endian), the header (JSON: name -> dtype, shape
# and place of the data, padded with spaces) and the bytes of the arrays, which cover the rest
# without gaps. The whole header is checked before any of its sizes is used.

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from toile import io
from toile.engine.file_reader import brief, check_values, element_count, guarded, unreadable
from toile.engine.source import here

__all__ = ["SafeFile", "load", "load_file", "safe_open", "save", "save_file"]

# In the order in which arrays lie in a file: wide dtypes first, which keeps each one aligned.
DTYPES: dict[str, np.dtype] = {
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F64": np.dtype("<f8"),
    "C64": np.dtype("<c8"),
    "F32": np.dtype("<f4"),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F16": np.dtype("<f2"),
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "F8_E5M2FNUZ": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "F8_E4M3FNUZ": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "F8_E8M0": np.dtype(ml_dtypes.float8_e8m0fnu),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
_CODES = {dtype.newbyteorder("="): code for code, dtype in DTYPES.items()}
_RANK = {code: rank for rank, code in enumerate(DTYPES)}
_METADATA = "__metadata__"
_LARGEST_HEADER = 100_000_000  # bytes; the package refuses longer ones too
_counter = itertools.count()


class _Entry(NamedTuple):
    """The dtype and shape of an array, and its place in the data after the header."""

    dtype: np.dtype
    shape: tuple[int, ...]
    start: int
    end: int


def load(data: bytes) -> dict[str, np.ndarray]:
    """Read all arrays from the bytes of a safetensors file.

    Args:
        data: contents of the file.

    Returns:
        A dict that maps names to writable NumPy arrays.

    Raises:
        toile.errors.UnreadableFileError: the bytes are damaged or are not the contents of a
            safetensors file.

    >>> load(save({"w": np.arange(3)}))
    {'w': array([0, 1, 2])}
    """
    size = _header_size(data[:8], len(data))
    entries, _ = _parse(bytes(data[8 : 8 + size]), len(data) - 8 - size)
    body = memoryview(data)[8 + size :]
    return {name: _array(entry, body[entry.start : entry.end]) for name, entry in entries.items()}


def load_file(filename: str | os.PathLike[str], *, mmap: bool = False) -> dict[str, np.ndarray]:
    """Read all arrays from a safetensors file.

    Args:
        filename: path of the file.
        mmap: whether to return views of the memory-mapped file instead of copies of its data. The
            operating system then reads the data of an array when the array is used. The file must
            be a local file, which must not change while the arrays exist.

    Returns:
        A dict that maps names to NumPy arrays, which are writable unless `mmap` is True.

    Raises:
        toile.errors.UnreadableFileError: the file is damaged or is not a safetensors file.
    """
    if mmap:
        return _mapped(os.fspath(filename))
    with safe_open(filename) as file:
        return {name: file.get_tensor(name) for name in file.keys()}


def _mapped(path: str) -> dict[str, np.ndarray]:
    """Return read-only views of the arrays in a file."""
    with open(path, "rb") as opened:
        file = SafeFile(opened, os.fstat(opened.fileno()).st_size, path)
        data = np.memmap(opened, np.uint8, "r")
    return {name: file._view(name, data) for name in file.keys()}


def save(tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> bytes:
    """Convert named arrays to the bytes of a safetensors file.

    Args:
        tensors: dict that maps names to arrays.
        metadata: dict that maps strings to strings, to save with the arrays; None for no metadata.

    Returns:
        The bytes.

    Raises:
        TypeError: a name or an entry of `metadata` is not a string, or the format does not support
            the dtype of an array.
    """
    header, arrays = _layout("save", tensors, metadata)
    return b"".join([header, *(_bytes(x) for x in arrays)])


def save_file(
    tensors: Mapping[str, Any], filename: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write named arrays to a safetensors file.

    The data is written to a file with a temporary name, which is then renamed, so a file named
    `filename` is never incomplete.

    Args:
        tensors: dict that maps names to arrays.
        filename: path of the file.
        metadata: dict that maps strings to strings, to save with the arrays; None for no metadata.

    Raises:
        TypeError: a name or an entry of `metadata` is not a string, or the format does not support
            the dtype of an array.
    """
    header, arrays = _layout("save_file", tensors, metadata)
    path = os.fspath(filename)
    folder, name = os.path.split(path)
    aside = os.path.join(folder, f".{name}.tmp-{os.getpid()}-{next(_counter)}")
    try:
        with io.GFile(aside, "wb") as file:
            file.write(header)
            for x in arrays:
                file.write(_bytes(x))
            if io.backend_mode() is io.BackendMode.DEFAULT:
                file.flush()
                os.fsync(file.fileno())
        io.rename(aside, path, overwrite=True)
    except BaseException:
        with contextlib.suppress(Exception):
            io.remove(aside)
        raise


class SafeFile:
    """An open safetensors file, as yielded by `safe_open`, whose arrays are read one by one.

    Args:
        file: binary file, open for reading.
        length: size of the file in bytes.
        path: path of the file, which is used in error messages.
    """

    def __init__(self, file: Any, length: int, path: str = ""):
        self._file, self._where = file, f" (in {path})" if path else ""
        with guarded("safetensors", "a safetensors file", self._where):
            size = _header_size(file.read(8), length)
            self._start = 8 + size
            self._entries, self._metadata = _parse(file.read(size), length - 8 - size)

    def keys(self) -> list[str]:
        """Return the names of the arrays."""
        return list(self._entries)

    def metadata(self) -> dict[str, str]:
        """Return the metadata, a dict of strings that was saved with the arrays."""
        return dict(self._metadata)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an array, without reading the array."""
        return self._entry(name).shape

    def dtype(self, name: str) -> np.dtype:
        """Return the dtype of an array, without reading the array."""
        return self._entry(name).dtype.newbyteorder("=")

    def get_tensor(self, name: str) -> np.ndarray:
        """Read and return one array."""
        entry = self._entry(name)
        self._file.seek(self._start + entry.start)
        data = self._file.read(entry.end - entry.start)
        with guarded("safetensors", f"the array {brief(name)}", self._where):
            return _array(entry, data)

    def _view(self, name: str, data: np.ndarray) -> np.ndarray:
        """Return one array as a view of the bytes of the whole file."""
        entry = self._entry(name)
        body = data[self._start + entry.start : self._start + entry.end]
        x = body.view(np.ndarray).view(entry.dtype).reshape(entry.shape)
        with guarded("safetensors", f"the array {brief(name)}", self._where):
            return check_values("safetensors", x)

    def _entry(self, name: str) -> _Entry:
        if name not in self._entries:
            have = ", ".join(list(self._entries)[:8]) + ", ..." * (len(self._entries) > 8)
            raise KeyError(f"safetensors: needed a name in the file, got {name!r} (it has {have})")
        return self._entries[name]


@contextlib.contextmanager
def safe_open(filename: str | os.PathLike[str]) -> Iterator[SafeFile]:
    """Open a safetensors file in a `with` statement, to read its arrays one by one.

    For example, `with safe_open(path) as f: w = f.get_tensor("w")` reads only the array `"w"`.

    Args:
        filename: path of the file.

    Yields:
        The open file, a `SafeFile`.

    Raises:
        toile.errors.UnreadableFileError: the file is damaged or is not a safetensors file.
    """
    path = os.fspath(filename)
    length = io.getsize(path)
    with io.GFile(path, "rb") as file:
        yield SafeFile(file, length, path)


def _layout(who: str, tensors: Mapping[str, Any], metadata: Any) -> tuple[bytes, list[np.ndarray]]:
    """Return the header, preceded by its length, and the arrays in the order of the file."""
    header: dict[str, Any] = {}
    if metadata is not None:
        wrong = {k: v for k, v in metadata.items() if type(k) is not str or type(v) is not str}
        if wrong:
            raise TypeError(
                f"safetensors.{who}: needed strings as names and values of metadata, got {wrong!r}"
                f" (use json.dumps for anything else){here()}"
            )
        header[_METADATA] = dict(metadata)
    rows = sorted(
        (_coded(who, name, x) for name, x in tensors.items()),
        key=lambda row: (_RANK[row[0]], row[1].encode()),
    )
    at = 0
    for code, name, x in rows:
        end = at + x.nbytes
        header[name] = {"dtype": code, "shape": list(x.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the data begin at a multiple of eight
    return len(text).to_bytes(8, "little") + text, [x for _, _, x in rows]


def _coded(who: str, name: Any, x: Any) -> tuple[str, str, np.ndarray]:
    """Return the code of the dtype, the name, and the array in little-endian byte order."""
    if type(name) is not str or name == _METADATA:
        raise TypeError(f"safetensors.{who}: needed a string as name, got {name!r}{here()}")
    x = np.asarray(x)
    code = _CODES.get(x.dtype.newbyteorder("="))
    if code is None:
        raise TypeError(
            f"safetensors.{who}: needed one of {', '.join(sorted(str(d) for d in _CODES))}, got"
            f" {x.dtype} at {name!r} (nested dicts: join their names, as toile.traverse_util's"
            f" flatten_dict(tree, sep='/') does){here()}"
        )
    return code, name, np.ascontiguousarray(x, DTYPES[code]).reshape(x.shape)


def _bytes(x: np.ndarray) -> memoryview:
    # ml_dtypes' numbers have no buffer protocol of their own; bytes do.
    return x.reshape(-1).view(np.uint8).data


def _array(entry: _Entry, data: Any) -> np.ndarray:
    """Return a writable array in native byte order, made from its bytes."""
    if len(data) != entry.end - entry.start:
        raise unreadable(
            "safetensors", f"{entry.end - entry.start} bytes of data", str(len(data)),
            "the file changed while it was read",
        )  # fmt: skip
    x = np.frombuffer(data, np.uint8).view(entry.dtype).reshape(entry.shape)
    return check_values("safetensors", x.astype(entry.dtype.newbyteorder("=")))


def _header_size(first: bytes, length: int) -> int:
    """Return the length of the header, after checking that it fits into the file."""
    size = int.from_bytes(first, "little")
    if length < 8 or size > length - 8 or size > _LARGEST_HEADER or size < 2:
        _fail("a header that fits the file", f"{length} bytes with a header of {size}")
    return size


def _parse(text: bytes, length: int) -> tuple[dict[str, _Entry], dict[str, str]]:
    """Parse a header followed by `length` bytes of data: the arrays in order, and the metadata."""
    try:
        if text[:1] != b"{":
            raise ValueError(f"it begins with {text[:8]!r}")
        header = json.loads(text.decode(), object_pairs_hook=_no_twins)
    except (ValueError, RecursionError) as error:
        reason = str(error)[:300] or type(error).__name__
        _fail("a header of JSON", f"{len(text)} bytes of something else: {reason}")
    metadata = header.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(type(v) is str for v in metadata.values()):
        _fail("strings as metadata", brief(metadata))
    entries = {name: _entry_of(name, row) for name, row in header.items()}
    ordered = sorted(entries.items(), key=lambda item: item[1][2:])
    at = 0
    for name, entry in ordered:
        if entry.start != at:
            _fail("data without gaps", f"{brief(name)} at {entry.start} where {at} is free")
        at = entry.end
    if at != length:
        _fail(f"{at} bytes of data, as its header says", str(length))
    return dict(ordered), metadata


def _entry_of(name: str, row: Any) -> _Entry:
    at = brief(name)
    if not isinstance(row, dict) or set(row) != {"dtype", "shape", "data_offsets"}:
        _fail(f"dtype, shape and data_offsets of {at}", brief(row))
    code, shape, offsets = row["dtype"], row["shape"], row["data_offsets"]
    if not isinstance(code, str) or code not in DTYPES:
        _fail(f"one of the dtypes {', '.join(DTYPES)} at {at}", brief(code))
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
        _fail(f"sizes and two offsets at {at}", f"{brief(shape)} and {brief(offsets)}")
    dtype = DTYPES[code]
    needed = element_count(f"safetensors: {at}", shape, dtype.itemsize) * dtype.itemsize
    if offsets[1] - offsets[0] != needed:
        got = f"{offsets[1] - offsets[0]} by its offsets"
        _fail(f"{needed} bytes for the {code}{shape} of {at}", got)
    return _Entry(dtype, tuple(shape), *offsets)


def _are_sizes(xs: Any) -> bool:
    return isinstance(xs, list) and all(type(n) is int and 0 <= n < 2**63 for n in xs)


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a name occurs twice")
    return out


def _fail(needed: str, got: str) -> Any:
    raise unreadable("safetensors", needed, got, "truncated, corrupted or another format?")
