"""Checksums of a checkpoint, in a small JSON file beside it, and what they say at restore.

Every byte of the checkpoint is covered: arrays in blocks, each block with a CRC-32, and one more
for everything that is not array data. The file has a checksum of itself; one that is damaged, or
that belongs to a checkpoint which was replaced since, is not used. It is not forced to disk: after
a power cut it may be missing or damaged, and the checkpoint is then restored unchecked.
"""

from __future__ import annotations

import json
import warnings
import zlib
from typing import Any

from toile import io
from toile.engine.records import dataclass
from toile.training.checkpoints import files, naming, sources

BLOCK = 8 << 20  # bytes that share a checksum
_VERSION = 1
_BEFORE, _AFTER = b'{"crc32": %10d, "sums": ', b"}"  # of the text between them


@dataclass(frozen=True)
class Sums:
    """The checksums of a checkpoint: its arrays in the order of the file, and the rest of it.

    An array, or a piece of a large one, is a dict of "path", "dtype", "shape" and "crc32", which is
    a list with one number per block.
    """

    size: int
    block: int
    rest: int
    arrays: list[dict[str, Any]]


def write(sums: Sums, path: str, inode: int, folder: str, start: str) -> None:
    """Put the checksums beside a checkpoint, whose inode tells later whether it was replaced."""
    fields = {"version": _VERSION, "size": sums.size, "block": sums.block, "rest": sums.rest}

    def text(own_inode: int) -> bytes:
        body = {**fields, "inode": inode, "own_inode": own_inode, "arrays": sums.arrays}
        data = json.dumps(body).encode()
        return _BEFORE % zlib.crc32(data) + data + _AFTER

    files.put_whole(folder, start, naming.sums_path(path), text)


def read(path: str, source: sources.FileSource) -> Sums | None:
    """The checksums of a checkpoint that is open; None where there are none that can be used."""
    place = naming.sums_path(path)
    if not io.exists(place):
        return None
    try:
        with sources.open_source(place, follow=False) as beside:
            text = beside.read(0, min(beside.size, (1 << 20) + 16 * source.size))
            own_inode = beside.inode
        data = text[len(_BEFORE % 0) : -len(_AFTER)]
        if text != _BEFORE % zlib.crc32(data) + data + _AFTER:
            raise ValueError("they are damaged")
        body = json.loads(data)
        if body["version"] != _VERSION:
            raise ValueError(f"they are of version {body['version']}, needed {_VERSION}")
        sums = Sums(body["size"], body["block"], body["rest"], body["arrays"])
        inodes = body["inode"], body["own_inode"]
    except FileNotFoundError:
        return None  # removed by a saver just now
    except Exception as error:
        warnings.warn(
            f"restore_checkpoint: {path} is restored unchecked, because its checksums in {place}"
            f" cannot be read: {str(error) or type(error).__name__}",
            stacklevel=2,
        )
        return None
    # The checkpoint is not the file that was saved, but its checksums still are: another program
    # has replaced it. If neither is, they were copied together.
    if source.inode != inodes[0] and own_inode == inodes[1]:
        return None
    return sums


def difference(sums: Sums, rest: int) -> str | None:
    """What is wrong outside of the arrays."""
    if rest == sums.rest:
        return None
    return "the names, shapes or Python values in it are not those that were saved (checksum)"


def describe(array: dict[str, Any]) -> str:
    """An array in words: its path, dtype and shape."""
    return f"{array['path']} ({array['dtype']}[{','.join(map(str, array['shape']))}])"


def damaged_arrays(arrays: list[dict[str, Any]]) -> str:
    """Which arrays are not those that were saved, in words."""
    names = list(dict.fromkeys(map(describe, arrays)))
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    noun = "array" if len(names) == 1 else "arrays"
    return f"the data of the {noun} {', '.join(names[:5])}{more} is not what was saved (checksum)"
