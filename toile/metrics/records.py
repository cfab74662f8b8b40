"""TFRecord files: records with checksums, which are appended and never rewritten.

A record consists of its length (uint64), the checksum of the length, the data, and the checksum of
the data. The checksum is CRC-32C, rotated and offset ("masked") to avoid problems with data that
itself contains checksums.
"""

from __future__ import annotations

import functools
import os
import struct
from collections.abc import Iterator

import numpy as np

from toile.engine.file_reader import unreadable

_POLYNOMIAL = 0x82F63B78  # Castagnoli's, lowest power first
_SMALL = 2048  # below this many bytes a plain loop is faster than lanes


@functools.cache
def _table() -> np.ndarray:
    """Return the state of the checksum after one byte, for each of the 256 possible bytes."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(_POLYNOMIAL), table >> 1)
    return table


@functools.cache
def _rows() -> list[int]:
    return _table().tolist()


def crc32c(data: bytes) -> int:
    """Compute the CRC-32C checksum of a bytes object.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    head = data
    register = 0xFFFFFFFF
    if len(data) > _SMALL:
        # The register is linear over GF(2) in its start and in the data. Equal lanes are advanced
        # together, then joined: state after (a, b) = advance(state after a, len b) ^ state of b.
        length = int(len(data) ** 0.5)
        count = len(data) // length
        lanes = np.frombuffer(data, np.uint8, count * length).reshape(count, length)
        table, states = _table(), np.zeros(count, np.uint32)
        for column in lanes.T:
            states = table[(states ^ column) & 0xFF] ^ states >> 8
        shift = _advance_matrix(length)
        for state in states.tolist():
            register = _times(shift, register) ^ state
        head = data[count * length :]
    rows = _rows()
    for byte in head:
        register = rows[(register ^ byte) & 0xFF] ^ register >> 8
    return register ^ 0xFFFFFFFF


def _times(matrix: list[int], vector: int) -> int:
    """Multiply a matrix over GF(2), given as a list of columns, by a vector of bits."""
    out = 0
    for column in matrix:
        if vector & 1:
            out ^= column
        vector >>= 1
    return out


@functools.lru_cache(maxsize=64)
def _advance_matrix(length: int) -> list[int]:
    """Return the matrix that advances the checksum over `length` zero bytes.

    It is computed by repeated squaring."""
    rows = _rows()
    power = [rows[1 << i & 0xFF] ^ (1 << i) >> 8 for i in range(32)]  # one zero byte
    result = [1 << i for i in range(32)]
    while length:
        if length & 1:
            result = [_times(power, column) for column in result]
        power = [_times(power, column) for column in power]
        length >>= 1
    return result


def masked(data: bytes) -> int:
    """Compute the masked checksum, which is stored in a record."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def frame(data: bytes) -> bytes:
    """Create a record from data by adding the length and the checksums."""
    length = struct.pack("<Q", len(data))
    return (
        length + struct.pack("<I", masked(length)) + data + struct.pack("<I", masked(data))
    )


def read(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """Iterate over the records of a file.

    An unfinished record at the end is skipped. A damaged record raises an error."""
    with open(path, "rb") as file:
        while len(head := file.read(12)) == 12:
            at = file.tell()
            length, check = struct.unpack("<QI", head)
            if check != masked(head[:8]):
                raise _damaged("a TFRecord file", "a damaged length", path, at - 12)
            if length + 4 > os.fstat(file.fileno()).st_size - at:
                return  # the writer has not finished it, or was stopped
            data, end = file.read(length), file.read(4)
            if len(data) < length or len(end) < 4:
                return  # the file became shorter
            if struct.unpack("<I", end)[0] != masked(data):
                raise _damaged("whole records", "a damaged one", path, at)
            yield data


def _damaged(needed: str, got: str, path: str | os.PathLike[str], at: int) -> Exception:
    where = f"{got} in {os.fspath(path)} at byte {at}"
    return unreadable("read", needed, where, "the records before it were read")
