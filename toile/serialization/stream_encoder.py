"""Encoding trees as the bytes of `msgpack_serialize` piece by piece, without copying the arrays.

`encode` walks a state dict once and computes every header. The arrays themselves stay where they
are until they are written. Arrays on another device are fetched one at a time, and each is released
before the next is fetched. Arrays that are not row-major are copied one block at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgpack
import numpy as np

from toile.engine.arrays import KeyArray
from toile.engine.source import here
from toile.engine.trace import Array
from toile.serialization import array_codes as encoding

_DEEPEST = 511  # levels of msgpack's own packer
_LONGEST = 2**32 - 1  # bytes of one extension value
_FIXED = {1: 0xD4, 2: 0xD5, 4: 0xD6, 8: 0xD7, 16: 0xD8}


class _Held:
    """An array that is split into one or more pieces and fetched when the first piece is needed."""

    __slots__ = ("source", "host")

    def __init__(self, source: Any) -> None:
        self.source = source
        self.host: np.ndarray | None = None

    def fetch(self) -> np.ndarray:
        if self.host is None:
            self.host = np.asarray(self.source)
        return self.host

    def keep_now(self) -> None:
        """Keep the current values. This copies NumPy arrays, which can change later."""
        if isinstance(self.source, Array):
            self.fetch()
        else:
            self.source = self.host = np.array(self.source, order="K")


class Piece:
    """The data of an array, or of one of the parts that a large array is split into."""

    __slots__ = ("path", "shape", "dtype", "nbytes", "_held", "_start", "_stop", "_is_last")

    def __init__(
        self, path: str, shape: tuple[int, ...], dtype: np.dtype[Any], held: _Held,
        start: int, stop: int, is_last: bool,
    ) -> None:  # fmt: skip
        self.path, self.shape, self.dtype = path, shape, dtype
        self.nbytes = (stop - start) * dtype.itemsize
        self._held, self._start, self._stop, self._is_last = held, start, stop, is_last

    def keep_now(self) -> None:
        """Keep the current values, even if the array changes later."""
        if self._start == 0:
            self._held.keep_now()

    def blocks(self, size: int) -> Iterator[np.ndarray]:
        """The little-endian bytes in C order, as uint8 arrays of at most about `size` bytes."""
        array = self._held.fetch()
        length = max(1, size // self.dtype.itemsize)
        for start in range(self._start, self._stop, length):
            block = _elements(array, start, min(start + length, self._stop))
            if block.dtype != self.dtype:
                block = block.astype(self.dtype)
            yield block.view(np.uint8)
        if self._is_last and self._held.source is not array:
            self._held.host = None


def _elements(array: np.ndarray, start: int, stop: int) -> np.ndarray:
    """A range of elements in C order: a view if the array is row-major, otherwise a small copy."""
    if array.flags.c_contiguous:
        return array.reshape(-1)[start:stop]
    row = array.size // len(array)
    first, last = start // row, (stop - 1) // row
    if row * (last + 1 - first) <= 2 * (stop - start):
        rows = np.ascontiguousarray(array[first : last + 1])
        return rows.reshape(-1)[start - first * row : stop - first * row]
    ends = ((max(start - i * row, 0), min(stop - i * row, row)) for i in range(first, last + 1))
    parts = [_elements(array[first + i], *each) for i, each in enumerate(ends)]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def encode(tree: Any, max_chunk_size: int) -> list[bytes | Piece]:
    """The parts of `msgpack_serialize(tree, in_place=True)`: bytes, and pieces of array data."""
    encoder = _Encoder(max_chunk_size)
    try:
        encoder.add(tree, (), True)
    except TypeError as error:
        raise TypeError(
            f"{error} (needed a state dict of dicts, lists, arrays and Python values){here()}"
        ) from error
    encoder.flush()
    return encoder.parts


def total_bytes(parts: Iterable[bytes | Piece]) -> int:
    """The total number of bytes of the parts."""
    return sum(len(part) if isinstance(part, bytes) else part.nbytes for part in parts)


class _Encoder:
    def __init__(self, max_chunk_size: int) -> None:
        self.parts: list[bytes | Piece] = []
        self._text = bytearray()  # the bytes since the last piece that are not array data
        self._packer = msgpack.Packer(default=encoding.pack, strict_types=True)
        self._max_chunk_size = max_chunk_size
        self._dtypes: dict[np.dtype[Any], tuple[np.dtype[Any], bytes]] = {}

    def flush(self) -> None:
        if self._text:
            self.parts.append(bytes(self._text))
            self._text.clear()

    def add(self, x: Any, path: tuple[Any, ...], in_dicts: bool) -> None:
        """Add a value. Only arrays that are entries of dicts of dicts are split, as in Flax."""
        if len(path) > _DEEPEST:
            raise ValueError(f"needed at most {_DEEPEST} levels of dicts and lists, got more")
        if type(x) is dict:
            self._text += self._packer.pack_map_header(len(x))
            for key, value in x.items():
                self._text += self._packer.pack(key)
                self.add(value, (*path, key), in_dicts)
        elif type(x) is list:
            self._text += self._packer.pack_array_header(len(x))
            for i, value in enumerate(x):
                self.add(value, (*path, i), False)
        elif _is_array(x):
            self._add_array(x, "/".join(map(str, path)) or ".", in_dicts)
        else:
            self._text += self._packer.pack(x)

    def _add_array(self, x: Any, path: str, may_split: bool) -> None:
        if x.dtype not in self._dtypes:
            little = encoding.stored_dtype(x.dtype)
            self._dtypes[x.dtype] = little, self._packer.pack(little.name)
        dtype, name = self._dtypes[x.dtype]
        shape = tuple(x.shape)
        held, size = _Held(x), x.size
        if not may_split or size * dtype.itemsize <= self._max_chunk_size:
            self._add_piece(Piece(path, shape, dtype, held, 0, size, True), name)
            return
        length = max(1, int(self._max_chunk_size / dtype.itemsize))
        starts = range(0, size, length)
        pack, header = self._packer.pack, self._packer.pack_map_header
        self._text += header(3) + pack(encoding.CHUNKED) + pack(True)
        self._text += pack("shape") + pack({str(i): n for i, n in enumerate(shape)})
        self._text += pack("chunks") + header(len(starts))
        for i, start in enumerate(starts):
            stop = min(start + length, size)
            self._text += pack(str(i))
            piece = Piece(path, (stop - start,), dtype, held, start, stop, stop == size)
            self._add_piece(piece, name)

    def _add_piece(self, piece: Piece, name: bytes) -> None:
        """Add the headers of an extension value that contains a packed array, and the piece."""
        count = piece.nbytes
        head = b"\x93" + self._packer.pack(list(piece.shape)) + name + _bin_header(count)
        self._text += _extension_header(len(head) + count, piece.path) + head
        if count:
            self.flush()
            self.parts.append(piece)


def _is_array(x: Any) -> bool:
    return isinstance(x, np.ndarray) or (isinstance(x, Array) and not isinstance(x, KeyArray))


def _bin_header(count: int) -> bytes:
    for code, width in ((0xC4, 1), (0xC5, 2), (0xC6, 4)):
        if count < 1 << 8 * width:
            return bytes([code]) + count.to_bytes(width, "big")
    raise ValueError(f"needed less than 4 GiB in one array outside dicts, got {count} bytes")


def _extension_header(count: int, path: str) -> bytes:
    if count > _LONGEST:
        raise ValueError(f"needed less than 4 GiB in the array at {path}, got {count} bytes")
    code = int(encoding.ExtType.ndarray)
    if count in _FIXED:
        return bytes([_FIXED[count], code])
    width, kind = (1, 0xC7) if count < 1 << 8 else (2, 0xC8) if count < 1 << 16 else (4, 0xC9)
    return bytes([kind]) + count.to_bytes(width, "big") + bytes([code])
