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


@dataclass(frozen=True)
class ArraySums:
    """The checksums of the blocks of one array, or of one piece of a large one."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    blocks: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.path} ({self.dtype}[{','.join(map(str, self.shape))}])"


@dataclass(frozen=True)
class Sums:
    """The checksums of a checkpoint: its arrays in the order of the file, and the rest of it."""

    size: int
    rest: int
    arrays: tuple[ArraySums, ...]
    block: int


def write(sums: Sums, path: str, inode: int, folder: str, start: str) -> None:
    """Put the checksums beside a checkpoint, whose inode tells later whether it was replaced."""
    arrays = [
        {
            "path": x.path, "dtype": x.dtype, "shape": x.shape,
            "crc32": [f"{n:08x}" for n in x.blocks],
        }
        for x in sums.arrays
    ]  # fmt: skip
    content = {
        "version": _VERSION, "size": sums.size, "block": sums.block, "rest": f"{sums.rest:08x}",
        "inode": inode, "arrays": arrays,
    }  # fmt: skip

    def text(own_inode: int) -> bytes:
        body = {**content, "own_inode": own_inode}
        return json.dumps({"crc32": _sum_of(body), "sums": body}).encode()

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
        found = json.loads(text)
        body = found["sums"]
        if found["crc32"] != _sum_of(body) or body["version"] != _VERSION:
            raise ValueError("it is damaged")
        sums = _parsed(body)
    except FileNotFoundError:
        return None  # removed by a saver just now
    except Exception as error:
        reason = str(error) or type(error).__name__
        warnings.warn(
            f"restore_checkpoint: {path} is restored unchecked: its checksums in {place} cannot be"
            f" read: {reason}",
            stacklevel=2,
        )
        return None
    # The checkpoint is another file than the one that was saved, and these are still those of it:
    # another program has replaced it. If both are others, they were copied together.
    if source.inode != body["inode"] and own_inode == body["own_inode"]:
        return None
    return sums


def _parsed(body: dict[str, Any]) -> Sums:
    arrays = tuple(
        ArraySums(
            str(x["path"]), str(x["dtype"]), tuple(x["shape"]),
            tuple(int(n, 16) for n in x["crc32"]),
        )
        for x in body["arrays"]
    )  # fmt: skip
    block = int(body["block"])
    if block < 1:
        raise ValueError(f"blocks of {block} bytes")
    return Sums(int(body["size"]), int(body["rest"], 16), arrays, block)


def _sum_of(body: Any) -> str:
    return f"{zlib.crc32(json.dumps(body, sort_keys=True).encode()):08x}"


def difference(sums: Sums, rest: int) -> str | None:
    """What is wrong outside of the arrays."""
    if rest == sums.rest:
        return None
    return "the names, shapes or Python values in it are not those that were saved (checksum)"


def damaged_arrays(arrays: list[ArraySums]) -> str:
    """Which arrays are not those that were saved, in words."""
    names = [str(each) for each in dict.fromkeys(arrays)]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    noun = "array" if len(names) == 1 else "arrays"
    return f"the data of the {noun} {', '.join(names[:5])}{more} is not what was saved (checksum)"
