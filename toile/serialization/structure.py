"""Checking that bytes are one complete msgpack value, without decoding them.

msgpack allocates a list of the stated length before it reads the entries, and does not limit
nesting. `check` walks over the headers first and raises an error if a length exceeds the number of
bytes that follow, or if the nesting is too deep. The size of the decoded value is then bounded by
the number of bytes.
"""

from __future__ import annotations

from typing import Any

from toile.engine.file_reader import MAX_DEPTH, unreadable

READER = "msgpack_restore"
NEEDED = "one whole msgpack tree"

# For each first byte, the number of bytes of the length that follows it.
_TEXT = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_EXTENSION = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_ENTRIES = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}  # bytes, values for each entry
_FIXED = {
    0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8,
    0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8, 0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17,
}  # fmt: skip


def wrong(size: int, reason: str) -> Exception:
    """The error for bytes that are not a tree."""
    got = f"{size} bytes that are truncated, corrupted or something else: {reason}"
    return unreadable(READER, NEEDED, got)


def _header(data: Any, code: int, at: int) -> tuple[int, int, int]:
    """The numbers of values and bytes after the header with `code`, and the header's end."""
    if code in _FIXED:
        return 0, _FIXED[code], at
    width, each = _ENTRIES.get(code) or (_TEXT.get(code) or _EXTENSION.get(code), 0)
    if not width:
        raise wrong(len(data), f"{code:#04x} at byte {at - 1} is not the start of a value")
    count = int.from_bytes(data[at : at + width], "big")
    length = 0 if each else count + (code in _EXTENSION)
    return count * each, length, at + width


def check(data: Any, deepest: int = MAX_DEPTH) -> None:
    """Raise an error unless `data` is one msgpack value of at most `deepest` levels."""
    size, at = len(data), 0
    left = [1]  # the values that are still to come, at each level that is open
    pending = 1  # the same for all levels together; each value has at least one byte
    while left:
        if not left[-1]:
            left.pop()
            continue
        left[-1] -= 1
        pending -= 1
        if at >= size:
            raise wrong(size, f"a value is missing at byte {at}")
        code = data[at]
        at += 1
        if code < 0x80 or code >= 0xE0:
            continue
        values, length = 0, 0
        if code < 0xA0:
            values = (code & 0x0F) * (1 if code >= 0x90 else 2)
        elif code < 0xC0:
            length = code & 0x1F
        else:
            values, length, at = _header(data, code, at)
        pending += values
        if length + pending > size - at:
            rest = max(size - at, 0)
            raise wrong(size, f"{length + pending} bytes needed at byte {at}, {rest} left")
        at += length
        if values:
            left.append(values)
            if len(left) > deepest + 1:
                raise wrong(size, f"more than {deepest} levels at byte {at}")
    if at != size:
        raise wrong(size, f"the tree ends at byte {at}")
