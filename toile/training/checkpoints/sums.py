"""Checksums of a checkpoint, which are stored in a small JSON file beside the checkpoint.

Every byte of the checkpoint is covered. The JSON file contains a CRC-32 for each block of an array,
a CRC-32 for everything that is not array data, and a checksum of itself. It is ignored if it is
damaged or if the checkpoint has since been replaced. The JSON file is not flushed to disk, so it
may be missing or damaged after a power failure. The checkpoint is then restored without
verification.
"""

from __future__ import annotations

import json
import warnings
import zlib
from typing import Any, NamedTuple

from toile import io
from toile.engine.records import dataclass
from toile.training.checkpoints import files, sources
from toile.training.checkpoints import names as naming

BLOCK = 8 << 20  # bytes that share a checksum
_VERSION = 1
_BEFORE, _AFTER = b'{"crc32": %10d, "sums": ', b"}"  # the CRC-32 of the text between these


class ArraySums(NamedTuple):
    """The checksums of one array, or of one piece of a large array: one number for each block."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    crc32: list[int]

    def __str__(self) -> str:
        return f"{self.path} ({self.dtype}[{','.join(map(str, self.shape))}])"


@dataclass(frozen=True)
class Sums:
    """The checksums of a checkpoint: those of each array, in file order, and one for all other
    data."""

    size: int
    block: int
    rest: int
    arrays: list[ArraySums]


def write(sums: Sums, path: str, inode: int, folder: str, start: str) -> None:
    """Write the checksums beside a checkpoint, whose inode later shows whether it was replaced."""
    fields = {"version": _VERSION, "size": sums.size, "block": sums.block, "rest": sums.rest}

    def text(own_inode: int) -> bytes:
        arrays = [each._asdict() for each in sums.arrays]
        body = {**fields, "inode": inode, "own_inode": own_inode, "arrays": arrays}
        data = json.dumps(body).encode()
        return _BEFORE % zlib.crc32(data) + data + _AFTER

    files.write_file(folder, start, naming.sums_path(path), text)


def read(path: str, source: sources.FileSource) -> Sums | None:
    """The checksums of an open checkpoint; None if there are no usable checksums."""
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
        sums = _parsed(body)
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
    # If the inode of the checkpoint has changed and that of its checksums has not, another program
    # has replaced the checkpoint. If both have changed, they were copied together.
    if source.inode != inodes[0] and own_inode == inodes[1]:
        return None
    return sums


def _parsed(body: dict[str, Any]) -> Sums:
    arrays = [
        ArraySums(x["path"], x["dtype"], tuple(x["shape"]), list(x["crc32"]))
        for x in body["arrays"]
    ]
    block = body["block"]
    if type(block) is not int or block < 1 or not all(each.crc32 for each in arrays):
        raise ValueError("they have no checksums in them")
    return Sums(body["size"], block, body["rest"], arrays)


def difference(sums: Sums, rest: int) -> str | None:
    """Describe damage outside the arrays; return None if there is no such damage."""
    if rest == sums.rest:
        return None
    return "the names, shapes or Python values in it are not those that were saved (checksum)"


def damaged_arrays(arrays: list[ArraySums]) -> str:
    """A message that names the arrays that have changed."""
    names = list(dict.fromkeys(map(str, arrays)))
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    noun = "array" if len(names) == 1 else "arrays"
    return f"the data of the {noun} {', '.join(names[:5])}{more} is not what was saved (checksum)"
