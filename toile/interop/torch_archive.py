"""The zip archive that `torch.save` writes: its entries are uncompressed and do not overlap.

Python's zipfile reads the directory, and this module reads the entries. torch compresses nothing,
so each entry must be stored uncompressed between its header and the header of the next entry.
Therefore, entries cannot share bytes or be larger than the file. Checksums are verified.
"""

from __future__ import annotations

import stat
import struct
import zipfile
import zlib
from typing import Any, NamedTuple

import numpy as np

from toile.engine.file_reader import brief, guarded, unreadable

_READER = "torch_files.load"
_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
_ENCRYPTED = 0x1 | 0x40
_UTF8 = 0x800
_BLOCK = 1 << 20
_DIRECTORY = (zipfile.BadZipFile, OSError)  # OSError: positions before the beginning
_REWRITE = "with torch installed, run torch.save(torch.load(path), new_path)"


class _Place(NamedTuple):
    """An entry of the directory, and the position where the next entry begins."""

    info: zipfile.ZipInfo
    end: int


class Archive:
    """The entries of an open zip file, by name."""

    def __init__(self, file: Any, path: str):
        self.file, self.path = file, path
        file.seek(0, 2)
        self.size: int = file.tell()
        with guarded(_READER, "a zip file of torch.save", f" ({path})", also=_DIRECTORY):
            with zipfile.ZipFile(file) as archive:
                entries = sorted(archive.infolist(), key=lambda entry: entry.header_offset)
                self.first = archive.namelist()[0] if entries else ""
                ends = [entry.header_offset for entry in entries[1:]] + [archive.start_dir]
        self.entries = {e.filename: _Place(e, end) for e, end in zip(entries, ends)}
        if len(self.entries) < len(entries):
            raise self.wrong("names that occur once", f"{len(entries)} of {len(self.entries)}")

    def wrong(self, needed: str, got: str, hint: str = _REWRITE) -> Exception:
        """Return the error to raise for this file."""
        return unreadable(_READER, f"{needed} in {self.path}", got, hint)

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    def length(self, name: str) -> int:
        """Return the number of bytes in an entry."""
        if name not in self.entries:
            raise self.wrong(f"an entry {name}", "none: the file is corrupted")
        return self.entries[name].info.file_size

    def read(self, name: str) -> bytes:
        """Return the bytes of an entry."""
        out = np.empty(self._begin(name), np.uint8)
        self._fill(name, out)
        return out.tobytes()

    def read_into(self, name: str, out: np.ndarray) -> None:
        """Read an entry into a vector of bytes of the same length."""
        if self._begin(name) != out.size:
            raise self.wrong(f"{out.size} bytes in {name}", str(self.length(name)))
        self._fill(name, out)

    def _begin(self, name: str) -> int:
        """Move to the first byte of an entry, and return its number of bytes."""
        size = self.length(name)
        info, end = self.entries[name]
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != size:
            raise self.wrong(f"{name} to be uncompressed", "a compressed entry")
        if info.flag_bits & _ENCRYPTED:
            raise self.wrong(f"{name} to be unencrypted", "an encrypted entry")
        if stat.S_ISLNK(info.external_attr >> 16):
            raise self.wrong(f"{name} to be a file", "a symbolic link")
        at = info.header_offset
        room = end - at - _LOCAL_HEADER.size
        if at < 0 or room < size or end > self.size:
            raise self.wrong(f"{size} bytes of {name} before the next entry", f"room for {room}")
        self.file.seek(at)
        header = self.file.read(_LOCAL_HEADER.size)
        signature, _, flags, *_, name_length, extra = _LOCAL_HEADER.unpack(header)
        local = self.file.read(name_length).decode("utf-8" if flags & _UTF8 else "cp437")
        if signature != b"PK\x03\x04" or local != info.orig_filename:
            raise self.wrong(f"the header of {name} at byte {at}", f"one of {brief(local)}")
        if room < name_length + extra + size:
            raise self.wrong(f"{size} bytes of {name} before the next entry", f"room for {room}")
        self.file.seek(at + _LOCAL_HEADER.size + name_length + extra)
        return size

    def _fill(self, name: str, out: np.ndarray) -> None:
        at = check = 0
        while at < out.size:
            block = self.file.read(min(_BLOCK, out.size - at))
            if not block:
                raise self.wrong(f"{out.size} bytes in {name}", f"{at}: the file is truncated")
            out[at : at + len(block)] = np.frombuffer(block, np.uint8)
            check = zlib.crc32(block, check)
            at += len(block)
        wanted = self.entries[name].info.CRC
        if check != wanted:
            raise self.wrong(
                f"{name} with the checksum {wanted:08x}",
                f"{check:08x}: the file is corrupted",
                "copy the file again; torch writes no checksums after set_crc32_options(False)",
            )
