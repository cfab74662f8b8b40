"""The parts of the Protocol Buffers format that TensorBoard's messages and tree structures need.

A message is the concatenation of its fields: a tag (field number * 8 + wire type), then the value.
`field(number, value)` encodes a field; `decode(data)` returns all fields as a dict {number: [raw
values]}. An integer has at most 64 bits in 10 bytes. Lengths in a message are checked against the
bytes present; nested messages stay bytes until they are decoded, so nesting costs nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from toile.engine.file_reader import unreadable

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_LONGEST = 10  # bytes of an integer


def varint(n: int) -> bytes:
    """An integer, seven bits per byte, lowest bits first.

    Negative integers are written as 64-bit two's complement.

    >>> varint(300).hex()
    'ac02'
    """
    n &= (1 << 64) - 1
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def field(number: int, value: int | bytes | str) -> bytes:
    """A field with an integer, text, bytes or an encoded message."""
    if isinstance(value, (bytes, str)):
        data = value.encode() if isinstance(value, str) else value
        return varint(number << 3 | BYTES) + varint(len(data)) + data
    return varint(number << 3 | VARINT) + varint(int(value))


def double(number: int, value: float) -> bytes:
    """A field with a 64-bit float."""
    return varint(number << 3 | FIXED64) + struct.pack("<d", value)


def decode(data: bytes) -> dict[int, list[Any]]:
    """The fields of a message: integers, bytes, and fixed-size values as bytes.

    >>> decode(field(1, 7) + field(2, "a") + field(1, 8))
    {1: [7, 8], 2: [b'a']}
    """
    fields: dict[int, list[Any]] = {}
    for number, value in _fields(data):
        fields.setdefault(number, []).append(value)
    return fields


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(data):
        start = at
        tag, at = varint_at(data, at)
        kind = tag & 7
        if not 0 < tag >> 3 < 1 << 29:
            raise unreadable("decode", "a field number below 2**29", f"{tag >> 3}{_at(start)}")
        if kind == VARINT:
            value, at = varint_at(data, at)
            yield tag >> 3, value
            continue
        if kind == BYTES:
            size, at = varint_at(data, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise unreadable("decode", "a wire type of 0, 1, 2 or 5", f"{kind}{_at(start)}")
        if size > len(data) - at:
            raise unreadable("decode", f"{size} bytes{_at(at)}", f"{len(data) - at} (truncated?)")
        yield tag >> 3, data[at : at + size]
        at += size


def _at(position: int) -> str:
    return f" at byte {position}"


def varint_at(data: bytes, at: int) -> tuple[int, int]:
    """The integer that starts at a position, and the position after it."""
    if at < len(data) and data[at] < 0x80:
        return data[at], at + 1
    value = 0
    for i, byte in enumerate(data[at : at + _LONGEST]):
        value |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            if value >> 64:
                raise unreadable("decode", "an integer of 64 bits", f"a longer one{_at(at)}")
            return value, at + i + 1
    if at + _LONGEST > len(data):
        raise unreadable("decode", f"the rest of an integer{_at(at)}", "the end of the message")
    raise unreadable("decode", f"an integer of at most {_LONGEST} bytes", f"a longer one{_at(at)}")
