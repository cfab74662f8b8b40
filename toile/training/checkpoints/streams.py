"""Write and read checkpoints piece by piece, without a second copy of the arrays.

Checksums are computed by other threads while data is written or read. For files larger than 1 GB, a
bar shows the progress if stderr is a terminal and no other bar is drawn there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from toile import errors
from toile.engine.source import message
from toile.serialization import stream_decoder
from toile.serialization.stream_encoder import Piece, total_bytes
from toile.training import progress
from toile.training.checkpoints import files, sources
from toile.training.checkpoints import sums as checksums

_SMALL = 1 << 18  # bytes that are not worth handing to another thread
_SHOWN = 10**9  # size of a file, in bytes, from which a bar is shown
_THREADS = min(8, os.cpu_count() or 1)

Advance = Callable[[int], None]


@contextlib.contextmanager
def bar(label: str, total: int, show: bool = True) -> Iterator[Advance]:
    """Show a progress bar, and yield a function that advances the bar by a number of bytes."""
    if not show or total < _SHOWN or progress.is_drawing():
        yield lambda count: None
        return
    done = 0
    with progress.progress(total=total // 10**6, label=label, unit="MB") as shown:

        def advance(count: int) -> None:
            nonlocal done
            before, done = done, done + count
            shown.advance(done // 10**6 - before // 10**6)

        yield advance


def write(
    pending: files.PendingFile, parts: list[bytes | Piece], with_sums: bool, advance: Advance
) -> checksums.Sums | None:
    """Write all parts, and return their checksums if requested."""
    if not with_sums:
        for part in parts:
            for block in [part] if isinstance(part, bytes) else part.blocks(checksums.BLOCK):
                pending.write(block)
                advance(len(block))
        return None
    rest = 0
    arrays: list[checksums.ArraySums] = []
    names: dict[Any, str] = {}  # NumPy takes long to make them
    with _pool() as pool:
        for part in parts:
            if isinstance(part, bytes):
                rest = zlib.crc32(part, rest)
                pending.write(part)
                advance(len(part))
            else:
                found = _write_array(pending, part, pool, advance)
                dtype = names.get(part.dtype) or names.setdefault(part.dtype, part.dtype.name)
                arrays.append(checksums.ArraySums(part.path, dtype, part.shape, found))
    return checksums.Sums(total_bytes(parts), checksums.BLOCK, rest, arrays)


def _write_array(
    pending: files.PendingFile, piece: Piece, pool: ThreadPoolExecutor, advance: Advance
) -> list[int]:
    """Write an array, and return the checksums of its blocks."""
    if piece.nbytes <= _SMALL:
        (block,) = piece.blocks(checksums.BLOCK)
        pending.write(block)
        advance(piece.nbytes)
        return [zlib.crc32(block.data)]
    found: list[int] = []
    waiting: deque[Future[int]] = deque()
    for block in piece.blocks(checksums.BLOCK):
        waiting.append(pool.submit(zlib.crc32, block.data))
        pending.write(block)
        advance(block.size)
        while len(waiting) >= _THREADS:  # blocks may be copies: not too many at a time
            found.append(waiting.popleft().result())
    return found + [each.result() for each in waiting]


@contextlib.contextmanager
def _pool() -> Iterator[ThreadPoolExecutor]:
    """Threads that do not outlive an error."""
    pool = ThreadPoolExecutor(_THREADS)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def load(path: str, parallel: bool = True, check: bool = True) -> Any:
    """Read the state dict in a checkpoint file, and check it against its checksums, if any."""
    with _naming_damage(path) as sizes, sources.open_source(path) as source:
        sizes.append(source.size)
        decoded, sums = _decode(path, source, check)
        with bar(f"restore {os.path.basename(path)}", source.size) as advance:
            _fill(source, decoded, sums, parallel, advance, keep=True)
        return decoded.tree


def verify(path: str) -> None:
    """Raise an error if a checkpoint file cannot be restored; the data is not kept in memory."""
    with _naming_damage(path) as sizes, sources.open_source(path) as source:
        sizes.append(source.size)
        decoded, sums = _decode(path, source, True)
        if sums is not None:
            _fill(source, decoded, sums, True, lambda count: None, keep=False)


@contextlib.contextmanager
def _naming_damage(path: str) -> Iterator[list[int]]:
    """Turn errors caused by the contents of a file into an error that names the file."""
    size: list[int] = []
    try:
        yield size
    except (ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (errno.EIO, errno.ELOOP):
            raise
        length = f" ({size[0]} bytes)" if size else ""
        raise errors.CorruptedCheckpointError(path, f"{message(error)}{length}") from error


def _decode(
    path: str, source: sources.FileSource, check: bool
) -> tuple[stream_decoder.Decoded, checksums.Sums | None]:
    """The tree with empty arrays, and the expected checksums of their data."""
    sums = checksums.read(path, source) if check else None
    if sums is not None and sums.size != source.size:
        raise ValueError(f"it had {sums.size} bytes when it was saved")
    decoded = stream_decoder.decode(source, with_sums=sums is not None)
    if sums is None:
        return decoded, None
    problem = checksums.difference(sums, decoded.rest)
    if problem is None and len(sums.arrays) != len(decoded.placements):
        problem = f"it has {len(decoded.placements)} arrays, {len(sums.arrays)} were saved"
    if problem is not None:
        raise ValueError(problem)
    return decoded, sums


def _fill(
    source: sources.FileSource, decoded: stream_decoder.Decoded, sums: checksums.Sums | None,
    parallel: bool, advance: Advance, keep: bool,
) -> None:  # fmt: skip
    """Read the data of the arrays; raise a ValueError that names arrays that have changed."""
    size = sums.block if sums is not None else checksums.BLOCK
    with _pool() as pool:
        reader = _Reader(source, size, pool if parallel else None, advance, keep)
        for i, placement in enumerate(decoded.placements):
            reader.take(placement, sums.arrays[i] if sums is not None else None)
        reader.wait()
    if reader.damaged:
        raise ValueError(checksums.damaged_arrays(reader.damaged))
    stream_decoder.finish(decoded)


class _Reader:
    """Reads arrays block by block and compares checksums; large ones in the pool's threads."""

    def __init__(
        self, source: sources.FileSource, size: int, pool: ThreadPoolExecutor | None,
        advance: Advance, keep: bool,
    ) -> None:
        self.source, self.size, self.pool = source, size, pool
        self.advance, self.keep = advance, keep
        self.damaged: list[checksums.ArraySums] = []
        self.waiting: list[tuple[Any, int, Future[bool]]] = []

    def take(self, placement: stream_decoder.Placement, sums: checksums.ArraySums | None) -> None:
        """Read the data of one array, or start reading it in the threads."""
        if placement.is_filled and placement.array.nbytes <= self.size:
            right = sums is None or sums.crc32 == [placement.crc32]
            self._note(sums, placement.array.nbytes, right)
            return
        memory = placement.memory
        if memory.size <= min(_SMALL, self.size):
            self._take_block(sums, 0, placement.offset, memory, None)
            return
        width = placement.array.dtype.itemsize
        length = max(1, self.size // width) * width  # blocks hold whole elements
        starts = range(0, memory.size, length)
        if sums is not None and len(sums.crc32) != len(starts):
            raise ValueError(f"its array {sums} has {memory.size} bytes")
        for i, start in enumerate(starts):
            block = memory[start : start + length]
            self._take_block(sums, i, placement.offset + start, block, self.pool)

    def _take_block(
        self, sums: checksums.ArraySums | None, i: int, offset: int, block: np.ndarray,
        pool: ThreadPoolExecutor | None,
    ) -> None:
        want = None if sums is None else sums.crc32[i]
        if pool is None:
            self._note(sums, block.size, self._read(offset, block, want))
        else:
            task = pool.submit(self._read, offset, block, want)
            self.waiting.append((sums, block.size, task))

    def wait(self) -> None:
        """Wait for the threads."""
        for sums, count, task in self.waiting:
            self._note(sums, count, task.result())

    def _read(self, offset: int, memory: np.ndarray, want: int | None) -> bool:
        memory = memory if self.keep else np.empty_like(memory)
        self.source.read_into(offset, memory)
        return want is None or zlib.crc32(memory.data) == want

    def _note(self, sums: checksums.ArraySums | None, count: int, right: bool) -> None:
        self.advance(count)
        if not right and sums is not None:
            self.damaged.append(sums)
