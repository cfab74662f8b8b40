"""Arrays, NumPy scalars and complex numbers as msgpack extension types, byte for byte Flax's.

Type 1 is an array: the packed triple (shape, name of the dtype, bytes in C order). Type 3 is a
NumPy scalar, packed as an array of rank 0; type 2 a Python complex, the pair (real, imaginary).
The name says nothing of the byte order: bytes are little-endian, whatever the array's were.
"""

from __future__ import annotations

import enum
import re
from typing import Any

import ml_dtypes
import msgpack
import numpy as np

from toile.engine.source import here
from toile.engine.tracing import Array

# Names that numpy writes and does not read: text, bytes and void, with their size in bits.
_SIZED = re.compile(r"(str|bytes|void)(\d+)")
_LETTER_AND_BITS = {"str": ("U", 32), "bytes": ("S", 8), "void": ("V", 8)}


class ExtType(enum.IntEnum):
    """The codes of the extension types."""

    ndarray = 1
    native_complex = 2
    npscalar = 3


def ndarray_to_bytes(x: Any) -> bytes:
    """An array as the packed triple of shape, dtype and bytes."""
    array = np.asarray(x)
    little = stored_dtype(array.dtype)
    if little != array.dtype:
        array = array.astype(little)
    return msgpack.packb((array.shape, little.name, array.tobytes("C")), use_bin_type=True)


def stored_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The little-endian dtype that arrays of a dtype are stored with; an error if there is none."""
    if dtype.hasobject or dtype.fields is not None or dtype.kind == "T":
        raise ValueError(
            "Object and structured dtypes not supported for serialization of ndarrays: needed"
            f" numbers, booleans, dates or text of fixed width, got {dtype}{here()}"
        )
    return dtype.newbyteorder("<")


def ndarray_from_bytes(data: bytes) -> np.ndarray:
    """The array of a packed triple, in memory of its own."""
    shape, name, buffer = msgpack.unpackb(data, raw=True)
    dtype = dtype_from_name(name.decode())
    view = np.frombuffer(buffer, dtype.newbyteorder("<")).reshape(shape)
    return view.astype(dtype.newbyteorder("="), copy=True)


def dtype_from_name(name: str) -> np.dtype[Any]:
    """The dtype of a name, those of ml_dtypes included."""
    if found := _SIZED.fullmatch(name):
        letter, bits = _LETTER_AND_BITS[found[1]]
        return np.dtype(f"{letter}{int(found[2]) // bits}")
    extended = getattr(ml_dtypes, name, None)
    return np.dtype(name if extended is None else extended)


def pack(x: Any) -> Any:
    """What msgpack cannot write, as an extension type; anything else unchanged."""
    if isinstance(x, (np.ndarray, Array)):
        return msgpack.ExtType(ExtType.ndarray, ndarray_to_bytes(x))
    if isinstance(x, np.generic):
        return msgpack.ExtType(ExtType.npscalar, ndarray_to_bytes(x))
    if isinstance(x, complex):
        return msgpack.ExtType(ExtType.native_complex, msgpack.packb((x.real, x.imag)))
    return x


def unpack(code: int, data: bytes) -> Any:
    """The value of an extension type; of an unknown code, as it is."""
    if code == ExtType.ndarray:
        return ndarray_from_bytes(data)
    if code == ExtType.npscalar:
        return ndarray_from_bytes(data)[()]
    if code == ExtType.native_complex:
        return complex(*msgpack.unpackb(data))
    return msgpack.ExtType(code, data)


CHUNKED = "__msgpack_chunked_array__"


def chunk(array: np.ndarray, max_bytes: int) -> dict[str, Any]:
    """An array as a dict of flat pieces: msgpack holds less than 4 GiB in one."""
    length = max(1, int(max_bytes / array.dtype.itemsize))
    flat = array.reshape(-1)
    pieces = [flat[start : start + length] for start in range(0, flat.size, length)]
    return {CHUNKED: True, "shape": _numbered(array.shape), "chunks": _numbered(pieces)}


def unchunk(pieces: dict[str, Any]) -> np.ndarray:
    """The array of a dict of flat pieces."""
    return np.concatenate(in_order(pieces["chunks"])).reshape(in_order(pieces["shape"]))


def _numbered(xs: Any) -> dict[str, Any]:
    return {str(i): x for i, x in enumerate(xs)}


def in_order(xs: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(xs[str(i)] for i in range(len(xs)))
