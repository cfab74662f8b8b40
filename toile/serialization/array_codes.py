"""Arrays, NumPy scalars and complex numbers as msgpack extension types, byte for byte as in Flax.

Type 1 is an array: the packed triple (shape, name of the dtype, bytes in C order). Type 2 is a
Python complex number: the packed pair (real, imaginary). Type 3 is a NumPy scalar, packed as an
array of rank 0. The name of the dtype does not include the byte order: the bytes are always
little-endian.
"""

from __future__ import annotations

import enum
import re
from typing import Any

import ml_dtypes
import msgpack
import numpy as np

from toile.engine.file_reader import brief, check_values, element_count, guarded, unreadable
from toile.engine.source import here
from toile.engine.trace import Array
from toile.serialization.structure import READER, check

# Names that NumPy writes but does not read: text, bytes and void, with their size in bits.
_SIZED = re.compile(r"(str|bytes|void)([0-9]{1,10})")
_DATE = re.compile(
    r"(datetime|timedelta)64(\[([1-9][0-9]{0,8})?(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?"
)
_NUMBERS = [t for t in np.sctypeDict.values() if np.dtype(t).kind in "biufc"]
_EXTENDED = [
    t for t in vars(ml_dtypes).values() if isinstance(t, type) and issubclass(t, np.generic)
]
_NAMED: dict[str, np.dtype[Any]] = {np.dtype(t).name: np.dtype(t) for t in _NUMBERS + _EXTENDED}
_LETTER_AND_BITS = {"str": ("U", 32), "bytes": ("S", 8), "void": ("V", 8)}


class ExtType(enum.IntEnum):
    """The codes of the extension types."""

    ndarray = 1
    native_complex = 2
    npscalar = 3


def ndarray_to_bytes(x: Any) -> bytes:
    """An array as the packed triple of its shape, dtype and bytes."""
    array = np.asarray(x)
    little = stored_dtype(array.dtype)
    if little != array.dtype:
        array = array.astype(little)
    return msgpack.packb((array.shape, little.name, array.tobytes("C")), use_bin_type=True)


def stored_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The little-endian dtype in which arrays of a dtype are stored; raises if there is none."""
    if dtype.hasobject or dtype.fields is not None or dtype.kind == "T":
        raise ValueError(
            "Object and structured dtypes not supported for serialization of ndarrays: needed"
            f" numbers, booleans, dates or text of fixed width, got {dtype}{here()}"
        )
    return dtype.newbyteorder("<")


def ndarray_from_bytes(data: bytes) -> np.ndarray:
    """The array that a packed triple describes, in new memory."""
    check(data, deepest=2)
    triple = msgpack.unpackb(data, raw=True)
    if type(triple) is not list or len(triple) != 3:
        raise _refused("the shape, dtype and data of an array", brief(triple))
    shape, name, buffer = triple
    if type(name) is not bytes or type(buffer) is not bytes:
        raise _refused("the name of a dtype, and data", f"{brief(name)}, {brief(buffer)}")
    dtype = dtype_from_name(name.decode("latin1")).newbyteorder("<")
    needed = element_count(READER, shape, dtype.itemsize) * dtype.itemsize
    if len(buffer) != needed:
        raise _refused(f"{needed} bytes for {dtype} of shape {brief(shape)}", str(len(buffer)))
    if not needed:
        return np.zeros(shape, dtype.newbyteorder("="))
    view = np.frombuffer(buffer, dtype).reshape(shape)
    return check_values(READER, view.astype(dtype.newbyteorder("="), copy=True))


def _refused(needed: str, got: str) -> Exception:
    return unreadable(READER, needed, got, "truncated, corrupted or something else?")


def dtype_from_name(name: str) -> np.dtype[Any]:
    """The dtype with a name, including those of ml_dtypes, but never an object or record dtype."""
    found = _NAMED.get(name)
    if found is not None:
        return found
    if sized := _SIZED.fullmatch(name):
        letter, bits = _LETTER_AND_BITS[sized[1]]
        count, rest = divmod(int(sized[2]), bits)
        if count and not rest and count < 2**28:
            return np.dtype(f"{letter}{count}")
    elif _DATE.fullmatch(name):
        with guarded(READER, "a unit of dates"):
            return np.dtype(name)
    raise _refused("the name of a dtype of numbers, booleans, dates or text", brief(name))


def pack(x: Any) -> Any:
    """An array, NumPy scalar or complex number as an extension type; other values are unchanged."""
    if isinstance(x, (np.ndarray, Array)):
        return msgpack.ExtType(ExtType.ndarray, ndarray_to_bytes(x))
    if isinstance(x, np.generic):
        return msgpack.ExtType(ExtType.npscalar, ndarray_to_bytes(x))
    if isinstance(x, complex):
        return msgpack.ExtType(ExtType.native_complex, msgpack.packb((x.real, x.imag)))
    return x


def unpack(code: int, data: bytes) -> Any:
    """The value of an extension type; a value with an unknown code remains an `ExtType`."""
    if code == ExtType.ndarray:
        return ndarray_from_bytes(data)
    if code == ExtType.npscalar:
        array = ndarray_from_bytes(data)
        if array.ndim:
            raise _refused("a scalar", f"an array of shape {array.shape}")
        return array[()]
    if code == ExtType.native_complex:
        check(data, deepest=1)
        parts = msgpack.unpackb(data)
        if type(parts) is not list or [type(x) in (int, float) for x in parts] != [True, True]:
            raise _refused("the two parts of a complex number", brief(parts))
        return complex(*parts)
    return msgpack.ExtType(code, data)


CHUNKED = "__msgpack_chunked_array__"


def chunk(array: np.ndarray, max_bytes: int) -> dict[str, Any]:
    """An array as a dict of flat pieces, since one msgpack value is limited to 4 GiB."""
    length = max(1, int(max_bytes / array.dtype.itemsize))
    flat = array.reshape(-1)
    pieces = [flat[start : start + length] for start in range(0, flat.size, length)]
    return {CHUNKED: True, "shape": _numbered(array.shape), "chunks": _numbered(pieces)}


def unchunk(pieces: dict[str, Any]) -> np.ndarray:
    """The array that a dict of flat pieces describes."""
    shape, chunks = in_order(pieces.get("shape")), in_order(pieces.get("chunks"))
    if not chunks or not all(isinstance(x, np.ndarray) and x.ndim == 1 for x in chunks):
        raise _refused("the flat pieces of an array", f"{len(chunks)} of something else")
    dtypes = {x.dtype for x in chunks}
    if len(dtypes) > 1:
        raise _refused("the pieces of an array in one dtype", ", ".join(sorted(map(str, dtypes))))
    count, have = element_count(READER, shape, chunks[0].itemsize), sum(x.size for x in chunks)
    if count != have:
        raise _refused(f"{count} elements for an array of shape {brief(shape)}", str(have))
    return np.concatenate(chunks).reshape(shape)


def _numbered(xs: Any) -> dict[str, Any]:
    return {str(i): x for i, x in enumerate(xs)}


def in_order(xs: Any) -> tuple[Any, ...]:
    """The values of a dict whose keys are "0", "1" and so on, in that order."""
    if not isinstance(xs, dict) or any(str(i) not in xs for i in range(len(xs))):
        raise _refused("a dict with the keys 0, 1, ...", brief(xs))
    return tuple(xs[str(i)] for i in range(len(xs)))
