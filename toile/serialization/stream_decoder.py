"""Decoding the bytes of `msgpack_serialize` into a tree whose large arrays are not yet read.

`decode` reads headers, names, Python values and small arrays, and allocates the large arrays. It
returns the tree and, for every array, the position of the array's data in the file. The caller then
reads the missing data straight into the arrays. Memory is allocated only if the file is long enough
to fill it, so invalid bytes cannot cause an allocation larger than the file. Invalid bytes always
raise a ValueError.
"""

from __future__ import annotations

import math
import struct
import sys
import zlib
from typing import Any, NamedTuple, Protocol

import msgpack
import numpy as np

from toile.engine.records import dataclass
from toile.serialization import array_codes as encoding

_WINDOW = 1 << 16  # bytes read at a time
_SMALL = 1 << 14  # most bytes of an array that is read together with the names around it
_HEAD = 1024  # more than the shape and the dtype of an array take
_DEEPEST = 1024  # levels of msgpack's own unpacker
_NUMBERS = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
    0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_STRUCTS = {code: struct.Struct(form) for code, form in _NUMBERS.items()}
_CONSTANTS = {
    **{code: code for code in range(0x80)},
    **{code: code - 0x100 for code in range(0xE0, 0x100)},
    **{0xC0: None, 0xC2: False, 0xC3: True},
}
_LENGTH_WIDTH = {
    0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4,
    0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4,
}  # fmt: skip
_BINARY = (0xC4, 0xC5, 0xC6)
_ARRAYS, _MAPS = (0xDC, 0xDD), (0xDE, 0xDF)
_NDARRAY = int(encoding.ExtType.ndarray)
_EXTENSIONS = (0xC7, 0xC8, 0xC9)
_FIXED = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}


class Source(Protocol):
    """A file that can be read at any offset."""

    size: int

    def read(self, offset: int, count: int) -> bytes: ...


class Placement(NamedTuple):
    """The offset of an array's data in the file, and the array to read it into."""

    offset: int
    array: np.ndarray
    is_filled: bool  # True for small arrays, which also have their checksum if requested
    crc32: int = 0

    @property
    def memory(self) -> np.ndarray:
        return self.array.reshape(-1).view(np.uint8)


@dataclass(frozen=True)
class Decoded:
    """A tree whose arrays must still be filled, and the checksum of all bytes outside arrays."""

    tree: Any
    placements: list[Placement]
    rest: int


def decode(source: Source, with_sums: bool = True) -> Decoded:
    """The tree in a file; raises a ValueError that describes the problem if the file is invalid."""
    try:
        return _Decoder(source, with_sums).run()
    except (OSError, MemoryError):
        raise
    # Invalid bytes can raise different errors, depending on where they are noticed.
    except Exception as error:
        raise ValueError(str(error) or type(error).__name__) from error


def finish(decoded: Decoded) -> None:
    """Convert the data that was read from little-endian to the byte order of this machine."""
    if sys.byteorder == "big":
        for placement in decoded.placements:
            placement.array.byteswap(inplace=True)


class _Open:
    """A dict or list that is being read."""

    __slots__ = ("value", "left", "key", "has_key")

    def __init__(self, value: Any, left: int) -> None:
        self.value, self.left, self.has_key = value, left, False
        self.key: Any = None


class _Decoder:
    def __init__(self, source: Source, with_sums: bool) -> None:
        self._source, self._with_sums = source, with_sums
        self._data, self._start, self._at = b"", 0, 0  # the window, its start, our place in it
        self._unsummed, self._sum = 0, 0
        self._placements: list[Placement] = []
        self._open: list[_Open] = []
        self._dtypes: dict[Any, np.dtype[Any]] = {}

    def run(self) -> Decoded:
        tree = self._tree()
        self._sum_up()
        if left := self._source.size - self._offset():
            raise ValueError(f"{left} bytes follow the end of the tree")
        return Decoded(tree, self._placements, self._sum)

    def _offset(self) -> int:
        return self._start + self._at

    def _tree(self) -> Any:
        """Read until the outermost value is complete."""
        while True:
            value = self._value()
            if type(value) is _Open:
                if len(self._open) >= _DEEPEST:
                    raise ValueError(f"more than {_DEEPEST} levels of dicts and lists")
                self._open.append(value)
            elif self._open:
                self._put(value)
            else:
                return value
            while self._open and not self._open[-1].left:
                value = self._closed(self._open.pop().value)
                if not self._open:
                    return value
                self._put(value)

    def _put(self, value: Any) -> None:
        into = self._open[-1]
        if into.has_key:
            into.value[into.key] = value
            into.has_key = False
            into.left -= 1
        elif type(into.value) is list:
            into.value.append(value)
            into.left -= 1
        else:
            hash(value)
            into.key, into.has_key = value, True

    def _closed(self, value: Any) -> Any:
        """A complete dict or list, or the array if the dict contains the pieces of an array."""
        if type(value) is not dict or encoding.CHUNKED not in value:
            return value
        if any(type(each.value) is not dict for each in self._open):
            return value  # only entries of dicts of dicts are split
        shape, pieces = (encoding.in_order(value[key]) for key in ("shape", "chunks"))
        sizes = [piece.size for piece in pieces]
        whole = np.empty(shape, pieces[0].dtype)
        if any(x.dtype != whole.dtype or x.ndim != 1 for x in pieces) or sum(sizes) != whole.size:
            raise ValueError("the pieces of an array do not fit together")
        starts = np.cumsum([0, *sizes])
        flat = whole.reshape(-1)
        target = {id(x): flat[a:b] for x, a, b in zip(pieces, starts, starts[1:], strict=False)}
        for i, each in enumerate(self._placements):
            if id(each.array) in target:
                if each.is_filled:
                    target[id(each.array)][:] = each.array
                self._placements[i] = each._replace(array=target[id(each.array)])
        return whole

    def _value(self) -> Any:
        """The next value; for a dict or list, the state needed to read its entries."""
        if self._at >= len(self._data):
            self._refill(1)
        code = self._data[self._at]
        self._at += 1
        if 0xA0 <= code < 0xC0:  # a short text, as most names are
            return str(self._take(code & 0x1F), "utf-8")
        if code in _EXTENSIONS:
            head = self._take(_LENGTH_WIDTH[code] + 1)
            return self._extension(int.from_bytes(head[:-1], "big"), head[-1])
        if code in _CONSTANTS:
            return _CONSTANTS[code]
        if code in _STRUCTS:
            return _STRUCTS[code].unpack(self._take(_STRUCTS[code].size))[0]
        if code < 0xC0:
            kind, count = code & 0xF0, code & 0x0F
        elif code in _FIXED:
            return self._extension(_FIXED[code], self._take(1)[0])
        elif code in _LENGTH_WIDTH:
            kind, count = code, int.from_bytes(self._take(_LENGTH_WIDTH[code]), "big")
        else:
            raise ValueError(
                f"byte {code:#x} at {self._offset() - 1} is not the start of a msgpack value")
        if kind == 0x80 or kind in _MAPS:
            return _Open({}, self._possible(count, 2))
        if kind == 0x90 or kind in _ARRAYS:
            return _Open([], self._possible(count, 1))
        data = self._take(count)
        return data if kind in _BINARY else data.decode()

    def _possible(self, count: int, least: int) -> int:
        """The number of entries; raises if the rest of the file is too short for them."""
        if count * least > self._source.size - self._start - self._at:
            raise ValueError(f"{count} entries at {self._offset()} are more than the file can hold")
        return count

    def _extension(self, count: int, code: int) -> Any:
        self._possible(count, 1)
        if code == _NDARRAY:
            found = self._array(count)
            if found is not None:
                return found
        data = self._take(count)
        if code >= 0x80:  # negative codes belong to msgpack itself, such as timestamps
            return msgpack.unpackb(struct.pack(">BIB", 0xC9, count, code) + data)
        return encoding.unpack(code, data)

    def _array(self, count: int) -> np.ndarray | None:
        """An array to be filled later; None if it is not in the form that Flax writes."""
        known = min(count, _HEAD)
        if self._at + known > len(self._data):
            self._refill(known)
        head = _array_head(self._data, self._at)
        if head is None:
            return None
        shape, name, size, at = head
        if at + size != self._at + count:
            return None
        dtype = self._dtypes.get(name)
        if dtype is None:
            dtype = self._dtypes[name] = _checked_dtype(name)
        if math.prod(shape) * dtype.itemsize != size:
            raise ValueError(f"an array of {dtype}{shape} has {size} bytes of data")
        self._at = at
        if not size:
            return np.empty(shape, dtype)
        if size <= _SMALL:
            return self._small_array(shape, dtype, size)
        array = np.empty(shape, dtype)
        self._placements.append(Placement(self._start + at, array, False))
        self._move_to(self._start + at + size)
        return array

    def _small_array(self, shape: list[int], dtype: np.dtype[Any], size: int) -> np.ndarray:
        """A small array, whose data is copied from the window after a refill if necessary."""
        if self._at + size > len(self._data):
            self._refill(size)
        data, at = self._data, self._at
        array = np.frombuffer(data, dtype, size // dtype.itemsize, at).reshape(shape).copy()
        crc = zlib.crc32(data[at : at + size]) if self._with_sums else 0
        self._placements.append(Placement(self._start + at, array, True, crc))
        self._move_to(self._start + at + size)
        return array

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            self._refill(count)
            end = count
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _refill(self, count: int) -> None:
        """Read a window of at least `count` bytes that begins at the current position."""
        offset = self._offset()
        if offset + count > self._source.size:
            raise ValueError(f"the file ends where {count} bytes should follow byte {offset}")
        self._sum_up()
        data = self._source.read(offset, min(max(count, _WINDOW), self._source.size - offset))
        if len(data) < count:
            raise ValueError(f"the file was shortened to {offset + len(data)} bytes")
        self._data, self._start, self._at, self._unsummed = data, offset, 0, 0

    def _move_to(self, offset: int) -> None:
        """Skip the data of an array, which is not part of the checksum."""
        if offset > self._source.size:
            raise ValueError(f"the file ends at {self._source.size}, needed {offset} bytes")
        self._sum_up()
        within = offset - self._start
        if within < len(self._data):
            self._at = self._unsummed = within
        else:
            self._data, self._start, self._at, self._unsummed = b"", offset, 0, 0

    def _sum_up(self) -> None:
        self._sum = zlib.crc32(self._data[self._unsummed : self._at], self._sum)


def _array_head(data: bytes, at: int) -> tuple[list[int], bytes, int, int] | None:
    """The shape, dtype name, number of bytes and start of the data of a packed array."""
    if data[at] != 0x93 or data[at + 1] & 0xF0 != 0x90:
        return None
    shape = []
    rank, at = data[at + 1] & 0x0F, at + 2
    for _ in range(rank):
        number = data[at]
        if number >= 0x80:
            if number >= 0xE0 or 0xD0 <= number <= 0xD3:
                raise ValueError("an array has a negative length")
            if not 0xCC <= number <= 0xCF:
                return None
            width = 1 << (number - 0xCC)
            number = int.from_bytes(data[at + 1 : at + 1 + width], "big")
            at += width
        shape.append(number)
        at += 1
    if data[at] & 0xE0 != 0xA0:
        return None
    end = at + 1 + (data[at] & 0x1F)
    name = data[at + 1 : end]
    if data[end] not in _BINARY:
        return None
    width = _LENGTH_WIDTH[data[end]]
    begin = end + 1 + width
    return shape, name, int.from_bytes(data[end + 1 : begin], "big"), begin


def _checked_dtype(name: bytes) -> np.dtype[Any]:
    """The dtype with a name; raises if its arrays contain pointers, which must not be read."""
    dtype = encoding.dtype_from_name(name.decode()).newbyteorder("=")
    if dtype.hasobject or dtype.kind == "T" or dtype.subdtype is not None:
        raise ValueError(f"an array has the dtype {name.decode()}, which no file can hold")
    return dtype
